"""The activities that a worker runs: idempotent I/O, implemented with `holdfast.runtime`.

`holdfast.stubs` declares them for workflows; `worker.py` constructs and registers them.
"""
