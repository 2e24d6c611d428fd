"""The fold of another policy that an open run adopts."""

from holdfast.core.agents.agent import shared
from holdfast.core.base.models import replace
from holdfast.core.log import events as ev
from holdfast.core.run.state.calls import CallState
from holdfast.core.run.state.state import RunState
from holdfast.errors import EventOutOfPlace


def request_policy(state: RunState, event: ev.PolicyChangeRequested) -> RunState:
    """Record which policy the run is to adopt. A signed statement is used up."""
    authority = state.authority
    if event.proof and event.until:
        authority = authority.use_statement(event.said.signed_digest(state.thread), until=event.until, at=event.at)
    return replace(state, policy_change=event.policy, authority=authority)


def change_policy(state: RunState, event: ev.PolicyChanged) -> RunState:
    """Adopt the policy. What people have allowed ends, except for calls under way; hours count anew.

    Raises:
        EventOutOfPlace: The run has no agent, or was to adopt no policy, or another one.
    """
    if state.spec is None or event.policy.hash != state.policy_change:
        raise EventOutOfPlace("nobody had the run adopt this policy")
    spec = shared(state.spec.governed_by(event.policy))
    if spec.hash != event.spec_hash:
        raise EventOutOfPlace("its digest is not that of the agent with this policy")
    current = tuple(_under(call) for call in state.calls.current)
    return replace(
        state,
        policy_change="",
        spec=spec,
        spec_hash=event.spec_hash,
        zones=event.zones,
        calls=replace(state.calls, current=current),
        authority=replace(state.authority, proposed_rule=None, rules=(), delegations=()),
    )


def _under(call: CallState) -> CallState:
    """Return a call under another policy, whose hours and terms are compared when they are needed."""
    if call.postponed:
        call = replace(call, starts_at=None, postponed="")
    return replace(call, terms=None, requirements=()) if call.phase in ("allowed", "started") else call
