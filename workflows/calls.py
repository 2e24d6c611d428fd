"""How each call of a run is made: its time limits, its retries, and the summary the Web UI shows."""

import asyncio
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.workflow import ActivityCancellationType

from holdfast.commands import Call, Sleep
from holdfast.contracts import (
    AgentRequest,
    ArchiveRequest,
    LLMRequest,
    Notice,
    ThreadRequest,
    ToolRequest,
    archive,
    call_llm,
    call_tool,
    load_agent,
    load_thread,
    notify,
)
from holdfast.describe import describe_call
from holdfast.state import RunState

HEARTBEAT_TIMEOUT = timedelta(seconds=5)
"""How long a worker may be silent before its calls are given to another: half of what a SIGKILL costs.
The other half is the sticky queue's timeout (`worker.py`)."""

PATIENT = RetryPolicy(
    initial_interval=timedelta(seconds=1), backoff_coefficient=2.0, maximum_interval=timedelta(seconds=30)
)
"""Without end: an outage delays a run, it never kills one."""

QUICK = timedelta(seconds=30)
"""For what only reads or writes a few rows; a try that takes longer is made again."""

TELLING = timedelta(minutes=2)
"""For a notice: a receiver that is down longer than that misses it; a run does not wait any longer to end."""

MARGIN = timedelta(seconds=30)
"""Added to a call's own time limit, which the activity enforces and reports; this one is the backstop."""


def start(command: Call | Sleep, state: RunState) -> asyncio.Future[Any]:
    """Start what a command wants.

    Args:
        command: What to start.
        state: The run's, for the limits that its agent sets.
    """
    if isinstance(command, Sleep):
        return asyncio.create_task(workflow.sleep(command.seconds, summary=_waits_for(state)))
    match command.request:
        case ThreadRequest() as request:
            return workflow.start_activity(
                load_thread,
                request,
                start_to_close_timeout=QUICK,
                heartbeat_timeout=HEARTBEAT_TIMEOUT,
                retry_policy=PATIENT,
                summary="load the thread",
            )
        case AgentRequest() as request:
            return workflow.start_activity(
                load_agent,
                request,
                start_to_close_timeout=QUICK,
                heartbeat_timeout=HEARTBEAT_TIMEOUT,
                retry_policy=PATIENT,
                summary=f"load {request.agent or 'the default agent'}",
            )
        case LLMRequest() as request:
            assert state.spec is not None
            return workflow.start_activity(
                call_llm,
                request,
                start_to_close_timeout=timedelta(seconds=state.spec.limits.llm_timeout) + MARGIN,
                heartbeat_timeout=HEARTBEAT_TIMEOUT,
                retry_policy=PATIENT,
                summary="fold" if request.folding else f"step {state.step + 1}",
            )
        case ToolRequest() as request:
            tool = state.spec.tool(request.call.name) if state.spec else None
            assert tool is not None, "a call of an unknown tool never gets a verdict"
            return workflow.start_activity(
                call_tool,
                request,
                start_to_close_timeout=timedelta(seconds=tool.timeout) + MARGIN,
                heartbeat_timeout=HEARTBEAT_TIMEOUT,
                retry_policy=PATIENT,
                # An effect under way is not lost from sight.
                cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
                summary=("undo " if request.undo else "") + describe_call(request.call),
            )
        case Notice() as notice:
            return workflow.start_activity(
                notify,
                notice,
                start_to_close_timeout=QUICK,
                schedule_to_close_timeout=TELLING,
                retry_policy=PATIENT,
                summary=notice.occasion.replace("_", " "),
            )
        case ArchiveRequest() as request:
            return workflow.start_activity(
                archive,
                request,
                start_to_close_timeout=QUICK,
                heartbeat_timeout=HEARTBEAT_TIMEOUT,
                retry_policy=PATIENT,
                summary=f"events {request.start} to {request.stop - 1}",
            )


def _waits_for(state: RunState) -> str:
    return "until it closes" if state.awaiting else "until something is due about a request"
