"""Memory in a workspace: the agent's own files, its tools for them, recall for the prompt, and git underneath.

File formats are `holdfast.memory`; semantic memory is kept by `holdfast.runtime.stores`.
"""
