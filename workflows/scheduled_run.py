"""ScheduledRunWorkflow: the launcher that a schedule starts. It starts one agent run, and waits for its end.

Temporal's schedules start a workflow under an id that no client can seal an input for. So a schedule starts this one,
and this one starts the run, with a seal for its thread. It stays open as long as the run does, because Temporal's
policy about overlapping runs covers only workflows that the schedule has started. `holdfast.core.schedule.launching`
has the rules.
"""

from typing import Any

from temporalio import workflow
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.workflow import ChildWorkflowCancellationType, ParentClosePolicy

from holdfast.core.authority.summaries import memo, summary
from holdfast.core.base.text import code
from holdfast.core.mac.starts import NO_INPUT, only
from holdfast.core.run.contracts.error_types import START_REFUSED, THREAD_EXISTS
from holdfast.core.run.contracts.runs import SCHEDULED_WORKFLOW, WORKFLOW, RunResult
from holdfast.core.schedule.launching import ScheduledInput, ScheduledResult, launch, run_details
from holdfast.workflows.driver import accept_any_arguments

_NO_INPUT = ScheduledInput(malformed=NO_INPUT)


@workflow.defn(name=SCHEDULED_WORKFLOW)
class ScheduledRunWorkflow:
    """One start by a schedule: a sealed task in, an agent run to its end."""

    @workflow.run
    @accept_any_arguments
    async def run(self, begin: ScheduledInput = _NO_INPUT, *more: Any) -> ScheduledResult:
        """Start the run, and wait until it has ended.

        Raises:
            ApplicationError: The input is not sealed, or the run's thread exists already.
            ChildWorkflowError: The run failed or was cancelled; its log has the reason.
            CancelledError: The launcher was cancelled. It cancelled the run, and waited for its end.
        """
        info = workflow.info()
        start = launch(
            only(begin, more, ScheduledInput),
            workflow_id=info.workflow_id,
            started_at=info.workflow_start_time,
            at=workflow.now(),
        )
        if isinstance(start, str):
            raise ApplicationError(start, type=START_REFUSED, non_retryable=True)
        workflow.set_current_details(f"Starts the thread `{code(start.thread)}`, and waits for its end.")
        try:
            run = await workflow.start_child_workflow(
                WORKFLOW,
                start.run,
                id=start.thread,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                result_type=RunResult,
                memo=memo(start.run.task),
                static_summary=summary(start.run.task),
                static_details=run_details(start),
                cancellation_type=ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
                # Terminating the launcher does not stop the run, which is a thread like any other.
                parent_close_policy=ParentClosePolicy.ABANDON,
            )
        except WorkflowAlreadyStartedError:
            message = f"there is or was a thread {start.thread} already: this run was not started"
            raise ApplicationError(message, type=THREAD_EXISTS, non_retryable=True) from None
        await run
        return ScheduledResult(thread=start.thread)
