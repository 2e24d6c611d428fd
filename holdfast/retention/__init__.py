"""Keep and forget: backups of the database and of artifacts, restoring them, removing a thread's content, and pruning
on a schedule.

`holdfast.storage` has the statements on the tables; this package joins them with files and with Temporal.
"""
