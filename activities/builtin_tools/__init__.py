"""Tools that every worker can offer: semantic memory, skills, artifacts, and what a run keeps in its workspace.

The tools for files are in `holdfast.workspace`.
"""
