"""The fold of tool calls, waits and sub-agents, and of the trust in the LLM that reads their results."""

from datetime import timedelta
from typing import Any

from holdfast.core.base.models import replace
from holdfast.core.log import events as ev
from holdfast.core.run.rules.closing_work import line_about, progress_due
from holdfast.core.run.rules.loop_guard import count_result
from holdfast.core.run.rules.pacing import count_answer
from holdfast.core.run.state.dormancy import BufferedEvent, Polls, Wait
from holdfast.core.run.state.features import KEEPS_TRUST, PLACES
from holdfast.core.run.state.state import RunState
from holdfast.core.tools.triggers import PollTrigger, TaskTrigger
from holdfast.core.trust import Trust, least
from holdfast.errors import EventOutOfPlace


def request_call(state: RunState, event: ev.ToolCallRequested) -> RunState:
    """Add a call to the current step. The run's own calls record its progress in progress.txt."""
    calls = state.calls.request(event.number, event.call, past=event.past, own=event.own)
    if not event.own:
        return replace(state, calls=calls)
    note = progress_due(state, at=event.at)
    if not note:
        raise EventOutOfPlace("the run has nothing to note in progress.txt")
    return replace(state, calls=calls, ending=state.ending.note(note))


def give_verdict(state: RunState, event: ev.VerdictGiven) -> RunState:
    """Allow a call, perhaps with a delayed start. After any other verdict, later events decide about the call."""
    call = state.calls.get(event.number)
    if event.verdict == "allow":
        call = replace(
            call,
            phase=call.after("allow"),
            starts_at=event.at + timedelta(seconds=event.delay) if event.delay else None,
            repeats=event.repeats,
            unanswered=event.unanswered,
            terms=event.terms,
            requirements=event.requirements,
        )
    else:
        call = replace(call, phase=call.after("judge"))
    return replace(state, calls=state.calls.put(call), steps=state.steps.use_reply())


def postpone_call(state: RunState, event: ev.ToolCallPostponed) -> RunState:
    """Let an allowed call wait for the hours of a policy. It keeps its approval.

    Raises:
        EventOutOfPlace: The call is not allowed to run.
    """
    call = state.calls.get(event.number)
    if call.phase != "allowed":
        raise EventOutOfPlace(f"call {event.number} is {call.phase}, and nothing is left to postpone")
    postponed = replace(call, starts_at=event.until, postponed=event.rule, repeats=0, unanswered=0)
    return replace(state, calls=state.calls.put(postponed))


def start_call(state: RunState, event: ev.ToolCallStarted) -> RunState:
    """Start an allowed call, which uses up its approval."""
    call = state.calls.get(event.number)
    delay: dict[str, Any] = {"starts_at": None, "repeats": 0, "unanswered": 0, "postponed": ""}
    started = replace(call, phase=call.after("start"), grant="", begun=True, **delay)
    if state.features >= PLACES:
        started = replace(started, used_grant=call.grant)
    return replace(state, calls=state.calls.put(started))


def finish_call(state: RunState, event: ev.ToolCallFinished) -> RunState:
    """Give a call its result, which the LLM reads, and close an open request about the call."""
    call = state.calls.get(event.number)
    authority, dormancy = state.authority, state.dormancy
    calls, typed_context = state.calls.put(replace(call, phase=call.after("finish"), request=None)), state.typed_context
    after = replace(
        state,
        calls=calls,
        typed_context=typed_context.end_step() if typed_context.changes and not calls.open else typed_context,
        authority=authority.without_requests_about(event.number) if authority.requests else authority,
        dormancy=dormancy.end(event.number) if dormancy.waits else dormancy,
        repeats=count_result(state, event),
        pacing=count_answer(state, event) if event.cause or state.pacing.tools else state.pacing,
    )
    if call.own:
        return after  # the LLM does not read its result
    if state.keeps_progress and (line := line_about(state, call.call, event)):
        after = replace(after, ending=after.ending.add_call(line))
    if event.status in ("denied", "unknown"):
        line = f"{call.call.name}({call.call.arguments}): {event.text}"
        after = replace(after, context=after.context.add_unresolved_call(line))
    if event.scope:
        polled = state.spec.polled_call(call.call) if state.spec else None
        refused = polled or call.call  # reported by the polled tool, not the dormant one
        constraints = after.constraints.add(
            event.number, refused, scope=event.scope, reason=event.text, until=event.until, at=event.at
        )
        after = replace(after, constraints=constraints)
    tool = state.spec.tool(call.call.name) if state.spec else None
    if tool and event.status in ("ok", "failed", "undone", "cannot"):
        # The message of a failed call may quote any content, so it never has the trust of the LLM's own words.
        label = least(tool.trust, "tool") if event.status in ("failed", "cannot") else tool.trust
        after = lower_trust(after, event.trust or label)
    return after


def update_context(state: RunState, event: ev.ContextUpdated) -> RunState:
    """Change the typed context, from the next step on.

    Raises:
        EventOutOfPlace: The call is not under way, or its tool may not change such a field.
    """
    call = state.calls.get(event.number)
    if call.phase not in ("started", "orphaned"):
        raise EventOutOfPlace(f"call {event.number} is {call.phase}, and changes no context")
    if not event.changes.keys() <= set(state.writes_of(call.call.name)):
        raise EventOutOfPlace(f"the tool of call {event.number} may not change these fields of the context")
    return replace(state, typed_context=state.typed_context.change(event.number, event.changes))


def lower_trust(state: RunState, trust: Trust) -> RunState:
    """Lower the trust level of the LLM's words to that of the content that it reads."""
    context = state.context
    kept = state.features >= KEEPS_TRUST or state.origin.lineage is not None
    depends = state.spec is not None and (kept or state.spec.depends_on_trust)
    if not depends or trust == context.trust:
        return state
    return replace(state, context=replace(context, trust=least(context.trust, trust)))


def begin_wait(state: RunState, event: ev.DormancyBegan) -> RunState:
    """Let a started call sleep.

    Raises:
        EventOutOfPlace: It has not started, or is already dormant.
    """
    if all(call.number != event.number for call in state.running_calls):
        raise EventOutOfPlace(f"call {event.number} has not started, or sleeps already")
    polls = Polls(again=event.at) if isinstance(event.trigger, PollTrigger) else None
    if isinstance(event.trigger, TaskTrigger):
        interval = event.trigger.interval
        polls = Polls(again=event.at + timedelta(seconds=interval), delay=interval)
    wait = Wait(number=event.number, trigger=event.trigger, since=event.at, polls=polls)
    return replace(state, dormancy=state.dormancy.begin(wait, wake=event.wake))


def receive_wake(state: RunState, event: ev.WakeReceived) -> RunState:
    """Record an event from outside, and buffer it if no call waits for it yet."""
    dormancy = state.dormancy.record_id(event.id)
    kept = event.outcome == "buffered"
    if not kept and event.event:
        dormancy = dormancy.record_hops(event.hops).count(event)
    return replace(state, dormancy=dormancy.buffer(BufferedEvent.of(event)) if kept else dormancy)


def start_subagent(state: RunState, event: ev.SubagentStarted) -> RunState:
    """Add the sub-agent of a started call.

    Raises:
        EventOutOfPlace: The call has not started, or has already started one.
    """
    if state.calls.get(event.number).phase != "started":
        raise EventOutOfPlace(f"call {event.number} has not started")
    return replace(state, subagents=state.subagents.start(event))


def end_subagent(state: RunState, event: ev.SubagentEnded) -> RunState:
    """Record how a sub-agent ended. The LLM reads the reasons of its constraints, at the trust level of its result.

    Raises:
        EventOutOfPlace: There is no such open sub-agent.
    """
    constraints = state.constraints.adopt(event.constraints, number=event.number, at=event.at)
    state = replace(state, subagents=state.subagents.end(event), constraints=constraints)
    return lower_trust(state, event.trust) if event.constraints else state
