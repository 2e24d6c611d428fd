"""One function per activity call: its time limits, its retries, and the summary the Web UI shows."""

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.workflow import ActivityCancellationType

from holdfast.agent import AgentSpec, ToolSpec
from holdfast.contracts import (
    AgentRequest,
    LLMReply,
    LLMRequest,
    LoadedAgent,
    ToolOutcome,
    ToolRequest,
    call_llm,
    call_tool,
    load_agent,
)
from holdfast.describe import describe_call

HEARTBEAT_TIMEOUT = timedelta(seconds=5)
"""How long a worker may be silent before its calls are given to another: half of what a SIGKILL costs.
The other half is the sticky queue's timeout (`worker.py`)."""

PATIENT = RetryPolicy(
    initial_interval=timedelta(seconds=1), backoff_coefficient=2.0, maximum_interval=timedelta(seconds=30)
)
"""Without end: an outage delays a run, it never kills one."""

MARGIN = timedelta(seconds=30)
"""Added to a call's own time limit, which the activity enforces and reports; this one is the backstop."""


async def load(request: AgentRequest) -> LoadedAgent:
    """Resolve the agent."""
    return await workflow.execute_activity(
        load_agent,
        request,
        start_to_close_timeout=timedelta(seconds=30),
        retry_policy=PATIENT,
        summary=f"load {request.agent or 'the default agent'}",
    )


async def ask_llm(request: LLMRequest, spec: AgentSpec, *, step: int) -> LLMReply:
    """Make one LLM call."""
    return await workflow.execute_activity(
        call_llm,
        request,
        start_to_close_timeout=timedelta(seconds=spec.limits.llm_timeout) + MARGIN,
        heartbeat_timeout=HEARTBEAT_TIMEOUT,
        retry_policy=PATIENT,
        summary=f"step {step}: {spec.llm}, {request.transcript.length} messages",
    )


async def run_tool(request: ToolRequest, tool: ToolSpec) -> ToolOutcome:
    """Run one tool call. Cancelling it waits for the tool, so that an effect under way is not lost from sight."""
    return await workflow.execute_activity(
        call_tool,
        request,
        start_to_close_timeout=timedelta(seconds=tool.timeout) + MARGIN,
        heartbeat_timeout=HEARTBEAT_TIMEOUT,
        retry_policy=PATIENT,
        cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        summary=describe_call(request.call),
    )
