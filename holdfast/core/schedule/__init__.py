"""Scheduled runs: the input of the launcher that a schedule starts, the rules by which it starts a run, and cron.

`workflows/scheduled_run.py` is the launcher; `holdfast.client.schedules` makes and reads schedules.
"""
