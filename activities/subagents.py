"""Starts sub-agents, reads how they ended, and cancels them.

1. An earlier start of a sub-agent is recognised by the sealed input of the existing run, never by its id alone. If
   another thread has the id, the result says that the id is taken.
2. A sub-agent is the chain of Temporal runs that began with the recorded run id. Other chains under the id are ignored.
3. A result has its own trust level only if it is sealed. The message of a failure is not, so its level is `web`.
4. The cost of a sub-agent that gave no result is read from its log.
5. If the run has no record of whether a sub-agent started, it is looked up by its id, and recognised as in 1.
"""

import asyncio
import builtins
import secrets
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from temporalio import activity
from temporalio.client import WorkflowExecutionDescription, WorkflowFailureError
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.converter import WorkflowSerializationContext
from temporalio.exceptions import (
    ApplicationError,
    CancelledError,
    TerminatedError,
    WorkflowAlreadyStartedError,
)
from temporalio.service import RPCError, RPCStatusCode

from holdfast.activities.calling_run import Chains, calling_thread
from holdfast.activities.heartbeats import heartbeats
from holdfast.client.reading.costs import spent_by
from holdfast.client.reading.executions import describe, own_client
from holdfast.client.reading.reader import Reader
from holdfast.client.reading.runs import ENDED, Runs
from holdfast.client.reading.states import decode_lines
from holdfast.core.authority.summaries import memo, summary
from holdfast.core.base.text import code
from holdfast.core.log.events import RunFinished, RunStarted
from holdfast.core.mac.seals import is_unsealed
from holdfast.core.run.contracts.runs import WORKFLOW, RunInput, RunResult
from holdfast.core.run.contracts.subagents import (
    ENDED_SIGNAL,
    HINTED_SECONDS,
    NO_ANSWER,
    PARENT_ENDS,
    Announced,
    AnnounceEnd,
    CheckSubagentsRequest,
    EndSubagentsRequest,
    StartedSubagent,
    StartedSubagents,
    StartSubagentsRequest,
    SubagentRef,
    SubagentReport,
    SubagentReports,
    SubagentStart,
    child_input,
    is_own,
    proven_lineage,
)
from holdfast.core.stores import ThreadStore
from holdfast.core.temporal.encrypted import decrypt_in_place
from holdfast.core.tools.subagents import child_thread
from holdfast.core.transcript.transcript import clip
from holdfast.core.trust import least
from holdfast.errors import HoldfastError, RecordUnavailable, ServerUnreachable
from holdfast.telemetry.traces.spans import run_context

ANSWER_TIMEOUT = timedelta(seconds=10)
"""How long Temporal may take to answer; then Temporal retries the activity."""

DECODE_ATTEMPTS = 4
"""Attempts to decode a payload: another worker may have the keys. After these, the payload is regarded as foreign."""

UNSETTLED_SECONDS, UNSETTLED_PAUSE = 15.0, 1.0
"""Seconds of the search for a sub-agent whose start has failed, and between two look-ups. A heartbeat shows a worker
within about five seconds that Temporal has abandoned its attempt; a call then ends after `ANSWER_TIMEOUT`."""

MAX_CONCURRENT = 20
"""Concurrent calls to Temporal."""

_T = TypeVar("_T")
_R = TypeVar("_R")


class Subagents:
    """The activities of sub-agents.

    Args:
        record: The permanent record, for sub-agents that Temporal no longer has.
        chains: Maps a Temporal run to its chain.
    """

    def __init__(self, record: ThreadStore, chains: Chains) -> None:
        self._record = record
        self._chains = chains

    @activity.defn
    async def start_subagents(self, request: StartSubagentsRequest) -> StartedSubagents:
        """See `holdfast.core.run.contracts.table.START_SUBAGENTS`."""
        async with heartbeats():
            run = await self._chains.first_run_id(calling_thread(), activity.info().workflow_run_id or "")
            parent = run_context(request.trace_run or run).traceparent
            started = await _concurrently(request.children, lambda child: _start(request, child, traceparent=parent))
        return StartedSubagents(children=tuple(started))

    @activity.defn
    async def check_subagents(self, request: CheckSubagentsRequest) -> SubagentReports:
        """See `holdfast.core.run.contracts.table.CHECK_SUBAGENTS`."""
        async with heartbeats():
            reports = await _concurrently(
                request.children,
                lambda ref: self._report(ref, clip=request.clip, within=HINTED_SECONDS if ref.closing else 0),
            )
        return SubagentReports(reports=tuple(filter(None, reports)))

    @activity.defn
    async def end_subagents(self, request: EndSubagentsRequest) -> SubagentReports:
        """See `holdfast.core.run.contracts.table.END_SUBAGENTS`."""
        async with heartbeats():
            recorded = [ref for ref in request.children if ref.run_id]
            reason = PARENT_ENDS if request.keeps_unknown else ""
            await _concurrently(recorded, lambda ref: _cancel(ref, reason))
            started = await _cancel_unknown([ref for ref in request.children if not ref.run_id], reason)
            refs = [*recorded, *(ref for ref, _ in started)]
            # All concurrently: each waits in one call, which the server answers when the sub-agent ends.
            outcomes = await _concurrently(
                refs, lambda ref: self._report(ref, clip=request.clip, within=request.seconds), at_once=len(refs)
            )
        # Without constraints: there may be a thousand of them, and Temporal allows 2 MB a payload.
        reports = tuple(each.model_copy(update={"constraints": ()}) for each in outcomes if each)
        return SubagentReports(reports=reports, started=tuple(child for _, child in started))

    @activity.defn
    async def announce_end(self, request: AnnounceEnd) -> Announced:
        """See `holdfast.core.run.contracts.table.ANNOUNCE_END`."""
        parent = own_client().get_workflow_handle(request.parent)
        try:
            await parent.signal(ENDED_SIGNAL, {"thread": calling_thread()}, rpc_timeout=ANSWER_TIMEOUT)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:  # the parent has ended
                raise
        return Announced()

    async def _report(self, ref: SubagentRef, *, clip: int, within: float) -> SubagentReport | None:
        """Return how a sub-agent has ended; None while it is open."""
        thread = ref.thread(calling_thread())
        try:
            description = await describe(own_client(), thread, within=ANSWER_TIMEOUT)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            return await self._with_cost(ref, thread, await self._recorded(ref, thread, clip))
        own = _chain(description) == ref.run_id
        if own and description.status not in ENDED and not within:
            return None
        try:
            async with asyncio.timeout(within or ANSWER_TIMEOUT.total_seconds()):
                report = await _outcome(ref, thread, description.run_id if own else ref.run_id, clip)
            return await self._with_cost(ref, thread, report)
        except builtins.TimeoutError:
            if within:
                return None
            raise
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            return await self._with_cost(ref, thread, await self._recorded(ref, thread, clip))

    async def _with_cost(self, ref: SubagentRef, thread: str, report: SubagentReport) -> SubagentReport:
        """Return the report with the cost of the sub-agent's tree, which is only in the log if there is no result."""
        if not ref.costs or report.cost or report.status == "lost":
            return report  # there is no log that is proven to be the sub-agent's
        reader = Reader(Runs(own_client(), answer_within=ANSWER_TIMEOUT.total_seconds()), self._record)
        cost = await spent_by(reader, thread, first_run_id=ref.run_id)
        return report.model_copy(update={"cost": cost})

    async def _recorded(self, ref: SubagentRef, thread: str, limit: int) -> SubagentReport:
        """Return how a sub-agent that Temporal no longer has ended, from the permanent record."""
        lost = SubagentReport(
            number=ref.number, status="lost", text="neither Temporal nor the permanent record has its end"
        )
        reader = Reader(Runs(own_client(), answer_within=ANSWER_TIMEOUT.total_seconds()), self._record)
        own, report = False, lost
        try:
            async for event in decode_lines(reader.lines(thread, 0, found=None, note=None, use_worker=False)):
                if isinstance(event, RunStarted):
                    own = event.first_run_id == ref.run_id
                if own and isinstance(event, RunFinished):
                    status = "cancelled" if event.outcome == "moved" else event.outcome
                    report = SubagentReport(number=ref.number, status=status, text=_text_of(event, limit))
        except (ServerUnreachable, RecordUnavailable):
            raise
        except HoldfastError:
            return lost
        return report


def _text_of(end: RunFinished, limit: int) -> str:
    """Return the text of a sub-agent's end from its log: the same as from its result or failure in Temporal."""
    if end.outcome == "cancelled":
        return NO_ANSWER
    return clip(f"{end.cause}: {end.result}" if end.outcome == "failed" else end.result, limit)


async def _start(request: StartSubagentsRequest, child: SubagentStart, *, traceparent: str) -> StartedSubagent:
    """Start one sub-agent, unless it was started before."""
    client, thread = own_client(), child_thread(calling_thread(), child.number)
    start = {"start": secrets.token_hex(8), "issued_at": datetime.now(UTC)}
    run_input = child_input(request, child, traceparent=traceparent).model_copy(update=start)
    details = f"Agent `{code(child.agent)}`, started by call {child.number} of `{code(calling_thread())}`."
    try:
        run = await client.start_workflow(
            WORKFLOW,
            run_input,
            id=thread,
            task_queue=activity.info().task_queue,
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
            memo=memo(child.task),
            static_summary=summary(child.task),
            static_details=details,
            rpc_timeout=ANSWER_TIMEOUT,
        )
    except WorkflowAlreadyStartedError:
        return await _existing_start(request, child, thread)
    return StartedSubagent(number=child.number, run_id=run.first_execution_run_id or "")


async def _existing_start(request: StartSubagentsRequest, child: SubagentStart, thread: str) -> StartedSubagent:
    """Return the existing run under the sub-agent's id if it is the sub-agent's; otherwise say that the id is taken."""
    first = _chain(await describe(own_client(), thread, within=ANSWER_TIMEOUT))
    existing = await _input_of(thread, first)
    if is_own(existing, request, child):
        return StartedSubagent(number=child.number, run_id=first, existing=True, budget=existing.lineage.allowance)
    return StartedSubagent(number=child.number, problem=f"there is another thread {thread} already: call this again")


async def _input_of(thread: str, run_id: str) -> Any:
    """Return the input of a run, with the claims that its seal proves; None if it is unreadable, or no agent run's."""
    client = own_client()
    context = WorkflowSerializationContext(namespace=client.namespace, workflow_id=thread)
    converter = client.data_converter.with_context(context).payload_converter
    try:
        async for event in client.get_workflow_handle(thread, run_id=run_id).fetch_history_events(page_size=1):
            await decrypt_in_place(event, client.data_converter.payload_codec)
            begin = event.workflow_execution_started_event_attributes
            payloads = begin.input.payloads
            if begin.workflow_type.name == WORKFLOW and len(payloads) == 1:
                return converter.from_payloads(payloads, [RunInput])[0]
            break
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
    except Exception:  # codecs and converters raise any type, and foreign bytes can be malformed in any way
        if activity.info().attempt < DECODE_ATTEMPTS:
            raise
    return None


async def _cancel(ref: SubagentRef, reason: str) -> None:
    """Request the cancellation of a sub-agent; another run under its id is unaffected."""
    thread = ref.thread(calling_thread())
    child = own_client().get_workflow_handle(thread, first_execution_run_id=ref.run_id)
    try:
        await child.cancel(reason=reason, rpc_timeout=ANSWER_TIMEOUT)
    except RPCError as error:
        if error.status not in (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT):  # it has ended
            raise


async def _cancel_unknown(refs: Sequence[SubagentRef], reason: str) -> list[tuple[SubagentRef, StartedSubagent]]:
    """Cancel the sub-agents that have started, and return each with its start.

    If a request to start a sub-agent failed, an attempt at it may still be running, so the sub-agent may yet start.
    """
    cancelled: list[tuple[SubagentRef, StartedSubagent]] = []
    until = asyncio.get_running_loop().time() + UNSETTLED_SECONDS
    while refs:
        starts = await _concurrently(refs, _find_start)
        started = [
            (ref.model_copy(update={"run_id": start.run_id}), start)
            for ref, start in zip(refs, starts, strict=True)
            if start is not None
        ]
        await _concurrently([ref for ref, _ in started], lambda ref: _cancel(ref, reason))
        cancelled += started
        numbers = {ref.number for ref, _ in started}
        refs = [ref for ref in refs if ref.unsettled and ref.number not in numbers]
        if asyncio.get_running_loop().time() > until:
            break
        await asyncio.sleep(UNSETTLED_PAUSE if refs else 0)
    return cancelled


async def _find_start(ref: SubagentRef) -> StartedSubagent | None:
    """Return the sub-agent that was started for a call; None if there is none."""
    parent = calling_thread()
    try:
        first = _chain(await describe(own_client(), thread := ref.thread(parent), within=ANSWER_TIMEOUT))
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return None
    lineage = proven_lineage(await _input_of(thread, first))
    if lineage is None or (lineage.parent, lineage.key) != (parent, ref.key):
        return None
    return StartedSubagent(number=ref.number, run_id=first, existing=True, budget=lineage.allowance)


async def _outcome(ref: SubagentRef, thread: str, run_id: str, limit: int) -> SubagentReport:
    """Wait for the end of a chain of runs, from this run on, and return how it ended."""
    handle = own_client().get_workflow_handle(thread, run_id=run_id, result_type=RunResult)
    number = ref.number
    try:
        result: Any = await handle.result()
    except WorkflowFailureError as failure:
        cause = failure.cause
        if isinstance(cause, CancelledError):
            return SubagentReport(number=number, status="cancelled", text=NO_ANSWER)
        if isinstance(cause, ApplicationError):
            text = clip(f"{cause.type}: {cause.message}", limit)
            return SubagentReport(number=number, status="failed", text=text)
        how = "terminated" if isinstance(cause, TerminatedError) else "timed out"
        return SubagentReport(
            number=number, status="terminated", text=f"it {how} in Temporal; the Web UI shows by whom"
        )
    except RPCError:
        raise
    except Exception as error:  # see `_input_of`
        if activity.info().attempt < DECODE_ATTEMPTS:
            raise
        return SubagentReport(number=number, status="lost", text=f"its result cannot be read: {type(error).__name__}")
    if is_unsealed(result) or not isinstance(result, RunResult):
        return SubagentReport(number=number, status="lost", text="its result does not come from our own processes")
    return SubagentReport(
        number=number,
        status="completed",
        text=clip(result.result, limit),
        trust=least(result.trust or "web", "agent"),
        steps=result.steps,
        usage=result.usage,
        constraints=result.constraints,
        cost=result.cost,
    )


def _chain(description: WorkflowExecutionDescription) -> str:
    """Return the first run id of the chain of Temporal runs that a run belongs to."""
    return description.raw_info.first_run_id or description.run_id


async def _concurrently(
    items: Sequence[_T], call: Callable[[_T], Awaitable[_R]], *, at_once: int = MAX_CONCURRENT
) -> list[_R]:
    """Call the function for each item, up to `at_once` concurrently; the first exception cancels the others."""
    slots = asyncio.Semaphore(at_once)

    async def within(item: _T) -> _R:
        async with slots:
            return await call(item)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(within(item)) for item in items]
    except ExceptionGroup as several:
        raise several.exceptions[0] from None
    return [task.result() for task in tasks]
