"""Backup and retention: back up and restore the database and artifacts, remove a thread's content, and prune on a
schedule.

`holdfast.storage` has the statements on the tables; this package joins them with files and with Temporal.
"""
