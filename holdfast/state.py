"""The state of an agent run, as a fold over its events. This module owns every transition.

1. `state = evolve(state, event)`: nothing else changes a state, and nothing about a run lives outside it.
2. A call goes `requested → asked → cleared → started → finished`; a policy that allows skips `asked`, a denial or
   an invalid call goes straight to `finished`, and an unknown outcome goes `started → unclear`, from where a
   person's word leads to `cleared` (with the next epoch) or `finished`.
3. The status is derived, never set.
4. A state is bounded, whatever the length of its thread: it is carried from one Temporal run to the next.
"""

from datetime import UTC, datetime, timedelta
from typing import Any, Literal, assert_never

from pydantic import Field

from holdfast.agent import AgentSpec
from holdfast.approval import Request
from holdfast.events import (
    AgentEvent,
    AgentLoaded,
    ApprovalRequested,
    ContextExceeded,
    DecisionReceived,
    Folded,
    LLMReplied,
    MessageAwaited,
    MessageTaken,
    ReconcileRequested,
    ReplyRejected,
    RunContinued,
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
from holdfast.messages import ToolCall, Usage, text_of
from holdfast.model import Frozen

REMEMBERED_DECISIONS = 100
"""Decisions that a late or repeated one can be told of in words."""

SAID_CHARS = 64_000
"""Characters of follow-up messages that survive a fold verbatim; the oldest make room."""

STANDING = 50
"""Denials and effects in doubt that survive a fold verbatim; the oldest make room."""

STANDING_CHARS = 1_000
"""Characters of each."""

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


class Waiting(Frozen):
    """A message that was not shown to the LLM yet."""

    message: int
    """The position of its event."""
    text: str
    by: str = ""


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
    """Request id → who decided it, and how; the last ones."""
    inbox: tuple[Waiting, ...] = ()
    """Messages that were not taken yet, oldest first."""
    said: tuple[str, ...] = ()
    """Follow-up messages that were taken."""
    standing: tuple[str, ...] = ()
    """Calls that were denied, or that nobody knows the outcome of: what the LLM must not forget."""
    awaiting: bool = False
    """The LLM has answered, and the run is open for a follow-up."""
    idle_limit: float = 0
    """Seconds that it stays open; negative until the agent has said."""
    idle_until: datetime | None = None
    context_tokens: int = 0
    """Tokens of the last request and its reply, as the provider counted them; 0 after a fold."""
    overflow: int = 0
    """How often in a row a request did not fit the LLM's context window."""
    oversized: bool = False
    """The last request did not fit, and the transcript was not folded since."""
    folded_at: int = 0
    """The step after which the transcript was last folded."""
    summary: str = ""
    """The LLM's own words at the last fold."""
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
        if self.awaiting and not self.inbox:
            return "waiting_message"
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
            "result": self.result if self.outcome or self.awaiting else None,
            "updated_at": self.updated_at.isoformat(),
        }


def evolve(state: RunState, event: AgentEvent) -> RunState:
    """The state after `event`."""
    change = _change(state, event)
    return state.model_copy(update={**change, "events": state.events + 1, "updated_at": event.at})


def _change(state: RunState, event: AgentEvent) -> dict[str, Any]:
    match event:
        case RunStarted():
            return _started(event)
        case RunContinued() | SignalRejected():
            return {}
        case UserMessageReceived():
            text = text_of(event.content)
            if event.position == 1:
                return {"task": text}
            return {"inbox": (*state.inbox, Waiting(message=event.position, text=text, by=event.by))}
        case MessageTaken():
            return _taken(state, event)
        case AgentLoaded():
            limits = event.spec.limits
            loaded = {"spec": event.spec, "spec_hash": event.spec_hash, "workspace": event.workspace}
            idle_limit = limits.idle_limit if state.idle_limit < 0 else state.idle_limit
            return {**loaded, "step_limit": state.step + limits.max_steps, "idle_limit": idle_limit}
        case LLMReplied():
            tokens = event.usage.prompt_tokens + event.usage.completion_tokens
            counted = {"usage": state.usage + event.usage, "context_tokens": tokens, "overflow": 0, "oversized": False}
            return {"step": state.step + 1, "calls": (), **counted}
        case MessageAwaited():
            until = event.at + timedelta(seconds=state.idle_limit)
            return {"awaiting": True, "idle_until": until, "result": event.result, "rejected_replies": 0}
        case ContextExceeded():
            return {"overflow": state.overflow + 1, "oversized": True}
        case Folded():
            told = {"summary": event.summary, "usage": state.usage + event.usage}
            return {**told, "context_tokens": 0, "oversized": False, "folded_at": state.step, "rejected_replies": 0}
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
            return _finished(state, event)
        case RunParked():
            return {"parked": Parked(cause=event.cause, message=event.message)}
        case RunUnparked():
            at_limit = state.spec is not None and state.step >= state.step_limit
            granted = state.spec.limits.max_steps if state.spec and at_limit else 0
            # Where nothing was left to fold, the request is made once more as it is.
            oversized = state.oversized and state.overflow <= 2 and state.step > 0
            again = {"rejected_replies": 0, "overflow": min(state.overflow, 2), "oversized": oversized}
            return {"parked": None, "step_limit": state.step_limit + granted, **again}
        case RunFinished():
            ended = {"outcome": event.outcome, "result": event.result, "failure": event.cause}
            return {**ended, "parked": None, "requests": (), "awaiting": False, "idle_until": None}
        case _:
            assert_never(event)


def _started(event: RunStarted) -> dict[str, Any]:
    """A thread that was closed begins again where it ended; its agent is resolved anew."""
    idle_limit = -1 if event.idle_limit is None else event.idle_limit
    ended = {"outcome": None, "result": "", "failure": "", "parked": None, "awaiting": False, "idle_until": None}
    return {"thread": event.thread, "spec": None, "idle_limit": idle_limit, "rejected_replies": 0, **ended}


def _taken(state: RunState, event: MessageTaken) -> dict[str, Any]:
    taken = next(waiting for waiting in state.inbox if waiting.message == event.message)
    said, room = [*state.said, taken.text], SAID_CHARS
    while len(said) > 1 and sum(map(len, said)) > room:
        del said[0]
    inbox = tuple(waiting for waiting in state.inbox if waiting is not taken)
    return {"inbox": inbox, "said": tuple(said), "awaiting": False, "idle_until": None}


def _finished(state: RunState, event: ToolCallFinished) -> dict[str, Any]:
    change: dict[str, Any] = {
        "calls": _moved(state, event.number, phase="finished", request=None),
        "requests": tuple(request for request in state.requests if request.number != event.number),
    }
    if event.status in ("denied", "unknown"):
        call = state.call(event.number).call
        line = f"{call.name}({call.arguments}): {event.content}"[:STANDING_CHARS]
        change["standing"] = (*state.standing, line)[-STANDING:]
    return change


def _decided(state: RunState, event: DecisionReceived) -> dict[str, Any]:
    """Close the request; a call that may run moves on, one that may not is finished by the next event."""
    request = next(request for request in state.requests if request.request == event.request)
    change: dict[str, Any] = {
        "requests": tuple(other for other in state.requests if other is not request),
        "decided": dict(
            [*state.decided.items(), (event.request, f"{event.decision} by {event.by}")][-REMEMBERED_DECISIONS:]
        ),
    }
    if event.decision in ("approve", "absent"):
        epoch = state.call(request.number).epoch + (event.decision == "absent")
        change["calls"] = _moved(state, request.number, phase="cleared", request=None, epoch=epoch)
    return change


def _moved(state: RunState, number: int, **change: Any) -> tuple[CallState, ...]:
    return tuple(call.model_copy(update=change) if call.number == number else call for call in state.calls)
