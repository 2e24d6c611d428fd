"""Derive the state of a thread: now, or right after any of its events."""

import contextlib
from collections.abc import AsyncIterator, Iterable
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowExecutionDescription, WorkflowHistoryEventFilterType

from holdfast.client.reading.executions import is_paused
from holdfast.client.reading.histories import RecordedRun
from holdfast.client.reading.reader import Note, Reader
from holdfast.client.reading.runs import ENDED, MOVED, PAUSED, UNAUTHENTICATED, NeverRan, retrying
from holdfast.core.base.models import replace
from holdfast.core.base.text import one_line
from holdfast.core.log.event_log import has_ended
from holdfast.core.log.events import AgentEvent
from holdfast.core.log.upcasters import decode_event
from holdfast.core.run.fold.evolve import evolve
from holdfast.core.run.state.state import RunState
from holdfast.core.run.views.deciders import open_requests
from holdfast.core.run.views.status import NextStep, run_view
from holdfast.core.temporal.encrypted import decrypt_in_place
from holdfast.errors import (
    EventsMissing,
    HistoryForged,
    LogBroken,
    NoWorker,
    PositionInvalid,
    RecordUnavailable,
    RecordUnreadable,
)

CLOSED = frozenset({*ENDED.values(), MOVED})
"""The statuses of a run that has ended."""


async def state_of(
    reader: Reader,
    thread: str,
    *,
    found: WorkflowExecutionDescription | None,
    note: Note | None,
    use_worker: bool = True,
) -> dict[str, Any]:
    """Return the state of a thread now, as `show` presents it.

    The status shows if the run is paused in Temporal, was closed in Temporal from outside, or was not made by
    Holdfast's own processes.

    Args:
        reader: Reads the thread.
        thread: The thread id.
        found: The latest run's description, if the caller already has it.
        note: Called with a message when no worker answers; None to raise instead.
        use_worker: Query the worker of an open run; otherwise read only the recorded history.
    """
    found = found or await reader.find(thread)
    if found is None:
        return {**run_view(await _state_from_log(reader, thread, found, note)), "retrying": []}
    try:
        return await _state_of_run(reader, thread, found, note, use_worker=use_worker)
    except HistoryForged as error:
        return _unauthenticated(thread, found, str(error))


def _unauthenticated(thread: str, found: WorkflowExecutionDescription, why: str) -> dict[str, Any]:
    """Return the state of a run that Holdfast's own processes did not make, without any of its own claims."""
    view = run_view(RunState(thread=thread)) | {"status": UNAUTHENTICATED, "now": "is not a run of this fleet"}
    if found.status in ENDED:
        view["lifecycle"] = "terminated"
    warning = f"our own processes did not make this run, so nothing that it says counts: {one_line(why, 1_000)}"
    return {**view, "next": [], "warning": warning, "retrying": []}


async def _state_of_run(
    reader: Reader, thread: str, found: WorkflowExecutionDescription, note: Note | None, *, use_worker: bool
) -> dict[str, Any]:
    """Return the state of a thread according to its latest run.

    Raises:
        HistoryForged: The run was not made by Holdfast's own processes.
    """
    run, view, closed = None, None, found.run_id if found.status in ENDED else None
    if closed:
        run = await reader.closed_history(found)
    elif not use_worker:
        run = await reader.history(found)
    if run is None:
        try:
            view = await reader.runs.query(thread, "state", run_id=closed)
        except NeverRan:
            view = run_view(RunState(thread=thread))
        except NoWorker as silence:
            run = await reader.history_instead(thread, silence, note)
    if run is not None and (run.log or found.status not in ENDED):
        view = run_view(_state_from_run(thread, run))
    elif run is not None:  # closed before it loaded the thread's past, perhaps because that is unreadable
        view = run_view(RunState(thread=thread))
        with contextlib.suppress(EventsMissing, LogBroken, RecordUnavailable, RecordUnreadable):
            view = run_view(await _state_from_log(reader, thread, found, note))
    assert view is not None
    if is_paused(found):
        then = f"it {view.get('now', 'continues')}"
        unpaused = NextStep(when="somebody unpauses it in Temporal", then=then).model_dump()
        view |= {"status": PAUSED, "now": "is paused in Temporal", "next": [unpaused]}
    ended = ENDED.get(found.status) if found.status else None
    kinds = (event.type for event in reversed(run.log)) if run else ()
    recorded = has_ended(kinds) if run and run.log else run is None and view["status"] in CLOSED
    # A run that was moved and then reset ends as moved again and records nothing.
    recorded |= ended == "completed" and view["status"] == MOVED
    if ended == "completed" and not recorded:
        words = "Temporal has it as completed, and nothing that is recorded leads to that"
        raise HistoryForged(f"{words}: somebody else has answered for its worker")
    if ended and not recorded:
        view |= {"status": ended, "pending": [], "blocked": None, "result": await why_closed(reader, found)}
        view |= {"lifecycle": "terminated", "now": "was closed in Temporal", "next": []}
    # A run that was rejected before it began has no thread in its own state.
    return {**view, "thread": thread, "retrying": [each.view() for each in retrying(found)]}


async def pending_of(
    reader: Reader, thread: str, *, note: Note | None, use_worker: bool = True
) -> list[dict[str, Any]]:
    """Return the open requests of a thread, as `pending` presents them.

    Args:
        reader: Reads the thread.
        thread: The thread id.
        note: Called with a message when no worker answers; None to raise instead.
        use_worker: Query the worker; otherwise read only the recorded history.
    """
    found = await reader.find(thread)
    if found is None or found.status in ENDED:
        return []
    if not use_worker:
        run = await reader.history(found)
    else:
        try:
            requests: list[dict[str, Any]] = await reader.runs.query(thread, "pending_approvals")
        except NoWorker as silence:
            run = await reader.history_instead(thread, silence, note)
        else:
            return requests
    state = _state_from_run(thread, run)
    return [] if state.outcome else open_requests(state)


async def state_at(reader: Reader, thread: str, position: int, *, note: Note | None) -> dict[str, Any]:
    """Return the state right after the event at `position`.

    Raises:
        PositionInvalid: There is no such event.
    """
    state = RunState(thread=thread)
    async for event in decode_lines(reader.lines(thread, 0, found=None, note=note)):
        state = evolve(state, event)
        if event.position == position:
            return run_view(state)
    last = state.events - 1
    has = f"its events are at positions 0 to {last}" if last >= 0 else "it has no events yet"
    raise PositionInvalid(f"thread {thread!r} has no event {position}: {has}")


async def decode_lines(lines: AsyncIterator[bytes]) -> AsyncIterator[AgentEvent]:
    """Decode events from their lines, and upcast those of older releases."""
    async for line in lines:
        yield decode_event(line)


async def _state_from_log(
    reader: Reader, thread: str, found: WorkflowExecutionDescription | None, note: Note | None
) -> RunState:
    """Fold all events of a thread."""
    state = RunState(thread=thread)
    async for event in decode_lines(reader.lines(thread, 0, found=found, note=note)):
        state = evolve(state, event)
    return state


def _state_from_run(thread: str, run: RecordedRun) -> RunState:
    """Return the state that a run's history leads to, starting from the run's first snapshot."""
    begun = run.begin.state
    if not run.log and begun.outcome:  # it is about to continue an ended thread
        begun = RunState()
    return _fold(begun if begun.thread else replace(begun, thread=thread), run.log)  # a fork begins as its source


def _fold(state: RunState, events: Iterable[AgentEvent]) -> RunState:
    for event in events:
        state = evolve(state, event)
    return state


async def why_closed(reader: Reader, found: WorkflowExecutionDescription) -> str:
    """Return why a run is closed that did not record its own end."""
    run = reader.runs.client.get_workflow_handle(found.id, run_id=found.run_id)
    async for event in run.fetch_history_events(event_filter_type=WorkflowHistoryEventFilterType.CLOSE_EVENT):
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED:
            await decrypt_in_place(event, reader.runs.client.data_converter.payload_codec)
            failure = event.workflow_execution_failed_event_attributes.failure
            return f"the run failed before it started: {one_line(failure.message, 1_000)}"
    how = found.status.name.lower() if found.status else "closed"
    return f"the run was closed from outside in Temporal ({how}); the Web UI shows by whom"
