"""Histories of a thread's Temporal runs: the events that each recorded, its first snapshot, and the run before it."""

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import TypeVar

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client
from temporalio.converter import PayloadCodec, PayloadConverter, WorkflowSerializationContext
from temporalio.service import RPCError, RPCStatusCode

from holdfast.client.reading.runs import Runs
from holdfast.core.log.events import AgentEvent
from holdfast.core.run.contracts.loading import LoadedThread
from holdfast.core.run.contracts.record import Archived
from holdfast.core.run.contracts.runs import RunInput
from holdfast.core.run.contracts.snapshot import RunSnapshot
from holdfast.core.temporal.converter import LeanPayloadConverter
from holdfast.core.temporal.encrypted import decrypt_in_place
from holdfast.core.temporal.history import READING, decode, decode_any, results_of
from holdfast.errors import HistoryUnreadable

_T = TypeVar("_T")

_LIMIT = timedelta(seconds=30)


def converter_for(client: Client, thread: str) -> PayloadConverter:
    """Return the converter for a thread's payloads, which checks seals if the client has fleet keys; else `READING`."""
    made = client.data_converter.payload_converter_class
    if not (issubclass(made, LeanPayloadConverter) and made.seals):
        return READING
    place = WorkflowSerializationContext(namespace=client.namespace, workflow_id=thread)
    return client.data_converter.with_context(place).payload_converter


@dataclass(frozen=True)
class RecordedRun:
    """The history of one Temporal run."""

    thread: str
    run_id: str
    events: Sequence[HistoryEvent]
    by: PayloadConverter = READING
    """Decodes the payloads, and checks their seals if it has the keys."""

    @cached_property
    def log(self) -> list[AgentEvent]:
        """The thread's events that this run recorded, in order; empty if it recorded none.

        Raises:
            HistoryUnreadable: This release cannot read them.
            HistoryForged: They were not made by Holdfast's own processes.
        """
        from holdfast.core.temporal.history_reader import (
            read_events,  # slow to import: it loads the run's state machine
        )

        return read_events(self.events, by=self.by)

    @property
    def run_input(self) -> RunInput:
        """The input of the run.

        Raises:
            HistoryUnreadable: This release cannot read it.
        """
        payloads = self.events[0].workflow_execution_started_event_attributes.input.payloads
        return decode(1, payloads, RunInput, self.by)

    @property
    def begin(self) -> RunSnapshot:
        """The thread's snapshot before the first event of this run.

        Raises:
            HistoryUnreadable: This release cannot read it.
        """
        run_input = self.run_input
        if run_input.snapshot or not (run_input.resume or run_input.fork):
            return run_input.snapshot or RunSnapshot()
        loaded = self._answers("load_thread", LoadedThread)
        return next((answer.snapshot for answer in loaded), RunSnapshot())

    @property
    def chain(self) -> str:
        """The first run id of the chain of Temporal runs."""
        return self.events[0].workflow_execution_started_event_attributes.first_execution_run_id

    @property
    def archived(self) -> int:
        """Number of events in the permanent record after this run last wrote to it.

        Raises:
            HistoryUnreadable: This release cannot read it.
        """
        return max((answer.length for answer in self._answers("archive", Archived)), default=0)

    def _answers(self, activity: str, kind: type[_T]) -> Iterator[_T]:
        """Yield the results of activities of that type, without unsealed ones, which the run rejected."""
        for event_id, payloads in results_of(self.events, activity):
            answer = decode_any(event_id, payloads, kind, self.by)
            if isinstance(answer, kind):
                yield answer

    @property
    def previous(self) -> str | None:
        """Temporal's id of the thread's run before this one; None if this run does not name one."""
        return previous_run_of(self.events[0])


async def fetch(runs: Runs, thread: str, run_id: str, *, by: PayloadConverter = READING) -> RecordedRun | None:
    """Fetch the history of a run, and decrypt it; return None if Temporal no longer has it.

    Args:
        runs: The namespace's runs.
        thread: The thread id.
        run_id: Temporal's id of the run.
        by: Decodes the payloads; a converter with the fleet keys and the thread's context also checks their seals.

    Raises:
        DecryptionFailed: The history is encrypted with a key that is not set here.
        ServerUnreachable: The server does not answer.
    """
    handle = runs.client.get_workflow_handle(thread, run_id=run_id)
    try:
        events = (await handle.fetch_history(rpc_timeout=_LIMIT)).events
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return None
        raise runs.translate_error(error, thread) from error
    await decrypt_events(events, runs.client.data_converter.payload_codec)
    return RecordedRun(thread, run_id, events, by)


async def decrypt_events(events: Sequence[HistoryEvent], codec: PayloadCodec | None) -> None:
    """Decrypt a history's events in place.

    Raises:
        DecryptionFailed: The key is not set here, or the events were altered.
    """
    for event in events:
        await decrypt_in_place(event, codec)


async def runs_back(
    runs: Runs, thread: str, run_id: str, *, by: PayloadConverter = READING
) -> AsyncIterator[RecordedRun]:
    """Yield a run of a thread, then each one before it that Temporal still has; `by` is as in `fetch`."""
    run = await fetch(runs, thread, run_id, by=by)
    while run:
        yield run
        run = await fetch(runs, thread, run.previous, by=by) if run.previous else None


async def previous_of(runs: Runs, thread: str, run_id: str) -> str | None:
    """Return Temporal's id of the run before this one, reading only the first event of its history."""
    handle = runs.client.get_workflow_handle(thread, run_id=run_id)
    try:
        async for event in handle.fetch_history_events(page_size=1, rpc_timeout=_LIMIT):
            await decrypt_in_place(event, runs.client.data_converter.payload_codec)
            return previous_run_of(event)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise runs.translate_error(error, thread) from error
    return None


def previous_run_of(first: HistoryEvent) -> str | None:
    """Return Temporal's id of the thread's run before the one whose first event this is; None if it names none."""
    begin = first.workflow_execution_started_event_attributes
    if begin.continued_execution_run_id:
        return begin.continued_execution_run_id
    try:
        return decode(1, begin.input.payloads, RunInput).previous_run
    except HistoryUnreadable:
        return None
