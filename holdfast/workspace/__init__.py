"""The workspace of a run: file tools, shell commands and their sandbox, and file access confined to the folder.

`holdfast.workspace.memory` owns memory files and git.
"""
