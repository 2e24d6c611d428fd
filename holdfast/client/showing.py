"""Present a thread as `show` and the gateway do, and compare two threads.

A presented thread has its state, a summary of its last events, and how it continues. Only its last events are read for
that, however long it is.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from temporalio.client import WorkflowExecutionDescription

from holdfast.client.reading.reader import Note
from holdfast.client.reading.recent import errors_in, last_event, last_rejection, running_calls
from holdfast.client.reading.runs import PAUSED, UNAUTHENTICATED
from holdfast.client.reading.states import CLOSED, decode_lines
from holdfast.client.threads import JSON, Threads
from holdfast.config.programs import CLI, WORKER
from holdfast.core.log.events import AgentEvent
from holdfast.core.run.views.diff import Comparison, compare
from holdfast.core.stores import origin_of
from holdfast.errors import EventsMissing, HoldfastError, PositionInvalid

RECENT_EVENTS = 200
"""Number of last events to read."""


@dataclass(frozen=True)
class ThreadView:
    """A thread, as `show` presents it."""

    view: JSON
    """Its state, with `running`, `last_event`, `errors`, `continue`, and `unanswered`: why no worker answered, so that
    all of this is read from the history of an open run; None if one did."""
    last: JSON | None
    """Its last event; None if it has none or it cannot be read."""


async def show_thread(
    threads: Threads, thread: str, *, found: WorkflowExecutionDescription | None = None, note: Note
) -> ThreadView:
    """Return a thread as `show` presents it now, with or without a worker.

    Args:
        threads: Reads the thread.
        thread: The thread id.
        found: The latest run's description, if the caller already has it.
        note: Called with a message when no worker answers, or when part of the log cannot be read.
    """
    silence: list[str] = []
    view = await threads.state(thread, found=found, note=silence.append)
    for words in silence:
        note(words)
    if foreign := threads.reader.ownership.foreign(thread):
        note(str(foreign))
    events: Sequence[JSON] = ()
    try:
        if view["status"] != UNAUTHENTICATED:
            events = await _last_events(threads, view, found, use_worker=not silence)
    except HoldfastError as error:
        note(f"Some of the log cannot be read: {error}")
    idle = bool(silence) or view["status"] in (*CLOSED, UNAUTHENTICATED)
    view |= {
        "running": [] if idle else running_calls(events),
        "last_event": last_event(events),
        "errors": errors_in(events),
        "continue": continuation(view, silent=bool(silence), sealed=threads.sealed),
        "unanswered": silence[0] if silence else None,
    }
    if (blocked := view["blocked"]) and (reason := last_rejection(events)):
        view["blocked"] = {**blocked, "reason": reason}
    return ThreadView(view, events[-1] if events else None)


def continuation(view: JSON, *, silent: bool, sealed: bool) -> JSON:
    """Return how a thread continues: `command`, or None if there is none, and `why`.

    Args:
        view: The thread's state.
        silent: Whether its run is open and no worker answers.
        sealed: Whether this process has the fleet key.
    """
    thread, status = view["thread"], view["status"]
    if origin := archive_origin(view):
        return _continue(None, f"a reset of {origin} abandoned this log: no run continues it")
    if status == UNAUTHENTICATED:
        return _continue(CLI.command("verify", thread), "it is not a run of this fleet: find out who has made it")
    if origin_of(thread):
        return _continue(CLI.command("start", "TASK"), "its id is reserved for what resets leave behind")
    if status == "moved":
        return _continue(None, "it continues in another place; only an import of its file continues it here")
    if status in CLOSED and not sealed:
        return _continue(None, "only a process with the fleet key can continue it: set HOLDFAST_FLEET_KEYS")
    if status in CLOSED:
        return _continue(CLI.command("start", "TASK", "--thread", thread), "the run is over; another one continues it")
    if status == PAUSED:
        return _continue(f"temporal workflow unpause -w {thread}", "somebody paused it in Temporal")
    match status:
        case "paused":
            return _continue(CLI.command("resume", thread), "a person paused it")
        case "blocked":
            return _continue(CLI.command("retry", thread), "once its cause is fixed")
        case "waiting_message":
            return _continue(CLI.command("say", thread, "MESSAGE"), "it is open for a message")
        case "waiting_approval":
            return _continue(CLI.command("pending", thread), "a person has to decide")
        case "dormant":
            return _continue(CLI.command("wake", thread), "it sleeps, and continues by itself when that comes")
        case _ if silent:
            return _continue(WORKER.command(), "it continues when a worker runs")
        case _ if view.get("retrying"):
            return _continue(None, "it continues when the call that is retried succeeds: see why it fails")
        case _:
            return _continue(None, "nothing to do: it continues by itself")


def archive_origin(view: JSON) -> str | None:
    """Return the thread whose reset archived this log; None for any other log, and for a start under such an id that
    failed before an agent was loaded.
    """
    origin = origin_of(view["thread"])
    return None if origin and view["status"] == "failed" and not view["agent"] else origin


def _continue(command: str | None, why: str) -> JSON:
    return {"command": command, "why": why}


async def _last_events(
    threads: Threads, view: JSON, found: WorkflowExecutionDescription | None, *, use_worker: bool
) -> Sequence[JSON]:
    """Return the last events of a thread that can be read."""

    async def read(start: int) -> list[JSON]:
        lines = threads.reader.lines(view["thread"], start, found=found, note=lambda _: None, use_worker=use_worker)
        return [json.loads(line) async for line in lines]

    try:
        return await read(max(0, view["events"] - RECENT_EVENTS))
    except EventsMissing as error:  # they belong to earlier Temporal runs; running calls were started by this one
        return await read(error.stop or view["events"])


_AT = re.compile(r"(.+)@(\d{1,9})", re.ASCII | re.DOTALL)


def parse_place(text: str) -> tuple[str, int | None]:
    """Return the thread and the position that `THREAD@N` names; the position is None if there is no `@N`."""
    match = _AT.fullmatch(text)
    return (match[1], int(match[2])) if match else (text, None)


async def events_up_to(threads: Threads, thread: str, at: int | None, *, note: Note | None = None) -> list[AgentEvent]:
    """Return a thread's events up to and including a position; all of them for None.

    Raises:
        PositionInvalid: There is no such event.
        ThreadNotFound: There is no such thread.
        EventsMissing: Some of them can no longer be read.
    """
    events: list[AgentEvent] = []
    async for event in decode_lines(threads.reader.lines(thread, 0, found=None, note=note)):
        events.append(event)
        if event.position == at:
            return events
    if at is not None:
        raise PositionInvalid(
            f"thread {thread!r} has no event {at}: its events are at positions 0 to {len(events) - 1}"
        )
    return events


async def compare_threads(
    threads: Threads, first: tuple[str, int | None], second: tuple[str, int | None], *, note: Note | None = None
) -> Comparison:
    """Compare two threads, each up to a position or as a whole.

    Raises:
        PositionInvalid: A thread has no such event.
        ThreadNotFound: There is no such thread.
        EventsMissing: Some of the events can no longer be read.
    """
    one = await events_up_to(threads, *first, note=note)
    return compare(one, await events_up_to(threads, *second, note=note))
