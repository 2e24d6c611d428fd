"""Scheduled runs: the input of the launcher that a schedule starts, and the rules by which it starts a run.

`workflows/scheduled_run.py` is the launcher; `holdfast.client.schedules` makes and reads schedules.
"""
