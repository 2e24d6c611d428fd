"""Which node takes a run's work: record the one that did, wait if none did, and send on what a tool cannot do there.

1. A worker that a run's terms exclude, or whose own policy denies the work, sends it on without recording anything.
   After many such attempts, its answer names the nodes that were asked (`Placement.rejected`).
2. Then the run waits, and offers the work again: more and more seldom, and for ever. A call that has not run keeps its
   approval.
3. If a tool could not make the call on a node of the run, and no other node takes it, its result says so.
4. A node whose policy requires approval of a call that people have not approved does not send it on: the run asks them.
   They are those of the run's policies, because a node's own people are unknown to the run.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from holdfast.core.log.events import AgentEvent, ApprovalRequested, NodeAccepted, NodeAwaited, ToolCallRerouted
from holdfast.core.nodes import NodeRejection, Placement, TrustScope, scope_text
from holdfast.core.run.contracts.tool_calls import ToolOutcome
from holdfast.core.run.rules.approval_requests import new_request
from holdfast.core.run.rules.authority import ask_all_policies
from holdfast.core.run.rules.unattended import block_unasked, deny_unasked
from holdfast.core.run.state.calls import CallState
from holdfast.core.run.state.places import Places
from holdfast.core.run.state.state import RunState

MAX_REROUTES = 20
"""How often one call goes to another node because its tool could not make it."""

FIRST_PAUSE, LONGEST_PAUSE = 15, 120
"""Seconds until the run offers its work again: at first, and at most."""


def in_full(placement: Placement, places: Places, *, now: Places) -> Placement | None:
    """Return the placement in an activity's answer, in full; None if it says only what is recorded anyway, or refers to
    a node that was not recorded.

    Args:
        placement: The placement.
        places: The nodes of the run when it made the request.
        now: Its nodes now: another node may have been recorded since.
    """
    if not placement.same:
        return placement
    if places is now and not now.tries:
        return None
    return Placement(node=places.node, policy=places.policy, rule=placement.rule) if places.node else None


def on_accepted(state: RunState, number: int, placement: Placement) -> list[AgentEvent]:
    """Return the event that records the node that took the work; none if it is recorded already."""
    node, places = placement.node, state.places
    if node is None:
        return []
    sent_on = tuple(each for each in placement.rejected if each.kind != "scope")
    if (node, placement.policy) == (places.node, places.policy) and not sent_on and not places.tries:
        return []
    rejected = placement.rejected if places.tries else sent_on
    accepted = NodeAccepted(node=node, policy=placement.policy, rule=placement.rule, number=number, rejected=rejected)
    return [accepted]


def on_no_node(state: RunState, number: int, rejected: Sequence[NodeRejection], *, at: datetime) -> list[AgentEvent]:
    """Return the events that follow if no node took the work: the run waits, or it asks people to approve a call.

    Args:
        state: The state before.
        number: The number of the tool call; 0 for other work.
        rejected: The nodes that were asked.
        at: Now.
    """
    call = state.calls.find(number) if number else None
    grant = call.used_grant if call and call.phase == "started" else ""
    asking = next((each for each in rejected if each.kind == "approval"), None)
    pause = min(FIRST_PAUSE << min(state.places.tries, 10), LONGEST_PAUSE)
    awaited = NodeAwaited(
        number=number,
        request=grant,
        scope=state.scope,
        rejected=tuple(rejected),
        until=at if asking else at + timedelta(seconds=pause),
    )
    if asking is None or call is None or call.phase != "started" or call.undo:
        return [awaited]
    verdict = ask_all_policies(state, rule=f"the policy of node {asking.node}", reason=asking.reason).denied_on_expiry()
    if state.unattended:
        return [awaited, deny_unasked(number, verdict, call.past), block_unasked(((number, call.call.name, verdict),))]
    return [awaited, ApprovalRequested(request=new_request(state, "approval", number, call.call, verdict, at=at))]


def could_not(outcome: ToolOutcome) -> bool:
    """Return whether no node took a call after one of the run's nodes could not make it."""
    placement = outcome.placement
    return placement is not None and any(each.kind == "constraint" for each in placement.rejected)


def can_reroute(call: CallState, outcome: ToolOutcome, *, at: datetime) -> bool:
    """Return whether a call goes to another node: its tool said so, and has not said it too often before.

    A constraint that ends at once would send the call back to the same node, again and again.
    """
    stands = outcome.until is None or outcome.until > at
    return bool(outcome.unfit) and call.phase == "started" and stands and not call.undo and call.epoch < MAX_REROUTES


def on_unfit(state: RunState, number: int, outcome: ToolOutcome, reason: str) -> list[AgentEvent]:
    """Return the event that sends a call to other nodes, because its tool cannot make it on this one.

    Args:
        state: The state before.
        number: The number of the call.
        outcome: Its outcome, which names the nodes that cannot.
        reason: The tool's reason.
    """
    grant = state.calls.get(number).used_grant
    return [ToolCallRerouted(number=number, request=grant, nodes=outcome.unfit, reason=reason, until=outcome.until)]


def rejection_text(rejected: Sequence[NodeRejection], scope: TrustScope) -> str:
    """Return in words that no node took the work, and why."""
    wanted = f" in the scope {scope_text(scope)}" if scope else ""
    lines = "; ".join(each.line for each in rejected)
    return f"no node{wanted} took it" + (f" ({lines})" if lines else "")
