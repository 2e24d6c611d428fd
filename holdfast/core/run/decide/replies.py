"""The events that follow from the end of an LLM call: from a reply and the calls in it, a summary, or a failure.

1. Each call of a reply is judged before it can run (`holdfast.core.run.rules.verdicts`); one that can never run ends at
   once.
2. The very same call of an `unsafe` tool does not run twice for one reply: how often such an effect has happened cannot
   be found out later, and an LLM that means two can say so again.
3. A reply that cannot be used is answered with a notice, and the last one that may be blocks the run.
"""

from collections.abc import Sequence
from datetime import datetime

from holdfast.core.agents.agent import AgentSpec
from holdfast.core.base.text import one_line
from holdfast.core.llm.blocks import ToolCall, text_of
from holdfast.core.llm.finish_reasons import CUT_OFF, may_be_cut_off
from holdfast.core.llm.outages import Outage
from holdfast.core.log import events as ev
from holdfast.core.run.contracts.error_types import CONTEXT_TOO_LONG
from holdfast.core.run.contracts.llm_calls import LLMFailed, LLMReply
from holdfast.core.run.decide.results import MISSING, NOTICE, answered, refuse_result
from holdfast.core.run.rules.approval_requests import new_request
from holdfast.core.run.rules.budget import NO_TOOL
from holdfast.core.run.rules.closing_work import refuse_other_tool
from holdfast.core.run.rules.compaction import summary_message
from holdfast.core.run.rules.constraints import refuse_call
from holdfast.core.run.rules.loop_guard import delay_of
from holdfast.core.run.rules.verdicts import denial_of, judge_call
from holdfast.core.run.state.features import (
    BLOCK_SAYS_WHY,
    CUT_OFF_CALLS,
    SIZED_REQUESTS,
    UNSAFE_ONCE_A_REPLY,
)
from holdfast.core.run.state.state import RunState
from holdfast.core.run.waits.polling import call_problem
from holdfast.core.run.waits.subagents import subagent_problem
from holdfast.core.tools.arguments import canonical_arguments
from holdfast.core.tools.effects import Effect, words_of
from holdfast.core.tools.spec import FINAL_RESULT

Events = list[ev.AgentEvent]

WHY_CHARS = 500
"""Characters of the reason for the last rejected reply that the block has."""
CONTENT_FILTERED = "ContentFiltered"
"""The cause of a run that is blocked because the provider's content filter keeps back the LLM's replies."""

NOT_TWICE = (
    "Not called: this reply has the very same call already, as call {twin}, and how often such a call has happened "
    "cannot be found out later. If it is to happen twice, call it again when you have the first result."
)


def on_reply(state: RunState, reply: LLMReply, *, shown: int, at: datetime) -> Events:
    """Return the events that follow from an LLM's reply.

    Args:
        state: The state before the reply.
        reply: What `call_llm` returned.
        shown: How many messages the LLM was sent.
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
            cost=reply.cost if state.account.priced else None,
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
    return [*events, *answered(state, result)]


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
        events.append(ev.ToolCallRequested(number=number, call=call, past=past.key if past else ""))
        gives = call.name == FINAL_RESULT and state.spec.gives_result
        closing = NO_TOOL if state.account.closing == "asked" and not gives else ""
        problem = closing or refuse_result(state, reply, call) or refuse_other_tool(state, call)
        problem = problem or _problem(state.spec, call, at=at)
        if state.features >= CUT_OFF_CALLS and number == last and may_be_cut_off(reply.finish_reason):
            problem = CUT_OFF
        if problem or call.id in reply.problems:
            problem = reply.problems.get(call.id) or problem
            events.append(ev.ToolCallFinished(number=number, status="invalid", content=f"Not called: {problem}"))
            continue
        if state.constraints.kept and (cannot := refuse_call(state, number, call, past=past, at=at)):
            events += cannot
            continue
        verdict = judge_call(state, call)
        twin = _twin_of(state, call, events)
        if twin and verdict.verdict == "allow":
            events.append(ev.ToolCallFinished(number=number, status="invalid", content=NOT_TWICE.format(twin=twin)))
            continue
        repeats, delay = delay_of(state, call, verdict)
        given = ev.VerdictGiven(number=number, verdict=verdict.verdict, rule=verdict.rule)
        if verdict.remembered:
            lifted = {"terms": verdict.terms, "requirements": verdict.requirements}
            given = given.model_copy(update=lifted)
        events.append(given.model_copy(update={"repeats": repeats, "delay": delay}) if delay else given)
        if verdict.verdict == "deny":
            content = words_of(denial_of(verdict), past)
            events.append(ev.ToolCallFinished(number=number, status="denied", content=content))
        elif verdict.verdict == "ask":
            why = f"{verdict.reason or verdict.rule}; this reply has the very same call as call {twin}" if twin else ""
            request = new_request(state, "approval", number, call, verdict, why=why, at=at, ahead=opened, past=past)
            opened += 1
            events.append(ev.ApprovalRequested(request=request))
    ends = state.ending.learning or state.account.closing
    if not any(isinstance(event, ev.VerdictGiven) for event in events) and not ends:
        events.append(ev.ReplyRejected(reason="no call in it can run"))
        if state.features >= BLOCK_SAYS_WHY:
            said = [text_of(event.content) for event in events if isinstance(event, ev.ToolCallFinished)]
            events += _on_last_rejected(state, reply, said[-1] if said else "no call in it can run")
    return events


def _problem(spec: AgentSpec, call: ToolCall, *, at: datetime) -> str:
    """Why a call can never run; empty if it can."""
    if spec.tool(call.name) is None:
        return f"there is no tool named {call.name!r}"
    return subagent_problem(spec, call) or call_problem(spec, call, at=at)


def _twin_of(state: RunState, call: ToolCall, events: Sequence[ev.AgentEvent]) -> int:
    """Return the number of the very same `unsafe` call before it in the reply; 0 for none.

    Args:
        state: The state before the reply.
        call: The call.
        events: What has followed from the reply so far.
    """
    tool = state.spec.tool(call.name) if state.spec else None
    if state.features < UNSAFE_ONCE_A_REPLY or tool is None or tool.effect is not Effect.UNSAFE:
        return 0
    given = {event.number for event in events if isinstance(event, ev.VerdictGiven) and event.verdict != "deny"}
    requested = [event for event in events if isinstance(event, ev.ToolCallRequested) and event.number in given]
    return next((event.number for event in requested if event.call.digest == call.digest), 0)


def _on_last_rejected(state: RunState, reply: LLMReply, why: str) -> Events:
    """Block the run if this is the last reply that may be rejected.

    Below its feature level, `next_action` blocks it without the reason; a content filter is the exception.
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
        compacted: How many messages the summary stands in for.
        kept: How many came after those, and stay.
        originals: Positions of the messages that stay as they were sent.
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
    cost = reply.cost if state.account.priced else None
    return [compaction.model_copy(update={"usage": reply.usage, "outage": reply.outage, "cost": cost})]


def on_compaction(
    state: RunState, summary: str, *, compacted: int, kept: int, originals: tuple[int, ...]
) -> ev.ContextCompacted:
    """Return the event that compacts the context, with this summary."""
    text = summary_message(state, summary, originals=originals)
    return ev.ContextCompacted(
        summary_message=text, summary=summary, messages=compacted, kept=kept, originals=originals
    )


def on_lost_llm(state: RunState, cause: str, message: str, outage: Outage | None = None) -> Events:
    """Return the events that follow when an LLM call failed for good; `outage` has the attempts that failed before."""
    if cause == CONTEXT_TOO_LONG:
        return [ev.ContextExceeded(message=message, outage=outage if state.account.limits else None)]
    return [ev.RunBlocked(cause=cause, message=message, outage=outage)]


def on_lost_attempts(state: RunState, proof: LLMFailed) -> ev.LLMCallLost:
    """Return the event that charges the attempts at an LLM call that may have cost something, by the proof of them."""
    return ev.LLMCallLost(
        attempts=proof.lost,
        request_tokens=proof.request_tokens,
        usage=proof.usage,
        cost=proof.cost if state.account.priced else None,
        outage=proof.outage,
    )
