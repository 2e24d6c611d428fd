"""The workspace of a run: file tools, shell commands and their sandbox, and access that never leaves the folder.

Memory files and git are `holdfast.runtime.memory`.
"""
