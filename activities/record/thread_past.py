"""Reads a thread's past, also for a fork: from the permanent record, or from Temporal's histories if it has less.

The lines with which a fork begins are those of another thread, byte for byte, up to the fork's point.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from holdfast.activities.calling_run import converter_of
from holdfast.client.reading.executions import own_client
from holdfast.client.reading.histories import previous_run_of
from holdfast.core.base.canonical import GENESIS, parse_json
from holdfast.core.log.event_log import digest_of_line, event_line
from holdfast.core.log.events import AgentEvent
from holdfast.core.log.fork_point import ForkPoint
from holdfast.core.log.references import artifacts_of
from holdfast.core.log.stored_lines import read_lines, run_events
from holdfast.core.log.upcasters import decode_stored
from holdfast.core.run.contracts.error_types import RECORD_UNREADABLE, START_REFUSED
from holdfast.core.stores import ArtifactStore, SharesArtifacts, ThreadStore
from holdfast.core.temporal.encrypted import decrypt_in_place
from holdfast.core.temporal.history_reader import read_events
from holdfast.errors import HistoryUnreadable, RecordUnreadable

_BEGIN_OR_END: Final = ("run_started", "run_forked", "run_imported", "run_finished")


Past = Callable[[str, int], Awaitable[list[AgentEvent]]]
"""Reads a thread's events from Temporal's histories: its id, and the position from which the record lacks them."""


async def read_thread(store: ThreadStore, thread: str, start: int = 0, stop: int | None = None) -> list[AgentEvent]:
    """Read and check the recorded events of a thread, from position `start` up to `stop`.

    Raises:
        RecordUnreadable: An event cannot be decoded, or was altered.
    """
    events: list[AgentEvent] = []
    head: str | None = None
    while stop is None or start + len(events) < stop:
        lines = await store.read(thread, start + len(events))
        if not lines:
            break
        page = await asyncio.to_thread(read_lines, thread, start + len(events), lines, head=head)
        events += run_events(thread, page)
        head = events[-1].digest
    return events if stop is None else events[: stop - start]


async def begins_and_ends(store: ThreadStore, thread: str, start: int = 0) -> list[str]:
    """Return how runs of a thread began and ended, from position `start` on: event types, and for an end its outcome.

    Raises:
        ThreadForgotten: Its content was removed.
    """
    types: list[str] = []
    while lines := await store.read(thread, start):
        events = map(json.loads, lines)
        types += [str(each.get("outcome") or each["type"]) for each in events if each["type"] in _BEGIN_OR_END]
        start += len(lines)
    return types


async def events_of_run(thread: str, run_id: str) -> tuple[list[AgentEvent], str | None]:
    """Return the events in a run's history, and the id of the thread's run before it.

    Raises:
        RPCError: Temporal does not have the history, or is unavailable.
        HistoryUnreadable: It is not the history of an agent run.
    """
    client = own_client()
    history = await client.get_workflow_handle(thread, run_id=run_id).fetch_history()
    # Check the seals: anyone with access to Temporal can run a workflow of their own under this id.
    converter = converter_of(thread)
    for event in history.events:
        await decrypt_in_place(event, converter.payload_codec)
    events = await asyncio.to_thread(read_events, history.events, by=converter.payload_converter)
    return events, previous_run_of(history.events[0])


async def events_since(thread: str, start: int) -> list[AgentEvent]:
    """Return the events of a thread from a position on, or from an earlier one; none if Temporal does not have it.

    Raises:
        RecordUnreadable: They cannot be read.
    """
    client = own_client()
    events: list[AgentEvent] = []
    try:
        run_id: str | None = (await client.get_workflow_handle(thread).describe()).run_id
        while run_id and not (events and events[0].position <= start):
            recorded, run_id = await events_of_run(thread, run_id)
            first = events[0].position if events else None
            events = [event for event in recorded if first is None or event.position < first] + events
    except HistoryUnreadable as error:
        raise RecordUnreadable(str(error)) from None
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
    return events


async def forked_lines(store: ThreadStore, point: ForkPoint, past: Past) -> list[bytes]:
    """Read the lines of a fork's original, from the first one up to the fork's point.

    Args:
        store: The permanent record.
        point: The last event that both threads have.
        past: Reads the events that the record lacks.

    Raises:
        ApplicationError: START_REFUSED or RECORD_UNREADABLE: the original no longer has these events.
    """
    stop = point.position + 1
    lines: list[bytes] = []
    try:
        while len(lines) < stop and (page := await store.read(point.thread, len(lines))):
            lines += page
        lines = lines[:stop]
        if len(lines) < stop:
            events = await past(point.thread, len(lines))
            lines += [event_line(event) for event in events if len(lines) <= event.position < stop]
    except RecordUnreadable as error:  # also if the original was forgotten
        raise ApplicationError(str(error), type=RECORD_UNREADABLE, non_retryable=True) from None
    if len(lines) < stop or json.loads(lines[-1]).get("digest") != point.head:
        message = (
            f"thread {point.thread} does not have the event {point.position} with the digest {point.head} any more: "
            "it was reset or removed; look at its log, and fork it again"
        )
        raise ApplicationError(message, type=START_REFUSED, non_retryable=True)
    return lines


def chains(lines: Sequence[bytes]) -> bool:
    """Return whether each line's digest follows from the line before, from the first one of a log on."""
    head = GENESIS
    for line in lines:
        stored = parse_json(line)
        head = digest_of_line(head, stored, line)
        if stored.get("digest") != head:
            return False
    return True


async def share_artifacts(artifacts: ArtifactStore, *, origin: str, thread: str, lines: Sequence[bytes]) -> None:
    """Let a fork refer to its original's artifacts too, so that they outlive the original.

    Args:
        artifacts: The artifact store.
        origin: The thread that has them.
        thread: The fork.
        lines: The copied events.
    """
    if isinstance(artifacts, SharesArtifacts):
        await artifacts.share(origin, thread)
        return
    events = run_events(origin, [decode_stored(line) for line in lines])
    for address in dict.fromkeys(each for event in events for each in artifacts_of(event, named=False)):
        await artifacts.put(await artifacts.get(address), thread=thread)
