"""The activities a worker runs: idempotent I/O. They import `holdfast`; `worker.py` hands them what they need.

Importing this package loads none of them: the CLI reads the stores, and needs no LLM client for it.
"""
