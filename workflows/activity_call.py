"""ActivityCallWorkflow: calls one activity of other workers, for a tool (`holdfast.activity_tool`)."""

from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, TimeoutError, TimeoutType, is_cancelled_exception

from holdfast.core.mac.starts import NO_INPUT, only, refusal
from holdfast.core.run.contracts.activity_calls import ACTIVITY_CALL_WORKFLOW, ActivityCall, ActivityCalled
from holdfast.core.run.contracts.error_types import START_REFUSED, cause_of
from holdfast.workflows.driver import accept_any_arguments

_NO_INPUT = ActivityCall(malformed=NO_INPUT)

_UNTIL_BEGUN = 0.9
"""The share of the time limit in which a worker has to begin the activity; without one, it has not happened."""


@workflow.defn(name=ACTIVITY_CALL_WORKFLOW)
class ActivityCallWorkflow:
    """A sealed call in, the activity's result or its error out."""

    @workflow.run
    @accept_any_arguments
    async def run(self, call: ActivityCall = _NO_INPUT, *more: Any) -> ActivityCalled:
        """Call the activity.

        Raises:
            ApplicationError: The input is not sealed.
            ActivityError: The workflow was cancelled.
        """
        info, call = workflow.info(), only(call, more, ActivityCall)
        first_run_id, started_at = info.first_execution_run_id, info.workflow_start_time
        if refused := refusal(call, first_run_id=first_run_id, started_at=started_at):
            raise ApplicationError(refused, type=START_REFUSED, non_retryable=True)
        limit = timedelta(seconds=call.seconds)
        try:
            result = await workflow.execute_activity(
                call.activity,
                args=call.arguments,
                task_queue=call.task_queue,
                schedule_to_start_timeout=limit * _UNTIL_BEGUN,
                schedule_to_close_timeout=limit,
                heartbeat_timeout=timedelta(seconds=call.heartbeat) if call.heartbeat else None,
                retry_policy=RetryPolicy(maximum_attempts=1 if call.once else 0),
            )
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            kind, message = cause_of(error)
            return ActivityCalled(error=message, kind=kind, begun=_begun(error))
        return ActivityCalled(result=result)


def _begun(error: ActivityError) -> bool:
    """Return whether a worker may have begun the activity."""
    cause = error.cause
    return not (isinstance(cause, TimeoutError) and cause.type is TimeoutType.SCHEDULE_TO_START)
