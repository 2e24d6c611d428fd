"""Choose which of the Temporal runs under a thread's id is the thread's own.

Anybody with access to Temporal can start a workflow under any id that has no open run, on their own worker. The newest
run of an id is therefore unauthenticated:

1. A start sealed by Holdfast's own processes counts once, while it is valid. Runs that such a run continues as count,
   too.
2. An unsealed start, or the start of a new thread, counts only if it begins the thread: neither the permanent record
   nor an earlier run has earlier events.
3. Without a fleet key, a value with any seal counts as sealed. Readers of the run's content check whether it is
   authentic (`holdfast.core.temporal.history_reader`).
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, timedelta
from typing import Literal

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowExecution, WorkflowExecutionDescription
from temporalio.service import RPCError, RPCStatusCode

from holdfast.client.reading import executions
from holdfast.client.reading.histories import converter_for, decrypt_events, fetch
from holdfast.client.reading.record import Record, call_store
from holdfast.client.reading.runs import Runs
from holdfast.core.loop.state import LoopInput
from holdfast.core.mac.starts import START_WITHIN, Start, refusal
from holdfast.core.run.contracts.runs import LOOP_WORKFLOW, WORKFLOW, RunInput
from holdfast.core.temporal.converter import DecryptionFailed
from holdfast.core.temporal.history import READING, check_time, decode
from holdfast.errors import FeaturesUnknown, HistoryUnreadable, HoldfastError

INPUTS: dict[str, type[Start]] = {WORKFLOW: RunInput, LOOP_WORKFLOW: LoopInput}
"""Workflow type → its input."""

MOST = 200
"""Maximum number of earlier runs of an id to examine."""
_REMEMBERED = 10_000
_LIMIT = timedelta(seconds=30)


@dataclass(frozen=True)
class ForeignRun:
    """The newest Temporal run under a thread's id, if it is not the thread's own."""

    run_id: str
    status: str
    """Temporal's status, such as `completed`."""
    why: str

    def __str__(self) -> str:
        return (
            f"Temporal also has a run under this id that is not the thread's own, and is ignored: run {self.run_id} "
            f"({self.status}): {self.why}"
        )


@dataclass(frozen=True)
class _Begin:
    """How a Temporal run began."""

    kind: Literal["continues", "sealed", "opens", "foreign"]
    """Continues one of the thread's own runs · started by Holdfast's own processes for a thread that may have a past ·
    begins a thread · cannot be one of the thread's own runs."""
    chain: str = ""
    """The first run id of its chain of runs."""
    start: str = ""
    """The id of its sealed start."""
    why: str = ""
    """Why it is foreign."""


class Ownership:
    """Chooses threads' own runs, and caches the choices.

    Args:
        runs: The namespace's runs.
        record: The permanent record; None without one.
    """

    def __init__(self, runs: Runs, record: Record | None) -> None:
        self._runs = runs
        self._record = record
        self._chosen: dict[str, tuple[str, str, ForeignRun | None]] = {}
        """Thread → its newest run, its own run (empty for none), and the newest one if it is foreign."""

    def foreign(self, thread: str) -> ForeignRun | None:
        """Return the newest run of a thread's id if it was not chosen as the thread's own."""
        return self._chosen.get(thread, ("", "", None))[2]

    def started(self, thread: str, run_id: str) -> None:
        """Choose a run that this client has just started itself, by a sealed start."""
        self._remember(thread, run_id, run_id, None)

    async def own(self, latest: WorkflowExecutionDescription) -> WorkflowExecutionDescription | None:
        """Return the description of the thread's own latest run; None if only the permanent record has the thread.

        If there is no other trace of the thread, that is `latest`, even if somebody else started it.

        Args:
            latest: The newest run of the id, of any workflow type.

        Raises:
            ServerUnreachable: The server does not answer.
        """
        newest, own, _ = self._chosen.get(latest.id, ("", "", None))
        if newest != latest.run_id:
            own = await self._choose(latest)
        if own in (latest.run_id, ""):
            return latest if own else None
        try:
            return await executions.describe(self._runs.client, latest.id, run_id=own, within=_LIMIT)
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:  # Temporal has removed it since
                return None
            raise self._runs.translate_error(error, latest.id) from error

    async def _choose(self, latest: WorkflowExecutionDescription) -> str:
        """Choose the thread's own run, and cache it; empty if only the record has the thread."""
        thread, first = latest.id, await self._recorded_chain(latest.id)
        begin = await self._begin(thread, latest.run_id)
        own, foreign = latest.run_id, None
        if begin.kind != "continues" and not (begin.kind == "opens" and first == begin.chain):
            chosen = await self._among(latest, begin, first)
            if chosen is not None:
                own = chosen
                why = begin.why or "the thread had ended before, and this start does not continue it"
                status = latest.status.name.lower() if latest.status else "unknown"
                foreign = ForeignRun(latest.run_id, status, why) if own != latest.run_id else None
        self._remember(thread, latest.run_id, own, foreign)
        return own

    def _remember(self, thread: str, newest: str, own: str, foreign: ForeignRun | None) -> None:
        if len(self._chosen) >= _REMEMBERED:
            self._chosen.clear()
        self._chosen[thread] = newest, own, foreign

    async def _among(self, latest: WorkflowExecutionDescription, begin: _Begin, first: str) -> str | None:
        """Return the newest run that is the thread's own; empty if only the record has the thread, None if there is
        none.
        """
        runs: list[WorkflowExecution] = [latest, *await self._older(latest)]
        for place, run in enumerate(runs):
            each = begin if run is latest else await self._begin(run.id, run.run_id)
            if await self._counts(run, each, runs[place + 1 :], first):
                return run.run_id
        return "" if first else None

    async def _counts(
        self, run: WorkflowExecution, begin: _Begin, earlier: Sequence[WorkflowExecution], first: str
    ) -> bool:
        """Whether a run is the thread's own, given the runs before it and the chain that began the record."""
        match begin.kind:
            case "continues":
                return True
            case "foreign":
                return False
            case "sealed":  # later than this, a copy of the start would have been rejected
                recent = [
                    each for each in earlier if begin.start and run.start_time - each.start_time <= 2 * START_WITHIN
                ]
                copied = [await self._begin(each.id, each.run_id) for each in recent]
                return not any(each.start == begin.start and each.chain != begin.chain for each in copied)
            case "opens" if first:
                return begin.chain == first
            case "opens":
                for each in earlier:
                    before = await self._begin(each.id, each.run_id)
                    if before.kind != "foreign" and before.chain != begin.chain:
                        return await self._was_accepted(run.id, run.run_id)
                return True

    async def _begin(self, thread: str, run_id: str) -> _Begin:
        """Read how a run began, from the first event of its history."""
        event = await self._first_event(thread, run_id)
        if event is None:
            return _Begin("foreign", why="Temporal has removed it")
        begun = event.workflow_execution_started_event_attributes
        chain, kind = begun.first_execution_run_id, INPUTS.get(begun.workflow_type.name)
        if kind is None:
            return _Begin("foreign", chain, why=f"it is a workflow of type {begun.workflow_type.name!r}")
        by, codec = converter_for(self._runs.client, thread), self._runs.client.data_converter.payload_codec
        try:
            await decrypt_events([event], codec)
            given = decode(1, begun.input.payloads, kind, by)
            check_time(event)
        except DecryptionFailed as error:
            # A process without a fleet key or encryption key may also lack the run's key.
            blind = by is READING or not getattr(codec, "encrypts", False)
            return _Begin("sealed" if blind else "foreign", chain, why=str(error))
        except HistoryUnreadable as error:
            newer = isinstance(error.__cause__, FeaturesUnknown)  # sealed, by a newer release
            return _Begin("sealed" if newer else "foreign", chain, why=str(error))
        if given.sealed and given.first_run_id:
            return _Begin("continues" if given.first_run_id == chain else "foreign", chain, why="it is a copy")
        if why := refusal(given, first_run_id=chain, started_at=event.event_time.ToDatetime(UTC)):
            return _Begin("foreign", chain, given.start if given.proven else "", why)
        if not given.proven:
            return _Begin("opens", chain)
        past = isinstance(given, RunInput) and bool(given.resume or given.fork or given.imported)
        return _Begin("sealed" if past else "opens", chain, given.start)

    async def _first_event(self, thread: str, run_id: str) -> HistoryEvent | None:
        run = self._runs.client.get_workflow_handle(thread, run_id=run_id)
        try:
            async for event in run.fetch_history_events(page_size=1, rpc_timeout=_LIMIT):
                return event
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise self._runs.translate_error(error, thread) from error
        return None

    async def _older(self, latest: WorkflowExecutionDescription) -> Sequence[WorkflowExecution]:
        """Return earlier runs of the id that nothing continued as new, newest first."""
        if {'"', "\\"} & set(latest.id):  # a query for such an id finds nothing, however it is quoted
            return []
        quoted = latest.id.replace("'", "''")
        query = f"WorkflowId = '{quoted}' AND ExecutionStatus != 'ContinuedAsNew'"
        found: list[WorkflowExecution] = []
        try:
            async for run in executions.list_runs(self._runs.client, query, limit=MOST, within=_LIMIT):
                if run.run_id != latest.run_id and run.id == latest.id and run.start_time <= latest.start_time:
                    found.append(run)
        except RPCError as error:
            raise self._runs.translate_error(error, latest.id) from error
        return sorted(found, key=lambda run: run.start_time, reverse=True)

    async def _recorded_chain(self, thread: str) -> str:
        """Return the first run id of the run that began the recorded thread; empty if the record lacks it."""
        if self._record is None:
            return ""
        with suppress(HoldfastError, ValueError, LookupError, TypeError, AttributeError):
            lines = await call_store(self._record.store.read(thread, 0))
            return str(json.loads(lines[0])["first_run_id"])
        return ""

    async def _was_accepted(self, thread: str, run_id: str) -> bool:
        """Whether one of Holdfast's workers has loaded the run's agent, which it does only for a thread without a
        past.
        """
        by = converter_for(self._runs.client, thread)
        with suppress(HistoryUnreadable, DecryptionFailed):
            run = await fetch(self._runs, thread, run_id, by=by)
            return run is not None and any(event.type == "agent_loaded" for event in run.log)
        return False
