"""The fold over events: `state = evolve(state, event)`. Nothing else changes a state.

Each event has one branch in `_apply`, which says what the event changes. Changes that concern one part of the state
only are methods of that part (`holdfast.run.substates`); the functions below change several parts together.
"""

from datetime import datetime
from functools import reduce
from typing import assert_never

from holdfast.agents.agent import AgentSpec
from holdfast.authority.approvals import ApprovalRequest
from holdfast.authority.votes import Vote, agreeing, cast
from holdfast.base.replacing import replace
from holdfast.errors import EventOutOfPlace
from holdfast.llm.content import size_of
from holdfast.llm.messages import ToolCall, more_than_text, text_of
from holdfast.log.events import (
    AgentEvent,
    AgentLoaded,
    ApprovalEscalated,
    ApprovalExpired,
    ApprovalReminded,
    ApprovalRequested,
    AuthorityDelegated,
    BaselineRecorded,
    ContextCompacted,
    ContextExceeded,
    DecisionReceived,
    DelegationRevoked,
    Finding,
    LLMReplied,
    MemoryRecalled,
    MessageAwaited,
    MessageTaken,
    ReconcileRequested,
    RefusalsCounted,
    ReplyRejected,
    RuleRemembered,
    RuleRevoked,
    RunBlocked,
    RunContinued,
    RunFinished,
    RunReset,
    RunStarted,
    RunUnblocked,
    SignalRejected,
    StateVerified,
    ToolCallFinished,
    ToolCallRequested,
    ToolCallStarted,
    UserMessageReceived,
    VerdictGiven,
)
from holdfast.run.remembered_rules import rule_made_by
from holdfast.run.state import Blocked, RunState
from holdfast.run.substates.authority import DelegatedAuthority, escalated, reminded, with_reason, with_votes
from holdfast.run.substates.calls import Calls, CallState
from holdfast.run.substates.context import FOLLOW_UPS_CHARS
from holdfast.run.substates.freshness import FindingDigest
from holdfast.run.substates.idle import Idle
from holdfast.run.substates.inbox import WaitingMessage
from holdfast.seals.starts import START_WITHIN
from holdfast.tools.effects import PastEffect
from holdfast.transcript.transcript import clip
from holdfast.trust import Trust, least

REASON_CHARS = 2_000
"""Characters of a request's reason, after a reset has added to it."""


def evolve(state: RunState, event: AgentEvent) -> RunState:
    """The state after `event`.

    Raises:
        EventOutOfPlace: The event does not follow from those before.
    """
    try:
        after = _apply(state, event)
    except EventOutOfPlace as error:
        raise EventOutOfPlace(
            f"event {state.events} of thread {state.thread}, {event.type}, is out of place: {error}. The record was "
            "forged or altered: restore it from a backup."
        ) from None
    proposed = state.authority.proposed_rule
    if proposed is not None and after.authority.proposed_rule is proposed:
        # Only the event right after the approval can record its rule.
        after = replace(after, authority=replace(after.authority, proposed_rule=None))
    after = _note_time(state, event, after)
    return replace(after, events=state.events + 1, updated_at=event.at)


def _apply(state: RunState, event: AgentEvent) -> RunState:
    match event:
        # The run.
        case RunStarted():
            return _start(state, event)
        case RunContinued() | SignalRejected() | RefusalsCounted():
            return state
        case RunReset():
            return _reset(state, event)
        case RunBlocked():
            after = event.outage.words(event.at) if event.outage else ""
            return replace(state, blocked=Blocked(cause=event.cause, message=event.message, after=after))
        case RunUnblocked():
            return _unblock(state)
        case RunFinished():
            return replace(
                state,
                outcome=event.outcome,
                result=event.result,
                failure=event.cause,
                blocked=None,
                authority=replace(state.authority, requests=()),
                idle=state.idle.end(),
            )

        # The agent and its memory.
        case AgentLoaded():
            return _load(state, event)
        case MemoryRecalled():
            standing = next((tier.text for tier in event.tiers if tier.tier == "standing"), "")
            files = any(tier.tier == "files" for tier in event.tiers)
            recalled = replace(state, context=replace(state.context, standing_memory=standing))
            return _read(recalled, "tool") if files else recalled

        # Messages of people.
        case UserMessageReceived():
            return _receive(state, event)
        case MessageTaken():
            message = state.inbox.find(event.message)
            context = state.context.add_follow_up(message)
            return replace(state, inbox=state.inbox.take(message), context=context, idle=state.idle.end())
        case MessageAwaited():
            idle, steps = state.idle.begin(event.at), state.steps.use_reply()
            return replace(state, idle=idle, result=event.result, steps=steps)

        # The LLM.
        case LLMReplied():
            return _reply(state, event)
        case ReplyRejected():
            return replace(state, steps=state.steps.reject_reply())
        case ContextExceeded():
            return replace(state, context=state.context.exceeded())
        case ContextCompacted():
            context, steps = state.context.compacted(event.summary, step=state.steps.count), state.steps.use_reply()
            return replace(state, context=context, steps=steps, usage=state.usage + event.usage)

        # Tool calls.
        case ToolCallRequested():
            return replace(state, calls=state.calls.request(event.number, event.call, past=event.past))
        case VerdictGiven():
            call = state.calls.get(event.number)
            if event.verdict == "allow":
                call = replace(call, phase=call.after("allow"), terms=event.terms)
            else:
                call = replace(call, phase=call.after("judge"))
            return replace(state, calls=state.calls.put(call), steps=state.steps.use_reply())
        case ToolCallStarted():
            call = state.calls.get(event.number)
            return _put(state, replace(call, phase=call.after("start"), grant="", begun=True))
        case ToolCallFinished():
            return _finish(state, event)

        # Approval requests and decisions.
        case ApprovalRequested():
            return _require_approval(state, event.request)
        case ReconcileRequested():
            return _lose_outcome(state, event.request)
        case ApprovalReminded():
            request = state.authority.open_request(event.request)
            return replace(state, authority=state.authority.with_request(reminded(request)))
        case ApprovalEscalated():
            request = state.authority.open_request(event.request)
            return replace(state, authority=state.authority.with_request(escalated(request)))
        case ApprovalExpired():
            return _expire(state, event)
        case DecisionReceived(outcome="accepted"):
            return _decide(state, event)
        case DecisionReceived(outcome="waiting_for_quorum"):
            return _vote(state, event)
        case DecisionReceived():
            return state  # refused, or followed by another request

        # Remembered rules and delegations.
        case RuleRemembered():
            authority = state.authority.remember(
                rule=event.rule, tool=event.tool, call_digest=event.call_digest, by=event.by
            )
            return replace(state, authority=authority)
        case RuleRevoked():
            return replace(state, authority=state.authority.forget(event.rule))
        case AuthorityDelegated():
            delegation = DelegatedAuthority(by=event.by, to=event.to, until=event.until, statement=event.said)
            authority = state.authority.delegate(delegation, at=event.at)
            if event.proof:
                digest = event.said.signed_digest(state.thread)
                authority = authority.use_statement(digest, until=event.until, at=event.at)
            return replace(state, authority=authority)
        case DelegationRevoked():
            return replace(state, authority=state.authority.revoke_delegation(event.by, event.to))

        # What `verify` tools found.
        case BaselineRecorded():
            return _keep_baseline(state, event.findings)
        case StateVerified():
            return _read(_keep_baseline(state, event.findings), _trust_of(state, event))

        case _:
            assert_never(event)


def _put(state: RunState, call: CallState) -> RunState:
    """Change one call and nothing else."""
    return replace(state, calls=state.calls.put(call))


# The run and its agent.


def _start(state: RunState, event: RunStarted) -> RunState:
    """Begin a run. One that continues a closed thread begins where the thread ended; its agent is loaded anew."""
    before = state.spec
    # An agent that does not depend on trust did not keep track of it, and the next agent may depend on it.
    unknown = before is not None and not before.minds_trust and bool(before.tools or before.memory.files)
    trust: Trust = "web" if unknown else least(state.context.trust, event.trust)
    # `holdfast.seals.starts` refuses a start that is older than this.
    starts = {name: at for name, at in state.origin.starts.items() if event.at - at < 3 * START_WITHIN}
    if event.start:
        starts[event.start] = event.at
    return replace(
        state,
        thread=event.thread,
        origin=replace(
            state.origin,
            first_run_id=event.first_run_id,
            sealed=event.sealed,
            depth=event.depth,
            user_proven=state.origin.user_proven and event.user_proven,
            starts=starts,
        ),
        spec=None,
        steps=state.steps.use_reply(),
        calls=Calls(current=tuple(_orphaned(state, call) for call in state.calls.current), count=state.calls.count),
        authority=replace(state.authority, requests=()),
        context=replace(state.context, trust=trust),
        idle=Idle(limit=event.idle_limit),
        blocked=None,
        outcome=None,
        result="",
        failure="",
    )


def _orphaned(state: RunState, call: CallState) -> CallState:
    """A call of the step during which the thread was closed: an effect that was under way has to be settled."""
    phase = call.after("orphan")
    if phase == "finished":
        return call
    past = call.past or PastEffect(
        number=call.number,
        first_run_id=state.origin.first_run_id,
        tool=call.call.name,
        call_digest=call.call.digest,
        key=state.effect_key(call.number, call.call),
        epoch=call.epoch,
    )
    return replace(call, phase=phase, request=None, past=past)


def _load(state: RunState, event: AgentLoaded) -> RunState:
    limits, idle = event.spec.limits, state.idle
    return replace(
        state,
        spec=event.spec,
        spec_hash=event.spec_hash,
        workspace=event.workspace,
        notify=event.notify,
        steps=replace(state.steps, limit=state.steps.count + limits.max_steps),
        context=replace(state.context, standing_memory=""),  # `memory_recalled` comes next
        idle=replace(idle, limit=limits.idle_limit) if idle.limit is None else idle,
    )


def _unblock(state: RunState) -> RunState:
    """A person sent `retry`; at the step limit, that grants as many steps again."""
    steps = state.steps.use_reply()
    if state.spec and steps.used_up:
        steps = replace(steps, limit=steps.limit + state.spec.limits.max_steps)
    return replace(state, blocked=None, steps=steps, context=state.context.retried(step=steps.count))


def _reset(state: RunState, event: RunReset) -> RunState:
    """Temporal moved the run back: calls that have not begun meet the effects that the abandoned branch has had."""
    known = {effect.key for effect in state.calls.past}
    calls, requests = state.calls, state.authority.requests
    for effect in event.effects:
        if call := _meeting(calls, state, effect):
            calls = calls.put(replace(call, past=effect))
            requests = tuple(
                with_reason(request, f"{request.why}; {effect.words}"[:REASON_CHARS])
                if request.number == call.number
                else request
                for request in requests
            )
        elif effect.key not in known:
            calls = replace(calls, past=(*calls.past, effect))
    return replace(state, calls=calls, authority=replace(state.authority, requests=requests))


def _meeting(calls: Calls, state: RunState, effect: PastEffect) -> CallState | None:
    """The call of the step that has had this effect: its own effect, or that of the same call where none has to ask."""
    for call in calls.current:
        free = not call.begun and call.past is None and call.phase in ("requested", "awaiting_approval", "allowed")
        if free and effect.key == state.effect_key(call.number, call.call):
            return call
    for call in calls.current:
        free = not call.begun and call.past is None and call.phase == "allowed" and not call.grant
        if free and (effect.tool, effect.call_digest) == (call.call.name, call.call.digest):
            return call
    return None


# Messages and replies.


def _receive(state: RunState, event: UserMessageReceived) -> RunState:
    """A person's message: the first one is the task, a later one waits."""
    authority, text = state.authority, text_of(event.content)
    if event.proof and event.until:
        authority = authority.use_statement(event.said.signed_digest(state.thread), until=event.until, at=event.at)
    if not event.proof and not event.task:
        authority = replace(authority, requesters_unproven=True)
    authority = authority.add_requester(event.by)
    if event.position == 1:
        return replace(state, task=text, origin=replace(state.origin, user=event.by), authority=authority)
    # One person's memory must not be recalled for another person.
    proven = state.origin.user_proven and event.by == state.origin.user
    message = WaitingMessage(
        message=event.position,
        text=clip(text, FOLLOW_UPS_CHARS),
        by=event.by,
        more=more_than_text(event.content),
        size=size_of(event.content),
    )
    origin = replace(state.origin, user_proven=proven)
    return replace(state, origin=origin, inbox=state.inbox.receive(message), authority=authority)


def _reply(state: RunState, event: LLMReplied) -> RunState:
    """A step begins."""
    return replace(
        state,
        steps=replace(state.steps, count=state.steps.count + 1),
        calls=state.calls.next_step(),
        inbox=state.inbox.answered(),
        context=state.context.answered(event.usage.prompt_tokens + event.usage.completion_tokens),
        freshness=replace(state.freshness, baseline=()),
        usage=state.usage + event.usage,
    )


def _finish(state: RunState, event: ToolCallFinished) -> RunState:
    """A call has a result: nothing is asked about it any more, and the LLM reads it."""
    call = state.calls.get(event.number)
    after = replace(
        state,
        calls=state.calls.put(replace(call, phase=call.after("finish"), request=None)),
        authority=state.authority.without_requests_about(event.number),
    )
    if event.status in ("denied", "unknown"):
        line = f"{call.call.name}({call.call.arguments}): {event.content}"
        after = replace(after, context=after.context.add_unresolved_call(line))
    tool = state.spec.tool(call.call.name) if state.spec else None
    if tool and event.status in ("ok", "failed", "undone"):
        # The message of a failed call may quote anything: it never counts as the LLM's own words.
        label = least(tool.trust, "tool") if event.status == "failed" else tool.trust
        after = _read(after, event.trust or label)
    return after


def _read(state: RunState, trust: Trust) -> RunState:
    """The LLM reads something of that trust. Kept only where the agent depends on it, to keep snapshots small."""
    context = state.context
    if state.spec is None or not state.spec.minds_trust or least(context.trust, trust) == context.trust:
        return state
    return replace(state, context=replace(context, trust=least(context.trust, trust)))


# Approval requests and decisions.


def _require_approval(state: RunState, request: ApprovalRequest) -> RunState:
    call = state.calls.get(request.number)
    lapsed = call.grant if call.phase == "allowed" else ""
    asked = replace(
        call,
        phase=call.after("require_approval"),
        request=request.id,
        terms=request.terms,
        grant="",
        approved=False,
    )
    return _open(state, request, asked, lapsed=lapsed)


def _lose_outcome(state: RunState, request: ApprovalRequest) -> RunState:
    call = state.calls.get(request.number)
    asked = replace(call, phase=call.after("lose_outcome"), request=request.id, terms=request.terms)
    return _open(state, request, asked, lapsed="")


def _open(state: RunState, request: ApprovalRequest, call: CallState, *, lapsed: str) -> RunState:
    """Open a request about a call. The call adopts the past effect that the request names."""
    past = state.calls.past_effect(request.effect_key)
    if past:
        call = replace(call, past=past, epoch=past.epoch)
    calls = state.calls.put(call).without_past(past)
    return replace(state, calls=calls, authority=state.authority.opened(request, lapsed=lapsed))


def _decide(state: RunState, event: DecisionReceived) -> RunState:
    """Close the request. A call that may run is allowed now; one that may not is finished by the next event."""
    request = state.authority.open_request(event.request)
    call = state.calls.get(request.number)
    authority = state.authority.closed(request.id, f"{event.decision} by {event.by}")
    match event.decision:
        case "approve":
            edited = request.edit(event.arguments)
            editor = event.by if edited else request.edited_by
            approved = replace(call, phase=call.after("approve"), request=None, grant=request.id, approved=True)
            approved = _with_arguments(state, approved, edited or request.arguments, by=editor)
            vote = _vote_of(request, event)
            votes = agreeing(cast(() if edited else request.votes, vote), vote)
            rule = rule_made_by(votes, number=authority.rule_count + 1, quorum=request.terms.quorum)
            return replace(_put(state, approved), authority=replace(authority, proposed_rule=rule))
        case "absent" | "undo":
            again = replace(
                call,
                phase=call.after("repeat"),
                request=None,
                grant=request.id,
                epoch=call.epoch + 1,
                undo=event.decision == "undo",
            )
            return replace(_put(state, again), authority=authority)
        case "deny" | "respond" | "happened" | "abandon":
            return replace(_put(state, replace(call, phase=call.after("answer"))), authority=authority)
        case _:
            assert_never(event.decision)


def _vote(state: RunState, event: DecisionReceived) -> RunState:
    """Count one vote of several. Changed arguments are a new question, which the votes before have not answered."""
    request = state.authority.open_request(event.request)
    call = state.calls.get(request.number)
    vote = _vote_of(request, event)
    if arguments := request.edit(event.arguments):
        key = state.effect_key(request.number, request.call(arguments))
        request = request.edited(arguments, by=event.by, effect_key=key)
    authority = state.authority.with_request(with_votes(request, cast(request.votes, vote)))
    return replace(_put(state, replace(call, phase=call.after("answer"))), authority=authority)


def _vote_of(request: ApprovalRequest, event: DecisionReceived) -> Vote:
    return Vote(said=event.said, seen=request.seen, right=event.right, proof=event.proof, key=event.key)


def _expire(state: RunState, event: ApprovalExpired) -> RunState:
    """The request expired, and the policy decided it."""
    request = state.authority.open_request(event.request)
    call = state.calls.get(request.number)
    authority = state.authority.closed(request.id, f"{event.decision}, because it expired")
    match event.decision:
        case "approve":
            allowed = replace(call, phase=call.after("approve"), request=None, grant=request.id)
            allowed = _with_arguments(state, allowed, request.arguments, by=request.edited_by)
        case "deny":
            allowed = replace(call, phase=call.after("answer"))
        case _:
            assert_never(event.decision)
    return replace(_put(state, allowed), authority=authority)


def _with_arguments(state: RunState, call: CallState, arguments: str, *, by: str) -> CallState:
    """The call with the arguments that were approved, which may be other ones than the LLM's."""
    if arguments == call.call.arguments:
        return call
    edited = ToolCall(id=call.call.id, name=call.call.name, arguments=arguments, extra=call.call.extra)
    past = state.past_of(call.number, edited)  # another effect than the one that the LLM's own call has had
    return replace(call, call=edited, edited_by=by or "a vote", past=past, epoch=past.epoch if past else 0)


# Time, and what `verify` tools found.


def _keep_baseline(state: RunState, findings: tuple[Finding, ...]) -> RunState:
    baseline = tuple(map(FindingDigest.of, findings))
    return replace(state, freshness=replace(state.freshness, baseline=baseline))


def _trust_of(state: RunState, event: StateVerified) -> Trust:
    """How far the findings can be trusted: no further than the results of any tool."""
    tools = {tool.name: tool.trust for tool in state.spec.tools} if state.spec else {}
    return reduce(least, (each.trust or tools.get(each.tool, "tool") for each in event.findings), "tool")


def _note_time(before: RunState, event: AgentEvent, after: RunState) -> RunState:
    """Note when the agent acted, and whether it paused so long before this event that it has to verify first.

    The cause of the pause makes no difference: people, an outage, a slow tool, a thread that was closed meanwhile.
    """
    freshness = before.freshness
    if isinstance(event, StateVerified):
        return replace(after, freshness=replace(after.freshness, stale_seconds=0, acted_at=event.at))
    spec: AgentSpec | None = event.spec if isinstance(event, AgentLoaded) else before.spec
    # Without an agent it is not known whether it has `verify` tools: the pause stays as it was noted.
    stale = freshness.paused(spec, event.at) if spec else freshness.stale_seconds
    acted_at: datetime | None = event.at if _acts(before, event) else freshness.acted_at
    if (stale, acted_at) == (freshness.stale_seconds, freshness.acted_at):
        return after
    return replace(after, freshness=replace(after.freshness, stale_seconds=stale, acted_at=acted_at))


def _acts(state: RunState, event: AgentEvent) -> bool:
    """Whether the agent itself does something. What other parties send does not make a run look fresh."""
    if isinstance(event, LLMReplied | ToolCallStarted | AgentLoaded):
        return True
    if not isinstance(event, ToolCallFinished) or event.status not in ("ok", "failed", "undone"):
        return False
    call = state.calls.find(event.number)
    return call is not None and call.phase == "started"
