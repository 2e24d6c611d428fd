"""Memory in a workspace: the agent's own files, its tools for them, recall for the prompt, and git underneath.

File formats are in `holdfast.core.memory`; `holdfast.storage` stores semantic memory.
"""
