"""Workers, schedules and loops for display."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from holdfast.client.workers import Poller
from holdfast.core.base.durations import rounded_span
from holdfast.gateway.page.views.runs import Fact, css_class
from holdfast.gateway.page.views.text import When, line, when

JSON = Mapping[str, Any]


class WorkerRow(NamedTuple):
    """A worker."""

    identity: str
    version: str
    polled: When | None
    remark: str
    """Why its version matters; empty if it is this gateway's."""


class ScheduleRow(NamedTuple):
    """A schedule."""

    name: str
    times: str
    task: str
    state: str
    next: When | None
    counts: str
    problem: str


class LoopRow(NamedTuple):
    """A loop."""

    name: str
    status: str
    status_words: str
    task: str
    iterations: int
    started: When | None


def service_facts(server: str, record: bool | str, *, namespace: str, queue: str, own: str) -> tuple[Fact, ...]:
    """Return the state of the services behind the page.

    Args:
        server: The version of the Temporal server, or why it is unknown.
        record: Whether there is a permanent record, or why it cannot be read.
        namespace: The namespace.
        queue: The task queue of new runs.
        own: The release that this gateway runs.
    """
    words = {True: "answers", False: "none: set DATABASE_URL as the workers have it"}
    return (
        Fact("Gateway", f"Holdfast {own}"),
        Fact("Temporal", line(f"server {server}" if server[:1].isdigit() else server, 300)),
        Fact("Namespace", line(namespace)),
        Fact("Task queue", line(queue)),
        Fact("Permanent record", line(record if isinstance(record, str) else words[record], 400)),
    )


def worker_row(worker: Poller, now: datetime, own: str) -> WorkerRow:
    """Return a worker for display; `own` is the release that this gateway runs."""
    remark = "" if worker.version == own else f"this gateway runs {own}"
    return WorkerRow(
        line(worker.identity), line(worker.version or "unknown"), when(worker.polled_at, now), remark if own else ""
    )


def schedule_row(state: JSON, now: datetime) -> ScheduleRow:
    """Return a schedule for display; `state` is as `schedule list --json` presents it."""
    every = state.get("every")
    times = f"{state['cron']} ({state.get('tz')})" if state.get("cron") else f"every {rounded_span(float(every or 0))}"
    counts = (
        f"{state.get('started', 0):,} started, {state.get('skipped', 0):,} skipped, {state.get('missed', 0):,} missed"
    )
    paused = f"paused: {state.get('note') or 'no reason given'}"
    return ScheduleRow(
        line(state["schedule"], 300),
        line(times),
        line(state.get("task") or "", 160),
        line(paused if state.get("paused") else "active", 300),
        when(next(iter(state.get("next") or ()), None), now),
        counts,
        line(state.get("problem") or "", 400),
    )


def loop_row(row: JSON, now: datetime) -> LoopRow:
    """Return a loop for display; `row` is one of a list of threads."""
    status = str(row["status"])
    return LoopRow(
        line(row["thread"], 300),
        css_class(status),
        line(status.replace("_", " ")),
        line(row.get("task") or "", 160),
        int(row.get("step") or 0),
        when(row.get("started_at"), now),
    )
