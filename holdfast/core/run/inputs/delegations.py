"""Delegate and revoke approval authority: delegations, remembered rules, keys. Pure functions over the run's state.

1. A delegation grants an approver's authority to another approver within one thread. Its author may revoke it, and any
   approver may revoke a remembered rule: a revocation only removes authority.
2. Any approver of a policy that judges the run may revoke any key that one of these policies lists, a gateway's too, by
   a signed statement, even with that key itself. A thief can stop a run with a stolen key, as with a denial, and gains
   nothing.
3. When a key is revoked, its signatures that have not taken effect yet lapse: votes on open requests, remembered rules
   and delegations. A call that was approved with it and has not started needs another approval.
4. A revoked key is invalid for later statements to this thread, and for sub-agents that start later.
"""

from datetime import datetime, timedelta

from holdfast.core.authority.interventions import KeyRevocation
from holdfast.core.authority.policy import Policy
from holdfast.core.authority.statements import LONGEST_DELEGATION, AuthorityDelegation, Revocation
from holdfast.core.log.events import (
    AgentEvent,
    AuthorityDelegated,
    DelegationRevoked,
    KeyRevoked,
    RuleRevoked,
)
from holdfast.core.run.fold.evolve import evolve
from holdfast.core.run.rules.approval_requests import ask_again, asks
from holdfast.core.run.rules.authority import (
    Principal,
    Reaction,
    Rejection,
    policies_of,
    refuse_reuse,
    verify_by_any,
    verify_principal,
)
from holdfast.core.run.rules.verdicts import approval_required, judge_call
from holdfast.core.run.state.calls import CallState
from holdfast.core.run.state.state import RunState

DELEGATIONS = 200
"""Maximum number of delegations of a thread at the same time; more are rejected."""

DELEGATIONS_BYTES = 100_000
"""Their maximum total size in bytes, as JSON."""


def on_delegation(state: RunState, delegation: AuthorityDelegation, *, at: datetime) -> Reaction | Rejection:
    """Delegate the approval authority of one approver to another."""
    policies = policies_of(state)
    among = [each for each in policies if each.approver(delegation.by) and each.approver(delegation.to)] or policies[:1]
    judged = [verify_principal(state, delegation, policy) for policy in among]
    speaker = next((each for each in judged if isinstance(each, Rejection)), judged[0])
    if isinstance(speaker, Rejection):
        return speaker
    until = delegation.until or at + timedelta(seconds=delegation.seconds or 0)
    if refusal := _refuse_delegation(state, among[0], delegation, speaker, until=until, at=at):
        return refusal
    delegated = AuthorityDelegated(
        by=delegation.by,
        to=delegation.to,
        until=until,
        reason=delegation.reason,
        proof=speaker.proof,
        key=speaker.key,
        signature=delegation.signature,
    )
    return Reaction([delegated])


def _refuse_delegation(
    state: RunState,
    policy: Policy,
    delegation: AuthorityDelegation,
    speaker: Principal,
    *,
    until: datetime,
    at: datetime,
) -> Rejection | None:
    """Return why this delegation is rejected; None if it is valid."""
    by, to = delegation.by, delegation.to
    if not policy.approver(by):
        return Rejection(
            "not_entitled", f"{by} has no approval authority to delegate: the policy names no such approver"
        )
    if not policy.approver(to):
        return Rejection("not_entitled", f"{to} is no approver, so no key could verify their decisions")
    if to == by:
        return Rejection("malformed", f"{by} has that approval authority already")
    if speaker.proof and not delegation.until:
        return Rejection("malformed", "a signed delegation that gives `seconds` could be sent again: give `until`")
    if until <= at:
        return Rejection("too_late", f"until {until.isoformat()} is over")
    if until - at > timedelta(seconds=LONGEST_DELEGATION):
        return Rejection("malformed", f"until {until.isoformat()} is too far")
    others = [each for each in state.authority.delegations if each.until > at and (each.by, each.to) != (by, to)]
    size = sum(len(each.model_dump_json().encode()) for each in others) + len(delegation.model_dump_json().encode())
    if len(others) >= DELEGATIONS or size > DELEGATIONS_BYTES:
        limit = f"this thread has {DELEGATIONS} delegations, or as many as fit"
        return Rejection("too_many", f"{limit}; revoke one")
    if speaker.proof and state.lost:  # nothing shows when it was made: perhaps it was used, and revoked
        why = "events of this thread were lost, and one of them may have revoked this delegation"
        return Rejection("too_late", f"{why}: let {delegation.by} decide, or delegate in a new thread")
    return refuse_reuse(state, delegation, at=at) if speaker.proof else None


def on_revocation(state: RunState, revocation: Revocation, *, at: datetime) -> Reaction | Rejection:
    """Revoke a remembered rule, or a delegation."""
    speaker = verify_by_any(state, revocation)
    if isinstance(speaker, Rejection):
        return speaker
    by, reason = revocation.by, revocation.reason
    proof, key, signature = speaker.proof, speaker.key, revocation.signature
    rule, to = revocation.remembered, revocation.delegated_to
    events: list[AgentEvent] = []
    if rule is not None and any(each.rule == rule for each in state.authority.rules):
        events.append(RuleRevoked(rule=rule, by=by, reason=reason, proof=proof, key=key, signature=signature))
    if to is not None and any((each.by, each.to) == (by, to) for each in state.authority.delegations):
        events.append(DelegationRevoked(to=to, by=by, reason=reason, proof=proof, key=key, signature=signature))
    if not events:
        rules = ", ".join(each.rule for each in state.authority.rules) or "none"
        return Rejection("unknown_request", f"{by} has nothing of that name to revoke; remembered rules: {rules}")
    return Reaction(events)


def on_key_revocation(state: RunState, revocation: KeyRevocation, *, at: datetime) -> Reaction | Rejection:
    """Revoke a key, and request approval again for calls whose approval depended on it."""
    speaker = verify_by_any(state, revocation)
    if isinstance(speaker, Rejection):
        return speaker
    if refusal := _refuse_key_revocation(state, revocation, speaker):
        return refusal
    revoked = KeyRevoked(
        revoked=revocation.revoked,
        by=revocation.by,
        reason=revocation.reason,
        proof=speaker.proof,
        key=speaker.key,
        signature=revocation.signature,
    )
    after = evolve(state, revoked.model_copy(update={"at": at}))
    events: list[AgentEvent] = [revoked]
    why = f"{revocation.by} revoked a key: the approval of this call depended on it"
    opened = 0
    for call in after.calls.current:
        if _lapses(after, call, revocation.revoked):
            new_events = ask_again(after, call, at=at, ahead=opened, reason=lambda _: why)
            opened += any(map(asks, new_events))
            events += new_events
    return Reaction(events)


def _refuse_key_revocation(state: RunState, revocation: KeyRevocation, speaker: Principal) -> Rejection | None:
    policies, key = policies_of(state), revocation.revoked
    if state.outcome:
        return Rejection("too_late", f"the run is {state.outcome}")
    if not speaker.proof:
        return Rejection(
            "unsigned", "only a signed statement revokes a key: that of an approver, or a gateway's for one"
        )
    if key not in {key for policy in policies for key in policy.keys}:
        return Rejection("unknown_request", f"no policy that judges this run lists the key {key}")
    if key in state.authority.revoked_keys:
        return Rejection("duplicate", f"the key {key} was revoked before")
    return None


def _lapses(state: RunState, call: CallState, key: str) -> bool:
    """Return whether the permission of a call that has not started depends on a signature of this key."""
    if call.phase != "allowed" or call.undo:
        return False
    if call.grant:
        return key in call.granted_by
    return call.terms is not None and approval_required(judge_call(state, call.call))
