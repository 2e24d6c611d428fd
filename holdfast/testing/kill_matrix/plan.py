"""Where a doomed worker stops, to be killed there: what the supervisor and the worker tell each other, in one folder.

The supervisor writes `plan.json`. A worker that comes to a boundary of the plan adds a line to `stops`, and stops
itself with SIGSTOP: from then on it does nothing at all, until somebody outside kills it or lets it go on.
"""

import os
import signal
import threading
from pathlib import Path

from holdfast.base.models import Frozen

PLACES = (
    "load_agent",
    "call_llm",
    "verdict_given",
    "approval_requested",
    "decision_received",
    "tool_call_started",
    "call_tool",
    "effect",
    "reconcile_requested",
    "tool_call_finished",
    "archive",
    "continue_as_new",
    "run_finished",
)
"""What has a boundary before and one after it: activities, events, a tool's function, continue-as-new."""

BOUNDARIES = tuple(f"{moment} {place}" for place in PLACES for moment in ("before", "after"))
"""Every boundary of the matrix. Any other activity and any other event (`holdfast.log.events`) has two as well.

- before an activity: it has begun, and done nothing. After: it has returned, and Temporal does not know.
- before an event: the workflow task that records it is lost. After: it is recorded, and nothing has followed.
- before `effect`: the intent is in the ledger. After: the tool has returned, and the ledger does not know.
"""


class Plan(Frozen):
    """Where to stop."""

    boundaries: tuple[str, ...] = ()
    """`before …` and `after …`; empty for any."""
    skip: int = 0
    """How many boundaries that fit each worker process passes first."""
    most: int | None = None
    """Stop so often, all worker processes together; None for once at each place."""


class Stop(Frozen):
    """A worker has stopped."""

    boundary: str
    place: str
    """What exactly was about to happen or has happened: the thread, and the event's position, the effect's key or the
    activity."""
    pid: int


class Doom:
    """The worker's side.

    Args:
        folder: Where the plan is.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._passed = 0

    def passing(self, boundary: str, place: str) -> None:
        """Stop here, if the plan says so."""
        with self._lock:
            if not self._is_due(boundary, place):
                return
            stop = Stop(boundary=boundary, place=place, pid=os.getpid())
            with (self._folder / "stops").open("a") as stops:
                stops.write(stop.model_dump_json() + "\n")
        os.kill(stop.pid, signal.SIGSTOP)

    def _is_due(self, boundary: str, place: str) -> bool:
        plan = read_plan(self._folder)
        if plan is None or (plan.boundaries and boundary not in plan.boundaries):
            return False
        stops = read_stops(self._folder)
        if plan.most is not None and len(stops) >= plan.most:
            return False
        if any((stop.boundary, stop.place) == (boundary, place) for stop in stops):
            return False
        self._passed += 1
        return self._passed > plan.skip


def read_plan(folder: Path) -> Plan | None:
    """The plan, if there is one."""
    try:
        return Plan.model_validate_json((folder / "plan.json").read_bytes())
    except FileNotFoundError:
        return None


def write_plan(folder: Path, plan: Plan | None) -> None:
    """Put a plan in the place of the last one, and forget where workers stopped; None to let them live."""
    (folder / "plan.json").unlink(missing_ok=True)
    (folder / "stops").unlink(missing_ok=True)
    if plan:
        draft = folder / "plan.draft"
        draft.write_text(plan.model_dump_json())
        draft.replace(folder / "plan.json")


def read_stops(folder: Path) -> list[Stop]:
    """Where workers have stopped since the plan was written, oldest first."""
    try:
        lines = (folder / "stops").read_text().splitlines()
    except FileNotFoundError:
        return []
    return [Stop.model_validate_json(line) for line in lines]
