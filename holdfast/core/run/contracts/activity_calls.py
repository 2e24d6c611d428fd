"""Calls of activities that other workers have, in any language, as tools (`holdfast.activity_tool`).

A small workflow makes each call: its id derives from the effect key, so the activity is called once, however often the
tool is attempted, and a call outlives the worker that made it.
"""

from typing import Any

from holdfast.core.base.models import Sealed
from holdfast.core.mac.starts import Start

ACTIVITY_CALL_WORKFLOW = "ActivityCallWorkflow"

PREFIX = "holdfast-activity/"
"""The beginning of the ids of these workflows."""


class ActivityCall(Start):
    """The input of `ActivityCallWorkflow`; only a sealed start has one."""

    activity: str = ""
    """The type of the activity."""
    task_queue: str | None = None
    """The task queue of the workers that have it; None for that of the workflow."""
    arguments: tuple[Any, ...] = ()
    """Its arguments, as JSON."""
    seconds: float = 0
    """How long all attempts together may take."""
    heartbeat: float | None = None
    """Seconds without a heartbeat after which an attempt is given up; None for an activity that sends none."""
    once: bool = True
    """Attempt it once: a second attempt could have its effect twice."""


class ActivityCalled(Sealed):
    """The result of `ActivityCallWorkflow`."""

    result: Any = None
    """The activity's result, as JSON."""
    error: str = ""
    """Why it has none; empty if it has one."""
    kind: str = ""
    """The type of the error."""
    begun: bool = True
    """A worker may have begun the activity."""


def call_id(key: str, number: int) -> str:
    """Return the id of the workflow that makes the nth call for an effect.

    Args:
        key: The effect key of the tool call.
        number: Counted from 1: another call follows one that has failed.
    """
    return f"{PREFIX}{key}" if number == 1 else f"{PREFIX}{key}-{number}"
