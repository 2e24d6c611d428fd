"""The fold of imports. An imported run begins with the state in which it left the other cluster."""

from holdfast.core.authority.policy import Policy
from holdfast.core.authority.statements import Signed
from holdfast.core.authority.votes import Vote
from holdfast.core.base.models import replace
from holdfast.core.budget.account import Account, Raised
from holdfast.core.budget.budget import largest
from holdfast.core.log import events as ev
from holdfast.core.log.import_point import ImportPoint
from holdfast.core.run.fold.runs import load_agent, orphan, trust_so_far
from holdfast.core.run.rules.authority import Principal, policy_of, refuse_extender, verify_principal
from holdfast.core.run.state.authority import Authority, with_votes
from holdfast.core.run.state.calls import CallState
from holdfast.core.run.state.features import KEEPS_TRACE
from holdfast.core.run.state.origin import Import, RunOrigin
from holdfast.core.run.state.places import Places
from holdfast.core.run.state.state import RunState
from holdfast.core.trust import Trust, least
from holdfast.errors import EventOutOfPlace


def import_run(state: RunState, event: ev.RunImported) -> RunState:
    """Continue a run that was moved here, with everything that was open, its trust scope, and the same effect keys.
    Constraints on nodes are about those of the other cluster, and end.

    A closed run stays closed. A later run may continue its thread, without its rules and delegations.

    Raises:
        EventOutOfPlace: The run is open, or the events before are not the imported ones.
    """
    if state.outcome is None or event.point.position != state.events - 1:
        raise EventOutOfPlace(f"it imports what was open after event {state.events - 1}")
    fork = replace(state.fork, workspace="") if state.fork else None
    moved = state.outcome == "moved"
    imported = Import(
        point=event.point,
        by=event.by,
        at=event.at,
        spec_hash=state.spec_hash,
        entered=not moved,
        keeps_trace=event.features >= KEEPS_TRACE,
    )
    origin = imported_origin(state, event.point)
    if not imported.keeps_trace:
        origin = replace(origin, trace_run=event.first_run_id)
    unproven = state.authority.requesters_unproven or not event.point.signer
    authority = replace(state.authority.add_requester(event.by), requesters_unproven=unproven, proposed_rule=None)
    if not moved:
        authority = replace(authority, rules=(), delegations=())
    return replace(
        state,
        spec=None if moved else state.spec,
        workspace="",
        features=max(state.features, event.features),
        fork=fork,
        imported=imported,
        origin=origin,
        calls=replace(state.calls, current=tuple(_orphan_if_under_way(state, call) for call in state.calls.current)),
        authority=authority,
        context=replace(state.context, trust=imported_trust(state, event.point)),
        places=Places(scope=state.scope),
        constraints=state.constraints.without_nodes(),
        moving=None,
        outcome=None if moved else state.outcome,
    )


def imported_origin(state: RunState, point: ImportPoint) -> RunOrigin:
    """Return the origin of an imported run: its former policy continues to judge its calls."""
    sealed = state.origin.sealed and bool(point.signer)
    return replace(state.origin, sealed=sealed, user_proven=False, starts={}, policies=imported_policies(state))


def imported_trust(state: RunState, point: ImportPoint) -> Trust:
    """Return the trust level of an imported log's content: nobody vouches for an unsigned file."""
    return least(trust_so_far(state), "person" if point.signer else "web")


def _orphan_if_under_way(state: RunState, call: CallState) -> CallState:
    """Mark a call as orphaned if its effect was under way. A call that sleeps or waits for people stays as it is."""
    sleeps = state.dormancy.is_asleep(call.number)
    under_way = (call.phase == "started" and not sleeps) or (call.phase == "allowed" and call.undo)
    return orphan(state, call, move="settle") if under_way or call.phase == "orphaned" else call


def resume_import(state: RunState, event: ev.AgentLoaded) -> RunState:
    """Load the agent of this cluster into an imported run, which gets no more steps than it had left."""
    assert state.imported is not None
    same = state.imported.spec_hash == event.spec_hash
    loaded = load_agent(state, event)
    limit = min(state.steps.limit, loaded.steps.limit)
    calls, authority = loaded.calls, loaded.authority
    for call in calls.current if not same else ():
        if call.phase == "outcome_unknown":  # other people may have to answer here
            calls = calls.put(orphan(state, call, move="settle"))
            authority = authority.without_requests_about(call.number)
    entered = replace(
        loaded,
        imported=replace(state.imported, entered=True),
        steps=replace(loaded.steps, limit=limit),
        calls=calls,
        authority=authority,
        context=state.context,
    )
    return replace(entered, authority=_signed_here(entered))


def join_budget(state: RunState, account: Account, own: Account) -> Account:
    """Return the account of an imported run: its expenses, within its limits and those of this cluster.

    Its limits include people's extensions, which raise those of this cluster, too, as far as the policy here allows.

    Args:
        state: The state with the agent of this cluster.
        account: The account of the run before the import.
        own: A new account, with the budget of this cluster.
    """
    if not account.limits:
        return own
    counting = [raised for raised in account.raised if _raises_here(state, raised)]
    limits = dict(account.limits)
    for name, limit in own.limits.items():
        more = sum(raised.units.get(name, 0) for raised in counting)
        limits[name] = min(limits.get(name, largest(name)), limit + more)
    limits = {name: limits[name] for name in sorted(limits)}
    return replace(account, limits=limits, price=own.price, fixed_tokens=own.fixed_tokens)


def _raises_here(state: RunState, raised: Raised) -> bool:
    """Return whether an extension from another cluster counts: the policy allows it, and it is signed if required.

    The file's signer vouches for unsigned extensions, and for those of sub-agents, which were judged there.
    """
    assert state.imported is not None
    policy, vouched = policy_of(state), bool(state.imported.point.signer)
    if not raised.by:
        return vouched
    approver = policy.approver(raised.by)
    keys = {key for each in (*((approver,) if approver else ()), *policy.gateways) for key in each.keys}
    if raised.key not in keys and (raised.key or policy.signatures == "required" or not vouched):
        return False
    most = policy.extensions.most
    if most and any(units > most.units.get(name, 0) for name, units in raised.most.items()):
        return False
    return not refuse_extender(state, policy, raised.by)


def _signed_here(state: RunState) -> Authority:
    """Return the authority without the votes, rules and delegations that no key in this cluster's policy has signed."""
    authority = state.authority
    requests = tuple(
        with_votes(request, tuple(vote for vote in request.votes if _counts(state, vote)))
        for request in authority.requests
    )
    rules = tuple(rule for rule in authority.rules if all(_counts(state, vote) for vote in rule.votes))
    delegations = tuple(each for each in authority.delegations if _is_signed(state, each.statement))
    return replace(authority, requests=requests, rules=rules, delegations=delegations)


def _counts(state: RunState, vote: Vote) -> bool:
    return vote.said.digest == vote.seen.digest and _is_signed(state, vote.said)


def _is_signed(state: RunState, said: Signed) -> bool:
    principal = verify_principal(state, said)
    return isinstance(principal, Principal) and bool(principal.proof)


def imported_policies(state: RunState) -> tuple[Policy, ...]:
    """Return the policies from elsewhere that judge a run's calls after its import, in addition to the agent's here."""
    own = (state.spec.policy,) if state.spec else ()
    return tuple({policy.hash: policy for policy in (*state.origin.policies, *own)}.values())
