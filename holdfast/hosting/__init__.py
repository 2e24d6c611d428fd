"""Agents in a program: puts workflows and activities together into a worker, and runs it in any process and event loop.

`worker.py`, `holdfast.running` and tests all build their worker here. What a process does to itself (signals, logging,
its exit code) stays in `holdfast.worker.process`.
"""
