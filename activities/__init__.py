"""The activities that a worker runs: idempotent I/O, implemented with `holdfast.runtime`.

Workflows call them by the table in `holdfast.run.activities`; `assembly` constructs and registers them.
"""
