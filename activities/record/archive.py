"""`archive` and `load_effects`: write the calling run's events to the permanent record, and read back the effects of
its past calls.
"""

import contextlib
from collections.abc import Callable, Iterator

from temporalio import activity
from temporalio.exceptions import ApplicationError

from holdfast.activities.calling_run import CallingRun, InProcessAnswers
from holdfast.activities.heartbeats import heartbeats
from holdfast.activities.record.record import Record, require_own_id
from holdfast.core.log.stored_lines import end_of_chain
from holdfast.core.run.contracts.error_types import NOT_SETTLED, RECORD_CONFLICT, RECORD_UNREADABLE
from holdfast.core.run.contracts.ledger import EffectLedger
from holdfast.core.run.contracts.loading import EffectsRequest, PastEffects
from holdfast.core.run.contracts.record import Archived, ArchiveRequest
from holdfast.core.run.state import features
from holdfast.errors import ThreadForgotten


class Archive:
    """Writes runs to the permanent record.

    Args:
        record: The permanent record.
        ledger: The effects of threads.
        forget: Called after archiving a run that pauses; drops this worker's cache of it.
        in_process: Holds the pages that the worker's runs pass in process; None to query them instead.
    """

    def __init__(
        self,
        record: Record,
        ledger: EffectLedger,
        *,
        forget: Callable[[], None],
        in_process: InProcessAnswers | None = None,
    ) -> None:
        self._record = record
        self._ledger = ledger
        self._forget = forget
        self._in_process = in_process

    @activity.defn
    async def archive(self, request: ArchiveRequest) -> Archived:
        """See `holdfast.core.run.contracts.table.ARCHIVE`."""
        async with heartbeats():
            with _reject_forgotten():
                return await self._archive(request)

    async def _archive(self, request: ArchiveRequest) -> Archived:
        run = CallingRun.of(request, in_process=self._in_process)
        thread = run.thread
        require_own_id(thread)
        before = await self._record.forked_lines(thread, request.fork) if request.fork else []
        if not before:
            await self._record.ensure(run.handle, request.start, request.base)
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
            # In one append: the record never has the original's lines without the event of the fork.
            await self._record.append(thread, position - len(before), [*before, *lines])
            position, before = position + len(lines), []
        _require_end(thread, request, digest)
        if position:
            await self._record.seal(thread, position, digest)
        if request.pausing:
            self._forget()
        return Archived(length=position, features=features.FEATURES)

    @activity.defn
    async def load_effects(self, request: EffectsRequest) -> PastEffects:
        """See `holdfast.core.run.contracts.table.LOAD_EFFECTS`."""
        run = CallingRun.of()
        async with heartbeats():
            with _reject_forgotten():
                if moved := await self._record.moved_threads.since(run.thread, request.position):
                    return PastEffects(moved=moved)
                await self._record.ensure(run.handle, request.position, request.head)
            return await self._ledger.past_effects(run.thread, after=request.after)


@contextlib.contextmanager
def _reject_forgotten() -> Iterator[None]:
    """Block the run instead of retrying for ever if its thread, or the one it was forked from, was forgotten."""
    try:
        yield
    except ThreadForgotten as error:
        raise ApplicationError(str(error), type=RECORD_UNREADABLE, non_retryable=True) from None


def _require_end(thread: str, request: ArchiveRequest, digest: str) -> None:
    """Require that the archived events end with the digest that the run stated.

    Raises:
        ApplicationError: RECORD_CONFLICT: the digest differs.
    """
    if digest != request.head:
        message = f"thread {thread}: event {request.stop - 1} has the digest {digest}, expected {request.head}"
        raise ApplicationError(message, type=RECORD_CONFLICT, non_retryable=True)
