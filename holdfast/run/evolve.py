"""The fold over events: `state = evolve(state, event)`. Nothing else changes a state.

Each event has one branch in `_apply`, which says what the event changes. Changes that concern one part of the state
only are methods of that part (`holdfast.run.substates`); functions that change several parts together are in
`holdfast.run.evolve_run`, `evolve_context` and `evolve_requests`.
"""

from datetime import datetime, timedelta
from functools import reduce
from typing import assert_never

from holdfast.agents.agent import AgentSpec
from holdfast.base.replacing import replace
from holdfast.errors import EventOutOfPlace
from holdfast.log.events import (
    AgentEvent,
    AgentLoaded,
    ApprovalEscalated,
    ApprovalExpired,
    ApprovalReminded,
    ApprovalRequested,
    AuthorityDelegated,
    BaselineRecorded,
    BudgetExtended,
    BudgetLow,
    BudgetReserved,
    BudgetSpent,
    CompactionRequested,
    ConstraintLifted,
    ContextCompacted,
    ContextExceeded,
    DecisionReceived,
    DelegationRevoked,
    DormancyBegan,
    KeyRevoked,
    LearningRequested,
    LearningSkipped,
    LLMCallLost,
    LLMReplied,
    MemoryRecalled,
    MessageAwaited,
    MessageTaken,
    MoveRequested,
    ReconcileRequested,
    RefusalsCounted,
    ReplyRejected,
    RuleRemembered,
    RuleRevoked,
    RunBlocked,
    RunContinued,
    RunFinished,
    RunForked,
    RunImported,
    RunPaused,
    RunReset,
    RunResumed,
    RunStarted,
    RunUnblocked,
    SignalRejected,
    StateVerified,
    SubagentEnded,
    SubagentStarted,
    TaskRefined,
    ToolCallFinished,
    ToolCallRequested,
    ToolCallStarted,
    UserMessageReceived,
    VerdictGiven,
    WaitPolled,
    WakeReceived,
)
from holdfast.run.evolve_budget import keep_account
from holdfast.run.evolve_context import (
    begin_step,
    begin_wait,
    end_subagent,
    finish_call,
    keep_baseline,
    lower_trust,
    receive_message,
    refine_task,
    request_call,
    start_subagent,
    take_message,
    trust_of_findings,
)
from holdfast.run.evolve_fork import fork_run, lift_fork
from holdfast.run.evolve_import import arrives, enter, import_run
from holdfast.run.evolve_requests import close_decided, close_expired, count_vote, lose_outcome, require_approval
from holdfast.run.evolve_run import continue_run, load_agent, reset_run, start_run, unblock_run
from holdfast.run.features import SIGNED_STEERING
from holdfast.run.state import Blocked, RunState
from holdfast.run.substates.authority import DelegatedAuthority, escalated, reminded
from holdfast.run.substates.dormancy import BufferedEvent
from holdfast.run.substates.origin import Move
from holdfast.run.substates.steps import Pause

_HOLDS = (RunPaused, RunResumed, RunBlocked, RunUnblocked, MoveRequested)
"""What a signed statement that steers the run is bound to the number of."""


def evolve(state: RunState, event: AgentEvent) -> RunState:
    """Return the state after `event`.

    Raises:
        EventOutOfPlace: The event does not follow from those before.
    """
    try:
        after = keep_account(state, event, _apply(state, event))
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
    if isinstance(event, _HOLDS) and after.features >= SIGNED_STEERING:
        after = replace(after, holds=state.holds + 1)
    return replace(after, events=state.events + 1, updated_at=event.at)


def _apply(state: RunState, event: AgentEvent) -> RunState:
    match event:
        # The LLM.
        case LLMReplied():
            return begin_step(state, event)
        case ReplyRejected():
            return replace(state, steps=state.steps.reject_reply())
        case ContextExceeded():
            return replace(state, context=state.context.exceeded())
        case CompactionRequested():
            return replace(state, context=replace(state.context, requested=True))
        case ContextCompacted():
            context, steps = state.context.compacted(event.summary, step=state.steps.count), state.steps.use_reply()
            return replace(state, context=context, steps=steps, usage=state.usage + event.usage)

        # Tool calls.
        case ToolCallRequested():
            return request_call(state, event)
        case VerdictGiven():
            call = state.calls.get(event.number)
            if event.verdict == "allow":
                starts_at = event.at + timedelta(seconds=event.delay) if event.delay else None
                phase = call.after("allow")
                call = replace(call, phase=phase, starts_at=starts_at, repeats=event.repeats)
                call = replace(call, terms=event.terms, requirements=event.requirements)
            else:
                call = replace(call, phase=call.after("judge"))
            return replace(state, calls=state.calls.put(call), steps=state.steps.use_reply())
        case ToolCallStarted():
            call = state.calls.get(event.number)
            started = replace(call, phase=call.after("start"), grant="", begun=True, starts_at=None, repeats=0)
            return replace(state, calls=state.calls.put(started))
        case ToolCallFinished():
            return finish_call(state, event)

        # The run.
        case RunStarted():
            return start_run(state, event)
        case RunContinued():
            return continue_run(state, event)
        case SignalRejected() | RefusalsCounted():
            return state
        case BudgetReserved() | BudgetLow() | BudgetSpent() | LLMCallLost():
            return state  # `keep_account` says what becomes of the account
        case BudgetExtended():
            if not event.proof or event.until is None:
                return state
            digest = event.said.signed_digest(state.thread)
            authority = state.authority.use_statement(digest, until=event.until, at=event.at)
            return replace(state, authority=authority)
        case RunReset():
            return reset_run(state, event)
        case RunForked():
            return fork_run(state, event)
        case MoveRequested():
            return replace(state, moving=Move(by=event.by, reason=event.reason, to=event.to))
        case RunImported():
            return import_run(state, event)
        case RunBlocked():
            after = event.outage.words(event.at) if event.outage else ""
            context = replace(state.context, requested=False)
            blocked = Blocked(cause=event.cause, message=event.message, after=after)
            return replace(state, blocked=blocked, context=context)
        case RunUnblocked():
            return unblock_run(state)
        case RunPaused():
            since = state.pause.since if state.pause else event.at
            pause = Pause(by=event.by, reason=event.reason, since=since, until=event.until, proof=event.proof)
            return replace(state, pause=pause, pauses=state.pauses + 1)
        case RunResumed():
            # Where the LLM has been asked what it has learnt, the wait for a message is over.
            restarts = state.idle.awaiting and not state.ending.learning
            idle = state.idle.begin(event.at) if restarts else state.idle
            return replace(state, pause=None, idle=idle)
        case RunFinished(outcome="moved"):
            return replace(state, outcome="moved")  # all that is open is open in another place
        case RunFinished():
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

        # The agent and its memory.
        case AgentLoaded():
            return enter(state, event) if arrives(state) else load_agent(state, event)
        case MemoryRecalled():
            standing = next((tier.text for tier in event.tiers if tier.tier == "standing"), "")
            recalled = replace(state, context=replace(state.context, standing_memory=standing))
            return reduce(lower_trust, (tier.trust for tier in event.tiers if tier.tier == "files"), recalled)

        # Messages of people.
        case UserMessageReceived():
            return receive_message(state, event)
        case TaskRefined():
            return refine_task(state, event)
        case MessageTaken():
            return take_message(state, event)
        case MessageAwaited():
            idle, steps = state.idle.begin(event.at), state.steps.use_reply()
            return replace(state, idle=idle, result=event.result, structured=event.structured, steps=steps)
        case LearningRequested():
            return replace(state, ending=state.ending.ask(event.at))
        case LearningSkipped():
            return replace(state, ending=state.ending.replied())

        # Waits and sub-agents.
        case DormancyBegan():
            return begin_wait(state, event)
        case WaitPolled():
            return replace(state, dormancy=state.dormancy.polled(event))
        case WakeReceived():
            dormancy = state.dormancy.note(event.id)
            kept = event.outcome == "buffered"
            return replace(state, dormancy=dormancy.buffer(BufferedEvent.of(event)) if kept else dormancy)
        case ConstraintLifted(constraint=0):  # `FORK`
            return lift_fork(state, event)
        case SubagentStarted():
            return start_subagent(state, event)
        case SubagentEnded():
            return end_subagent(state, event)
        case ConstraintLifted():
            return replace(state, constraints=state.constraints.lift(event.constraint))

        # Approval requests and decisions.
        case ApprovalRequested():
            return require_approval(state, event.request)
        case ReconcileRequested():
            return lose_outcome(state, event.request)
        case ApprovalReminded():
            request = state.authority.open_request(event.request)
            return replace(state, authority=state.authority.with_request(reminded(request)))
        case ApprovalEscalated():
            request = state.authority.open_request(event.request)
            return replace(state, authority=state.authority.with_request(escalated(request)))
        case ApprovalExpired():
            return close_expired(state, event)
        case DecisionReceived(outcome="accepted"):
            return close_decided(state, event)
        case DecisionReceived(outcome="waiting_for_quorum"):
            return count_vote(state, event)
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
        case KeyRevoked():
            return replace(state, authority=state.authority.revoke_keys((event.revoked,)))

        # What `verify` tools found.
        case BaselineRecorded():
            return keep_baseline(state, event.findings)
        case StateVerified():
            return lower_trust(keep_baseline(state, event.findings), trust_of_findings(state, event))

        case _:
            assert_never(event)


def _note_time(before: RunState, event: AgentEvent, after: RunState) -> RunState:
    """Note when the agent acted, and whether it paused so long before this event that it has to verify first.

    The cause of the pause makes no difference: people, an outage, a slow tool, a thread that was closed meanwhile.
    """
    freshness = before.freshness
    if isinstance(event, StateVerified):
        return replace(after, freshness=replace(after.freshness, stale_seconds=0, acted_at=event.at))
    spec: AgentSpec | None = event.spec if isinstance(event, AgentLoaded) else before.spec
    # Without an agent it is not known whether it has `verify` tools: the pause stays as it was noted.
    stale = freshness.stale_for(spec, event.at) if spec else freshness.stale_seconds
    acted_at: datetime | None = event.at if _acts(before, event) else freshness.acted_at
    if (stale, acted_at) == (freshness.stale_seconds, freshness.acted_at):
        return after
    return replace(after, freshness=replace(after.freshness, stale_seconds=stale, acted_at=acted_at))


def _acts(state: RunState, event: AgentEvent) -> bool:
    """Whether the agent itself does something. What other parties send does not make a run look fresh."""
    if isinstance(event, LLMReplied | ToolCallStarted | AgentLoaded):
        return True
    if not isinstance(event, ToolCallFinished) or event.status not in ("ok", "failed", "undone", "cannot"):
        return False
    call = state.calls.find(event.number)
    return call is not None and call.phase == "started" and not state.carries_out(event.number)
