"""Run one iteration of a loop: an agent run as a child workflow, with its own thread and log."""

import asyncio
from datetime import datetime
from typing import Any

from temporalio import workflow
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import ChildWorkflowError, WorkflowAlreadyStartedError, is_cancelled_exception
from temporalio.workflow import ChildWorkflowCancellationType, ParentClosePolicy

from holdfast.core.authority.summaries import memo
from holdfast.core.base.text import plain
from holdfast.core.budget.budget import Budget
from holdfast.core.loop.state import Iteration, LoopInput, RunEnd
from holdfast.core.mac.seals import is_unsealed
from holdfast.core.run.contracts.runs import WORKFLOW, RunInput, RunResult
from holdfast.core.run.state.features import LOOP_BUDGETS, level_of_start
from holdfast.core.trust import Trust

Run = workflow.ChildWorkflowHandle[Any, RunResult]


async def run_agent(
    loop: LoopInput,
    iteration: Iteration,
    brief: str,
    *,
    trust: Trust,
    deadline: datetime | None,
    budget: Budget | None,
) -> tuple[RunEnd, str, str]:
    """Run the iteration's agent. A cancelled loop waits for it.

    Args:
        loop: The loop's input.
        iteration: The iteration.
        brief: Its task.
        trust: The trust level of the files from which the brief is made.
        deadline: When the iteration is stopped; None for never.
        budget: Its share of the loop's budget; None if the loop limits neither tokens nor money.

    Returns:
        The kind of its end, the reason of a failure, and its first run id, which is empty if it could not be started.
    """
    starting = asyncio.create_task(_start_agent(loop, iteration, brief, trust, budget))
    in_time = True
    try:
        try:
            run = await asyncio.shield(starting)
            in_time = await _in_time(run, deadline)
        except asyncio.CancelledError:
            run = await starting
    except WorkflowAlreadyStartedError:
        return "failed", f"there is or was a thread {iteration.thread} already", ""
    if not run.done():
        run.cancel()
    end, explanation = await _wait_for_end(run)
    end = "out_of_time" if end == "cancelled" and not in_time else end
    return end, explanation, run.first_execution_run_id or ""


async def _start_agent(loop: LoopInput, iteration: Iteration, brief: str, trust: Trust, budget: Budget | None) -> Run:
    options: dict[str, Any] = {"budget": budget, "returns_partial": True} if budget else {}
    options |= {"context": loop.context} if loop.context is not None else {}
    options |= {"when_blocked": loop.when_blocked} if loop.when_blocked else {}
    others = LOOP_BUDGETS if budget else 0
    scope = (loop.nodes,) if loop.nodes else ()
    options |= {"scope": scope} if scope else {}
    if level := level_of_start(others=others, context=loop.context, when_blocked=loop.when_blocked, scope=scope):
        options |= {"features": level}
    return await workflow.start_child_workflow(
        WORKFLOW,
        RunInput(
            start=iteration.thread,
            issued_at=workflow.now(),
            task=brief,
            by=loop.by,
            by_proven=loop.by_proven,
            agent=loop.agent if iteration.task else loop.initializer or loop.agent,
            workspace=loop.workspace,
            idle_limit=0,
            trust=trust if iteration.task else "person",  # an agent may have written the task
        ).model_copy(update=options),
        id=iteration.thread,
        # An existing thread of that name has its own log, which this run must not continue.
        id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
        result_type=RunResult,
        memo=memo(iteration.task or "write the plan"),
        static_summary=plain(f"iteration {iteration.number}: {iteration.task or 'write the plan'}", 180),
        cancellation_type=ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
        parent_close_policy=ParentClosePolicy.REQUEST_CANCEL,
    )


async def _in_time(run: Run, deadline: datetime | None) -> bool:
    """Wait until the run ends or the loop's time is up; return whether it ended."""
    timeout = max(0.01, (deadline - workflow.now()).total_seconds()) if deadline else None
    done, _ = await workflow.wait([run], timeout=timeout)
    return bool(done)


async def _wait_for_end(run: Run) -> tuple[RunEnd, str]:
    """Return the kind of an agent run's end, and the reason of a failure."""
    try:
        if is_unsealed(result := await run):
            return "failed", str(result)
        if result.moved:  # no signal can be rejected: the run moves as if a person had started it
            return "failed", "it was moved to another place, where no loop waits for it"
    except ChildWorkflowError as error:
        if is_cancelled_exception(error):
            return "cancelled", "it was cancelled"
        return "failed", str(error.cause or error)[:1_000]
    return "completed", ""
