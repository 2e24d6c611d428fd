"""The plan of a worker's stops: the files through which the supervisor and the worker communicate.

The supervisor writes `plan.json`. A worker that reaches a boundary of the plan appends a line to `stops` and stops
itself with SIGSTOP: it is frozen until the supervisor kills or resumes it.
"""

import os
import signal
import threading
from pathlib import Path

from holdfast.core.base.models import Frozen

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
"""Each of these has a boundary before and after it: activities, events, a tool's function, continue-as-new."""

BOUNDARIES = tuple(f"{moment} {place}" for place in PLACES for moment in ("before", "after"))
"""Every boundary of the matrix. All other activities and events (`holdfast.core.log.events`) have both as well.

- before an activity: it has started and done nothing. After: it has returned, and Temporal has no result yet.
- before an event: the workflow task that records it is lost. After: it is recorded, and nothing has followed.
- before `effect`: the intent is in the ledger. After: the tool has returned, and the ledger has no result yet.
"""

INTERVENTIONS = ("run_paused", "run_resumed", "dormancy_began", "wake_received", "task_refined", "message_taken")
"""Events of a run with sleeps and interventions (`KillMatrix.survive(intervene=True)`)."""

INTERVENTION_BOUNDARIES = tuple(f"{moment} {place}" for place in INTERVENTIONS for moment in ("before", "after"))
"""Boundaries that only such a run reaches."""


class Plan(Frozen):
    """The points at which a worker stops."""

    boundaries: tuple[str, ...] = ()
    """`before …` and `after …`; empty for every boundary."""
    skip: int = 0
    """The number of matching boundaries that each worker process passes before it stops at one."""
    most: int | None = None
    """The maximum number of stops of all worker processes in total; None for one at each place."""


class Stop(Frozen):
    """A stop of a worker."""

    boundary: str
    place: str
    """The place in the run: the thread, with the event's position, the effect's key or the activity."""
    pid: int


class Stopper:
    """Stops this worker process at the boundaries of the plan.

    Args:
        folder: The folder with the plan.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._passed = 0

    def reached(self, boundary: str, place: str) -> None:
        """Stop the process if the plan has this boundary."""
        with self._lock:
            if not self._is_due(boundary, place):
                return
            stop = Stop(boundary=boundary, place=place, pid=os.getpid())
            with (self._folder / "stops").open("a") as stops:
                stops.write(stop.model_dump_json() + "\n")
        os.kill(stop.pid, signal.SIGSTOP)

    def plans(self, boundary: str) -> bool:
        """Return whether the plan has this boundary, and a stop is left."""
        plan = read_plan(self._folder)
        if plan is None or (plan.boundaries and boundary not in plan.boundaries):
            return False
        return plan.most is None or len(read_stops(self._folder)) < plan.most

    def _is_due(self, boundary: str, place: str) -> bool:
        if not self.plans(boundary):
            return False
        plan, stops = read_plan(self._folder), read_stops(self._folder)
        if plan is None or any((stop.boundary, stop.place) == (boundary, place) for stop in stops):
            return False
        self._passed += 1
        return self._passed > plan.skip


def read_plan(folder: Path) -> Plan | None:
    """Return the plan; None if there is none."""
    try:
        return Plan.model_validate_json((folder / "plan.json").read_bytes())
    except FileNotFoundError:
        return None


def write_plan(folder: Path, plan: Plan | None) -> None:
    """Replace the plan and delete the recorded stops; None for no more stops."""
    (folder / "plan.json").unlink(missing_ok=True)
    (folder / "stops").unlink(missing_ok=True)
    if plan:
        draft = folder / "plan.draft"
        draft.write_text(plan.model_dump_json())
        draft.replace(folder / "plan.json")


def read_stops(folder: Path) -> list[Stop]:
    """Return the stops of workers since the plan was written, oldest first."""
    try:
        lines = (folder / "stops").read_text().splitlines()
    except FileNotFoundError:
        return []
    return [Stop.model_validate_json(line) for line in lines]
