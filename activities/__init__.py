"""The activities that a worker runs: idempotent I/O, implemented with the rooms of `holdfast`.

Workflows call them by the table in `holdfast.core.run.contracts.table`; `assembly` constructs and registers them.
"""
