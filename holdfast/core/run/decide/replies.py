"""Return the events that follow from the end of an LLM call: a reply with its tool calls, a summary, or a failure.

1. Each call of a reply is judged before it can run (`holdfast.core.run.rules.verdicts`); a call that can never run ends
   at once.
2. An identical call of an `unsafe` tool runs at most once for each reply: nothing can later determine how often such
   an effect has happened, and an LLM that wants two can call again.
3. An unusable reply is answered with a notice; after the maximum number of them in a row, the run is blocked.
"""

from collections.abc import Sequence
from datetime import datetime

from holdfast.core.agents.agent import AgentSpec
from holdfast.core.authority.policy import Verdict
from holdfast.core.base.text import one_line
from holdfast.core.llm.blocks import ToolCall, text_of
from holdfast.core.llm.finish_reasons import CUT_OFF, may_be_cut_off
from holdfast.core.llm.outages import Outage
from holdfast.core.log import events as ev
from holdfast.core.run.contracts.error_types import CONTEXT_TOO_LONG
from holdfast.core.run.contracts.llm_calls import LLMFailed, LLMReply
from holdfast.core.run.decide.results import MISSING, NOTICE, accept_answer, refuse_result
from holdfast.core.run.rules.approval_requests import ask_people, asks, new_request
from holdfast.core.run.rules.budget import NO_TOOL
from holdfast.core.run.rules.closing_work import refuse_other_tool
from holdfast.core.run.rules.compaction import summary_message
from holdfast.core.run.rules.constraints import refuse_call
from holdfast.core.run.rules.loop_guard import delay_of
from holdfast.core.run.rules.pacing import pace_of
from holdfast.core.run.rules.unattended import block_unasked, deny_unasked
from holdfast.core.run.rules.verdicts import denial_of, judge_call
from holdfast.core.run.state.features import (
    BLOCK_SAYS_WHY,
    CUT_OFF_CALLS,
    PROVIDERS,
    RECORDS_COSTS,
    SIGNED_RESULTS,
    SIZED_REQUESTS,
    UNSAFE_ONCE_A_REPLY,
)
from holdfast.core.run.state.state import RunState
from holdfast.core.run.waits.polling import call_problem
from holdfast.core.run.waits.subagents import subagent_problem
from holdfast.core.tools.arguments import canonical_arguments
from holdfast.core.tools.effects import Effect, PastEffect, words_of
from holdfast.core.tools.spec import FINAL_RESULT

Events = list[ev.AgentEvent]

WHY_CHARS = 500
"""Maximum characters, in a block's message, of the reason for the last rejected reply."""
CONTENT_FILTERED = "ContentFiltered"
"""The cause of a block: the provider's content filter withholds the LLM's replies."""

NOT_TWICE = (
    "Not called: this reply has the very same call already, as call {twin}, and how often such a call has happened "
    "cannot be found out later. If it is to happen twice, call it again when you have the first result."
)


def on_reply(state: RunState, reply: LLMReply, *, shown: int, at: datetime) -> Events:
    """Return the events that follow from an LLM's reply.

    Args:
        state: The state before the reply.
        reply: The result of `call_llm`.
        shown: The number of messages in the LLM request.
        at: Now, for the requests that open.
    """
    events: Events = [
        ev.LLMReplied(
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
            cost=_cost(state, reply),
            signed=reply.signed if state.features >= SIGNED_RESULTS else "",
            endpoint=reply.endpoint if state.features >= PROVIDERS else "",
            passed_over=reply.passed_over if state.features >= PROVIDERS else (),
        )
    ]
    if reply.message is not None and reply.message.tool_calls:
        return events + _on_calls(state, reply, at=at)
    if state.ending.learning == "asked" or state.account.closing == "asked":
        return events  # the run has its answer, or the LLM's last reply at the end of the budget
    if reply.rejected:
        notice = f"Your last reply could not be used: {reply.rejected} Please reply again."
        rejected = ev.ReplyRejected(reason=reply.rejected, notice=notice)
        return [*events, rejected, *_on_last_rejected(state, reply, reply.rejected)]
    result = reply.message.text if reply.message else ""
    if state.inbox.waiting:
        return events  # another message arrived meanwhile
    if state.spec and state.spec.gives_result:
        return [*events, ev.ReplyRejected(reason=MISSING, notice=NOTICE)]
    return [*events, *accept_answer(state, result)]


def _on_calls(state: RunState, reply: LLMReply, *, at: datetime) -> Events:
    """Return what follows from the calls of a reply; if none of them can run, the reply counts as rejected."""
    assert state.spec is not None
    assert reply.message is not None
    events: Events = []
    unasked: list[tuple[int, str, Verdict]] = []
    before = list(state.calls.past)
    for number, written in enumerate(reply.message.tool_calls, start=state.calls.count + 1):
        # The same value is judged, shown, signed, recorded and run: never the LLM's own text.
        arguments = reply.arguments.get(written.id) or canonical_arguments(written.arguments)
        call = ToolCall(id=written.id, name=written.name, arguments=arguments)
        past = next((each for each in before if (each.tool, each.call_digest) == (call.name, call.digest)), None)
        if past:
            before.remove(past)
        events.append(ev.ToolCallRequested(number=number, call=call, past=past.key if past else ""))
        problem = _problem(state, state.spec, reply, number, call, at=at)
        if problem is not None:
            events.append(ev.ToolCallFinished(number=number, status="invalid", content=f"Not called: {problem}"))
            continue
        if state.constraints.kept and (cannot := refuse_call(state, number, call, past=past, at=at)):
            events += cannot
            continue
        verdict = judge_call(state, call)
        events += _on_verdict(state, number, call, verdict, past, events, at=at)
        if verdict.verdict == "ask" and state.unattended:
            unasked.append((number, call.name, verdict))
    ends = state.ending.learning or state.account.closing
    if not any(isinstance(event, ev.VerdictGiven) for event in events) and not ends:
        events.append(ev.ReplyRejected(reason="no call in it can run"))
        if state.features >= BLOCK_SAYS_WHY:
            results = [text_of(event.content) for event in events if isinstance(event, ev.ToolCallFinished)]
            events += _on_last_rejected(state, reply, results[-1] if results else "no call in it can run")
    if unasked and not ends:  # at the end of a run, its answer stands
        events.append(block_unasked(unasked))
    return events


def _problem(
    state: RunState, spec: AgentSpec, reply: LLMReply, number: int, call: ToolCall, *, at: datetime
) -> str | None:
    """Return why a call can never run; None if it can."""
    gives_result = call.name == FINAL_RESULT and spec.gives_result
    problem = NO_TOOL if state.account.closing == "asked" and not gives_result else ""
    problem = problem or refuse_result(state, reply, call) or refuse_other_tool(state, call)
    if not problem and spec.tool(call.name) is None:
        problem = f"there is no tool named {call.name!r}"
    problem = problem or subagent_problem(spec, call) or call_problem(spec, call, at=at)
    assert reply.message is not None
    is_last = number == state.calls.count + len(reply.message.tool_calls)
    if state.features >= CUT_OFF_CALLS and is_last and may_be_cut_off(reply.finish_reason):
        problem = CUT_OFF
    if call.id in reply.problems:
        return reply.problems[call.id] or problem
    return problem or None


def _on_verdict(
    state: RunState,
    number: int,
    call: ToolCall,
    verdict: Verdict,
    past: PastEffect | None,
    before: Sequence[ev.AgentEvent],
    *,
    at: datetime,
) -> Events:
    """Return the events that follow from the policy's verdict on a call.

    Args:
        state: The state before the reply.
        number: The call's number.
        call: The call.
        verdict: The verdict.
        past: The effect that an identical call had before a reset; None for none.
        before: The events of the reply so far.
        at: Now.
    """
    twin = _twin_of(state, call, before)
    if twin and verdict.verdict == "allow":
        return [ev.ToolCallFinished(number=number, status="invalid", content=NOT_TWICE.format(twin=twin))]
    repeats, delay = delay_of(state, call, verdict)
    unanswered, paced = pace_of(state, call, verdict, at=at)
    event = ev.VerdictGiven(number=number, verdict=verdict.verdict, rule=verdict.rule)
    if verdict.remembered:
        event = event.model_copy(update={"terms": verdict.terms, "requirements": verdict.requirements})
    if paced > delay:
        event = event.model_copy(update={"unanswered": unanswered, "delay": paced})
    elif delay:
        event = event.model_copy(update={"repeats": repeats, "delay": delay})
    if verdict.verdict == "deny":
        content = words_of(denial_of(verdict), past)
        return [event, ev.ToolCallFinished(number=number, status="denied", content=content)]
    if verdict.verdict == "ask" and state.unattended:
        return [event, deny_unasked(number, verdict, past)]
    if verdict.verdict == "ask":
        why = f"{verdict.reason or verdict.rule}; this reply has the very same call as call {twin}" if twin else ""
        ahead = sum(map(asks, before))
        request = new_request(state, "approval", number, call, verdict, why=why, at=at, ahead=ahead, past=past)
        return [event, ask_people(state, request)]
    return [event]


def _twin_of(state: RunState, call: ToolCall, events: Sequence[ev.AgentEvent]) -> int:
    """Return the number of an identical `unsafe` call earlier in the reply; 0 for none.

    Args:
        state: The state before the reply.
        call: The call.
        events: The events of the reply so far.
    """
    tool = state.spec.tool(call.name) if state.spec else None
    if state.features < UNSAFE_ONCE_A_REPLY or tool is None or tool.effect is not Effect.UNSAFE:
        return 0
    numbers = {event.number for event in events if isinstance(event, ev.VerdictGiven) and event.verdict != "deny"}
    earlier = [event for event in events if isinstance(event, ev.ToolCallRequested) and event.number in numbers]
    return next((event.number for event in earlier if event.call.digest == call.digest), 0)


def _on_last_rejected(state: RunState, reply: LLMReply, why: str) -> Events:
    """Return the event that blocks the run if as many replies in a row were rejected as its limits allow.

    Below that feature level, `next_action` blocks the run without the reason; a content filter is the exception.
    """
    count = state.steps.rejected_replies + 1
    if not state.spec or count < state.spec.limits.max_rejected_replies:
        return []
    several = f"{count} replies in a row could not be used"
    if reply.finish_reason == "content_filter":
        last = f"{several}; the provider's content filter kept back the last one"
        return [ev.RunBlocked(cause=CONTENT_FILTERED, message=last)]
    if state.features < BLOCK_SAYS_WHY:
        return []
    return [ev.RunBlocked(cause="RepliesRejected", message=f"{several}. The last one: {one_line(why, WHY_CHARS)}")]


def on_summary(
    state: RunState, reply: LLMReply, *, compacted: int, kept: int, originals: tuple[int, ...] = ()
) -> Events:
    """Return the events that follow from the LLM's reply to the request for a summary.

    Args:
        state: The state before.
        reply: The LLM's reply.
        compacted: The number of messages that the summary replaces.
        kept: The number of later messages, which stay.
        originals: Positions of the messages that stay unchanged.
    """
    summary = reply.message.text.strip() if reply.message else ""
    if not summary or reply.rejected:
        why = reply.rejected or "it holds no summary."
        rejected = ev.ReplyRejected(reason=f"asked for a summary of the conversation: {why}")
        if state.account.limits:
            cost = reply.cost if state.account.priced else None
            rejected = rejected.model_copy(update={"usage": reply.usage, "outage": reply.outage, "cost": cost})
        return [rejected, *_on_last_rejected(state, reply, why)]
    compaction = on_compaction(state, summary, compacted=compacted, kept=kept, originals=originals)
    cost = _cost(state, reply)
    signed = reply.signed if state.features >= SIGNED_RESULTS else ""
    update = {"usage": reply.usage, "outage": reply.outage, "cost": cost, "signed": signed}
    return [compaction.model_copy(update=update)]


def on_compaction(
    state: RunState, summary: str, *, compacted: int, kept: int, originals: tuple[int, ...]
) -> ev.ContextCompacted:
    """Return the event that compacts the context to this summary."""
    text = summary_message(state, summary, originals=originals)
    return ev.ContextCompacted(
        summary_message=text,
        summary=summary,
        messages=compacted,
        kept=kept,
        originals=originals,
        by=state.context.author,
    )


def _cost(state: RunState, reply: LLMReply) -> int | None:
    """Return the cost of a reply as it is recorded; None if it is unknown, or the run records none."""
    return reply.cost if state.account.priced or state.features >= RECORDS_COSTS else None


def on_lost_llm(state: RunState, cause: str, message: str, outage: Outage | None = None) -> Events:
    """Return the events that follow when an LLM call failed for good; `outage` has the earlier failed attempts."""
    if cause == CONTEXT_TOO_LONG:
        return [ev.ContextExceeded(message=message, outage=outage if state.account.limits else None)]
    return [ev.RunBlocked(cause=cause, message=message, outage=outage)]


def on_lost_attempts(state: RunState, proof: LLMFailed) -> ev.LLMCallLost:
    """Return the event that charges the attempts at an LLM call that may have cost something, as its proof states."""
    return ev.LLMCallLost(
        attempts=proof.lost,
        request_tokens=proof.request_tokens,
        usage=proof.usage,
        cost=proof.cost if state.account.priced else None,
        outage=proof.outage,
    )
