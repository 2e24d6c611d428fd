"""The permanent record of threads, as activities write it."""

import asyncio
import json

from temporalio import activity
from temporalio.client import WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from holdfast.activities.calling_run import Chains
from holdfast.activities.record.moved_threads import MovedThreads
from holdfast.activities.record.thread_past import chains, events_of_run, events_since, forked_lines, share_artifacts
from holdfast.activities.safe_logs import SafeLogger
from holdfast.core.base.canonical import GENESIS
from holdfast.core.log.event_log import digest_after, event_json, event_line
from holdfast.core.log.events import AgentEvent, RunForked, RunImported, RunStarted
from holdfast.core.log.fork_point import ForkPoint
from holdfast.core.log.loop_events import LoopStarted
from holdfast.core.log.node_seals import SignRecord, unsealed
from holdfast.core.log.stored_lines import read_lines
from holdfast.core.log.upcasters import decode_stored
from holdfast.core.run.contracts.error_types import RECORD_CONFLICT, RECORD_UNREADABLE
from holdfast.core.stores import ArtifactStore, SetsAside, ThreadStore, origin_of
from holdfast.errors import HistoryUnreadable, RecordConflict, RecordGap, RecordUnreadable

log = SafeLogger(__name__)


class Record:
    """The permanent record of threads.

    Args:
        store: Stores the events.
        artifacts: Stores the artifacts that events refer to.
        chains: Maps a Temporal run to its chain.
        seal: Called after archiving, with the length and the head of the record.
    """

    def __init__(
        self, store: ThreadStore, artifacts: ArtifactStore, *, chains: Chains, seal: SignRecord = unsealed
    ) -> None:
        self.store = store
        self.moved_threads = MovedThreads(store, chains)
        self._artifacts = artifacts
        self._chains = chains
        self._seal = seal

    async def append(self, thread: str, start: int, lines: list[bytes]) -> None:
        """Append lines. If a reset left a conflicting branch, archive it first, if the store can.

        Raises:
            ApplicationError: RECORD_CONFLICT or RECORD_UNREADABLE: the record rejects them for good.
        """
        try:
            return await self.store.append(thread, start, lines)
        except RecordConflict as error:
            if not isinstance(self.store, SetsAside) or not await self._is_current(thread):
                raise ApplicationError(str(error), type=RECORD_CONFLICT, non_retryable=True) from None
            owner = await self._owner_of_conflict(thread, start, lines)
            if owner is None:
                raise  # a concurrent attempt has archived the branch meanwhile: the next one can append
            if owner != await self.own_chain(thread):
                raise ApplicationError(str(error), type=RECORD_CONFLICT, non_retryable=True) from None
        except (RecordGap, RecordUnreadable) as error:
            raise ApplicationError(str(error), type=RECORD_UNREADABLE, non_retryable=True) from None
        await self.moved_threads.refuse_branch(thread)
        await self._seal_branch(thread)
        aside = await self.store.set_aside(thread, start, lines)
        log.warning("branch_set_aside", thread=thread, kept_as=aside)
        await self.append(thread, start, lines)

    async def ensure(self, run: WorkflowHandle[object, object], position: int, head: str) -> None:
        """Make sure that the record has the run's events up to `position`, of which the last has the digest `head`.

        After a reset it may have those of another branch: then this writes the run's past again.
        """
        if not position:
            return
        stored = await self.store.read(run.id, position - 1)
        if not stored or str(json.loads(stored[0])["digest"]) != head:
            past = await self._past(run.id, position, head)
            await self.append(run.id, past[0].position, [event_line(event) for event in past])

    async def forked_lines(self, thread: str, point: ForkPoint) -> list[bytes]:
        """Return the lines of a fork's original that its record lacks; none if it has the fork already."""
        if await self.store.length(thread):
            return []
        lines = await forked_lines(self.store, point, events_since)
        if not await asyncio.to_thread(chains, lines):
            message = f"the record of thread {point.thread} was altered before event {point.position}: verify it"
            raise ApplicationError(message, type=RECORD_UNREADABLE, non_retryable=True)
        await share_artifacts(self._artifacts, origin=point.thread, thread=thread, lines=lines)
        return lines

    async def seal(self, thread: str, events: int, head: str) -> None:
        """Sign a checkpoint of the record of a thread or a loop."""
        await self._seal(thread, events, head)

    async def own_chain(self, thread: str) -> str:
        """Return the first run id of the calling run's chain."""
        return await self._chains.first_run_id(thread, activity.info().workflow_run_id or "")

    async def chain_of(self, thread: str, run_id: str) -> str:
        """Return the first run id of the chain of a Temporal run.

        Raises:
            RPCError: Temporal does not have the run, or is unavailable.
        """
        return await self._chains.first_run_id(thread, run_id)

    async def _past(self, thread: str, position: int, head: str) -> list[AgentEvent]:
        """Return the calling run's events up to `position`, starting at the first that the record may lack.

        Raises:
            ApplicationError: RECORD_CONFLICT: Temporal's histories do not have these events.
            RPCError: Temporal is unavailable.
        """
        past: list[AgentEvent] = []
        run_id: str | None = activity.info().workflow_run_id
        try:
            while run_id:
                recorded, run_id = await events_of_run(thread, run_id)
                first = past[0].position if past else position
                past = [event for event in recorded if event.position < first] + past
                if past and past[-1].digest != head:
                    break
                if past and (not past[0].position or await self._leads_to(thread, past[0])):
                    return past
        except (RPCError, HistoryUnreadable) as error:
            if isinstance(error, RPCError) and error.status is not RPCStatusCode.NOT_FOUND:
                raise  # Temporal is unavailable: the next attempt reads the history
            log.warning("past_unreadable", thread=thread, run_id=run_id, reason=str(error))
        message = f"thread {thread}: the record does not lead to event {position - 1} ({head})"
        raise ApplicationError(message, type=RECORD_CONFLICT, non_retryable=True)

    async def _leads_to(self, thread: str, event: AgentEvent) -> bool:
        """Whether the digest of an event follows from the event recorded before it."""
        if not (before := await self.store.read(thread, event.position - 1)):
            return False
        return digest_after(str(json.loads(before[0])["digest"]), event_json(event)) == event.digest

    async def _is_current(self, thread: str) -> bool:
        """Whether the calling run is the thread's newest: a run that was reset may still have a call in progress."""
        return await self._chains.current_run_id(thread) == activity.info().workflow_run_id

    async def _owner_of_conflict(self, thread: str, start: int, lines: list[bytes]) -> str | None:
        """Return the first run id of the chain with an event in place of one of these lines; None if there is none."""
        own, position = "", 0
        while recorded := await self.store.read(thread, position):
            for line in recorded:
                event = decode_stored(line)
                if isinstance(event, RunStarted | RunForked | RunImported | LoopStarted):
                    own = event.first_run_id
                if position >= start and (position >= start + len(lines) or lines[position - start] != line):
                    return own
                position += 1
        return None

    async def _seal_branch(self, thread: str) -> None:
        """Sign a checkpoint of the branch that a reset abandoned, as far as its digests chain; the rest may be forged.

        This comes before the branch is archived, so that an attempt after a crash does it again.
        """
        length, head = 0, GENESIS
        try:
            while recorded := await self.store.read(thread, length):
                page = await asyncio.to_thread(read_lines, thread, length, recorded, head=head)
                length, head = length + len(page), page[-1].digest
        except RecordUnreadable as error:
            log.warning("branch_not_sealed", thread=thread, reason=str(error))
            return
        await self._seal(thread, length, head, gone="reset")


def require_own_id(thread: str) -> None:
    """Reject an id that is reserved for archived branches: anyone with access to Temporal can start a run under it.

    Raises:
        ApplicationError: RECORD_CONFLICT: the id is reserved.
    """
    if origin := origin_of(thread):
        message = f"{thread} is an id reserved for what resets leave behind of {origin}: no run is recorded under it"
        raise ApplicationError(message, type=RECORD_CONFLICT, non_retryable=True)
