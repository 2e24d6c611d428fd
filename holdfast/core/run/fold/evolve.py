"""The fold over events: `state = evolve(state, event)`. Nothing else changes a state.

`_CHANGES` maps each type of event to the one function that applies it. The functions are in the modules beside this
one, by subject: the run (`runs`), messages and the context (`context`), tool calls (`calls`), approval requests and
authority (`approval_requests`), forks and imports (`imports`). A change of a single part of the state is a method of
that part (`holdfast.core.run.state`). The changes that all events share are here; in a run with a budget, each event
updates the account, too (`budget`).
"""

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.core.base.models import replace
from holdfast.core.log import events as ev
from holdfast.core.run.fold.approval_requests import (
    await_answer,
    close_expired,
    delegate,
    lose_outcome,
    receive_decision,
    remember_rule,
    require_approval,
    require_preview,
)
from holdfast.core.run.fold.budget import extend_budget, keep_account, open_account, require_budget
from holdfast.core.run.fold.calls import (
    begin_wait,
    end_subagent,
    finish_call,
    give_verdict,
    postpone_call,
    receive_wake,
    request_call,
    start_call,
    start_subagent,
    update_context,
)
from holdfast.core.run.fold.context import (
    await_message,
    begin_step,
    compact,
    keep_baseline,
    recall,
    receive_message,
    reclassify_run,
    refine_task,
    request_compaction,
    take_message,
    verify,
)
from holdfast.core.run.fold.forks import fork_run, lift_fork
from holdfast.core.run.fold.imports import import_run, resume_import
from holdfast.core.run.fold.places import accept_node, await_node, reroute_call
from holdfast.core.run.fold.policies import change_policy, request_policy
from holdfast.core.run.fold.runs import (
    block_run,
    continue_run,
    finish_run,
    load_agent,
    lose_events,
    pause_run,
    reset_run,
    resume_run,
    start_run,
    unblock_run,
)
from holdfast.core.run.state.features import SIGNED_STEERING
from holdfast.core.run.state.freshness import Freshness
from holdfast.core.run.state.origin import FORK, Move
from holdfast.core.run.state.state import RunState
from holdfast.errors import EventOutOfPlace

Change = Callable[[RunState, Any], RunState]
"""Return the state after an event of one type."""


def evolve(state: RunState, event: ev.AgentEvent) -> RunState:
    """Return the state after an event.

    Raises:
        EventOutOfPlace: The event cannot follow the events before it.
    """
    try:
        after = _CHANGES[type(event)](state, event)
        if type(event) is ev.AgentLoaded and event.budget:
            after = open_account(state, event, after)
        elif state.account.limits:
            after = keep_account(state, event, after)
    except EventOutOfPlace as error:
        raise EventOutOfPlace(
            f"event {state.events} of thread {state.thread}, {event.type}, is out of place: {error}. The record was "
            "forged or altered: restore it from a backup."
        ) from None
    authority = after.authority
    if authority.proposed_rule is not None and authority.proposed_rule is state.authority.proposed_rule:
        # Only the event right after the approval can record its rule.
        authority = replace(authority, proposed_rule=None)
    counts = type(event) in _HOLDS and after.features >= SIGNED_STEERING
    return replace(
        after,
        authority=authority,
        freshness=_freshness(state, event, after.freshness),
        holds=state.holds + 1 if counts else state.holds,
        events=state.events + 1,
        updated_at=event.at,
    )


def _freshness(before: RunState, event: ev.AgentEvent, after: Freshness) -> Freshness:
    """Record when the agent acted, and whether it paused so long before this event that it has to verify first.

    The cause of the pause makes no difference: people, an outage, a slow tool, a thread that was closed meanwhile.
    """
    if type(event) is ev.StateVerified:
        return replace(after, stale_seconds=0, acted_at=event.at)
    spec = event.spec if type(event) is ev.AgentLoaded else before.spec
    # Before the agent is loaded, its `verify` tools are unknown: keep the recorded pause.
    stale = after.stale_seconds
    if spec is not None:
        stale = before.freshness.stale_for(spec, event.at) if spec.verify else 0
    acted_at = event.at if _acts(before, event) else after.acted_at
    if (stale, acted_at) == (after.stale_seconds, after.acted_at):
        return after
    return replace(after, stale_seconds=stale, acted_at=acted_at)


def _acts(state: RunState, event: ev.AgentEvent) -> bool:
    """Return whether the agent itself acts: input from other parties does not make a run fresh."""
    if type(event) is not ev.ToolCallFinished:
        return type(event) in _ACTS
    if event.status not in ("ok", "failed", "undone", "cannot"):
        return False
    call = state.calls.find(event.number)
    return call is not None and call.phase == "started" and not state.carries_out(event.number)


def _load_agent(state: RunState, event: ev.AgentLoaded) -> RunState:
    return resume_import(state, event) if state.resumes_import else load_agent(state, event)


def _lift_constraint(state: RunState, event: ev.ConstraintLifted) -> RunState:
    if event.constraint == FORK:
        return lift_fork(state, event)
    return replace(state, constraints=state.constraints.remove(event.constraint))


def _unchanged(state: RunState, event: ev.AgentEvent) -> RunState:
    return state


_CHANGES: Mapping[type[ev.Event], Change] = {
    # The run.
    ev.RunStarted: start_run,
    ev.RunContinued: continue_run,
    ev.RunReset: reset_run,
    ev.EventsLost: lose_events,
    ev.RunForked: fork_run,
    ev.RunImported: import_run,
    ev.AgentLoaded: _load_agent,
    ev.MemoryRecalled: recall,
    ev.RunPaused: pause_run,
    ev.RunResumed: resume_run,
    ev.RunBlocked: block_run,
    ev.RunUnblocked: lambda state, event: unblock_run(state),
    ev.MoveRequested: lambda state, event: replace(state, moving=Move(by=event.by, reason=event.reason, to=event.to)),
    ev.RunFinished: finish_run,
    # The LLM.
    ev.LLMReplied: begin_step,
    ev.LLMCallLost: require_budget,
    ev.ReplyRejected: lambda state, event: replace(state, steps=state.steps.reject_reply()),
    ev.ContextExceeded: lambda state, event: replace(state, context=state.context.record_overflow()),
    ev.CompactionRequested: request_compaction,
    ev.ContextCompacted: compact,
    ev.MessageAwaited: await_message,
    ev.LearningRequested: lambda state, event: replace(state, ending=state.ending.ask(event.at)),
    ev.LearningSkipped: lambda state, event: replace(state, ending=state.ending.replied()),
    # Messages from people.
    ev.UserMessageReceived: receive_message,
    ev.TaskRefined: refine_task,
    ev.RunReclassified: reclassify_run,
    ev.PolicyChangeRequested: request_policy,
    ev.PolicyChanged: change_policy,
    ev.PolicyChangeFailed: lambda state, event: replace(state, policy_change=""),
    ev.MessageTaken: take_message,
    ev.SignalRejected: _unchanged,
    ev.RefusalsCounted: _unchanged,
    # Tool calls, waits and sub-agents.
    ev.ToolCallRequested: request_call,
    ev.VerdictGiven: give_verdict,
    ev.ToolCallPostponed: postpone_call,
    ev.ToolCallStarted: start_call,
    ev.ContextUpdated: update_context,
    ev.ToolCallFinished: finish_call,
    ev.DormancyBegan: begin_wait,
    ev.WaitPolled: lambda state, event: replace(state, dormancy=state.dormancy.record_poll(event)),
    ev.WakeReceived: receive_wake,
    ev.SubagentStarted: start_subagent,
    ev.SubagentEnded: end_subagent,
    ev.ConstraintLifted: _lift_constraint,
    ev.BaselineRecorded: lambda state, event: keep_baseline(state, event.findings),
    ev.StateVerified: verify,
    # Nodes.
    ev.NodeAccepted: accept_node,
    ev.NodeAwaited: await_node,
    ev.ToolCallRerouted: reroute_call,
    # Approval requests and decisions.
    ev.PreviewRequested: lambda state, event: require_preview(state, event.request),
    ev.ApprovalRequested: lambda state, event: require_approval(state, event.request),
    ev.ReconcileRequested: lambda state, event: lose_outcome(state, event.request),
    ev.AnswerRequested: lambda state, event: await_answer(state, event.request),
    ev.ApprovalReminded: lambda state, event: replace(state, authority=state.authority.remind(event.request)),
    ev.ApprovalEscalated: lambda state, event: replace(state, authority=state.authority.escalate(event.request)),
    ev.ApprovalExpired: close_expired,
    ev.DecisionReceived: receive_decision,
    # Remembered rules, delegations and keys.
    ev.RuleRemembered: remember_rule,
    ev.RuleRevoked: lambda state, event: replace(state, authority=state.authority.forget(event.rule)),
    ev.AuthorityDelegated: delegate,
    ev.DelegationRevoked: lambda state, event: replace(
        state, authority=state.authority.revoke_delegation(event.by, event.to)
    ),
    ev.KeyRevoked: lambda state, event: replace(state, authority=state.authority.revoke_keys((event.revoked,))),
    # The budget: `keep_account` changes the account.
    ev.BudgetReserved: require_budget,
    ev.BudgetLow: require_budget,
    ev.BudgetSpent: require_budget,
    ev.BudgetExtended: extend_budget,
}
"""The type of an event → the function that applies it."""

_HOLDS = frozenset((ev.RunPaused, ev.RunResumed, ev.RunBlocked, ev.RunUnblocked, ev.MoveRequested))
"""The events that `RunState.holds` counts: a signed statement that steers the run is bound to their number."""

_ACTS = frozenset((ev.LLMReplied, ev.ToolCallStarted, ev.AgentLoaded))
"""The events that show that the agent itself acted, besides the end of its calls."""
