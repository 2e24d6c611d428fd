"""The fold of a run's own events: its start, its agent, pauses, blocks, resets and its end."""

from holdfast.core.base.models import replace
from holdfast.core.lineage import Lineage
from holdfast.core.log import events as ev
from holdfast.core.mac.starts import START_WITHIN
from holdfast.core.nodes import narrowed
from holdfast.core.run.state.authority import Authority, with_reason
from holdfast.core.run.state.calls import Calls, CallState, Move
from holdfast.core.run.state.features import KEEPS_TRUST
from holdfast.core.run.state.origin import Loss
from holdfast.core.run.state.places import Places
from holdfast.core.run.state.progress import Ending, Idle, Pause, Repeats
from holdfast.core.run.state.state import Blocked, RunState
from holdfast.core.run.state.typed_context import TypedContext
from holdfast.core.tools.effects import PastEffect
from holdfast.core.trust import Trust, least
from holdfast.errors import EventOutOfPlace

REASON_CHARS = 2_000
"""Characters of a request's reason, after a reset has added to it."""


def start_run(state: RunState, event: ev.RunStarted) -> RunState:
    """Begin a run. One that continues a closed thread starts from its final state, and reloads its agent."""
    # Anybody may have written a conversation from elsewhere.
    trust = least(trust_so_far(state), "web" if event.conversation else event.trust)
    # `holdfast.core.mac.starts` rejects starts older than this, so their ids are dropped.
    starts = {name: at for name, at in state.origin.starts.items() if event.at - at < 3 * START_WITHIN}
    if event.start:
        starts[event.start] = event.at
    return replace(
        state,
        thread=event.thread,
        origin=replace(
            state.origin,
            first_run_id=event.first_run_id,
            trace_run="",
            sealed=event.sealed,
            # A later run of a sub-agent's thread, or of a fork of it, also has policies above it.
            depth=max(event.depth, state.origin.depth) if state.origin.policies else event.depth,
            user_proven=state.origin.user_proven and event.user_proven,
            starts=starts,
            schedule=event.schedule or state.origin.schedule,
            caller=event.caller,
            lineage=event.lineage or without_allowance(state.origin.lineage),
            policies=event.policies or state.origin.policies,
            allowance=event.allowance,
            when_blocked=event.when_blocked,
        ),
        spec=None,
        next_agent="",
        policy_change="",
        lift=event.lift,
        unattended=False,
        steps=state.steps.use_reply(),
        calls=Calls(
            current=tuple(_keep_context(state, event, orphan(state, call)) for call in state.calls.current),
            count=state.calls.count,
        ),
        authority=with_parent_requesters(replace(state.authority, requests=()), event.lineage),
        subagents=state.subagents.keep_open() if state.subagents.children else state.subagents,
        constraints=(
            state.constraints.adopt(event.constraints, number=0, at=event.at)
            if event.constraints
            else state.constraints
        ),
        context=replace(state.context, trust=trust),
        places=_places(state, event),
        typed_context=_typed_context(state, event),
        repeats=Repeats(),
        idle=Idle(limit=event.idle_limit),
        ending=Ending(),
        blocked=None,
        pause=None,
        pauses=0,
        outcome=None,
        result="",
        structured=False,
        failure="",
    )


def _places(state: RunState, event: ev.RunStarted) -> Places:
    places = state.places.worked() if state.places.tries else state.places
    return replace(places, scope=narrowed(places.scope, *event.scope)) if event.scope else places


def _typed_context(state: RunState, event: ev.RunStarted) -> TypedContext:
    if event.context is not None:
        return TypedContext(dict(event.context))
    return state.typed_context.end_step() if state.typed_context.changes else state.typed_context


def _keep_context(state: RunState, event: ev.RunStarted, call: CallState) -> CallState:
    """Return an orphaned call with the context that it was made with, if the new run has another one."""
    if call.phase != "orphaned" or call.context is not None or state.typed_context.values is None:
        return call
    changes = event.context is not None or bool(state.typed_context.changes)
    return replace(call, context=state.typed_context.values) if changes else call


def trust_so_far(state: RunState) -> Trust:
    """Return the trust level at which another agent can take over the content that the LLM has read."""
    before = state.spec
    kept = before is None or before.depends_on_trust or state.features >= KEEPS_TRUST
    # An agent that does not depend on the trust level has not kept it, but the next agent may depend on it.
    unknown = before is not None and not kept and bool(before.tools or before.memory.file_tokens)
    return "web" if unknown else state.context.trust


def continue_run(state: RunState, event: ev.RunContinued) -> RunState:
    """Continue in a new Temporal run, perhaps at a higher feature level."""
    features = max(state.features, event.features)
    begins = state.features < KEEPS_TRUST <= features
    trust = trust_so_far(state) if begins else state.context.trust
    return replace(state, features=features, context=replace(state.context, trust=trust))


def without_allowance(lineage: Lineage | None) -> Lineage | None:
    """Return the lineage for a later run of a sub-agent's thread: the allowance of the first run is settled."""
    return lineage.model_copy(update={"allowance": None}) if lineage and lineage.allowance else lineage


def with_parent_requesters(authority: Authority, lineage: Lineage | None) -> Authority:
    """Add the requesters of the parent run, who count as requesters of its sub-agents, too, and its revoked keys."""
    for name in lineage.requesters if lineage else ():
        authority = authority.add_requester(name)
    if lineage and lineage.revoked_keys:
        authority = authority.revoke_keys(lineage.revoked_keys)
    if lineage and lineage.requesters_unproven:
        authority = replace(authority, requesters_unproven=True)
    return authority


def orphan(state: RunState, call: CallState, *, move: Move = "orphan") -> CallState:
    """Return a call of an interrupted step as orphaned, unless it is finished: its effect has to be resolved."""
    phase = call.after(move)
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


def load_agent(state: RunState, event: ev.AgentLoaded) -> RunState:
    """Load the agent, whose limits count from here."""
    limits, idle = event.spec.limits, state.idle
    steps = state.steps.count + limits.max_steps
    if state.next_agent:  # a reclassification widens nothing
        state, steps = _succeed(state, event), min(steps, state.steps.limit)
    return replace(
        state,
        next_agent="",
        policy_change="",
        lift=None,
        spec=event.spec,
        spec_hash=event.spec_hash,
        workspace=event.workspace,
        notify=event.notify,
        unattended=event.unattended,
        zones=event.zones,
        page=event.page,
        features=max(state.features, event.features),
        steps=replace(state.steps, limit=steps),
        context=replace(state.context, standing_memory=""),  # `memory_recalled` comes next
        typed_context=state.typed_context if event.context is None else TypedContext(dict(event.context)),
        idle=replace(idle, limit=limits.idle_limit) if idle.limit is None else idle,
    )


def _succeed(state: RunState, event: ev.AgentLoaded) -> RunState:
    """Prepare for another agent: the policy and the nodes of the one before still count for it, and what people have
    allowed ends.
    """
    before, policies = state.spec, state.origin.policies
    assert before is not None
    if before.policy.hash not in {event.spec.policy.hash, *(policy.hash for policy in policies)}:
        policies = (*policies, before.policy)
    return replace(
        state,
        origin=replace(state.origin, policies=policies),
        places=replace(state.places, scope=narrowed(state.places.scope, before.nodes)),
        authority=replace(state.authority, proposed_rule=None, rules=(), delegations=()),
    )


def block_run(state: RunState, event: ev.RunBlocked) -> RunState:
    """Block the run until a person has fixed the cause. A requested compaction is dropped."""
    after = event.outage.words(event.at) if event.outage else ""
    blocked = Blocked(cause=event.cause, message=event.message, after=after)
    return replace(state, blocked=blocked, context=state.context.drop_request())


def unblock_run(state: RunState) -> RunState:
    """Unblock the run. If it had reached its step limit, it gets the same number of steps again."""
    steps = state.steps.use_reply()
    if state.spec and steps.used_up:
        steps = replace(steps, limit=steps.limit + state.spec.limits.max_steps)
    context = state.context.prepare_retry(step=steps.count)
    return replace(state, blocked=None, steps=steps, context=context, repeats=Repeats())


def pause_run(state: RunState, event: ev.RunPaused) -> RunState:
    """Pause the run, or change its pause, which keeps the time at which it began."""
    since = state.pause.since if state.pause else event.at
    pause = Pause(by=event.by, reason=event.reason, since=since, until=event.until, proof=event.proof)
    return replace(state, pause=pause, pauses=state.pauses + 1)


def resume_run(state: RunState, event: ev.RunResumed) -> RunState:
    """Resume the run. Its wait for a message starts over, unless the LLM was already asked for its learnings."""
    restarts = state.idle.awaiting and not state.ending.learning
    return replace(state, pause=None, idle=state.idle.begin(event.at) if restarts else state.idle)


def finish_run(state: RunState, event: ev.RunFinished) -> RunState:
    """End the run. If it was moved, everything open stays open, for the other cluster."""
    if event.outcome == "moved":
        return replace(state, outcome="moved")
    return replace(
        state,
        outcome=event.outcome,
        result=event.result,
        structured=event.structured,
        failure=event.cause,
        blocked=None,
        pause=None,
        moving=None,
        authority=replace(state.authority, requests=()),
        idle=state.idle.end(),
        ending=state.ending.put_off(),
    )


def reset_run(state: RunState, event: ev.RunReset) -> RunState:
    """Apply a reset by Temporal: calls that have not begun adopt the effects of the abandoned branch."""
    known = {effect.key for effect in state.calls.past}
    calls, requests = state.calls, state.authority.requests
    for effect in event.effects:
        if call := _adopting_call(calls, state, effect):
            asked = call.asked and with_reason(call.asked, f"{call.asked.why}; {effect.words}"[:REASON_CHARS])
            calls = calls.put(replace(call, past=effect, asked=asked))
            requests = tuple(
                with_reason(request, f"{request.why}; {effect.words}"[:REASON_CHARS])
                if request.number == call.number
                else request
                for request in requests
            )
        elif effect.key not in known:
            calls = replace(calls, past=(*calls.past, effect))
    return replace(state, calls=calls, authority=replace(state.authority, requests=requests))


def lose_events(state: RunState, event: ev.EventsLost) -> RunState:
    """Record a gap. What people have allowed ends: a lost event may have revoked it.

    The numbers of lost calls are not used again, because a signed lift names a constraint by one. There were at most as
    many as lost events.

    Raises:
        EventOutOfPlace: Nothing was lost.
    """
    if event.events <= state.events:
        raise EventOutOfPlace(f"the thread has all {event.events} events")
    return replace(
        state,
        features=max(state.features, event.features),
        lost=Loss(position=state.events, events=event.events, head=event.head, at=event.at),
        calls=replace(state.calls, count=state.calls.count + event.events - state.events),
        authority=replace(state.authority, proposed_rule=None, rules=(), delegations=()),
    )


def _adopting_call(calls: Calls, state: RunState, effect: PastEffect) -> CallState | None:
    """Return the call that adopts this effect: the call with its key, or an identical one that needed no approval."""
    for call in calls.current:
        open_phases = ("requested", "previewing", "awaiting_approval", "allowed")
        free = not call.begun and call.past is None and call.phase in open_phases
        if free and effect.key == state.effect_key(call.number, call.call):
            return call
    for call in calls.current:
        free = not call.begun and call.past is None and call.phase == "allowed" and not call.grant
        if free and (effect.tool, effect.call_digest) == (call.call.name, call.call.digest):
            return call
    return None
