"""Tools that every worker can offer: semantic memory, skills, and artifacts.

The file and memory tools of a workspace are in `holdfast.runtime`.
"""
