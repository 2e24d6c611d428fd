"""`archive`, `load_thread` and `load_effects`: write the calling run's events to the permanent record, and read back
what the record and the effect ledger hold.
"""

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterator

import structlog
from temporalio import activity
from temporalio.client import WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from holdfast.activities.brought_logs import may_be_brought
from holdfast.activities.calling_run import CallingRun, calling_thread, converter_of
from holdfast.activities.forked_lines import chains, forked_lines, share_artifacts
from holdfast.activities.heartbeats import heartbeats
from holdfast.activities.moved_threads import MovedThreads
from holdfast.activities.orders import Chains
from holdfast.activities.recorded_threads import read_thread
from holdfast.base.digests import GENESIS
from holdfast.errors import HistoryUnreadable, RecordConflict, RecordGap, RecordUnreadable, ThreadForgotten
from holdfast.log.event_log import digest_after, event_json, event_line, has_ended
from holdfast.log.events import AgentEvent, RunForked, RunImported, RunStarted
from holdfast.log.fork_point import ForkPoint
from holdfast.log.loop_events import LoopStarted
from holdfast.log.node_seals import SealRecord, unsealed
from holdfast.log.stored_lines import end_of_chain, read_lines, run_events
from holdfast.log.upcasters import decode_stored
from holdfast.run import features
from holdfast.run.contracts import (
    NOT_SETTLED,
    RECORD_CONFLICT,
    RECORD_UNREADABLE,
    START_REFUSED,
    THREAD_EXISTS,
    Archived,
    ArchiveRequest,
    EffectsRequest,
    LoadedThread,
    PastEffects,
    ThreadRequest,
)
from holdfast.run.ledger import EffectLedger
from holdfast.run.snapshot import snapshot_of
from holdfast.runtime.worker.handover import HandOver
from holdfast.stores import ArtifactStore, SetsAside, ThreadStore, origin_of
from holdfast.temporal.encrypted import decrypt_in_place
from holdfast.temporal.history_reader import read_events
from holdfast.transcript.transcript import Transcript

log = structlog.get_logger(__name__)

_BROUGHT = (
    "nothing here shows that sub-agent {thread} ran here; if its log came with a file, its run ended elsewhere: "
    "`holdfast fork` continues it as a fork"
)


class Record:
    """The permanent record of threads.

    Args:
        store: Stores the events.
        ledger: The effects of threads.
        artifacts: Stores what events refer to.
        chains: Maps a Temporal run to its chain.
        forget: Called after archiving a run that pauses; drops what this worker caches of it.
        keep: Called with the messages of a thread that was loaded, which its next LLM call reads.
        seal: Called after archiving, with where the record stands.
        handover: Keeps what the worker's runs hand over; None to query them instead.
    """

    def __init__(
        self,
        store: ThreadStore,
        ledger: EffectLedger,
        artifacts: ArtifactStore,
        *,
        chains: Chains,
        forget: Callable[[], None],
        keep: Callable[[list[bytes]], None],
        seal: SealRecord = unsealed,
        handover: HandOver | None = None,
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._artifacts = artifacts
        self._chains = chains
        self._moved_threads = MovedThreads(store, chains)
        self._forget = forget
        self._keep = keep
        self._seal = seal
        self._handover = handover

    @activity.defn
    async def archive(self, request: ArchiveRequest) -> Archived:
        """See `holdfast.run.contracts.archive`."""
        async with heartbeats():
            with _refused_if_forgotten():
                return await self._archive(request)

    async def _archive(self, request: ArchiveRequest) -> Archived:
        run = CallingRun.of(request, handover=self._handover)
        thread = run.thread
        require_own_id(thread)
        before = await self._forked_lines(thread, request.fork) if request.fork else []
        if not before:
            await self._ensure(run.handle, request.start, request.base)
        position, digest = request.start, request.base
        while position < request.stop:
            page: bytes = await run.query("log", position)
            lines = page.split(b"\n")[: request.stop - position] if page else []
            if not lines:
                message = f"thread {thread}: event {position} is not settled yet"
                raise ApplicationError(message, type=NOT_SETTLED, non_retryable=True)
            digest = end_of_chain(thread, position, lines, head=digest)
            if position + len(lines) == request.stop:
                _require_end(thread, request, digest)
            # What a fork has of its original is never there without the event that says so.
            await self.append(thread, position - len(before), [*before, *lines])
            position, before = position + len(lines), []
        _require_end(thread, request, digest)
        if position:
            await self._seal(thread, position, digest)
        if request.pausing:
            self._forget()
        return Archived(length=position, features=features.FEATURES)

    async def _forked_lines(self, thread: str, point: ForkPoint) -> list[bytes]:
        """The lines that the record of a fork lacks of its original; none if it has the fork already."""
        if await self._store.length(thread):
            return []
        lines = await forked_lines(self._store, point, self._unrecorded)
        if not await asyncio.to_thread(chains, lines):
            message = f"the record of thread {point.thread} was altered before event {point.position}: verify it"
            raise ApplicationError(message, type=RECORD_UNREADABLE, non_retryable=True)
        await share_artifacts(self._artifacts, origin=point.thread, thread=thread, lines=lines)
        return lines

    async def _unrecorded(self, thread: str, start: int) -> list[AgentEvent]:
        """The events of another thread from a position on, from its Temporal runs.

        Raises:
            RecordUnreadable: They cannot be read.
        """
        client = activity.client()
        events: list[AgentEvent] = []
        try:
            run_id: str | None = (await client.get_workflow_handle(thread).describe()).run_id
            while run_id and not (events and events[0].position <= start):
                recorded, run_id = await self._recorded(thread, run_id)
                first = events[0].position if events else None
                events = [event for event in recorded if first is None or event.position < first] + events
        except HistoryUnreadable as error:
            raise RecordUnreadable(str(error)) from None
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
        return events

    @activity.defn
    async def load_effects(self, request: EffectsRequest) -> PastEffects:
        """See `holdfast.run.contracts.load_effects`."""
        run = CallingRun.of()
        async with heartbeats():
            with _refused_if_forgotten():
                if moved := await self._moved_threads.since(run.thread, request.position):
                    return PastEffects(moved=moved)
                await self._ensure(run.handle, request.position, request.head)
            return await self._ledger.past_effects(run.thread, after=request.after)

    async def _ensure(self, run: WorkflowHandle[object, object], position: int, head: str) -> None:
        """Make sure that the record leads up to `position`, where the digest before it is `head`.

        It does not after a reset, if the thread had taken another course: then this writes the run's past again.
        """
        if not position:
            return
        stored = await self._store.read(run.id, position - 1)
        if not stored or str(json.loads(stored[0])["digest"]) != head:
            past = await self._past(run.id, position, head)
            await self.append(run.id, past[0].position, [event_line(event) for event in past])

    async def _past(self, thread: str, position: int, head: str) -> list[AgentEvent]:
        """The calling run's events up to `position`, starting at the first that the record may lack.

        Raises:
            ApplicationError: RECORD_CONFLICT: Temporal's histories do not lead to `position`.
        """
        past: list[AgentEvent] = []
        run_id: str | None = activity.info().workflow_run_id
        try:
            while run_id:
                recorded, run_id = await self._recorded(thread, run_id)
                first = past[0].position if past else position
                past = [event for event in recorded if event.position < first] + past
                if past and past[-1].digest != head:
                    break
                if past and (not past[0].position or await self._leads_to(thread, past[0])):
                    return past
        except (RPCError, HistoryUnreadable) as error:
            log.warning("past_unreadable", thread=thread, run_id=run_id, reason=str(error))
        message = f"thread {thread}: the record does not lead to event {position - 1} ({head})"
        raise ApplicationError(message, type=RECORD_CONFLICT, non_retryable=True)

    async def _leads_to(self, thread: str, event: AgentEvent) -> bool:
        """Whether the digest of an event follows from the event recorded before it."""
        if not (before := await self._store.read(thread, event.position - 1)):
            return False
        return digest_after(str(json.loads(before[0])["digest"]), event_json(event)) == event.digest

    @activity.defn
    async def load_thread(self, request: ThreadRequest) -> LoadedThread:
        """See `holdfast.run.contracts.load_thread`."""
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
            own = await self._own_chain(thread)
            if loaded := await self._moved(thread, after=_begun_by(events, own)):
                return loaded
            if events and _begun_by(events, own) is None and await may_be_brought(self._store, thread, events[0]):
                raise ApplicationError(_BROUGHT.format(thread=thread), type=START_REFUSED, non_retryable=True)
            events = _before(events, own)
            if request.previous_run and not has_ended(event.type for event in reversed(events)):
                events = await self._catch_up(thread, request.previous_run, events)
            try:
                loaded = await self._loaded(events)
            except RecordUnreadable as error:
                raise ApplicationError(str(error), type=RECORD_UNREADABLE, non_retryable=True) from None
            if (owner := loaded.snapshot.state.thread) not in ("", thread):
                message = f"the record of {thread} has the events of {owner}: a fork of an imported file did not begin"
                raise ApplicationError(message, type=RECORD_UNREADABLE, non_retryable=True)
            return loaded

    async def _ends_at(self, thread: str, point: ForkPoint) -> bool:
        """Whether the record of a thread ends with that event: an import has put it there."""
        last = await self._store.read(thread, point.position)
        return len(last) == 1 and json.loads(last[0]).get("digest") == point.head

    async def _load_fork(self, thread: str, point: ForkPoint, *, imported: bool) -> LoadedThread:
        """Where the original of a fork stood. The fork is new, or this run's own, which was reset to its beginning.

        Raises:
            ApplicationError: START_REFUSED, THREAD_EXISTS or RECORD_UNREADABLE: this fork cannot begin.
        """
        require_own_id(point.thread)
        if (first := await self._store.read(thread, point.position + 1)) or await self._store.length(thread):
            forked = decode_stored(first[0]) if first else None
            own = await self._own_chain(thread)
            brought = imported and not first and await self._ends_at(thread, point)
            begun = isinstance(forked, RunForked) and (forked.first_run_id, forked.point) == (own, point)
            if begun and (loaded := await self._moved(thread, after=point.position + 1)):
                return loaded
            if not brought and not begun:
                message = f"thread {thread} exists already; fork under another id"
                raise ApplicationError(message, type=THREAD_EXISTS, non_retryable=True)
            point = point.model_copy(update={"thread": thread})  # the record has them: the original may be gone
        lines = await forked_lines(self._store, point, self._unrecorded)
        try:
            events = run_events(point.thread, await asyncio.to_thread(read_lines, point.thread, 0, lines))
            return await self._loaded(events)
        except RecordUnreadable as error:
            raise ApplicationError(str(error), type=RECORD_UNREADABLE, non_retryable=True) from None

    async def _moved(self, thread: str, *, after: int | None) -> LoadedThread | None:
        """Where a thread stands that was moved after that many events, by the calling run, which was reset."""
        moved = None if after is None else await self._moved_threads.since(thread, after)
        return LoadedThread(snapshot=moved, moved=True) if moved else None

    async def _loaded(self, events: list[AgentEvent]) -> LoadedThread:
        transcript = Transcript()
        snapshot = await asyncio.to_thread(snapshot_of, events, transcript)
        self._keep(transcript.messages)
        return LoadedThread(snapshot=snapshot)

    async def _require_features(self, thread: str) -> None:
        """Leave a record that this release cannot read to a worker of the release that wrote it.

        Raises:
            FeaturesUnknown: The log says that it takes a newer release: Temporal tries again, on any worker.
        """
        position = 0
        while lines := await self._store.read(thread, position):
            for line in lines:
                with contextlib.suppress(ValueError, TypeError, AttributeError, RecursionError):
                    features.require_features(int(json.loads(line).get("features", 0)))
            position += len(lines)

    async def _own_chain(self, thread: str) -> str:
        """The first run id of the calling run's chain."""
        return await self._chains.first_run_id(thread, activity.info().workflow_run_id or "")

    async def append(self, thread: str, start: int, lines: list[bytes]) -> None:
        """Append lines. If a reset left a conflicting branch, set it aside first, where the store can.

        Raises:
            ApplicationError: RECORD_CONFLICT or RECORD_UNREADABLE: the record refuses them for good.
        """
        try:
            return await self._store.append(thread, start, lines)
        except RecordConflict as error:
            if not isinstance(self._store, SetsAside) or not await self._is_own_branch(thread, start, lines):
                raise ApplicationError(str(error), type=RECORD_CONFLICT, non_retryable=True) from None
        except (RecordGap, RecordUnreadable) as error:
            raise ApplicationError(str(error), type=RECORD_UNREADABLE, non_retryable=True) from None
        await self._moved_threads.refuse_branch(thread)
        await self._seal_branch(thread)
        aside = await self._store.set_aside(thread, start, lines)
        log.warning("branch_set_aside", thread=thread, kept_as=aside)
        await self.append(thread, start, lines)

    async def _is_own_branch(self, thread: str, start: int, lines: list[bytes]) -> bool:
        """Whether the events recorded in place of these lines are a branch that the calling run's chain has abandoned.

        The run has to be the thread's current one: the run before the reset may still have a call under way.
        """
        chain, own, position = await self._own_chain(thread), "", 0
        if await self._chains.current_run_id(thread) != activity.info().workflow_run_id:
            return False
        while recorded := await self._store.read(thread, position):
            for line in recorded:
                event = decode_stored(line)
                if isinstance(event, RunStarted | RunForked | RunImported | LoopStarted):
                    own = event.first_run_id
                if position >= start and (position >= start + len(lines) or lines[position - start] != line):
                    return own == chain
                position += 1
        return False

    async def _seal_branch(self, thread: str) -> None:
        """Seal that a reset has abandoned the log in the record, as far as that chains; the database may hold anything.

        This comes before it is set aside, so that an attempt after a kill does it again.
        """
        length, head = 0, GENESIS
        try:
            while recorded := await self._store.read(thread, length):
                page = await asyncio.to_thread(read_lines, thread, length, recorded, head=head)
                length, head = length + len(page), page[-1].digest
        except RecordUnreadable as error:
            log.warning("branch_not_sealed", thread=thread, reason=str(error))
            return
        await self._seal(thread, length, head, gone="reset")

    async def seal(self, thread: str, events: int, head: str) -> None:
        """Seal where the record of a thread, or of a loop, stands."""
        await self._seal(thread, events, head)

    async def _catch_up(self, thread: str, run_id: str, events: list[AgentEvent]) -> list[AgentEvent]:
        """Record the last events of a run that was closed from outside, read from Temporal's history."""
        try:
            recorded, _ = await self._recorded(thread, run_id)
        except (RPCError, HistoryUnreadable) as error:
            log.warning("thread_not_caught_up", thread=thread, run_id=run_id, reason=str(error))
            return events
        missing = [event for event in recorded if event.position >= len(events)]
        if missing and not events and isinstance(missing[0], RunForked):
            lines = await self._forked_lines(thread, missing[0].point)
            events = run_events(thread, read_lines(thread, 0, lines))
            await self.append(thread, 0, [*lines, *(event_line(e) for e in missing)])
        elif missing:
            await self.append(thread, missing[0].position, [event_line(e) for e in missing])
        return [*events, *missing]

    async def _recorded(self, thread: str, run_id: str) -> tuple[list[AgentEvent], str | None]:
        """The events in a run's history, and the id of the run that it continues.

        Raises:
            RPCError: Temporal does not have the history, or is unavailable.
            HistoryUnreadable: It is not the history of an agent run.
        """
        client = activity.client()
        history = await client.get_workflow_handle(thread, run_id=run_id).fetch_history()
        # Check the seals: anyone with access to Temporal can run a workflow of their own under this id.
        converter = converter_of(thread)
        for event in history.events:
            await decrypt_in_place(event, converter.payload_codec)
        begin = history.events[0].workflow_execution_started_event_attributes
        events = await asyncio.to_thread(read_events, history.events, by=converter.payload_converter)
        return events, begin.continued_execution_run_id or None


@contextlib.contextmanager
def _refused_if_forgotten() -> Iterator[None]:
    """Block the run instead of trying for ever, where its thread, or the one it was forked from, was forgotten."""
    try:
        yield
    except ThreadForgotten as error:
        raise ApplicationError(str(error), type=RECORD_UNREADABLE, non_retryable=True) from None


def _require_end(thread: str, request: ArchiveRequest, digest: str) -> None:
    """Require that what was archived leads to where the run said that it ends.

    Raises:
        ApplicationError: RECORD_CONFLICT: it does not.
    """
    if digest != request.head:
        message = f"thread {thread}: event {request.stop - 1} has the digest {digest}, expected {request.head}"
        raise ApplicationError(message, type=RECORD_CONFLICT, non_retryable=True)


def _begun_by(events: list[AgentEvent], chain: str) -> int | None:
    """The position of the first event of a chain of runs; None where it has recorded none."""
    begun = (event for event in events if isinstance(event, RunStarted | RunImported) and event.first_run_id == chain)
    return next((event.position for event in begun), None)


def _before(events: list[AgentEvent], chain: str) -> list[AgentEvent]:
    """The events from before a chain of runs. A chain that was reset to its beginning has recorded some of its own."""
    return events[: _begun_by(events, chain)]


def require_own_id(thread: str) -> None:
    """Refuse an id that is reserved for logs set aside: anyone with access to Temporal can start a run under it.

    Raises:
        ApplicationError: RECORD_CONFLICT: the id is reserved.
    """
    if origin := origin_of(thread):
        message = f"{thread} is an id reserved for what resets leave behind of {origin}: no run is recorded under it"
        raise ApplicationError(message, type=RECORD_CONFLICT, non_retryable=True)
