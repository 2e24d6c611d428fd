"""Telemetry: traces from the log, metrics of workers, and a hook for each event.

All of it reads the log or observes a worker from outside: nothing that it loses or delays changes a run.
"""
