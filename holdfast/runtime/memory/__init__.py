"""Memory in a workspace: the agent's own files, its tools for them, recall for the prompt, and git underneath.

File formats are in `holdfast.memory`; `holdfast.runtime.stores` stores semantic memory.
"""
