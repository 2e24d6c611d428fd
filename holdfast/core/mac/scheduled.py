"""Ids of what a schedule starts: the launcher's workflow id, the place that it is sealed for, and the run's thread id.

1. Temporal starts a schedule's workflow under the id `PREFIX-TIME`: the prefix that the schedule has, and the time that
   it was due. So the input can be sealed for the prefix only: that prefix is the place of all launchers of a schedule.
2. No thread's id begins with the prefix, or two threads could share a place.
"""

import re

LAUNCHER = "holdfast-schedule/"
"""The beginning of the ids of launchers."""

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
"""How Temporal writes the time that a run was due, in UTC."""

_LAUNCHED = re.compile(rf"{re.escape(LAUNCHER)}(?P<thread>(?P<name>.+)-{TIME})", re.DOTALL)


def launcher_prefix(schedule: str) -> str:
    """Return the prefix of the workflow ids of a schedule's launchers: the place of their input."""
    return LAUNCHER + schedule


def place_id(workflow_id: str) -> str:
    """Return the id that values of a workflow are sealed for: its own, and of a launcher that of its schedule."""
    found = _LAUNCHED.fullmatch(workflow_id)
    return launcher_prefix(found["name"]) if found else workflow_id


def launched(workflow_id: str) -> tuple[str, str] | None:
    """Return the schedule's name and the run's thread id; None if Temporal started no launcher under this id."""
    found = _LAUNCHED.fullmatch(workflow_id)
    return (found["name"], found["thread"]) if found else None
