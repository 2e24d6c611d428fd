"""What follows from a state: the next action, and the events that a reply, an outcome or a decision leads to.

Pure functions: state in, events or an action out. The workflow carries the action out and records the events.

1. Nothing runs without a recorded verdict. The LLM's words are input here; they decide nothing.
2. Calls that are allowed start at once; calls that wait for a person hold nobody back.
3. The next LLM call is made when every call of the step is finished.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.approval import (
    ANSWERS,
    Decision,
    DecisionKind,
    DecisionOutcome,
    Request,
    approval_digest,
    read_decision,
)
from holdfast.contracts import MAX_TASK_BYTES, TASK_EMPTY, TASK_TOO_LONG, LLMReply, ToolOutcome
from holdfast.effects import Effect
from holdfast.events import (
    AgentEvent,
    ApprovalRequested,
    DecisionReceived,
    LLMReplied,
    ReconcileRequested,
    ReplyRejected,
    RunFinished,
    RunUnparked,
    SignalRejected,
    ToolCallFinished,
    ToolCallRequested,
    VerdictGiven,
)
from holdfast.policy import evaluate
from holdfast.state import RunState

Events = list[AgentEvent]

SIGNALS = frozenset({"approve", "deny", "reconcile", "retry"})
"""The signals that mean something. Any other name is recorded, too."""


@dataclass(frozen=True)
class LoadAgent:
    """Resolve the agent."""


@dataclass(frozen=True)
class CallLLM:
    """Make the next LLM call."""


@dataclass(frozen=True)
class StartCalls:
    """Start these tool calls, concurrently."""

    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Park:
    """Stop until somebody sends `retry`."""

    cause: str
    message: str


@dataclass(frozen=True)
class Wait:
    """Do nothing until another event is recorded."""


@dataclass(frozen=True)
class Finish:
    """The run is over."""


Action = LoadAgent | CallLLM | StartCalls | Park | Wait | Finish


def next_action(state: RunState) -> Action:
    """What the run does next."""
    if state.outcome:
        return Finish()
    if cleared := tuple(call.number for call in state.calls if call.phase == "cleared"):
        return StartCalls(cleared)
    if state.parked or any(call.phase != "finished" for call in state.calls):
        return Wait()
    if state.spec is None:
        return LoadAgent()
    limits = state.spec.limits
    if state.rejected_replies >= limits.max_rejected_replies:
        return Park("RepliesRejected", f"{state.rejected_replies} replies in a row could not be used")
    if state.step >= state.step_limit:
        return Park("StepLimit", f"{state.step} steps made; `retry` allows {limits.max_steps} more")
    return CallLLM()


def on_task(task: str) -> Events:
    """The events that a task leads to with which no run can begin; none if one can."""
    if not task.strip():
        return [_failed(TASK_EMPTY, "the task is empty; say what the agent is to do")]
    if len(task.encode()) > MAX_TASK_BYTES:
        limit = f"{MAX_TASK_BYTES:,} bytes"
        return [_failed(TASK_TOO_LONG, f"the task is over {limit}; put it into a file in the workspace")]
    return []


def on_lost_agent(cause: str, message: str) -> Events:
    """The events that an agent which cannot be loaded leads to."""
    return [_failed(cause, message)]


def on_reply(state: RunState, reply: LLMReply, *, shown: int, at: datetime) -> Events:
    """The events that an LLM's reply leads to.

    Args:
        state: The state before the reply.
        reply: What `call_llm` returned.
        shown: How many messages the LLM was sent.
        at: Now, for the requests that open.
    """
    events: Events = [
        LLMReplied(
            message=reply.message,
            transcript_length=shown,
            usage=reply.usage,
            finish_reason=reply.finish_reason,
            llm=reply.llm,
            request_id=reply.request_id,
            duration_ms=reply.duration_ms,
            attempt=reply.attempt,
        )
    ]
    if reply.message is not None and reply.message.tool_calls:
        return events + _on_calls(state, reply, at=at)
    if reply.rejected:
        notice = f"Your last reply could not be used: {reply.rejected} Please reply again."
        return [*events, ReplyRejected(reason=reply.rejected, notice=notice)]
    return [*events, RunFinished(outcome="completed", result=reply.message.text if reply.message else "")]


def _on_calls(state: RunState, reply: LLMReply, *, at: datetime) -> Events:
    assert state.spec is not None
    assert reply.message is not None
    events: Events = []
    questions = 0
    for number, call in enumerate(reply.message.tool_calls, start=state.call_count + 1):
        events.append(ToolCallRequested(number=number, call=call))
        tool = state.spec.tool(call.name)
        if tool is None or call.id in reply.problems:
            problem = reply.problems.get(call.id) or f"there is no tool named {call.name!r}"
            events.append(ToolCallFinished(number=number, status="invalid", content=f"Not called: {problem}"))
            continue
        verdict = evaluate(state.spec.policy, call.name, tool.effect)
        events.append(VerdictGiven(number=number, verdict=verdict.verdict, rule=verdict.rule))
        if verdict.verdict == "deny":
            denial = f"Denied by policy ({verdict.rule})" + (f": {verdict.reason}" if verdict.reason else "")
            events.append(ToolCallFinished(number=number, status="denied", content=denial))
        elif verdict.verdict == "ask":
            request = Request(
                request=_request_id(state, questions),
                kind="approval",
                number=number,
                tool=call.name,
                arguments=call.arguments,
                digest=approval_digest(call, state.spec_hash),
                why=verdict.reason or verdict.rule,
                asked_at=at,
            )
            questions += 1
            events.append(ApprovalRequested(request=request))
    if not any(isinstance(event, VerdictGiven) for event in events):
        events.append(ReplyRejected(reason="no call in it can run"))
    return events


def on_outcome(state: RunState, number: int, outcome: ToolOutcome, *, at: datetime) -> Events:
    """The events that the end of a tool call leads to: its result, or the question whether it happened."""
    if outcome.status != "unknown":
        return [
            ToolCallFinished(
                number=number,
                status=outcome.status,
                content=outcome.content,
                adopted=outcome.adopted,
                duration_ms=outcome.duration_ms,
            )
        ]
    call = state.call(number).call
    request = Request(
        request=_request_id(state),
        kind="reconcile",
        number=number,
        tool=call.name,
        arguments=call.arguments,
        digest=approval_digest(call, state.spec_hash),
        why=outcome.content,
        asked_at=at,
    )
    return [ReconcileRequested(request=request)]


def on_signal(state: RunState, signal: str, payload: Any) -> Events:
    """The events that a signal of any name and payload leads to."""
    match signal:
        case "approve" | "deny":
            return on_payload(state, signal, payload, decision=signal)
        case "reconcile":
            return on_payload(state, signal, payload)
        case "retry":
            given = payload if isinstance(payload, dict) else {}
            return on_retry(state, by=str(given.get("by") or "unknown"), reason=str(given.get("reason") or ""))
        case _:
            return [SignalRejected(signal=signal[:200], explanation="no such signal")]


def on_payload(state: RunState, door: str, payload: Any, *, decision: DecisionKind | None = None) -> Events:
    """The events that a decision leads to as it was sent: first how it was received, then what follows from it.

    Args:
        state: The state before.
        door: The signal or update that it came by.
        payload: What was sent.
        decision: What the door's name says; None where the payload says it.
    """
    given = read_decision(payload, decision=decision)
    if isinstance(given, str):
        return [SignalRejected(signal=door, explanation=given[:2_000])]
    received, consequences = on_decision(state, given)
    return [received, *consequences]


def on_decision(state: RunState, decision: Decision) -> tuple[DecisionReceived, Events]:
    """The event that records a person's decision and its outcome, and the events that follow from it."""
    request = next((request for request in state.requests if request.request == decision.request), None)
    outcome, explanation = _judge(state, decision, request)
    received = DecisionReceived(
        request=decision.request,
        decision=decision.decision,
        by=decision.by,
        reason=decision.reason,
        outcome=outcome,
        explanation=explanation,
    )
    if outcome != "accepted" or request is None:
        return received, []
    because = f": {decision.reason}" if decision.reason else ""
    match decision.decision:
        case "approve" | "absent":
            return received, []
        case "deny":
            content = f"Denied by {decision.by}{because}"
            return received, [ToolCallFinished(number=request.number, status="denied", content=content)]
        case "happened":
            content = decision.result or f"Done. ({decision.by} looked it up{because})"
            return received, [ToolCallFinished(number=request.number, status="ok", content=content, adopted=True)]
        case "abandon":
            content = f"Nobody can tell whether this happened; given up by {decision.by}{because}"
            return received, [ToolCallFinished(number=request.number, status="unknown", content=content)]


def _judge(state: RunState, decision: Decision, request: Request | None) -> tuple[DecisionOutcome, str]:
    if request is None:
        if state.outcome:
            return "too_late", f"the run is {state.outcome}"
        if decision.request in state.decided:
            return "duplicate", f"request {decision.request} was decided before: {state.decided[decision.request]}"
        still_open = ", ".join(request.request for request in state.requests) or "none"
        return "unknown_request", f"no request {decision.request}; open: {still_open}"
    if decision.decision not in ANSWERS[request.kind]:
        wanted = " or ".join(ANSWERS[request.kind])
        return "wrong_kind", f"request {request.request} asks for {wanted}, not {decision.decision}"
    if decision.digest and decision.digest != request.digest:
        return "digest_mismatch", f"request {request.request} has the digest {request.digest}"
    return "accepted", ""


def on_retry(state: RunState, *, by: str, reason: str) -> Events:
    """The events that the signal `retry` leads to."""
    if state.parked is None:
        return [SignalRejected(signal="retry", explanation=f"the run is {state.status}, not blocked")]
    return [RunUnparked(by=by, reason=reason)]


def on_lost_call(effect: Effect, cause: str, message: str, *, cancelled: bool) -> ToolOutcome:
    """The outcome of a call whose activity ended without one: a read failed, an effect is in doubt."""
    if effect is Effect.READ:
        return ToolOutcome(status="cancelled" if cancelled else "failed", content=f"{cause}: {message}")
    return ToolOutcome(status="unknown", content=f"the call ended without an answer ({cause}: {message})")


def on_cancel(state: RunState) -> Events:
    """The events that cancellation leads to: every open call ends, then the run, unless it has ended already."""
    if state.outcome:
        return []
    ended: Events = []
    for call in state.calls:
        if call.phase == "unclear":
            content = "The run was cancelled while nobody could tell whether this happened."
            ended.append(ToolCallFinished(number=call.number, status="unknown", content=content))
        elif call.phase != "finished":
            ended.append(ToolCallFinished(number=call.number, status="cancelled", content="The run was cancelled."))
    return [*ended, RunFinished(outcome="cancelled", result="cancelled")]


def _failed(cause: str, message: str) -> RunFinished:
    return RunFinished(outcome="failed", cause=cause, result=message)


def _request_id(state: RunState, ahead: int = 0) -> str:
    return str(state.asked + ahead + 1)
