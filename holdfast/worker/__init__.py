"""A worker process: its options for Temporal, redaction of errors, and a shutdown that cannot hang.

Its activities and workflows are the caller's: `worker.py` passes them.
"""
