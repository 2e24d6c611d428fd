"""The state of an agent run, as a fold over its events. This module owns every transition.

1. `state = evolve(state, event)`: nothing else changes a state, and nothing about a run lives outside it.
2. A call goes `requested → asked → cleared → started → finished`; a policy that allows skips `asked`, a denial or
   an invalid call goes straight to `finished`, and an unknown outcome goes `started → unclear`, from where a
   person's word leads to `cleared` (with the next epoch) or `finished`.
3. The status is derived, never set.
"""

from datetime import UTC, datetime
from typing import Any, Literal, assert_never

from pydantic import Field

from holdfast.agent import AgentSpec
from holdfast.approval import Request
from holdfast.events import (
    AgentEvent,
    AgentLoaded,
    ApprovalRequested,
    DecisionReceived,
    LLMReplied,
    ReconcileRequested,
    ReplyRejected,
    RunFinished,
    RunOutcome,
    RunParked,
    RunStarted,
    RunUnparked,
    SignalRejected,
    ToolCallFinished,
    ToolCallRequested,
    ToolCallStarted,
    UserMessageReceived,
    VerdictGiven,
)
from holdfast.messages import ToolCall, Usage
from holdfast.model import Frozen

Phase = Literal["requested", "asked", "cleared", "started", "unclear", "finished"]
Status = Literal[
    "running", "waiting_approval", "waiting_message", "dormant", "blocked", "completed", "failed", "cancelled"
]


class CallState(Frozen):
    """A tool call of the current step."""

    number: int
    call: ToolCall
    phase: Phase = "requested"
    epoch: int = 0
    """How often a person said that the effect did not happen: each is a fresh row in the ledger."""
    request: str | None = None
    """The open request about it."""


class Parked(Frozen):
    """Why a blocked run is blocked."""

    cause: str
    message: str


class RunState(Frozen):
    """Everything a decision depends on."""

    thread: str = ""
    task: str = ""
    spec: AgentSpec | None = None
    spec_hash: str = ""
    workspace: str = ""
    step: int = 0
    """LLM calls answered so far."""
    step_limit: int = 0
    """The step that needs a person's leave; grows with each `retry` at the limit."""
    calls: tuple[CallState, ...] = ()
    """The calls of the current step, in call order."""
    call_count: int = 0
    """Calls of the whole thread."""
    requests: tuple[Request, ...] = ()
    """The open ones, oldest first."""
    asked: int = 0
    """Requests of the whole thread."""
    decided: dict[str, str] = Field(default_factory=dict)
    """Request id → who decided it, and how."""
    rejected_replies: int = 0
    """Unusable replies in a row."""
    usage: Usage = Usage()
    parked: Parked | None = None
    outcome: RunOutcome | None = None
    result: str = ""
    failure: str = ""
    """A short name of why the run failed."""
    events: int = 0
    updated_at: datetime = datetime(1970, 1, 1, tzinfo=UTC)

    @property
    def status(self) -> Status:
        """One word for where the run is."""
        if self.outcome:
            return self.outcome
        if self.parked:
            return "blocked"
        if self.requests and not any(call.phase in ("cleared", "started") for call in self.calls):
            return "waiting_approval"
        return "running"

    def call(self, number: int) -> CallState:
        """The call of that number in the current step.

        Raises:
            KeyError: There is none.
        """
        for call in self.calls:
            if call.number == number:
                return call
        raise KeyError(number)

    def view(self) -> dict[str, Any]:
        """The state as `show` presents it (design: the CLI contract)."""
        return {
            "thread": self.thread,
            "agent": self.spec.name if self.spec else None,
            "status": self.status,
            "step": self.step,
            "events": self.events,
            "task": self.task,
            "workspace": self.workspace,
            "pending": [request.view() for request in self.requests],
            "blocked": self.parked.model_dump() if self.parked else None,
            "usage": self.usage.model_dump(),
            "result": self.result if self.outcome else None,
            "updated_at": self.updated_at.isoformat(),
        }


def evolve(state: RunState, event: AgentEvent) -> RunState:
    """The state after `event`."""
    change = _change(state, event)
    return state.model_copy(update={**change, "events": state.events + 1, "updated_at": event.at})


def _change(state: RunState, event: AgentEvent) -> dict[str, Any]:
    match event:
        case RunStarted():
            return {"thread": event.thread}
        case UserMessageReceived():
            return {} if state.task else {"task": event.content}
        case AgentLoaded():
            loaded = {"spec": event.spec, "spec_hash": event.spec_hash, "workspace": event.workspace}
            return {**loaded, "step_limit": event.spec.limits.max_steps}
        case LLMReplied():
            return {"step": state.step + 1, "calls": (), "usage": state.usage + event.usage}
        case ReplyRejected():
            return {"rejected_replies": state.rejected_replies + 1}
        case ToolCallRequested():
            call = CallState(number=event.number, call=event.call)
            return {"calls": (*state.calls, call), "call_count": event.number}
        case VerdictGiven(verdict="allow"):
            return {"rejected_replies": 0, "calls": _moved(state, event.number, phase="cleared")}
        case VerdictGiven():
            return {"rejected_replies": 0}
        case ApprovalRequested() | ReconcileRequested():
            request = event.request
            phase: Phase = "asked" if request.kind == "approval" else "unclear"
            calls = _moved(state, request.number, phase=phase, request=request.request)
            return {"requests": (*state.requests, request), "asked": state.asked + 1, "calls": calls}
        case DecisionReceived():
            return _decided(state, event) if event.outcome == "accepted" else {}
        case ToolCallStarted():
            return {"calls": _moved(state, event.number, phase="started")}
        case ToolCallFinished():
            still_open = tuple(request for request in state.requests if request.number != event.number)
            return {"calls": _moved(state, event.number, phase="finished", request=None), "requests": still_open}
        case RunParked():
            return {"parked": Parked(cause=event.cause, message=event.message)}
        case RunUnparked():
            at_limit = state.spec is not None and state.step >= state.step_limit
            granted = state.spec.limits.max_steps if state.spec and at_limit else 0
            return {"parked": None, "rejected_replies": 0, "step_limit": state.step_limit + granted}
        case SignalRejected():
            return {}
        case RunFinished():
            ended = {"outcome": event.outcome, "result": event.result, "failure": event.cause}
            return {**ended, "parked": None, "requests": ()}
        case _:
            assert_never(event)


def _decided(state: RunState, event: DecisionReceived) -> dict[str, Any]:
    """Close the request; a call that may run moves on, one that may not is finished by the next event."""
    request = next(request for request in state.requests if request.request == event.request)
    change: dict[str, Any] = {
        "requests": tuple(other for other in state.requests if other is not request),
        "decided": {**state.decided, event.request: f"{event.decision} by {event.by}"},
    }
    if event.decision in ("approve", "absent"):
        epoch = state.call(request.number).epoch + (event.decision == "absent")
        change["calls"] = _moved(state, request.number, phase="cleared", request=None, epoch=epoch)
    return change


def _moved(state: RunState, number: int, **change: Any) -> tuple[CallState, ...]:
    return tuple(call.model_copy(update=change) if call.number == number else call for call in state.calls)
