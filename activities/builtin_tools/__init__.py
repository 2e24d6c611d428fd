"""Tools that every worker can offer: semantic memory, skills, artifacts, dormancy, and notes in the workspace.

The tools for files are in `holdfast.workspace`.
"""
