"""Sub-agents: starts child runs, looks how they ended, and cancels them.

1. A start that may have happened before is recognised by the sealed input of the existing run, never by its id alone. A
   thread of somebody else stays theirs: the answer says that the id is taken.
2. A child is the chain of Temporal runs that began with the recorded run id. Another chain under the same id is not
   asked.
3. Its words count if its result bears a seal. The message of a failure bears none, so it is content of the web.
4. What a child has spent that gave no result is in its log.
5. Where the run does not know whether a child was started, it is looked for under its id, and recognised as in 1.
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

from holdfast.activities.calling_run import calling_thread
from holdfast.activities.heartbeats import heartbeats
from holdfast.client.reading.costs import spent_by
from holdfast.client.reading.executions import describe
from holdfast.client.reading.reader import Reader
from holdfast.client.reading.runs import ENDED, Runs
from holdfast.client.reading.states import decode_lines
from holdfast.core.authority.summaries import memo, summary
from holdfast.core.base.text import code
from holdfast.core.log.events import RunFinished, RunStarted
from holdfast.core.mac.seals import is_unsealed
from holdfast.core.run.contracts.runs import WORKFLOW, RunInput, RunResult
from holdfast.core.run.contracts.subagents import (
    CLOSING_SECONDS,
    ENDED_SIGNAL,
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

ANSWER = timedelta(seconds=10)
"""How long Temporal may take to answer; then Temporal retries the activity."""

PATIENCE = 4
"""Attempts at what this process cannot decode: another may have the keys. Then it counts as no content of ours."""

UNSETTLED_SECONDS, UNSETTLED_PAUSE = 15.0, 1.0
"""How long, and how often, a child is looked for whose start has failed. A worker learns within about five seconds,
by a heartbeat, that Temporal has given up its attempt; a call to Temporal that it has under way then takes `ANSWER`."""

AT_ONCE = 20
"""Calls to Temporal at the same time."""

_T = TypeVar("_T")
_R = TypeVar("_R")


class SubagentActivities:
    """The sub-agents of the runs that call.

    Args:
        record: The permanent record, for children that Temporal no longer has.
    """

    def __init__(self, record: ThreadStore) -> None:
        self._record = record

    @activity.defn
    async def start_subagents(self, order: StartSubagentsRequest) -> StartedSubagents:
        """See `holdfast.core.run.contracts.table.START_CHILDREN`."""
        async with heartbeats():
            started = await _side_by_side(order.children, lambda child: _start(order, child))
        return StartedSubagents(children=tuple(started))

    @activity.defn
    async def check_subagents(self, order: CheckSubagentsRequest) -> SubagentReports:
        """See `holdfast.core.run.contracts.table.LOOK_AT_CHILDREN`."""
        async with heartbeats():
            found = await _side_by_side(
                order.children,
                lambda ref: self._look(ref, clip=order.clip, within=CLOSING_SECONDS if ref.closing else 0),
            )
        return SubagentReports(reports=tuple(filter(None, found)))

    @activity.defn
    async def end_subagents(self, order: EndSubagentsRequest) -> SubagentReports:
        """See `holdfast.core.run.contracts.table.END_CHILDREN`."""
        async with heartbeats():
            known = [ref for ref in order.children if ref.run_id]
            reason = PARENT_ENDS if order.keeps_unknown else ""
            await _side_by_side(known, lambda ref: _cancel(ref, reason))
            started = await _cancel_unknown([ref for ref in order.children if not ref.run_id], reason)
            refs = [*known, *(ref for ref, _ in started)]
            # All at once: each waits by one call that the server answers at the end.
            found = await _side_by_side(
                refs, lambda ref: self._look(ref, clip=order.clip, within=order.seconds), at_once=len(refs)
            )
        # Without constraints: there may be a thousand of them, and Temporal allows 2 MB a payload.
        reports = tuple(each.model_copy(update={"constraints": ()}) for each in found if each)
        return SubagentReports(reports=reports, started=tuple(child for _, child in started))

    @activity.defn
    async def announce_end(self, order: AnnounceEnd) -> Announced:
        """See `holdfast.core.run.contracts.table.ANNOUNCE_END`."""
        parent = activity.client().get_workflow_handle(order.parent)
        try:
            await parent.signal(ENDED_SIGNAL, {"thread": calling_thread()}, rpc_timeout=ANSWER)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:  # it is over
                raise
        return Announced()

    async def _look(self, ref: SubagentRef, *, clip: int, within: float) -> SubagentReport | None:
        """How a child has ended; None where it is open."""
        thread = ref.thread(calling_thread())
        try:
            found = await describe(activity.client(), thread, within=ANSWER)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            return await self._with_cost(ref, thread, await self._recorded(ref, thread, clip))
        own = _chain(found) == ref.run_id
        if own and found.status not in ENDED and not within:
            return None
        try:
            async with asyncio.timeout(within or ANSWER.total_seconds()):
                report = await _outcome(ref, thread, found.run_id if own else ref.run_id, clip)
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
        """The report with what the child's tree has spent; a child without a result says it in its log only."""
        if not ref.costs or report.cost or report.status == "lost":
            return report  # what is not its own says nothing of its cost, either
        reader = Reader(Runs(activity.client(), answer_within=ANSWER.total_seconds()), self._record)
        cost = await spent_by(reader, thread, first_run_id=ref.run_id)
        return report.model_copy(update={"cost": cost})

    async def _recorded(self, ref: SubagentRef, thread: str, limit: int) -> SubagentReport:
        """How a child has ended that Temporal no longer has, by the permanent record."""
        lost = SubagentReport(
            number=ref.number, status="lost", text="neither Temporal nor the permanent record has its end"
        )
        reader = Reader(Runs(activity.client(), answer_within=ANSWER.total_seconds()), self._record)
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
    """The words of a child by its log: the same as by its result or failure in Temporal."""
    if end.outcome == "cancelled":
        return NO_ANSWER
    return clip(f"{end.cause}: {end.result}" if end.outcome == "failed" else end.result, limit)


async def _start(order: StartSubagentsRequest, child: SubagentStart) -> StartedSubagent:
    """Start one child, unless it has been started before."""
    client, thread = activity.client(), child_thread(calling_thread(), child.number)
    start = {"start": secrets.token_hex(8), "issued_at": datetime.now(UTC)}
    given = child_input(order, child).model_copy(update=start)
    shown = f"Agent `{code(child.agent)}`, started by call {child.number} of `{code(calling_thread())}`."
    try:
        run = await client.start_workflow(
            WORKFLOW,
            given,
            id=thread,
            task_queue=activity.info().task_queue,
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
            memo=memo(child.task),
            static_summary=summary(child.task),
            static_details=shown,
            rpc_timeout=ANSWER,
        )
    except WorkflowAlreadyStartedError:
        return await _existing(order, child, thread)
    return StartedSubagent(number=child.number, run_id=run.first_execution_run_id or "")


async def _existing(order: StartSubagentsRequest, child: SubagentStart, thread: str) -> StartedSubagent:
    """Return the run that has the child's id, if it is the child; else say that the id is taken."""
    first = _chain(await describe(activity.client(), thread, within=ANSWER))
    given = await _given(thread, first)
    if is_own(given, order, child):
        return StartedSubagent(number=child.number, run_id=first, existing=True, budget=given.lineage.allowance)
    return StartedSubagent(number=child.number, problem=f"there is another thread {thread} already: call this again")


async def _given(thread: str, run_id: str) -> Any:
    """The input of a run, with what its seal proves; None where it is not that of an agent run, or not readable."""
    client = activity.client()
    place = WorkflowSerializationContext(namespace=client.namespace, workflow_id=thread)
    by = client.data_converter.with_context(place).payload_converter
    try:
        async for event in client.get_workflow_handle(thread, run_id=run_id).fetch_history_events(page_size=1):
            await decrypt_in_place(event, client.data_converter.payload_codec)
            begin = event.workflow_execution_started_event_attributes
            payloads = begin.input.payloads
            if begin.workflow_type.name == WORKFLOW and len(payloads) == 1:
                return by.from_payloads(payloads, [RunInput])[0]
            break
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
    except Exception:  # each codec and converter raises its own, and bytes from elsewhere can be wrong in any way
        if activity.info().attempt < PATIENCE:
            raise
    return None


async def _cancel(ref: SubagentRef, reason: str) -> None:
    """Ask a child to end; nothing happens to another run under its id."""
    thread = ref.thread(calling_thread())
    child = activity.client().get_workflow_handle(thread, first_execution_run_id=ref.run_id)
    try:
        await child.cancel(reason=reason, rpc_timeout=ANSWER)
    except RPCError as error:
        if error.status not in (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT):  # it is over
            raise


async def _cancel_unknown(refs: Sequence[SubagentRef], reason: str) -> list[tuple[SubagentRef, StartedSubagent]]:
    """Cancel those of the children that have begun, and return each with how it was found.

    Where an order to start a child has failed, an attempt at it may still be under way, so the child may yet begin.
    """
    found: list[tuple[SubagentRef, StartedSubagent]] = []
    until = asyncio.get_running_loop().time() + UNSETTLED_SECONDS
    while refs:
        starts = await _side_by_side(refs, _begun)
        begun = [
            (ref.model_copy(update={"run_id": start.run_id}), start)
            for ref, start in zip(refs, starts, strict=True)
            if start is not None
        ]
        await _side_by_side([ref for ref, _ in begun], lambda ref: _cancel(ref, reason))
        found += begun
        numbers = {ref.number for ref, _ in begun}
        refs = [ref for ref in refs if ref.unsettled and ref.number not in numbers]
        if asyncio.get_running_loop().time() > until:
            break
        await asyncio.sleep(UNSETTLED_PAUSE if refs else 0)
    return found


async def _begun(ref: SubagentRef) -> StartedSubagent | None:
    """Return the child that was started for a call; None where there is none."""
    parent = calling_thread()
    try:
        first = _chain(await describe(activity.client(), thread := ref.thread(parent), within=ANSWER))
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return None
    lineage = proven_lineage(await _given(thread, first))
    if lineage is None or (lineage.parent, lineage.key) != (parent, ref.key):
        return None
    return StartedSubagent(number=ref.number, run_id=first, existing=True, budget=lineage.allowance)


async def _outcome(ref: SubagentRef, thread: str, run_id: str, limit: int) -> SubagentReport:
    """Wait for the end of a chain of runs, from this run on, and return how it ended."""
    handle = activity.client().get_workflow_handle(thread, run_id=run_id, result_type=RunResult)
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
    except Exception as error:  # see `_given`
        if activity.info().attempt < PATIENCE:
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


def _chain(found: WorkflowExecutionDescription) -> str:
    """The first run id of the chain of Temporal runs that a run belongs to."""
    return found.raw_info.first_run_id or found.run_id


async def _side_by_side(items: Sequence[_T], one: Callable[[_T], Awaitable[_R]], *, at_once: int = AT_ONCE) -> list[_R]:
    """Do something for each item, some at the same time; the first exception stops all."""
    slots = asyncio.Semaphore(at_once)

    async def within(item: _T) -> _R:
        async with slots:
            return await one(item)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(within(item)) for item in items]
    except ExceptionGroup as several:
        raise several.exceptions[0] from None
    return [task.result() for task in tasks]
