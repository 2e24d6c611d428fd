"""Start the calls and timers that a workflow's core asks for, wait for their ends, and set search attributes."""

import asyncio
import inspect
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy, SearchAttributeKey, SearchAttributeUpdate
from temporalio.exceptions import FailureError
from temporalio.workflow import ActivityCancellationType

from holdfast.core.run.contracts.commands import GIVE_ANSWERS, KEEP_TRACE, Call, Caller, Failure, Request, Sleep
from holdfast.core.run.contracts.llm_calls import LLMRequest
from holdfast.core.run.contracts.record import ArchiveRequest
from holdfast.core.run.contracts.table import PATIENT, Activity, RequestT, ResultT, StateT, activity_of
from holdfast.core.run.machine.machine import AgentRun
from holdfast.core.run.machine.open_calls import CallEnd
from holdfast.core.run.state.features import DORMANCY, POLICY_CHANGES
from holdfast.core.run.state.state import RunState
from holdfast.core.run.views.web_ui import archive_summary, wait_summary
from holdfast.core.temporal.sealed_details import failure_of
from holdfast.core.tools.triggers import POLICY_CHANGED

ONCE = RetryPolicy(maximum_attempts=1)
"""For local activities: the run makes a call that fails there again as an ordinary activity, which Temporal retries."""

AGENT = SearchAttributeKey.for_keyword("HoldfastAgent")
STATUS = SearchAttributeKey.for_keyword("HoldfastStatus")
STEP = SearchAttributeKey.for_int("HoldfastStep")
_PENDING = SearchAttributeKey.for_int("HoldfastPending")
_WAKE_AT = SearchAttributeKey.for_datetime("HoldfastWakeAt")
_ROOT = SearchAttributeKey.for_keyword("HoldfastRoot")
_WAITS_FOR = SearchAttributeKey.for_keyword_list("HoldfastWaitsFor")

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def accept_any_arguments(function: FunctionT) -> FunctionT:
    """Let a workflow reject a wrong number of arguments, instead of failing its first workflow task for ever.

    Hides `*more` from the SDK, which otherwise decodes the one argument without its type. A function that really lacks
    `*more` would still be called with all arguments, which fails the workflow task and not the run.
    """
    signature = inspect.signature(function)
    parameters = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_POSITIONAL]
    vars(function)["__signature__"] = signature.replace(parameters=parameters)
    return function


# Calls and timers.


def start(command: Call | Sleep, state: RunState) -> asyncio.Future[Any]:
    """Start the activity or the timer that a command of an agent run asks for.

    Args:
        command: The command.
        state: The run's state, for the limits that its agent sets.
    """
    if isinstance(command, Sleep):
        words = wait_summary(state) if command.awaited else f"until {_wake_reason(command.until, state)}"
        return asyncio.create_task(workflow.sleep(command.seconds, summary=words))
    activity = activity_of(command.request)
    words = activity.summary(command.request, state)
    if isinstance(command.request, ArchiveRequest):
        words = archive_summary(words, state)
    if not command.seconds:
        return start_activity(activity, command.request, state, summary=words)
    return workflow.start_local_activity(
        activity.name,
        command.request,
        result_type=activity.answer,
        schedule_to_close_timeout=timedelta(seconds=command.seconds),
        retry_policy=ONCE,
        activity_id=command.request.order,
        summary=words,
    )


def _wake_reason(until: datetime, state: RunState) -> str:
    """Return the reason why the run sleeps until that time."""
    if until == state.dormancy.due():
        polls = any(wait.polls and wait.due == until for wait in state.dormancy.waits)
        return "the agent looks again" if polls else "the agent wakes"
    if any(call.starts_at == until for call in state.calls.postponed):
        return "the policy lets a call start"
    if any(call.starts_at == until for call in state.calls.delayed):
        return "a repeated call starts"
    if state.pause and state.pause.until == until:
        return "the pause is over"
    if state.places.until == until:
        return "it offers its work to nodes again"
    if state.subagents.open and until not in (state.wake_at(until), state.idle.until):
        return "it looks at its sub-agents"
    return "it closes" if state.idle.awaiting else "something is due about a request"


def start_activity(
    activity: Activity[RequestT, ResultT, StateT], request: RequestT, state: StateT, *, summary: str | None = None
) -> asyncio.Future[ResultT]:
    """Start an activity, with the timeouts and, unless another is given, the summary of its entry in the table."""
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
        summary=activity.summary(request, state) if summary is None else summary,
    )


async def wait_for_end(started: asyncio.Future[Any]) -> CallEnd:
    """Wait for the end of a call or a timer; return its result or its failure.

    Raises:
        SealKeyUnknown: The error is sealed with a key that this worker does not have.
    """
    try:
        result: CallEnd = await started
        return result
    except FailureError as error:
        return failure_of(error, workflow.payload_converter())
    except asyncio.CancelledError:  # a timer, or a call that was stopped before it reached the server
        return Failure("CancelledError", "Cancelled", cancelled=True)


def pass_in_process(run: AgentRun, request: Request) -> None:
    """Pass in process the lines that the activity would otherwise query, if the worker supports that."""
    reads = isinstance(request, LLMRequest | ArchiveRequest)
    if reads and (pass_lines := workflow.extern_functions().get(GIVE_ANSWERS)):
        info = workflow.info()
        pass_lines(run, request, caller=Caller(info.namespace, info.workflow_id, info.run_id))


def keep_trace(state: RunState) -> None:
    """Let the log lines of a moved run have the ids of the trace that it keeps, if the worker traces runs."""
    if state.kept_trace and (keep := workflow.extern_functions().get(KEEP_TRACE)):
        keep(state.kept_trace)


# Search attributes: `list`, `publish` and the Web UI find a run by them.


class Attributes:
    """The search attributes of one Temporal run, which begins with those of the run that it continues."""

    def __init__(self) -> None:
        self._set: dict[SearchAttributeKey[Any], Any] = {}
        self._published: tuple[object, ...] = ()

    def due(self, state: RunState) -> bool:
        """Return whether to set them: an attribute other than the step has changed since the last time."""
        before = self._published
        self._published = state.spec_hash, state.status, len(state.authority.requests), _dormancy_of(state)
        return before != self._published

    def updates(self, state: RunState) -> list[SearchAttributeUpdate[Any]]:
        """Return updates for the attributes that have changed, or for the status if none has; they count as made."""
        values = _values(state)
        changed = {key: value for key, value in values.items() if self._set.get(key, ...) != value}
        self._set = values
        return [
            key.value_unset() if value is None else key.value_set(value)
            for key, value in (changed or {STATUS: state.status}).items()
        ]


def _dormancy_of(state: RunState) -> tuple[datetime | None, tuple[str, ...]] | None:
    """Return when a dormant run wakes by itself, and the events that wake it; None for agents without dormancy and
    without hours in their policy.
    """
    if state.spec is None or not (state.spec.can_sleep or state.spec.policy.zones) or state.features < DORMANCY:
        return None
    ends = (state.dormancy.until, *(call.starts_at for call in state.calls.postponed))
    until = min((end for end in ends if end), default=None)
    hours = (POLICY_CHANGED,) if state.calls.postponed and state.features >= POLICY_CHANGES else ()
    events = tuple(dict.fromkeys((*state.dormancy.events, *hours)))
    return until if state.status == "dormant" else None, events


def _values(state: RunState) -> dict[SearchAttributeKey[Any], Any]:
    """Return the value of each attribute of a run; None for one that is not set."""
    values: dict[SearchAttributeKey[Any], Any] = {
        STATUS: state.status,
        _PENDING: len(state.authority.requests),
        STEP: state.steps.count,
    }
    if state.spec:
        values[AGENT] = state.spec.name
    if state.origin.lineage:
        values[_ROOT] = state.origin.lineage.root
    if dormancy := _dormancy_of(state):
        values[_WAKE_AT], values[_WAITS_FOR] = dormancy[0], dormancy[1] or None
    return values
