"""The table of activities: for each kind of request, the activity that answers it, its answer and timeouts.

`workflows/driver.py` calls activities by this table, and `holdfast.core.temporal.history_reader` reads their events in
a history by it; the implementations are in the top-level package `activities/`. To add an activity, add its request and
result to `holdfast.core.run.contracts` and `holdfast.core.run.contracts.commands`, one entry here, and the
implementation. The activities of a loop are entries of the same kind, in `holdfast.core.loop.activities`.

1. An activity takes one request and returns one answer, both sealed.
2. Temporal retries an activity until it answers or fails for good: an outage delays a run, but never ends it. All
   activities share one retry policy, `PATIENT`.
3. Only a read-only activity may run as a local activity. A local activity runs before its workflow task is in history,
   and runs again if that task is retried: a write could happen without a trace in any log.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar

from temporalio.common import RetryPolicy

from holdfast.core.agents.agent import Limits
from holdfast.core.mac.seals import ActivityRequest, ActivityResult
from holdfast.core.run.contracts.commands import Request
from holdfast.core.run.contracts.llm_calls import LLMReply, LLMRequest
from holdfast.core.run.contracts.loading import (
    AgentRequest,
    EffectsRequest,
    LoadedAgent,
    LoadedThread,
    PastEffects,
    ThreadRequest,
)
from holdfast.core.run.contracts.record import Archived, ArchiveRequest, Notice, Notified
from holdfast.core.run.contracts.subagents import (
    Announced,
    AnnounceEnd,
    CheckSubagentsRequest,
    EndSubagentsRequest,
    StartedSubagents,
    StartSubagentsRequest,
    SubagentReports,
)
from holdfast.core.run.contracts.tool_calls import PreviewedCall, PreviewRequest, ToolOutcome, ToolRequest
from holdfast.core.run.state.state import RunState
from holdfast.core.tools.effects import Effect, describe_call
from holdfast.core.tools.spec import ToolSpec

RequestT = TypeVar("RequestT", bound=ActivityRequest)
ResultT = TypeVar("ResultT", bound=ActivityResult)
StateT = TypeVar("StateT", contravariant=True)

HEARTBEAT_TIMEOUT = timedelta(seconds=5)
"""Heartbeat timeout, by which Temporal detects a lost worker: how long it may be silent before another worker gets its
activity. This is half of the delay after a SIGKILL if no process of the same machine takes over
(`holdfast/worker/takeover/takeover.py`). The other half is the sticky queue's timeout
(`holdfast/worker/construction.py`).
"""

PATIENT = RetryPolicy(
    initial_interval=timedelta(seconds=1), backoff_coefficient=2.0, maximum_interval=timedelta(seconds=30)
)
"""The retry policy of every activity, LLM calls included: without end (rule 2). If a provider answers with an error,
`provider_error` decides whether another attempt follows, and after how long (`activities/llm_calls/outages.py`).
"""

PREVIEW_SECONDS = 30.0
"""Time limit of a preview, which the activity enforces."""

QUICK = timedelta(seconds=30)
"""Time limit of one attempt that reads or writes a few rows."""

FILES = timedelta(minutes=5)
"""Time limit of one attempt that reads or writes a repository, which may be large."""

NOTIFYING = timedelta(minutes=2)
"""Time limit of a notice, retries included: a receiver that is down longer misses it, and the run may end."""

MARGIN = timedelta(seconds=30)
"""Added to a call's own time limit, which the activity enforces and reports: Temporal's limit is only the backstop."""


@dataclass(frozen=True, kw_only=True)
class Activity(Generic[RequestT, ResultT, StateT]):
    """The activity for one kind of request. Functions get the request and the state of the calling workflow.

    Requests carry no call options: the calling workflow and the reader of its history look them up here.
    """

    name: str
    """The activity type: its name in Temporal's history."""
    request: type[RequestT]
    answer: type[ResultT]
    summary: Callable[[RequestT, StateT], str]
    """A one-line summary of the call, for the Web UI."""
    time_limit: Callable[[RequestT, StateT], timedelta] = lambda request, state: QUICK
    """Start-to-close timeout: how long one attempt may take. For a tool call, the activity enforces the tool's own
    timeout first (`call_function` in `activities/tool_calls/tool_functions.py`).
    """
    total_limit: timedelta | None = None
    """Schedule-to-close timeout: how long all attempts together may take; None for no limit."""
    heartbeat_timeout: timedelta | None = HEARTBEAT_TIMEOUT
    """None for an activity that sends no heartbeat."""
    local_seconds: Callable[[RequestT, StateT], float] = lambda request, state: 0
    """How long the call may take as a local activity, in seconds; 0 if it must not be one."""
    outlives_stop: bool = False
    """The run waits even for a stopped call: its effect may have happened."""
    compared: tuple[str, ...] = ()
    """Fields of the request, besides its name, that must be equal in the history and in the reconstructed run."""


def _limits(state: RunState) -> Limits:
    return state.spec.limits if state.spec else Limits()


def _local(_: ActivityRequest, state: RunState) -> float:
    return _limits(state).local_seconds


def _llm_limit(_: LLMRequest, state: RunState) -> timedelta:
    assert state.spec is not None
    return timedelta(seconds=state.spec.limits.llm_timeout) + MARGIN


def _tool(request: ToolRequest, state: RunState) -> ToolSpec:
    tool = state.spec.tool(request.call.name) if state.spec else None
    assert tool is not None, "a call of an unknown tool never gets a verdict"
    return tool


def _tool_summary(request: ToolRequest, _: RunState) -> str:
    poll = f"poll {request.poll}: " if request.poll else ""
    if request.cancels and request.resumed:
        return f"cancel task {request.resumed.task[:100]}: {describe_call(request.call)}"
    return (poll or ("undo " if request.undo else "settle " if request.settle else "")) + describe_call(request.call)


def _tool_local(request: ToolRequest, state: RunState) -> float:
    if request.resumed:
        return 0  # it sends people's answers, or cancels a task
    if request.poll:
        return 0  # a local activity would delay the inputs that wake the run
    reads = not request.settle and not request.undo and _tool(request, state).effect is Effect.READ
    return _limits(state).local_seconds if reads else 0


def _agents(count: int) -> str:
    return "1 sub-agent" if count == 1 else f"{count} sub-agents"


LOAD_THREAD: Activity[ThreadRequest, LoadedThread, RunState] = Activity(
    name="load_thread",
    request=ThreadRequest,
    answer=LoadedThread,
    summary=lambda request, state: "load the thread",
    local_seconds=lambda request, state: 0 if request.fork else _local(request, state),  # its original may be long
)
"""Read the state of a closed thread. Fails for good with RECORD_UNREADABLE or RECORD_CONFLICT."""

LOAD_EFFECTS = Activity(
    name="load_effects",
    request=EffectsRequest,
    answer=PastEffects,
    summary=lambda request, state: "what was done before the reset",
    local_seconds=_local,
    compared=tuple(EffectsRequest.model_fields),
)
"""Read the effects that a run had before it was reset. Fails for good with RECORD_CONFLICT."""

LOAD_AGENT: Activity[AgentRequest, LoadedAgent, RunState] = Activity(
    name="load_agent",
    request=AgentRequest,
    answer=LoadedAgent,
    summary=lambda request, state: f"load {request.agent or 'the default agent'}",
    time_limit=lambda request, state: FILES if request.forked else QUICK,
    local_seconds=lambda request, state: 0 if request.forked else _local(request, state),  # it writes files
)
"""Resolve an agent's name and its workspace. Fails for good with AGENT_NOT_FOUND or WORKSPACE_NOT_FOUND."""

CALL_LLM = Activity(
    name="call_llm",
    request=LLMRequest,
    answer=LLMReply,
    summary=lambda request, state: "compact the context" if request.compacting else f"step {state.steps.count + 1}",
    time_limit=_llm_limit,
    compared=("transcript",),
)
"""Send the transcript to the LLM. Fails for good with LLM_REJECTED or CONTEXT_TOO_LONG; the error's details are then
the preceding `Outage`. For a run with a budget, they are `LLMFailed`, and the call can also fail with LLM_LOST.
"""

CALL_TOOL = Activity(
    name="call_tool",
    request=ToolRequest,
    answer=ToolOutcome,
    summary=_tool_summary,
    time_limit=lambda request, state: timedelta(seconds=_tool(request, state).timeout) + MARGIN,
    local_seconds=_tool_local,
    outlives_stop=True,
    compared=("key",),
)
"""Run one tool call by the rules of `holdfast.core.tools.effects`."""

PREVIEW_CALL: Activity[PreviewRequest, PreviewedCall, RunState] = Activity(
    name="preview_call",
    request=PreviewRequest,
    answer=PreviewedCall,
    summary=lambda request, state: f"preview {describe_call(request.call)}",
    time_limit=lambda request, state: timedelta(seconds=PREVIEW_SECONDS) + MARGIN,
    compared=("key",),
)
"""Compute what a tool call would do. A preview that fails is an answer, too."""

NOTIFY: Activity[Notice, Notified, object] = Activity(
    name="notify",
    request=Notice,
    answer=Notified,
    summary=lambda request, state: request.occasion.replace("_", " "),
    total_limit=NOTIFYING,
    heartbeat_timeout=None,
)
"""Notify the receivers that the worker is configured with."""

ARCHIVE: Activity[ArchiveRequest, Archived, object] = Activity(
    name="archive",
    request=ArchiveRequest,
    answer=Archived,
    summary=lambda request, state: f"events {request.start} to {request.stop - 1}",
    compared=tuple(ArchiveRequest.model_fields),
)
"""Write events into the permanent record. Fails for good with RECORD_CONFLICT or RECORD_UNREADABLE."""

START_SUBAGENTS: Activity[StartSubagentsRequest, StartedSubagents, object] = Activity(
    name="start_subagents",
    request=StartSubagentsRequest,
    answer=StartedSubagents,
    summary=lambda request, state: f"start {_agents(len(request.children))}",
    time_limit=lambda request, state: FILES,
    compared=("children",),
)
"""Start sub-agents, each at most once. The answer includes those that cannot be started."""

CHECK_SUBAGENTS: Activity[CheckSubagentsRequest, SubagentReports, object] = Activity(
    name="check_subagents",
    request=CheckSubagentsRequest,
    answer=SubagentReports,
    summary=lambda request, state: f"look at {_agents(len(request.children))}",
    time_limit=lambda request, state: timedelta(minutes=2),
    compared=("children",),
)
"""Read the ends of sub-agents."""

END_SUBAGENTS: Activity[EndSubagentsRequest, SubagentReports, object] = Activity(
    name="end_subagents",
    request=EndSubagentsRequest,
    answer=SubagentReports,
    summary=lambda request, state: f"cancel {_agents(len(request.children))}",
    time_limit=lambda request, state: timedelta(seconds=request.seconds) + FILES,
    compared=("children",),
)
"""Cancel sub-agents, and wait for them to end."""

ANNOUNCE_END: Activity[AnnounceEnd, Announced, object] = Activity(
    name="announce_end",
    request=AnnounceEnd,
    answer=Announced,
    summary=lambda request, state: f"hint to {request.parent}",
    total_limit=QUICK,
    heartbeat_timeout=None,
)
"""Notify the parent that the run is about to end. The parent also polls periodically, without this hint."""

ACTIVITIES: Mapping[type[ActivityRequest], Activity[Any, Any, RunState]] = {
    activity.request: activity
    for activity in (
        LOAD_THREAD,
        LOAD_EFFECTS,
        LOAD_AGENT,
        CALL_LLM,
        CALL_TOOL,
        PREVIEW_CALL,
        NOTIFY,
        ARCHIVE,
        START_SUBAGENTS,
        CHECK_SUBAGENTS,
        END_SUBAGENTS,
        ANNOUNCE_END,
    )
}
"""Type of request → its activity, for all activities of an agent run."""


def activity_of(request: Request) -> Activity[Any, Any, RunState]:
    """Return the activity that answers a request."""
    return ACTIVITIES[type(request)]
