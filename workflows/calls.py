"""How each call of a run is made: its time limits, its retries, and the summary the Web UI shows."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.workflow import ActivityCancellationType

from holdfast.loop.state import Settled, SettleRequest, Survey, SurveyRequest
from holdfast.run.commands import Call, Sleep
from holdfast.run.contracts import (
    AgentRequest,
    ArchiveRequest,
    EffectsRequest,
    LLMRequest,
    Notice,
    Notified,
    ThreadRequest,
    ToolRequest,
)
from holdfast.run.details import describe_call
from holdfast.run.state import RunState
from holdfast.seals.orders import Order
from holdfast.stubs import (
    archive,
    call_llm,
    call_tool,
    load_agent,
    load_effects,
    load_thread,
    notify,
    settle_iteration,
    survey_workspace,
)

_Request = TypeVar("_Request", bound=Order)
_Result = TypeVar("_Result")

HEARTBEAT_TIMEOUT = timedelta(seconds=5)
"""How long a worker may be silent before its calls are given to another: half of what a SIGKILL costs where no process
of its machine takes over (`holdfast/runtime/takeover/takeover.py`). The other half is the sticky queue's timeout
(`holdfast/runtime/worker/construction.py`).
"""

PATIENT = RetryPolicy(
    initial_interval=timedelta(seconds=1), backoff_coefficient=2.0, maximum_interval=timedelta(seconds=30)
)
"""Without end: an outage delays a run, it never kills one."""

ONCE = RetryPolicy(maximum_attempts=1)
"""For local activities: what comes to nothing there is tried again as an ordinary activity, and patiently."""

FILES = timedelta(minutes=5)
"""For what goes through a repository, which may be a large one."""

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
            return _start(load_thread, request, "load the thread", local=command.seconds)
        case EffectsRequest() as request:
            return _start(load_effects, request, "what was done before the reset", local=command.seconds)
        case AgentRequest() as request:
            summary = f"load {request.agent or 'the default agent'}"
            return _start(load_agent, request, summary, local=command.seconds)
        case LLMRequest() as request:
            assert state.spec is not None
            limit = timedelta(seconds=state.spec.limits.llm_timeout) + MARGIN
            what = "compact the context" if request.compacting else f"step {state.step + 1}"
            return _start(call_llm, request, what, within=limit)
        case ToolRequest() as request:
            tool = state.spec.tool(request.call.name) if state.spec else None
            assert tool is not None, "a call of an unknown tool never gets a verdict"
            return _start(
                call_tool,
                request,
                ("undo " if request.undo else "settle " if request.settle else "") + describe_call(request.call),
                local=command.seconds,
                within=timedelta(seconds=tool.timeout) + MARGIN,
                # An effect under way is not lost from sight.
                cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            )
        case Notice() as notice:
            return tell(notice)
        case ArchiveRequest() as request:
            return _start(archive, request, f"events {request.start} to {request.stop - 1}")


def tell(notice: Notice) -> asyncio.Future[Notified]:
    """Have people who are elsewhere told."""
    words = notice.occasion.replace("_", " ")
    return _start(notify, notice, words, heartbeat_timeout=None, schedule_to_close_timeout=TELLING)


def survey(request: SurveyRequest, summary: str) -> asyncio.Future[Survey]:
    """Have a loop's files looked at."""
    return _start(survey_workspace, request, summary, within=FILES)


def settle(request: SettleRequest, summary: str) -> asyncio.Future[Settled]:
    """Have an iteration's end found out and recorded."""
    return _start(settle_iteration, request, summary, within=FILES)


def _start(
    stub: Callable[[_Request], Awaitable[_Result]],
    request: _Request,
    summary: str,
    *,
    local: float = 0,
    within: timedelta = QUICK,
    **more: Any,
) -> asyncio.Future[Any]:
    """Start an activity by what holds for all of them; `more` takes the place of any of it. A local one, of at most so
    many seconds, is tried once.
    """
    if local:
        limit = timedelta(seconds=local)
        return workflow.start_local_activity(
            stub,
            request,
            schedule_to_close_timeout=limit,
            retry_policy=ONCE,
            activity_id=request.order,
            summary=summary,
        )
    shared = {"heartbeat_timeout": HEARTBEAT_TIMEOUT, "retry_policy": PATIENT, "summary": summary}
    return workflow.start_activity(stub, request, start_to_close_timeout=within, **{**shared, **more})


def _waits_for(state: RunState) -> str:
    return "until it closes" if state.awaiting else "until something is due about a request"
