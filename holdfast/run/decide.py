"""What follows from a state: the next action, and the events that a reply, an outcome or a decision leads to.

Pure functions: state in, events or an action out. The workflow carries the action out and records the events.

1. Nothing runs without a recorded verdict. The LLM's words are input here; they decide nothing.
2. Calls that are allowed start at once; calls that wait for a person hold nobody back.
3. The next LLM call is made when every call of the step is finished. Before it, the transcript is folded if it is
   due, and then the messages that wait are taken.
"""

from dataclasses import dataclass
from datetime import datetime

from holdfast.authority.policy import Terms, Verdict
from holdfast.base.names import person_name
from holdfast.llm.content import too_long, unfit
from holdfast.llm.messages import Content, text_of
from holdfast.llm.outages import Outage
from holdfast.log.events import (
    AgentEvent,
    ApprovalRequested,
    ContextCompacted,
    ContextExceeded,
    LLMReplied,
    MessageAwaited,
    ReconcileRequested,
    ReplyRejected,
    RunBlocked,
    RunFinished,
    ToolCallFinished,
    ToolCallRequested,
    ToolCallStarted,
    VerdictGiven,
)
from holdfast.run.baseline import baseline_due
from holdfast.run.compaction import summary_message
from holdfast.run.contracts import (
    CONTEXT_TOO_LONG,
    NAME_INVALID,
    START_UNPROVEN,
    TASK_EMPTY,
    TASK_MALFORMED,
    TASK_TOO_LONG,
    LLMReply,
    ToolOutcome,
)
from holdfast.run.decisions import judge_call, new_request, on_due
from holdfast.run.state import CallState, Phase, RunState
from holdfast.tools.arguments import canonical_arguments
from holdfast.tools.effects import Effect, words_of

Events = list[AgentEvent]

CLOSED_EARLY = "The run was closed from outside before this was done."
IN_DOUBT = "Nobody can tell whether it happened."


@dataclass(frozen=True)
class LoadAgent:
    """Resolve the agent."""


@dataclass(frozen=True)
class CallLLM:
    """Make the next LLM call."""


@dataclass(frozen=True)
class Compact:
    """Compact the transcript."""

    asking: bool
    """Ask the LLM for a summary; else go on with the one there is, because not even that request fits."""
    answered_only: bool
    """Compact what the LLM has answered already, and keep what came after."""


@dataclass(frozen=True)
class TakeMessages:
    """Show the messages that wait to the LLM."""


@dataclass(frozen=True)
class Verify:
    """Look at the world with these tools, after a long pause."""

    tools: tuple[str, ...]
    baseline: bool = False
    """There was no pause: requests have opened."""


@dataclass(frozen=True)
class Settle:
    """Find out what became of these calls, which were under way when the thread's last run was closed."""

    numbers: tuple[int, ...]


@dataclass(frozen=True)
class StartCalls:
    """Start these tool calls, concurrently."""

    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Block:
    """Stop until somebody sends `retry`."""

    cause: str
    message: str


@dataclass(frozen=True)
class Wait:
    """Do nothing until another event is recorded."""


@dataclass(frozen=True)
class Finish:
    """The run is over."""


Action = LoadAgent | CallLLM | Compact | TakeMessages | Verify | Settle | StartCalls | Block | Wait | Finish


def next_action(state: RunState, *, at: datetime) -> Action:
    """What the run does next. After a long pause, it looks at the world before it does anything.

    Args:
        state: Where the run is.
        at: Now, which may be long after the last event.
    """
    action = _next_action(state)
    if state.spec and isinstance(action, StartCalls | TakeMessages | CallLLM | Compact) and state.paused(at):
        return Verify(state.spec.verify)
    if isinstance(action, Wait) and state.spec and baseline_due(state):
        return Verify(state.spec.verify, baseline=True)
    return action


def _next_action(state: RunState) -> Action:
    if state.outcome:
        return Finish()
    if state.spec and (orphaned := tuple(call.number for call in state.calls if call.phase == "orphaned")):
        return Settle(orphaned)
    if cleared := tuple(call.number for call in state.calls if call.phase == "allowed"):
        return StartCalls(cleared)
    if state.blocked or any(call.phase not in ("finished", "orphaned") for call in state.calls):
        return Wait()
    if state.spec is None:
        return LoadAgent()
    limits = state.spec.limits
    if state.rejected_replies >= limits.max_rejected_replies:
        return Block("RepliesRejected", f"{state.rejected_replies} replies in a row could not be used")
    if state.awaiting and not state.inbox:
        return Wait()
    if fold := _compaction_due(state):
        return fold
    if state.inbox:
        return TakeMessages()
    if state.step >= state.step_limit:
        return Block("StepLimit", f"{state.step} steps made; `retry` allows {limits.max_steps} more")
    return CallLLM()


def _compaction_due(state: RunState) -> Compact | Block | None:
    assert state.spec is not None
    if not state.oversized:
        # A step after a fold tells whether it helped; one at every step would never get anywhere.
        due = state.context_tokens >= state.spec.limits.compaction_tokens and state.step > state.compacted_at + 1
        return Compact(asking=True, answered_only=False) if due else None
    match state.overflow:
        case 1 if state.compacted_at < state.step:
            return Compact(asking=True, answered_only=True)
        case 1 | 2 if state.step:
            return Compact(asking=False, answered_only=False)
        case _:
            return Block(CONTEXT_TOO_LONG, "folded as far as it goes, the request still does not fit the LLM")


def on_task(task: Content, *, by: str = "") -> Events:
    """The events that a task leads to with which no run can begin; none if one can."""
    try:
        person_name(by)
    except ValueError as error:
        return [_failed(NAME_INVALID, f"{error}; start the run again with another name as `by`")]
    if not text_of(task).strip():
        return [_failed(TASK_EMPTY, "the task is empty; say what the agent is to do")]
    if why := unfit(task):
        return [_failed(TASK_MALFORMED, f"the task {why}; give it as text")]
    if excess := too_long(task):
        return [_failed(TASK_TOO_LONG, f"the task {excess}; put it into a file in the workspace")]
    return []


def on_loaded(state: RunState) -> Events:
    """The events that follow where an agent cannot go on with the run that it was loaded for; none if it can."""
    if state.sealed or state.spec is None or not state.spec.policy.proves_requesters:
        return []
    why = f"the policy of {state.spec.name} does not let requesters approve, and it is not known who started this run"
    return [_failed(START_UNPROVEN, f"{why}: start it with `starter.py start`, or through a gateway")]


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
            outage=reply.outage,
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


def on_time(state: RunState, *, at: datetime) -> Events:
    """The events that the passing of time leads to: the end of the idle limit, and what is due about requests."""
    if state.awaiting and not state.inbox and state.idle_until and state.idle_until <= at:
        return [RunFinished(outcome="completed", result=state.result)]
    return on_due(state, at=at)


def on_lost_llm(cause: str, message: str, outage: Outage | None = None) -> Events:
    """The events that an LLM call leads to which no retry can help; `outage` is what had failed before."""
    if cause == CONTEXT_TOO_LONG:
        return [ContextExceeded(message=message)]
    return [RunBlocked(cause=cause, message=message, outage=outage)]


def on_summary(state: RunState, reply: LLMReply, *, folded: int, kept: int, originals: tuple[int, ...] = ()) -> Events:
    """The events that an LLM's answer to the request for a fold leads to.

    Args:
        state: The state before.
        reply: The LLM's answer.
        folded: How many messages it stands for.
        kept: How many came after those, and stay.
        originals: Positions of the messages that are carried on as they were sent.
    """
    summary = reply.message.text.strip() if reply.message else ""
    if not summary or reply.rejected:
        why = reply.rejected or "it holds no summary."
        return [ReplyRejected(reason=f"asked for a summary to fold the conversation: {why}")]
    fold = on_compaction(state, summary, folded=folded, kept=kept, originals=originals)
    return [fold.model_copy(update={"usage": reply.usage, "outage": reply.outage})]


def on_compaction(
    state: RunState, summary: str, *, folded: int, kept: int, originals: tuple[int, ...]
) -> ContextCompacted:
    """The fold that a summary leads to."""
    text = summary_message(state, summary, originals=originals)
    return ContextCompacted(summary_message=text, summary=summary, messages=folded, kept=kept, originals=originals)


def on_reopen(state: RunState) -> Events:
    """The events that end what was under way when a thread was closed from outside.

    But for effects that were begun, or asked about: the ledger and the tool's `check` may say what became of them.
    """
    return _ended(state, CLOSED_EARLY, but=tuple(call.number for call in state.calls if _is_effect(state, call)))


def _is_effect(state: RunState, call: CallState) -> bool:
    """Whether a call may have had an effect that nobody has recorded."""
    tool = state.spec.tool(call.call.name) if state.spec else None
    reads = tool is not None and tool.effect is Effect.READ
    return call.phase == "orphaned" or (call.phase in ("started", "outcome_unknown") and not reads)


def _ended(state: RunState, why: str, *, in_doubt: tuple[Phase, ...] = (), but: tuple[int, ...] = ()) -> Events:
    """Every open call ends; of those in doubt, nobody can tell whether they happened."""
    return [
        ToolCallFinished(number=call.number, status="unknown", content=f"{why} {IN_DOUBT}")
        if call.phase in in_doubt
        else ToolCallFinished(number=call.number, status="cancelled", content=words_of(why, call.past))
        for call in state.calls
        if call.phase != "finished" and call.number not in but
    ]


def _on_calls(state: RunState, reply: LLMReply, *, at: datetime) -> Events:
    assert state.spec is not None
    assert reply.message is not None
    events: Events = []
    questions = 0
    before = list(state.past)
    for number, written in enumerate(reply.message.tool_calls, start=state.call_count + 1):
        # What is judged, shown, signed and recorded is what runs: one value, never the LLM's text beside it.
        arguments = reply.arguments.get(written.id) or canonical_arguments(written.arguments)
        call = written.model_copy(update={"arguments": arguments})
        past = next((each for each in before if (each.tool, each.call_digest) == (call.name, call.digest)), None)
        if past:
            before.remove(past)
        events.append(ToolCallRequested(number=number, call=call, past=past.key if past else ""))
        tool = state.spec.tool(call.name)
        if tool is None or call.id in reply.problems:
            problem = reply.problems.get(call.id) or f"there is no tool named {call.name!r}"
            events.append(ToolCallFinished(number=number, status="invalid", content=f"Not called: {problem}"))
            continue
        verdict = judge_call(state, call)
        lifted = verdict.terms if verdict.remembered else None
        events.append(VerdictGiven(number=number, verdict=verdict.verdict, rule=verdict.rule, terms=lifted))
        if verdict.verdict == "deny":
            denial = f"Denied by policy ({verdict.rule})" + (f": {verdict.reason}" if verdict.reason else "")
            events.append(ToolCallFinished(number=number, status="denied", content=words_of(denial, past)))
        elif verdict.verdict == "ask":
            request = new_request(state, "approval", number, call, verdict, at=at, ahead=questions, past=past)
            questions += 1
            events.append(ApprovalRequested(request=request))
    if not any(isinstance(event, VerdictGiven) for event in events):
        events.append(ReplyRejected(reason="no call in it can run"))
    return events


def on_start(state: RunState, number: int) -> ToolCallStarted:
    """The event that the start of a cleared call leads to: its intent, with the key of its one effect."""
    call = state.call(number)
    key = state.effect_key(number, call.call)
    return ToolCallStarted(number=number, key=key, request=call.grant, undo=call.undo)


def on_outcome(state: RunState, number: int, outcome: ToolOutcome, *, at: datetime) -> Events:
    """The events that the end of a tool call leads to: its result, or the question whether it happened."""
    call = state.call(number)
    if call.undo and outcome.status != "ok":
        why = f"it could not be taken back: {outcome.content}"
        outcome = outcome.model_copy(update={"status": "unknown", "content": why})
    if outcome.status == "unknown" and call.phase != "orphaned":
        # Those who may let it run, and as many of them, say what became of it. Nobody else can: it never expires.
        terms = call.terms or (state.spec.policy.terms if state.spec else Terms())
        asks = Verdict(verdict="ask", rule="the outcome is unknown", terms=terms)
        request = new_request(state, "reconcile", number, call.call, asks, why=outcome.content, at=at)
        return [ReconcileRequested(request=request)]
    content, status = outcome.content, outcome.status
    if call.undo:
        content, status = f"This happened, and was taken back: {content}", "undone"
    elif call.edited_by:
        content = f"[{call.edited_by} has changed the arguments to {call.call.arguments[:2_000]}]\n{content}"
    return [
        ToolCallFinished(
            number=number,
            status=status,
            content=content,
            adopted=outcome.adopted,
            duration_ms=outcome.duration_ms,
            artifact=outcome.artifact,
            size=outcome.size,
            trust=outcome.trust,
        )
    ]


def on_lost_call(effect: Effect, cause: str, message: str, *, cancelled: bool) -> ToolOutcome:
    """The outcome of a call whose activity ended without one: a read failed, an effect is in doubt."""
    if effect is Effect.READ:
        return ToolOutcome(status="cancelled" if cancelled else "failed", content=f"{cause}: {message}")
    return ToolOutcome(status="unknown", content=f"the call ended without an answer ({cause}: {message})")


def on_cancel(state: RunState) -> Events:
    """The events that cancellation leads to: every open call ends, then the run, unless it has ended already."""
    if state.outcome:
        return []
    ended = _ended(state, "The run was cancelled.", in_doubt=("outcome_unknown", "orphaned"))
    return [*ended, RunFinished(outcome="cancelled", result="cancelled")]


def _failed(cause: str, message: str) -> RunFinished:
    return RunFinished(outcome="failed", cause=cause, result=message)
