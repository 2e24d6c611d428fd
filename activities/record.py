"""`archive` and `load_thread`: the calling workflow's events to and from the permanent record."""

import asyncio
import json
from collections.abc import Callable

import structlog
from temporalio import activity
from temporalio.client import WorkflowHandle
from temporalio.converter import WorkflowSerializationContext
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from activities.calling import CallingRun, calling_thread
from activities.heartbeats import heartbeats
from holdfast.contracts import (
    NOT_SETTLED,
    RECORD_CONFLICT,
    RECORD_UNREADABLE,
    Archived,
    ArchiveRequest,
    LoadedThread,
    ThreadRequest,
)
from holdfast.encrypted import decrypt_in_place
from holdfast.errors import HistoryUnreadable, RecordConflict, RecordGap, RecordUnreadable
from holdfast.events import AgentEvent
from holdfast.history import read_events
from holdfast.log import event_line, has_ended
from holdfast.snapshot import snapshot_of
from holdfast.stores import SetsAside, ThreadStore, read_lines

log = structlog.get_logger(__name__)


class Record:
    """The permanent record of threads.

    Args:
        store: Where it is kept.
        forget: Called when the calling run is written down and waits.
    """

    def __init__(self, store: ThreadStore, *, forget: Callable[[], None]) -> None:
        self._store = store
        self._forget = forget

    @activity.defn
    async def archive(self, request: ArchiveRequest) -> Archived:
        """See `holdfast.contracts.archive`."""
        async with heartbeats():
            return await self._archive(request)

    async def _archive(self, request: ArchiveRequest) -> Archived:
        run = CallingRun.of()
        thread = run.thread
        await self._require_base(thread, request)
        position, digest = request.start, request.base
        while position < request.stop:
            page: bytes = await run.ask("log", position)
            lines = page.split(b"\n")[: request.stop - position] if page else []
            events = read_lines(thread, position, lines, head=digest)
            if not events:
                message = f"thread {thread}: event {position} is not settled yet"
                raise ApplicationError(message, type=NOT_SETTLED, non_retryable=True)
            await self._append(run.handle, position, lines)
            position, digest = position + len(lines), events[-1].digest
        if digest != request.head:
            message = f"thread {thread}: event {request.stop - 1} has the digest {digest}, expected {request.head}"
            raise ApplicationError(message, type=RECORD_CONFLICT, non_retryable=True)
        if request.pausing:
            self._forget()
        return Archived(length=position)

    async def _require_base(self, thread: str, request: ArchiveRequest) -> None:
        """Refuse to continue another chain than the one that is recorded."""
        if not request.start:
            return
        if stored := await self._store.read(thread, request.start - 1):
            found = str(json.loads(stored[0])["digest"])
            if found != request.base:
                message = f"thread {thread}: the record has {found} at event {request.start - 1}, not {request.base}"
                raise ApplicationError(message, type=RECORD_CONFLICT, non_retryable=True)

    @activity.defn
    async def load_thread(self, request: ThreadRequest) -> LoadedThread:
        """See `holdfast.contracts.load_thread`."""
        thread = calling_thread()
        async with heartbeats():
            try:
                events = await read_thread(self._store, thread)
            except RecordUnreadable as error:
                raise ApplicationError(str(error), type=RECORD_UNREADABLE, non_retryable=True) from None
            if request.previous_run and not has_ended(event.type for event in reversed(events)):
                events = await self._catch_up(thread, request.previous_run, events)
            try:
                return LoadedThread(snapshot=await asyncio.to_thread(snapshot_of, events))
            except RecordUnreadable as error:
                raise ApplicationError(str(error), type=RECORD_UNREADABLE, non_retryable=True) from None

    async def _append(self, workflow: WorkflowHandle[object, object], start: int, lines: list[bytes]) -> None:
        """Append; what a run has left behind that was reset is set aside, where the store can."""
        try:
            return await self._store.append(workflow.id, start, lines)
        except RecordConflict as error:
            described = (await workflow.describe()).raw_description
            was_reset = described.workflow_extended_info.HasField("last_reset_time")
            if not was_reset or not isinstance(self._store, SetsAside):
                raise ApplicationError(str(error), type=RECORD_CONFLICT, non_retryable=True) from None
        except (RecordGap, RecordUnreadable) as error:
            raise ApplicationError(str(error), type=RECORD_UNREADABLE, non_retryable=True) from None
        aside = await self._store.set_aside(workflow.id, start, lines)
        log.warning("branch_set_aside", thread=workflow.id, kept_as=aside)
        await self._append(workflow, start, lines)

    async def _catch_up(self, thread: str, run_id: str, events: list[AgentEvent]) -> list[AgentEvent]:
        """Write down what a run that was closed from outside could not; Temporal's history has it."""
        run = activity.client().get_workflow_handle(thread, run_id=run_id)
        try:
            history = await run.fetch_history()
            # The seals are checked here: whoever reaches Temporal can run a workflow of their own under this id.
            client = activity.client()
            place = WorkflowSerializationContext(namespace=client.namespace, workflow_id=thread)
            converter = client.data_converter.with_context(place)
            for event in history.events:
                await decrypt_in_place(event, converter.payload_codec)
            recorded = await asyncio.to_thread(read_events, history.events, by=converter.payload_converter)
        except (RPCError, HistoryUnreadable) as error:
            log.warning("thread_not_caught_up", thread=thread, run_id=run_id, reason=str(error))
            return events
        missing = [event for event in recorded if event.position >= len(events)]
        if missing:
            await self._append(run, missing[0].position, [event_line(e) for e in missing])
        return [*events, *missing]


async def read_thread(store: ThreadStore, thread: str, start: int = 0, stop: int | None = None) -> list[AgentEvent]:
    """The recorded events of a thread from position `start` up to `stop`, checked.

    Raises:
        RecordUnreadable: One does not decode, or was altered.
    """
    events: list[AgentEvent] = []
    head: str | None = None
    while stop is None or start + len(events) < stop:
        lines = await store.read(thread, start + len(events))
        if not lines:
            break
        events += await asyncio.to_thread(read_lines, thread, start + len(events), lines, head=head)
        head = events[-1].digest
    return events if stop is None else events[: stop - start]
