"""The events that follow when something happens to a run: a task, a reply, an outcome, the passing of time, its end.

Pure functions: state and fact in, events out. The fact is recorded first, then what follows from it.
"""

from datetime import datetime, timedelta

from holdfast.agents.agent import AgentSpec
from holdfast.base.names import person_name
from holdfast.base.text import one_line
from holdfast.llm.blocks import Content, ToolCall, text_of, with_heading
from holdfast.llm.content import too_long, unfit
from holdfast.llm.ends import CUT_OFF
from holdfast.llm.finish_reasons import may_be_cut_off
from holdfast.llm.outages import Outage
from holdfast.log.events import (
    AgentEvent,
    ApprovalRequested,
    ContextCompacted,
    ContextExceeded,
    LLMCallLost,
    LLMReplied,
    ReconcileRequested,
    ReplyRejected,
    RunBlocked,
    RunFinished,
    ToolCallFinished,
    ToolCallRequested,
    ToolCallStarted,
    VerdictGiven,
)
from holdfast.run.approval_requests import new_request
from holdfast.run.budgeting import NO_TOOL
from holdfast.run.compaction import summary_message
from holdfast.run.constraints import refuse_call, refused, refusing
from holdfast.run.contracts import (
    CONTEXT_TOO_LONG,
    NAME_INVALID,
    START_UNPROVEN,
    TASK_EMPTY,
    TASK_MALFORMED,
    TASK_TOO_LONG,
    LLMFailed,
    LLMReply,
    ToolOutcome,
)
from holdfast.run.decisions import on_due
from holdfast.run.ending import on_complete, on_learning_time, refuse_other_tool
from holdfast.run.features import (
    BLOCK_SAYS_WHY,
    CANCEL_REASON,
    CUT_OFF_CALLS,
    RESULT_NAMES_ARTIFACTS,
    SETTLING,
    SIZED_REQUESTS,
)
from holdfast.run.judge import denial_of, judge_call
from holdfast.run.policies import asked_of_all
from holdfast.run.polling import call_problem
from holdfast.run.repeats import delay_of
from holdfast.run.results import MISSING, NOTICE, answered, refuse_result
from holdfast.run.state import RunState
from holdfast.run.subagents import subagent_problem
from holdfast.run.substates.calls import CallState, Phase
from holdfast.run.twins import NOT_TWICE, twin_of
from holdfast.tools.arguments import canonical_arguments
from holdfast.tools.effects import Effect, words_of
from holdfast.tools.spec import FINAL_RESULT, LONGEST_SETTLING

Events = list[AgentEvent]

CLOSED_EARLY = "The run was closed from outside before this was done."
OUTCOME_UNKNOWN = "Its outcome is unknown."
CANCEL_REASON_CHARS = 500
"""Characters of the reason for a cancellation that the log keeps."""
WHY_CHARS = 500
"""Characters of the reason for the last rejected reply that the block has."""
CONTENT_FILTERED = "ContentFiltered"
"""The cause of a run that is blocked because the provider's content filter keeps back the LLM's replies."""


def on_task(task: Content, *, by: str = "") -> Events:
    """Return the events that end a run because of its task; none if it can begin."""
    try:
        person_name(by)
    except ValueError as error:
        return [_failed(NAME_INVALID, f"{error}; start the run again with another name as `by`")]
    if not text_of(task).strip():
        return [_failed(TASK_EMPTY, "the task is empty; say what the agent is to do")]
    if why := unfit(task):
        return [_failed(TASK_MALFORMED, f"the task {why}")]
    if excess := too_long(task):
        return [_failed(TASK_TOO_LONG, f"the task {excess}; put it into a file in the workspace")]
    return []


def on_loaded(state: RunState) -> Events:
    """Return the events that end a run because its agent may not carry it out; none if it may."""
    if state.origin.sealed or state.spec is None or not state.spec.policy.proves_requesters:
        return []
    why = f"the policy of {state.spec.name} does not let requesters approve, and it is not known who started this run"
    return [_failed(START_UNPROVEN, f"{why}: start it with `holdfast start`, or through a gateway")]


def on_lost_agent(cause: str, message: str) -> Events:
    """Return the events that follow when the agent cannot be loaded."""
    return [_failed(cause, message)]


def on_reply(state: RunState, reply: LLMReply, *, shown: int, at: datetime) -> Events:
    """Return the events that follow from an LLM's reply.

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
            request_tokens=reply.request_tokens if state.features >= SIZED_REQUESTS else 0,
            cost=reply.cost if state.account.priced else None,
        )
    ]
    if reply.message is not None and reply.message.tool_calls:
        return events + _on_calls(state, reply, at=at)
    if state.ending.learning == "asked" or state.account.closing == "asked":
        return events  # the run has its answer, or what the LLM hands in at the end of the budget
    if reply.rejected:
        notice = f"Your last reply could not be used: {reply.rejected} Please reply again."
        rejected = ReplyRejected(reason=reply.rejected, notice=notice)
        return [*events, rejected, *_on_last_rejected(state, reply, reply.rejected)]
    result = reply.message.text if reply.message else ""
    if state.inbox.waiting:
        return events  # another message arrived meanwhile
    if state.spec and state.spec.gives_result:
        return [*events, ReplyRejected(reason=MISSING, notice=NOTICE)]
    return [*events, *answered(state, result)]


def _on_last_rejected(state: RunState, reply: LLMReply, why: str) -> Events:
    """Block the run where this is the last reply that may be rejected.

    Below its feature level, `next_action` blocks it, which does not see why; a content filter is the exception.
    """
    count = state.steps.rejected_replies + 1
    if not state.spec or count < state.spec.limits.max_rejected_replies:
        return []
    several = f"{count} replies in a row could not be used"
    if reply.finish_reason == "content_filter":
        last = f"{several}; the provider's content filter kept back the last one"
        return [RunBlocked(cause=CONTENT_FILTERED, message=last)]
    if state.features < BLOCK_SAYS_WHY:
        return []
    return [RunBlocked(cause="RepliesRejected", message=f"{several}. The last one: {one_line(why, WHY_CHARS)}")]


def on_time(state: RunState, *, at: datetime) -> Events:
    """Return the events that are due: the end of the wait for a message, and what is due about open requests."""
    waits = state.awaits_message and not state.compacts_now and not state.pause
    if waits and state.idle.until and state.idle.until <= at and not state.closing_work:
        return [on_complete(state)]
    return [*on_due(state, at=at), *(on_learning_time(state, at=at) if state.ending.until else [])]


def on_lost_llm(state: RunState, cause: str, message: str, outage: Outage | None = None) -> Events:
    """Return the events that follow when an LLM call failed for good; `outage` has the attempts that failed before."""
    if cause == CONTEXT_TOO_LONG:
        return [ContextExceeded(message=message, outage=outage if state.account.limits else None)]
    return [RunBlocked(cause=cause, message=message, outage=outage)]


def on_lost_attempts(state: RunState, proof: LLMFailed) -> LLMCallLost:
    """Return the event that charges the attempts at an LLM call that may have cost something, by the proof of them."""
    return LLMCallLost(
        attempts=proof.lost,
        request_tokens=proof.request_tokens,
        usage=proof.usage,
        cost=proof.cost if state.account.priced else None,
        outage=proof.outage,
    )


def on_summary(
    state: RunState, reply: LLMReply, *, compacted: int, kept: int, originals: tuple[int, ...] = ()
) -> Events:
    """Return the events that follow from the LLM's reply to the request for a summary.

    Args:
        state: The state before.
        reply: The LLM's reply.
        compacted: How many messages the summary stands in for.
        kept: How many came after those, and stay.
        originals: Positions of the messages that stay as they were sent.
    """
    summary = reply.message.text.strip() if reply.message else ""
    if not summary or reply.rejected:
        why = reply.rejected or "it holds no summary."
        rejected = ReplyRejected(reason=f"asked for a summary of the conversation: {why}")
        if state.account.limits:
            cost = reply.cost if state.account.priced else None
            rejected = rejected.model_copy(update={"usage": reply.usage, "outage": reply.outage, "cost": cost})
        return [rejected, *_on_last_rejected(state, reply, why)]
    compaction = on_compaction(state, summary, compacted=compacted, kept=kept, originals=originals)
    cost = reply.cost if state.account.priced else None
    return [compaction.model_copy(update={"usage": reply.usage, "outage": reply.outage, "cost": cost})]


def on_compaction(
    state: RunState, summary: str, *, compacted: int, kept: int, originals: tuple[int, ...]
) -> ContextCompacted:
    """Return the event that compacts the context, with this summary."""
    text = summary_message(state, summary, originals=originals)
    return ContextCompacted(summary_message=text, summary=summary, messages=compacted, kept=kept, originals=originals)


def on_reopen(state: RunState) -> Events:
    """Return the events that end the calls that were open when a thread was closed from outside.

    Effects that had started, or that people were asked about, stay open: the ledger and the tool's `check` may say what
    became of them.
    """
    effects = tuple(call.number for call in state.calls.current if _is_effect(state, call))
    return _ended(state, CLOSED_EARLY, but=effects)


def _is_effect(state: RunState, call: CallState) -> bool:
    """Whether a call may have had an effect that was not recorded."""
    tool = state.spec.tool(call.call.name) if state.spec else None
    reads = tool is not None and tool.effect is Effect.READ
    return call.phase == "orphaned" or (call.phase in ("started", "outcome_unknown") and not reads)


def _ended(state: RunState, why: str, *, in_doubt: tuple[Phase, ...] = (), but: tuple[int, ...] = ()) -> Events:
    """End every open call; those of the phases `in_doubt` end with an unknown outcome."""
    return [
        ToolCallFinished(number=call.number, status="unknown", content=f"{why} {OUTCOME_UNKNOWN}")
        if call.phase in in_doubt
        else ToolCallFinished(number=call.number, status="cancelled", content=words_of(why, call.past))
        for call in state.calls.current
        if call.phase != "finished" and call.number not in but
    ]


def _on_calls(state: RunState, reply: LLMReply, *, at: datetime) -> Events:
    assert state.spec is not None
    assert reply.message is not None
    events: Events = []
    opened = 0
    before = list(state.calls.past)
    last = state.calls.count + len(reply.message.tool_calls)
    for number, written in enumerate(reply.message.tool_calls, start=state.calls.count + 1):
        # One value is judged, shown, signed, recorded and run: never the LLM's own text.
        arguments = reply.arguments.get(written.id) or canonical_arguments(written.arguments)
        call = ToolCall(id=written.id, name=written.name, arguments=arguments)
        past = next((each for each in before if (each.tool, each.call_digest) == (call.name, call.digest)), None)
        if past:
            before.remove(past)
        events.append(ToolCallRequested(number=number, call=call, past=past.key if past else ""))
        gives = call.name == FINAL_RESULT and state.spec.gives_result
        closing = NO_TOOL if state.account.closing == "asked" and not gives else ""
        problem = closing or refuse_result(state, reply, call) or refuse_other_tool(state, call)
        problem = problem or _problem(state.spec, call, at=at)
        if state.features >= CUT_OFF_CALLS and number == last and may_be_cut_off(reply.finish_reason):
            problem = CUT_OFF
        if problem or call.id in reply.problems:
            problem = reply.problems.get(call.id) or problem
            events.append(ToolCallFinished(number=number, status="invalid", content=f"Not called: {problem}"))
            continue
        if cannot := refuse_call(state, number, call, past=past, at=at):
            events += cannot
            continue
        verdict = judge_call(state, call)
        twin = twin_of(state, call, events)
        if twin and verdict.verdict == "allow":
            events.append(ToolCallFinished(number=number, status="invalid", content=NOT_TWICE.format(twin=twin)))
            continue
        repeats, delay = delay_of(state, call, verdict)
        given = VerdictGiven(number=number, verdict=verdict.verdict, rule=verdict.rule)
        if verdict.remembered:
            lifted = {"terms": verdict.terms, "requirements": verdict.requirements}
            given = given.model_copy(update=lifted)
        events.append(given.model_copy(update={"repeats": repeats, "delay": delay}) if delay else given)
        if verdict.verdict == "deny":
            content = words_of(denial_of(verdict), past)
            events.append(ToolCallFinished(number=number, status="denied", content=content))
        elif verdict.verdict == "ask":
            why = f"{verdict.reason or verdict.rule}; this reply has the very same call as call {twin}" if twin else ""
            request = new_request(state, "approval", number, call, verdict, why=why, at=at, ahead=opened, past=past)
            opened += 1
            events.append(ApprovalRequested(request=request))
    ends = state.ending.learning or state.account.closing
    if not any(isinstance(event, VerdictGiven) for event in events) and not ends:
        events.append(ReplyRejected(reason="no call in it can run"))
        if state.features >= BLOCK_SAYS_WHY:
            said = [text_of(event.content) for event in events if isinstance(event, ToolCallFinished)]
            events += _on_last_rejected(state, reply, said[-1] if said else "no call in it can run")
    return events


def _problem(spec: AgentSpec, call: ToolCall, *, at: datetime) -> str:
    """Why a call can never run; empty if it can."""
    if spec.tool(call.name) is None:
        return f"there is no tool named {call.name!r}"
    return subagent_problem(spec, call) or call_problem(spec, call, at=at)


def on_start(state: RunState, number: int, *, at: datetime) -> ToolCallStarted | ToolCallFinished:
    """Return the event that starts an allowed call: its intent, with the key of its one effect.

    Where a constraint has come to refuse the call since it was allowed, the event ends it.
    """
    call = state.calls.get(number)
    if not call.undo and (constraint := refusing(state, call.call, at=at)):
        return refused(number, constraint, call.past)
    key = state.effect_key(number, call.call)
    return ToolCallStarted(number=number, key=key, request=call.grant, undo=call.undo)


def on_outcome(state: RunState, number: int, outcome: ToolOutcome, *, at: datetime) -> Events:
    """Return the events that follow from a tool call's outcome: its result, or the question whether it happened."""
    call = state.calls.get(number)
    if call.undo and outcome.status != "ok":
        why = f"it could not be undone: {text_of(outcome.content)}"
        outcome = outcome.model_copy(update={"status": "unknown", "content": why})
    ending = call.own or state.ending.learning  # nobody is asked about a note, which would keep the run from ending
    asking = call.phase != "orphaned" or state.imported is not None
    if outcome.status == "unknown" and asking and not ending:
        # The same people, and as many of them, as may approve it have to say what became of it. It never expires.
        asks = asked_of_all(state, rule="the outcome is unknown", reason="")
        if call.terms:
            asks = asks.model_copy(update={"terms": call.terms, "requirements": call.requirements})
        request = new_request(state, "reconcile", number, call.call, asks, why=text_of(outcome.content), at=at)
        if outcome.settles_in and state.features >= SETTLING:
            # By the run's clock: the ledger's may differ.
            settles_at = at + timedelta(seconds=min(outcome.settles_in, LONGEST_SETTLING))
            request = request.model_copy(update={"settles_at": settles_at})
        return [ReconcileRequested(request=request, cause=outcome.cause, failures=outcome.failures)]
    content, status = outcome.content, outcome.status
    if call.undo:
        content, status = with_heading("This happened, and was undone: ", content), "undone"
    elif call.edited_by:
        content = with_heading(call.edit_note, content)
    return [
        ToolCallFinished(
            number=number,
            status=status,
            content=content,
            adopted=outcome.adopted,
            duration_ms=outcome.duration_ms,
            artifact=outcome.artifact,
            size=outcome.size,
            artifacts=outcome.artifacts if state.features >= RESULT_NAMES_ARTIFACTS else (),
            trust=outcome.trust,
            scope=outcome.scope if status == "cannot" else None,
            until=outcome.until if status == "cannot" else None,
            cause=outcome.cause,
            failures=outcome.failures,
        )
    ]


def on_lost_call(effect: Effect, cause: str, message: str, *, cancelled: bool) -> ToolOutcome:
    """Return the outcome of a call whose activity returned none: a read failed; an effect may have happened."""
    if effect is Effect.READ:
        return ToolOutcome(status="cancelled" if cancelled else "failed", content=f"{cause}: {message}")
    return ToolOutcome(status="unknown", content=f"the call ended without an answer ({cause}: {message})")


def on_cancel(state: RunState, reason: str = "") -> Events:
    """Return the events that cancel a run: every open call ends, then the run; none if it has ended already.

    Args:
        state: The run's state.
        reason: What the request to cancel says; a claim, because anybody who reaches Temporal can cancel.
    """
    if state.outcome:
        return []
    ended = _ended(state, "The run was cancelled.", in_doubt=("outcome_unknown", "orphaned"))
    said = one_line(reason[:CANCEL_REASON_CHARS], CANCEL_REASON_CHARS) if state.features >= CANCEL_REASON else ""
    return [*ended, RunFinished(outcome="cancelled", result=f"cancelled: {said}" if said else "cancelled")]


def _failed(cause: str, message: str) -> RunFinished:
    return RunFinished(outcome="failed", cause=cause, result=message)
