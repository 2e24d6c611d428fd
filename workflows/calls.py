"""Start what a workflow asks for: an activity, called as the table of activities says, or a timer."""

import asyncio
from datetime import datetime, timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.workflow import ActivityCancellationType

from holdfast.run.activities import PATIENT, Activity, AnswerT, RequestT, StateT, activity_of
from holdfast.run.commands import Call, Sleep
from holdfast.run.state import RunState

ONCE = RetryPolicy(maximum_attempts=1)
"""For local activities: the run makes a call that fails there again as an ordinary activity, which Temporal retries."""


def start(command: Call | Sleep, state: RunState) -> asyncio.Future[Any]:
    """Start the activity or the timer that a command of an agent run asks for.

    Args:
        command: What to start.
        state: The run's state, for the limits that its agent sets.
    """
    if isinstance(command, Sleep):
        waits_for = _awaited(command.until, state)
        return asyncio.create_task(workflow.sleep(command.seconds, summary=f"until {waits_for}"))
    activity = activity_of(command.request)
    if not command.local:
        return start_activity(activity, command.request, state)
    return workflow.start_local_activity(
        activity.name,
        command.request,
        result_type=activity.answer,
        schedule_to_close_timeout=timedelta(seconds=command.seconds),
        retry_policy=ONCE,
        activity_id=command.request.order,
        summary=activity.summary(command.request, state),
    )


def _awaited(until: datetime, state: RunState) -> str:
    """What happens at a time for which the run sleeps."""
    if until == state.dormancy.due():
        polls = any(wait.polls and wait.due == until for wait in state.dormancy.waits)
        return "the agent looks again" if polls else "the agent wakes"
    if any(call.starts_at == until for call in state.calls.delayed):
        return "a repeated call starts"
    if state.pause and state.pause.until == until:
        return "the pause is over"
    if state.subagents.open and until not in (state.wake_at(until), state.idle.until):
        return "it looks at its sub-agents"
    return "it closes" if state.idle.awaiting else "something is due about a request"


def start_activity(
    activity: Activity[RequestT, AnswerT, StateT], request: RequestT, state: StateT
) -> asyncio.Future[AnswerT]:
    """Start an activity, with the timeouts and retries of its entry in the table."""
    return workflow.start_activity(
        activity.name,
        request,
        result_type=activity.answer,
        start_to_close_timeout=activity.time_limit(request, state),
        schedule_to_close_timeout=activity.total_limit,
        heartbeat_timeout=activity.heartbeat_timeout,
        retry_policy=PATIENT,
        cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED
        if activity.outlives_stop
        else ActivityCancellationType.TRY_CANCEL,
        summary=activity.summary(request, state),
    )
