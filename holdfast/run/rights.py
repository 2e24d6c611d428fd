"""Who says something, how that is proven, and whose approval authority they use. Pure functions over the run's state.

1. A signature proves who speaks: their own, or that of a gateway which vouches for them. A name without a signature is
   taken on trust, where the policy allows that.
2. Approval authority is a person's own, or was delegated to them; a delegation counts while its signature does.
3. A signed statement has its effect once, however often it is sent, until it expires.
4. Where requesters may not decide, and it is not known who asked, nobody decides.
5. Before the agent is loaded, no policy is in force that says who may: nobody delegates, revokes or lifts anything. A
   run that was reopened has rules, delegations and constraints by then.
"""

from datetime import datetime, timedelta
from typing import Any, NamedTuple

from holdfast.authority.approvals import ApprovalRequest, MandateOutcome
from holdfast.authority.policy import Policy, Terms
from holdfast.authority.signatures import is_signed
from holdfast.authority.statements import LONGEST_DELEGATION, AuthorityDelegation, Decision, Proof, Revocation, Signed
from holdfast.log.events import AgentEvent, AuthorityDelegated, DelegationRevoked, RuleRevoked, SignalRejected
from holdfast.run.features import MANDATES_NEED_AGENT
from holdfast.run.state import RunState

STATEMENTS = 1_000
"""Unexpired signed delegations and messages of a thread; more are refused, and none is forgotten."""

DELEGATIONS = 200
"""Delegations of a thread at the same time; more are refused."""

DELEGATIONS_BYTES = 100_000
"""Bytes of them, as JSON."""


class Speaker(NamedTuple):
    """How it is known who says something."""

    proof: Proof = ""
    key: str = ""
    """The public key that verified the signature."""
    right: str = ""
    """Whose approval authority is used: the speaker's own, or that of the person who delegated it."""


class Refusal(NamedTuple):
    """Why something does not count."""

    outcome: MandateOutcome
    explanation: str


def claimed(payload: Any) -> tuple[str, str]:
    """Return who asks for something that anybody may ask for, by their own claim, and why."""
    given = payload if isinstance(payload, dict) else {}
    by, reason = (str(given.get(field) or "")[:2_000] for field in ("by", "reason"))
    return by or "unknown", reason


def policy_of(state: RunState) -> Policy:
    """Return the policy in force; before the agent is loaded, one that names nobody and requires nothing."""
    return state.spec.policy if state.spec else Policy()


def verify_speaker(state: RunState, statement: Signed) -> Speaker | Refusal:
    """Verify who says this, by the keys of the policy in force."""
    if state.spec is None and state.features >= MANDATES_NEED_AGENT:
        return Refusal("busy", "the agent is not loaded yet, and its policy says who may: send it again in a moment")
    policy = policy_of(state)
    if not statement.signature:
        if policy.signatures == "required":
            return Refusal("unsigned", "the policy requires signed decisions; `holdfast keygen` makes a key")
        return Speaker()
    message = statement.signed_bytes(state.thread)
    approver = policy.approver(statement.by)
    for key in approver.keys if approver else ():
        if is_signed(key, statement.signature, message):
            return Speaker("signed", key)
    for gateway in policy.gateways:
        for key in gateway.keys:
            if is_signed(key, statement.signature, message):
                return Speaker("vouched", key)
    return Refusal("bad_signature", f"the signature fits no key of {statement.by}, and no key of a gateway")


def refuse_reuse(state: RunState, statement: Signed, *, at: datetime) -> Refusal | None:
    """Return why a signed statement cannot count: it was used, or too many others are unexpired; None if it can."""
    digest = statement.signed_digest(state.thread)
    unexpired = [used.digest for used in state.authority.used_statements if used.until > at]
    if digest in unexpired:
        return Refusal("duplicate", "this statement was received before, and counts once")
    if len(unexpired) >= STATEMENTS:
        limit = f"{STATEMENTS:,} signed statements of this thread have not expired yet"
        return Refusal("too_many", f"{limit}; wait until one of them expires")
    return None


def stands_for(policy: Policy, who: tuple[str, ...], name: str) -> bool:
    """Return whether these names and roles include that person; an empty list includes everybody."""
    return name in policy.entitled(who) if policy.approvers else not who or name in who


def right_of(state: RunState, decision: Decision, request: ApprovalRequest, *, at: datetime) -> str | Refusal:
    """Return whose approval authority this person uses, or why they have none. Each counts once for a request."""
    policy, terms, by = policy_of(state), request.terms, decision.by
    denies = decision.decision == "deny"
    if policy.approvers and policy.approver(by) is None:
        return Refusal("not_entitled", f"the policy names no approver {by!r}")
    candidates = (by, *_delegators_to(state, by, at=at))
    rights = [right for right in candidates if _entitled(policy, request, right, denies=denies)]
    if not rights:
        who = ", ".join(request.who) or "an approver"
        return Refusal("not_entitled", f"request {request.id} is decided by {who}, not {by}")
    if denies:
        return rights[0]
    if not terms.requester_may_decide:
        if state.authority.requesters_unproven and policy.signatures == "required":
            unsigned = "an unsigned message was accepted, so it is not known who asked"
            return Refusal("not_entitled", f"{unsigned}; deny the request, and give the task to a new thread")
        asked_by = state.authority.asked_by
        rights = [] if asked_by(by) else [right for right in rights if not asked_by(right)]
        if not rights:
            return Refusal("not_entitled", f"{by} asked for this with the task or a message; another person decides")
    used = {vote.authority: vote.by for vote in request.votes if vote.by != by}
    unused = [right for right in rights if right not in used]
    if not unused:
        why = f"{used[rights[0]]} has answered with the approval authority of {rights[0]}, which counts once"
        return Refusal("duplicate", why)
    return unused[0]


def refuse_extender(state: RunState, policy: Policy, by: str) -> str:
    """Return why a person may not extend the budget of a run, by one of the policies; empty if they may."""
    who = policy.extensions.by
    if state.spec and by == state.spec.name:
        return f"{by} is the agent of this run, and an agent extends no budget"
    if who:
        entitled = by in policy.entitled(who) if policy.approvers else by in who
        return "" if entitled else f"the policy lets {', '.join(who)} extend budgets, not {by}"
    if policy.approvers and not policy.approver(by) and by != state.origin.user:
        return f"{by} has not given the task, and the policy names no approver {by!r}"
    if policy.approvers and not policy.terms.requester_may_decide and state.authority.asked_by(by):
        return f"{by} asked for this with the task or a message; another person extends its budget"
    return ""


def _entitled(policy: Policy, request: ApprovalRequest, name: str, *, denies: bool) -> bool:
    veto = request.terms.veto
    return stands_for(policy, request.who, name) or bool(denies and veto and stands_for(policy, veto, name))


def _delegators_to(state: RunState, name: str, *, at: datetime) -> list[str]:
    """Those who delegated their approval authority to that person, with a statement that still counts."""
    return [
        delegation.by
        for delegation in state.authority.delegations
        if delegation.to == name
        and delegation.until > at
        and isinstance(verify_speaker(state, delegation.statement), Speaker)
    ]


def could_decide(terms: Terms, state: RunState, name: str) -> bool:
    """Return whether a person who decided under these terms could do so now, with their own approval authority."""
    policy = policy_of(state)
    entitled = stands_for(policy, terms.who(len(terms.escalate)), name)
    return entitled and (terms.requester_may_decide or not state.authority.asked_by(name))


def on_delegation(
    state: RunState, delegation: AuthorityDelegation, *, at: datetime
) -> tuple[Refusal | None, list[AgentEvent]]:
    """Return the events that follow when an approver delegates; and why the delegation is refused, or None."""
    speaker = verify_speaker(state, delegation)
    if isinstance(speaker, Refusal):
        return speaker, [_rejected("delegate_authority", speaker)]
    until = delegation.until or at + timedelta(seconds=delegation.seconds or 0)
    if refusal := _refuse_delegation(state, delegation, speaker, until=until, at=at):
        return refusal, [_rejected("delegate_authority", refusal)]
    delegated = AuthorityDelegated(
        by=delegation.by,
        to=delegation.to,
        until=until,
        reason=delegation.reason,
        proof=speaker.proof,
        key=speaker.key,
        signature=delegation.signature,
    )
    return None, [delegated]


def _refuse_delegation(
    state: RunState, delegation: AuthorityDelegation, speaker: Speaker, *, until: datetime, at: datetime
) -> Refusal | None:
    """Why approval authority cannot be delegated so; None if it can."""
    policy, by, to = policy_of(state), delegation.by, delegation.to
    if not policy.approver(by):
        return Refusal("not_entitled", f"{by} has no approval authority to delegate: the policy names no such approver")
    if not policy.approver(to):
        return Refusal("not_entitled", f"{to} is no approver, so no key could verify their decisions")
    if to == by:
        return Refusal("malformed", f"{by} has that approval authority already")
    if speaker.proof and not delegation.until:
        return Refusal("malformed", "a signed delegation that gives `seconds` could be sent again: give `until`")
    if until <= at:
        return Refusal("too_late", f"until {until.isoformat()} is over")
    if until - at > timedelta(seconds=LONGEST_DELEGATION):
        return Refusal("malformed", f"until {until.isoformat()} is too far")
    others = [each for each in state.authority.delegations if each.until > at and (each.by, each.to) != (by, to)]
    size = sum(len(each.model_dump_json().encode()) for each in others) + len(delegation.model_dump_json().encode())
    if len(others) >= DELEGATIONS or size > DELEGATIONS_BYTES:
        limit = f"this thread has {DELEGATIONS} delegations, or as many as fit"
        return Refusal("too_many", f"{limit}; revoke one")
    return refuse_reuse(state, delegation, at=at) if speaker.proof else None


def on_revocation(state: RunState, revocation: Revocation) -> tuple[Refusal | None, list[AgentEvent]]:
    """Return the events that follow when a rule or a delegation is revoked; and why that is refused, or None."""
    speaker = verify_speaker(state, revocation)
    if isinstance(speaker, Refusal):
        return speaker, [_rejected("revoke", speaker)]
    policy, by, reason = policy_of(state), revocation.by, revocation.reason
    if policy.approvers and not policy.approver(by):
        refusal = Refusal("not_entitled", f"the policy names no approver {by!r}")
        return refusal, [_rejected("revoke", refusal)]
    proof, key, signature = speaker.proof, speaker.key, revocation.signature
    rule, to = revocation.remembered, revocation.delegated_to
    events: list[AgentEvent] = []
    if rule is not None and any(each.rule == rule for each in state.authority.rules):
        events.append(RuleRevoked(rule=rule, by=by, reason=reason, proof=proof, key=key, signature=signature))
    if to is not None and any((each.by, each.to) == (by, to) for each in state.authority.delegations):
        events.append(DelegationRevoked(to=to, by=by, reason=reason, proof=proof, key=key, signature=signature))
    if not events:
        rules = ", ".join(each.rule for each in state.authority.rules) or "none"
        refusal = Refusal("unknown_request", f"{by} has nothing of that name to revoke; remembered rules: {rules}")
        return refusal, [_rejected("revoke", refusal)]
    return None, events


def _rejected(signal: str, refusal: Refusal) -> SignalRejected:
    return SignalRejected(signal=signal, explanation=refusal.explanation, outcome=refusal.outcome)
