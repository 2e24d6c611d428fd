"""Tools that every worker can offer: semantic memory, skills, and artifacts.

File and memory tools of a workspace are in `holdfast.runtime`.
"""
