"""What follows from a state: the next action, and the events that a reply, an outcome or a decision leads to.

Pure functions: state in, events or an action out. The workflow carries the action out and records the events.

1. Nothing runs without a recorded verdict. The LLM's words are input here; they decide nothing.
2. Calls that are allowed start at once; calls that wait for a person hold nobody back.
3. The next LLM call is made when every call of the step is finished. Before it, the transcript is folded if it is
   due, and then the messages that wait are taken.
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
from holdfast.contracts import (
    CONTEXT_TOO_LONG,
    TASK_EMPTY,
    TASK_MALFORMED,
    TASK_TOO_LONG,
    LLMReply,
    ToolOutcome,
)
from holdfast.effects import Effect
from holdfast.events import (
    AgentEvent,
    ApprovalRequested,
    ContextExceeded,
    DecisionReceived,
    Folded,
    LLMReplied,
    MessageAwaited,
    ReconcileRequested,
    ReplyRejected,
    RunFinished,
    RunParked,
    RunUnparked,
    SignalRejected,
    ToolCallFinished,
    ToolCallRequested,
    UserMessageReceived,
    VerdictGiven,
)
from holdfast.fold import handoff
from holdfast.inbox import MessageOutcome, WhenBusy, read_message, too_long, unfit
from holdfast.messages import Content, Usage, text_of
from holdfast.policy import evaluate
from holdfast.state import RunState

Events = list[AgentEvent]

SIGNALS = frozenset({"approve", "deny", "reconcile", "retry", "say"})
"""The signals that mean something. Any other name is recorded, too."""


@dataclass(frozen=True)
class LoadAgent:
    """Resolve the agent."""


@dataclass(frozen=True)
class CallLLM:
    """Make the next LLM call."""


@dataclass(frozen=True)
class Fold:
    """Fold the transcript."""

    asking: bool
    """Ask the LLM for a summary; else go on with the one there is, because not even that request fits."""
    answered_only: bool
    """Fold what the LLM has answered already, and keep what came after."""


@dataclass(frozen=True)
class TakeMessages:
    """Show the messages that wait to the LLM."""


@dataclass(frozen=True)
class AwaitMessage:
    """Stay open for a follow-up message until then."""

    until: datetime


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


Action = LoadAgent | CallLLM | Fold | TakeMessages | AwaitMessage | StartCalls | Park | Wait | Finish


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
    if state.awaiting and not state.inbox:
        return AwaitMessage(state.idle_until or state.updated_at)
    if fold := _fold_due(state):
        return fold
    if state.inbox:
        return TakeMessages()
    if state.step >= state.step_limit:
        return Park("StepLimit", f"{state.step} steps made; `retry` allows {limits.max_steps} more")
    return CallLLM()


def _fold_due(state: RunState) -> Fold | Park | None:
    assert state.spec is not None
    if not state.oversized:
        # A step after a fold tells whether it helped; one at every step would never get anywhere.
        due = state.context_tokens >= state.spec.limits.fold_tokens and state.step > state.folded_at + 1
        return Fold(asking=True, answered_only=False) if due else None
    match state.overflow:
        case 1 if state.folded_at < state.step:
            return Fold(asking=True, answered_only=True)
        case 1 | 2 if state.step:
            return Fold(asking=False, answered_only=False)
        case _:
            return Park(CONTEXT_TOO_LONG, "folded as far as it goes, the request still does not fit the LLM")


def on_task(task: Content) -> Events:
    """The events that a task leads to with which no run can begin; none if one can."""
    if not text_of(task).strip():
        return [_failed(TASK_EMPTY, "the task is empty; say what the agent is to do")]
    if why := unfit(task):
        return [_failed(TASK_MALFORMED, f"the task {why}; give it as text")]
    if excess := too_long(task):
        return [_failed(TASK_TOO_LONG, f"the task {excess}; put it into a file in the workspace")]
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
            artifact=reply.artifact,
        )
    ]
    if reply.message is not None and reply.message.tool_calls:
        return events + _on_calls(state, reply, at=at)
    if reply.rejected:
        notice = f"Your last reply could not be used: {reply.rejected} Please reply again."
        return [*events, ReplyRejected(reason=reply.rejected, notice=notice)]
    result = reply.message.text if reply.message else ""
    if state.inbox:
        return events  # somebody has said more meanwhile
    if state.idle_limit > 0:
        return [*events, MessageAwaited(result=result)]
    return [*events, RunFinished(outcome="completed", result=result)]


def on_idle(state: RunState) -> Events:
    """The events that the end of the idle limit leads to."""
    return [RunFinished(outcome="completed", result=state.result)]


def on_lost_llm(cause: str, message: str) -> Events:
    """The events that an LLM call leads to which no retry can help."""
    if cause == CONTEXT_TOO_LONG:
        return [ContextExceeded(message=message)]
    return [RunParked(cause=cause, message=message)]


def on_summary(state: RunState, reply: LLMReply, *, folded: int, kept: int) -> Events:
    """The events that an LLM's answer to the request for a fold leads to.

    Args:
        state: The state before.
        reply: The LLM's answer.
        folded: How many messages it stands for.
        kept: How many came after those, and stay.
    """
    summary = reply.message.text.strip() if reply.message else ""
    if not summary or reply.rejected:
        why = reply.rejected or "it holds no summary."
        return [ReplyRejected(reason=f"asked for a summary to fold the conversation: {why}")]
    return [on_fold(state, summary, folded=folded, kept=kept, usage=reply.usage)]


def on_fold(state: RunState, summary: str, *, folded: int, kept: int, usage: Usage | None = None) -> Folded:
    """The fold that a summary leads to."""
    text = handoff(state, summary)
    return Folded(handoff=text, summary=summary, messages=folded, kept=kept, usage=usage or Usage())


def on_reopen(state: RunState) -> Events:
    """The events that end what was under way when a thread was closed from outside."""
    ended: Events = []
    for call in state.calls:
        if call.phase in ("started", "unclear"):
            content = "The run was closed from outside meanwhile; nobody can tell whether this happened."
            ended.append(ToolCallFinished(number=call.number, status="unknown", content=content))
        elif call.phase != "finished":
            content = "The run was closed from outside before this was done."
            ended.append(ToolCallFinished(number=call.number, status="cancelled", content=content))
    return ended


def on_message(state: RunState, payload: Any, *, door: str) -> tuple[MessageOutcome, str, Events, WhenBusy]:
    """What becomes of a follow-up message: its outcome, why, the events it leads to, and what the sender wished."""
    given = read_message(payload)
    if isinstance(given, tuple):
        outcome, why = given
        return outcome, why, [SignalRejected(signal=door, explanation=why)], "queue"
    received = UserMessageReceived(content=given.message, by=given.by)
    if state.outcome:
        why = f"the run is {state.outcome}"
        return "too_late", why, [SignalRejected(signal=door, explanation=why)], given.when_busy
    if state.awaiting:
        return "accepted", "the run goes on with it", [received], given.when_busy
    match given.when_busy:
        case "reject":
            why = f"the run is {state.status}, and the message was not to wait"
            return "busy", why, [SignalRejected(signal=door, explanation=why)], given.when_busy
        case "interrupt":
            return "interrupting", "the LLM is asked anew, with the message", [received], given.when_busy
        case "queue":
            return "queued", "it is taken at the end of the step", [received], given.when_busy


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
                artifact=outcome.artifact,
                size=outcome.size,
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
        case "say":
            return on_message(state, payload, door=signal)[2]
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
        if how := state.decided.get(decision.request):
            return "duplicate", f"request {decision.request} was decided before: {how}"
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
