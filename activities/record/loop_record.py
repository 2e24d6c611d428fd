"""`archive_loop`: write a loop's events into the permanent record. The request contains them; nothing is queried."""

import json

from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from holdfast.activities.calling_run import calling_thread, converter_of
from holdfast.activities.heartbeats import heartbeats
from holdfast.activities.record.record import Record, require_own_id
from holdfast.activities.safe_logs import SafeLogger
from holdfast.client.reading.costs import spent_by
from holdfast.client.reading.executions import own_client
from holdfast.client.reading.reader import Reader
from holdfast.client.reading.runs import Runs
from holdfast.core.base.canonical import GENESIS, canonical
from holdfast.core.budget.tree import TreeCost
from holdfast.core.log.loop_events import Logged, LogPart
from holdfast.core.log.stored_lines import read_lines
from holdfast.core.loop.state import LoopArchived, LoopArchiveRequest
from holdfast.core.run.contracts.error_types import RECORD_CONFLICT
from holdfast.core.stores import ThreadStore
from holdfast.core.temporal.encrypted import decrypt_in_place
from holdfast.core.temporal.loop_history import lines_in
from holdfast.errors import HistoryUnreadable, RecordUnreadable

ANSWER_WITHIN = 10.0
"""Seconds that Temporal may take to answer; then Temporal retries the activity."""

log = SafeLogger(__name__)


class LoopRecord:
    """The logs of loops in the permanent record.

    Args:
        record: Appends lines, and archives a branch that a reset abandons.
        store: Stores the events.
    """

    def __init__(self, record: Record, store: ThreadStore) -> None:
        self._record = record
        self._store = store

    @activity.defn
    async def archive_loop(self, request: LoopArchiveRequest) -> LoopArchived:
        """See `holdfast.core.loop.activities.ARCHIVE_LOOP`."""
        async with heartbeats():
            return LoopArchived(logged=await self.write(request.log))

    async def write(self, part: LogPart) -> Logged:
        """Write events of the loop that called this activity. Writing them again has no effect.

        Raises:
            Exception: The store is unavailable, which Temporal retries.
        """
        loop = calling_thread()
        lines = [canonical(event) for event in part.events]
        try:
            require_own_id(loop)
            head = read_lines(loop, part.start, lines, head=part.base)[-1].digest
            await self._ensure(loop, part)
            await self._record.append(loop, part.start, lines)
            await self._record.seal(loop, part.start + len(lines), head)
        except (ApplicationError, RecordUnreadable) as error:
            why = error.message if isinstance(error, ApplicationError) else str(error)
            log.warning("loop_log_refused", loop=loop, position=part.start, reason=why)
            return Logged(refused=why or type(error).__name__)
        return Logged(length=part.start + len(lines), head=head)

    async def _ensure(self, loop: str, part: LogPart) -> None:
        """Make sure that the record has the events that come before the part.

        After a reset it may have those of another branch: then this writes the loop's past again, from Temporal's
        histories.

        Raises:
            ApplicationError: RECORD_CONFLICT: the histories do not have these events either.
        """
        if not part.start or await self._digest(loop, part.start - 1) == part.base:
            return
        past: dict[int, bytes] = {}
        run_id: str | None = activity.info().workflow_run_id
        try:
            while run_id and 0 not in past:
                recorded, run_id = await _events_of_run(loop, run_id)
                past = recorded | past
            start = min(past)
            lines = [past[position] for position in range(start, part.start)]
            base = GENESIS if start == 0 else await self._digest(loop, start - 1)
            if read_lines(loop, start, lines, head=base)[-1].digest == part.base:
                return await self._record.append(loop, start, lines)
        except (RPCError, HistoryUnreadable, RecordUnreadable, LookupError, ValueError) as error:
            log.warning("past_unreadable", thread=loop, run_id=run_id, reason=str(error))
        message = f"loop {loop}: the record does not lead to event {part.start - 1} ({part.base})"
        raise ApplicationError(message, type=RECORD_CONFLICT, non_retryable=True)

    async def end_of(self, thread: str) -> tuple[int, str]:
        """Return how many events a thread has in the record, and the digest of the last; (0, "") if it has none."""
        length = await self._store.length(thread)
        return (length, await self._digest(thread, length - 1)) if length else (0, "")

    async def spent_by(self, thread: str, run_id: str) -> TreeCost | None:
        """Return the cost of a closed run and of all runs below it; None if its log does not contain it.

        Args:
            thread: The thread.
            run_id: The first run id of the run.
        """
        reader = Reader(Runs(own_client(), answer_within=ANSWER_WITHIN), self._store)
        return await spent_by(reader, thread, first_run_id=run_id)

    async def _digest(self, thread: str, position: int) -> str:
        """Return the digest of a recorded event; empty if the record does not have it."""
        stored = await self._store.read(thread, position)
        return str(json.loads(stored[0])["digest"]) if stored else ""


async def _events_of_run(loop: str, run_id: str) -> tuple[dict[int, bytes], str | None]:
    """Return the events in a run's history, by position, and the id of the run that it continues.

    Raises:
        RPCError: Temporal does not have the history, or is unavailable.
        HistoryUnreadable: It cannot be decoded.
    """
    client = own_client()
    history = await client.get_workflow_handle(loop, run_id=run_id).fetch_history()
    converter = converter_of(loop)
    for event in history.events:
        await decrypt_in_place(event, converter.payload_codec)
    begin = history.events[0].workflow_execution_started_event_attributes
    return lines_in(history.events, by=converter.payload_converter), begin.continued_execution_run_id or None
