"""`load_thread`: loads the past of a thread that a new run continues, or that a fork begins with."""

import asyncio
import contextlib
import json
from collections.abc import Callable
from datetime import UTC, datetime

from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from holdfast.activities.calling_run import QUERY_TIMEOUT, calling_thread
from holdfast.activities.heartbeats import heartbeats
from holdfast.activities.record.record import Record, require_own_id
from holdfast.activities.record.thread_past import events_of_run, events_since, forked_lines, read_thread
from holdfast.activities.safe_logs import SafeLogger
from holdfast.client.reading.executions import own_client
from holdfast.client.reading.imported import may_be_imported
from holdfast.client.reading.reader import Reader
from holdfast.client.reading.runs import Runs
from holdfast.core.log.event_log import event_line, has_ended
from holdfast.core.log.events import AgentEvent, EventsLost, RunForked, RunImported, RunStarted
from holdfast.core.log.fork_point import ForkPoint
from holdfast.core.log.stored_lines import read_lines, run_events
from holdfast.core.log.upcasters import decode_stored
from holdfast.core.run.contracts.error_types import RECORD_UNREADABLE, START_REFUSED, THREAD_EXISTS
from holdfast.core.run.contracts.loading import LoadedThread, ThreadRequest
from holdfast.core.run.contracts.snapshot import snapshot_of
from holdfast.core.run.inputs.losses import LostLog, lost_after, says
from holdfast.core.run.state import features
from holdfast.core.tools.subagents import parent_thread
from holdfast.core.transcript.transcript import Transcript
from holdfast.errors import HistoryUnreadable, RecordUnreadable, ThreadForgotten

log = SafeLogger(__name__)

_IMPORTED = (
    "nothing here shows that sub-agent {thread} ran here; if its log came with a file, its run ended elsewhere: "
    "`holdfast fork` continues it as a fork"
)


class Threads:
    """Loads threads from the permanent record.

    Args:
        record: The permanent record.
        keep: Called with the messages of a thread that was loaded, which its next LLM call reads.
    """

    def __init__(self, record: Record, *, keep: Callable[[list[bytes]], None]) -> None:
        self._record = record
        self._store = record.store
        self._keep = keep

    @activity.defn
    async def load_thread(self, request: ThreadRequest) -> LoadedThread:
        """See `holdfast.core.run.contracts.table.LOAD_THREAD`."""
        thread = calling_thread()
        require_own_id(thread)
        async with heartbeats():
            if request.fork:
                return await self._load_fork(thread, request.fork, imported=request.imported)
            try:
                events = await read_thread(self._store, thread)
            except RecordUnreadable as error:
                if not isinstance(error, ThreadForgotten):
                    await self._require_features(thread)
                raise ApplicationError(str(error), type=RECORD_UNREADABLE, non_retryable=True) from None
            own = await self._record.own_chain(thread)
            if loaded := await self._load_moved(thread, after=_first_position(events, own)):
                return loaded
            if events and _first_position(events, own) is None and await self._may_be_imported(thread, events[0]):
                raise ApplicationError(_IMPORTED.format(thread=thread), type=START_REFUSED, non_retryable=True)
            events = _events_before(events, own)
            if request.previous_run and not await self._has_all_of(thread, request.previous_run, events):
                events = await self._catch_up(thread, request.previous_run, events)
            try:
                loaded = await self._restore(events)
            except RecordUnreadable as error:
                raise ApplicationError(str(error), type=RECORD_UNREADABLE, non_retryable=True) from None
            if (owner := loaded.snapshot.state.thread) not in ("", thread):
                message = f"the record of {thread} has the events of {owner}: a fork of an imported file did not begin"
                raise ApplicationError(message, type=RECORD_UNREADABLE, non_retryable=True)
            return loaded

    async def _may_be_imported(self, thread: str, first: AgentEvent) -> bool:
        if not parent_thread(thread):
            return False
        reader = Reader(Runs(own_client(), answer_within=QUERY_TIMEOUT.total_seconds()), self._store)
        return await may_be_imported(reader, thread, event_line(first))

    async def _ends_at(self, thread: str, point: ForkPoint) -> bool:
        """Whether the record of a thread ends with that event, as after an import."""
        last = await self._store.read(thread, point.position)
        return len(last) == 1 and json.loads(last[0]).get("digest") == point.head

    async def _load_fork(self, thread: str, point: ForkPoint, *, imported: bool) -> LoadedThread:
        """Return the state of a fork's original at the fork's point. The fork is new, or was reset to its beginning.

        Raises:
            ApplicationError: START_REFUSED, THREAD_EXISTS or RECORD_UNREADABLE: this fork cannot begin.
        """
        require_own_id(point.thread)
        if (first := await self._store.read(thread, point.position + 1)) or await self._store.length(thread):
            fork = decode_stored(first[0]) if first else None
            own = await self._record.own_chain(thread)
            imported_here = imported and not first and await self._ends_at(thread, point)
            own_fork = isinstance(fork, RunForked) and (fork.first_run_id, fork.point) == (own, point)
            if own_fork and (loaded := await self._load_moved(thread, after=point.position + 1)):
                return loaded
            if not imported_here and not own_fork:
                message = f"thread {thread} exists already; fork under another id"
                raise ApplicationError(message, type=THREAD_EXISTS, non_retryable=True)
            point = point.model_copy(update={"thread": thread})  # the record has these events; the original may be gone
        lines = await forked_lines(self._store, point, events_since)
        try:
            events = run_events(point.thread, await asyncio.to_thread(read_lines, point.thread, 0, lines))
            return await self._restore(events)
        except RecordUnreadable as error:
            raise ApplicationError(str(error), type=RECORD_UNREADABLE, non_retryable=True) from None

    async def _load_moved(self, thread: str, *, after: int | None) -> LoadedThread | None:
        """Return the state of a thread that the run moved after so many events and before its reset; else None."""
        moved = None if after is None else await self._record.moved_threads.since(thread, after)
        return LoadedThread(snapshot=moved, moved=True) if moved else None

    async def _restore(self, events: list[AgentEvent]) -> LoadedThread:
        transcript = Transcript()
        snapshot = await asyncio.to_thread(snapshot_of, events, transcript)
        self._keep(transcript.messages)
        return LoadedThread(snapshot=snapshot)

    async def _require_features(self, thread: str) -> None:
        """Leave a record that this release cannot read to a worker of the release that wrote it.

        Raises:
            FeaturesUnknown: The log requires a newer release: Temporal retries, on any worker.
        """
        position = 0
        with contextlib.suppress(RecordUnreadable):  # a damaged record, which no release can read
            while lines := await self._store.read(thread, position):
                for line in lines:
                    with contextlib.suppress(ValueError, TypeError, AttributeError, RecursionError):
                        features.require_features(int(json.loads(line).get("features", 0)))
                position += len(lines)

    async def _has_all_of(self, thread: str, run_id: str, events: list[AgentEvent]) -> bool:
        """Whether the record has the end of the run that the new one follows: it lacks later runs after a restore."""
        chains = [each.first_run_id for each in events if isinstance(each, RunStarted | RunImported)]
        if not chains or not has_ended(event.type for event in reversed(events)):
            return False
        try:
            return await self._record.chain_of(thread, run_id) == chains[-1]
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            return True  # nothing more can be read

    async def _catch_up(self, thread: str, run_id: str, events: list[AgentEvent]) -> list[AgentEvent]:
        """Record the events that the record lacks, read from Temporal's histories: the last ones of a run that was
        closed from outside, or those of the runs since a backup that was restored.

        If those in between are in no history any more, record that they are lost.

        Raises:
            ApplicationError: RECORD_UNREADABLE: events in between cannot be read, or there are none before them; or the
                record says that events are lost, and they are not.
        """
        recorded: list[AgentEvent] = []
        before: str | None = run_id
        unreadable = False
        while before and (not recorded or recorded[0].position > len(events)):
            try:
                own, before = await events_of_run(thread, before)
            except (RPCError, HistoryUnreadable) as error:
                if isinstance(error, RPCError) and error.status is not RPCStatusCode.NOT_FOUND:
                    raise
                log.warning("thread_not_caught_up", thread=thread, run_id=before, reason=str(error))
                unreadable = isinstance(error, HistoryUnreadable)
                break
            recorded = [event for event in own if not recorded or event.position < recorded[0].position] + recorded
        missing = [event for event in recorded if event.position >= len(events)]
        if missing and missing[0].position > len(events):
            if unreadable or not events:
                lost = f"events {len(events)} to {missing[0].position - 1} of thread {thread}"
                message = f"{lost} are neither in the record nor readable in Temporal's histories: verify it"
                raise ApplicationError(message, type=RECORD_UNREADABLE, non_retryable=True)
            return await self._record_loss(thread, events, missing[-1])
        if missing and events and isinstance(events[-1], EventsLost):
            message = f"the record of {thread} says that events are lost which Temporal's histories have: verify it"
            raise ApplicationError(message, type=RECORD_UNREADABLE, non_retryable=True)
        if missing and not events and isinstance(missing[0], RunForked):
            lines = await self._record.forked_lines(thread, missing[0].point)
            events = run_events(thread, read_lines(thread, 0, lines))
            await self._record.append(thread, 0, [*lines, *(event_line(e) for e in missing)])
        elif missing:
            await self._record.append(thread, missing[0].position, [event_line(e) for e in missing])
        return [*events, *missing]

    async def _record_loss(self, thread: str, events: list[AgentEvent], last: AgentEvent) -> list[AgentEvent]:
        """Record that the events of a log that ended with `last` are lost, unless the record says so already."""
        lost = LostLog(events=last.position + 1, head=last.digest)
        if says(events[-1], lost):
            return events
        loss = lost_after(events[-1], lost, at=datetime.now(UTC))
        await self._record.append(thread, loss.position, [event_line(loss)])
        log.warning("events_lost", thread=thread, events=lost.events - loss.position)
        return [*events, loss]


def _first_position(events: list[AgentEvent], chain: str) -> int | None:
    """Return the position of the first event of a chain of runs; None if it has recorded none."""
    starts = (event for event in events if isinstance(event, RunStarted | RunImported) and event.first_run_id == chain)
    return next((event.position for event in starts), None)


def _events_before(events: list[AgentEvent], chain: str) -> list[AgentEvent]:
    """Return the events from before a chain of runs; if it was reset to its beginning, its own events follow them."""
    return events[: _first_position(events, chain)]
