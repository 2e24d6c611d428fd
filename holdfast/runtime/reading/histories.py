"""The histories of a thread's Temporal runs: what each recorded, where it began, and which run came before it."""

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import TypeVar

from temporalio.api.history.v1 import HistoryEvent
from temporalio.converter import PayloadCodec, PayloadConverter
from temporalio.service import RPCError, RPCStatusCode

from holdfast.errors import HistoryUnreadable
from holdfast.log.events import AgentEvent
from holdfast.run.contracts import Archived, LoadedThread, RunInput
from holdfast.run.snapshot import RunSnapshot
from holdfast.runtime.reading.runs import Runs
from holdfast.temporal.encrypted import decrypt_in_place
from holdfast.temporal.history import READING, decode, decode_any, results_of
from holdfast.temporal.history_reader import read_events

_T = TypeVar("_T")

_LIMIT = timedelta(seconds=30)


@dataclass(frozen=True)
class Recorded:
    """The history of one Temporal run."""

    thread: str
    run_id: str
    events: Sequence[HistoryEvent]
    by: PayloadConverter = READING
    """Decodes its payloads, and checks their seals if it has the keys."""

    @cached_property
    def log(self) -> list[AgentEvent]:
        """The events of the thread that it holds, in order; none where the run never got that far.

        Raises:
            HistoryUnreadable: This release cannot read them.
        """
        return read_events(self.events, by=self.by)

    @property
    def begin(self) -> RunSnapshot:
        """Where the thread stood when its first event was recorded.

        Raises:
            HistoryUnreadable: This release cannot read it.
        """
        given = decode(1, self.events[0].workflow_execution_started_event_attributes.input.payloads, RunInput, self.by)
        if given.snapshot or not given.resume:
            return given.snapshot or RunSnapshot()
        loaded = self._answers("load_thread", LoadedThread)
        return next((answer.snapshot for answer in loaded), RunSnapshot())

    @property
    def archived(self) -> int:
        """How many events the permanent record had when it was last written to.

        Raises:
            HistoryUnreadable: This release cannot read it.
        """
        return max((answer.length for answer in self._answers("archive", Archived)), default=0)

    def _answers(self, activity: str, kind: type[_T]) -> Iterator[_T]:
        """What activities of that type answered; the run took nothing for an answer that was not sealed."""
        for event_id, payloads in results_of(self.events, activity):
            answer = decode_any(event_id, payloads, kind, self.by)
            if isinstance(answer, kind):
                yield answer

    @property
    def previous(self) -> str | None:
        """Temporal's id of the thread's run before this one, as far as this one knows."""
        return _previous(self.events[0])


async def fetch(runs: Runs, thread: str, run_id: str, *, by: PayloadConverter = READING) -> Recorded | None:
    """The history of a run, decrypted; None if Temporal has it no longer.

    Args:
        runs: Of its namespace.
        thread: The thread id.
        run_id: Temporal's id of the run.
        by: Decodes its payloads; one with the fleet keys and the thread's context checks their seals, too.

    Raises:
        DecryptionFailed: It is encrypted with a key that is not set here.
        ServerUnreachable: The server does not answer.
    """
    handle = runs.client.get_workflow_handle(thread, run_id=run_id)
    try:
        events = (await handle.fetch_history(rpc_timeout=_LIMIT)).events
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return None
        raise runs.in_words(error, thread) from error
    await opened(events, runs.client.data_converter.payload_codec)
    return Recorded(thread, run_id, events, by)


async def opened(events: Sequence[HistoryEvent], codec: PayloadCodec | None) -> None:
    """Decrypt a history's events, in their place.

    Raises:
        DecryptionFailed: The key is not here, or they were altered.
    """
    for event in events:
        await decrypt_in_place(event, codec)


async def runs_back(runs: Runs, thread: str, run_id: str, *, by: PayloadConverter = READING) -> AsyncIterator[Recorded]:
    """A run of a thread, then each one before it, as far as Temporal still has them; `by` is that of `fetch`."""
    run = await fetch(runs, thread, run_id, by=by)
    while run:
        yield run
        run = await fetch(runs, thread, run.previous, by=by) if run.previous else None


async def previous_of(runs: Runs, thread: str, run_id: str) -> str | None:
    """Temporal's id of the run before this one; reads no more of its history than the first event."""
    handle = runs.client.get_workflow_handle(thread, run_id=run_id)
    try:
        async for event in handle.fetch_history_events(page_size=1, rpc_timeout=_LIMIT):
            await decrypt_in_place(event, runs.client.data_converter.payload_codec)
            return _previous(event)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise runs.in_words(error, thread) from error
    return None


def _previous(first: HistoryEvent) -> str | None:
    begin = first.workflow_execution_started_event_attributes
    if begin.continued_execution_run_id:
        return begin.continued_execution_run_id
    try:
        return decode(1, begin.input.payloads, RunInput).previous_run
    except HistoryUnreadable:
        return None
