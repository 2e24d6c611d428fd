"""Rights: how it is known who says something, and whose right to decide they use. Pure functions over the run's state.

1. Who speaks is known by a signature: their own, or that of a gateway which vouches for them. Without one it is taken
   on trust, where the policy allows that.
2. A right is a person's own, or was lent to them; a lent one counts while the lender's signature does.
3. A signed statement has its effect once, whoever sends it again, as long as it is good.
4. Where somebody else than the requester decides, and it is not known who asked, nobody decides.
"""

from datetime import datetime, timedelta
from typing import NamedTuple

from holdfast.authority.approvals import ApprovalRequest, DecisionOutcome
from holdfast.authority.policy import Policy, Terms
from holdfast.authority.signatures import is_signed
from holdfast.authority.statements import LONGEST_DELEGATION, AuthorityDelegation, Decision, Proof, Revocation, Signed
from holdfast.log.events import AgentEvent, AuthorityDelegated, DelegationRevoked, RuleRevoked, SignalRejected
from holdfast.run.state import RunState

STATEMENTS = 1_000
"""Signed delegations and messages of a thread that are good at the same time; more are refused, and none forgotten."""

LENT = 200
"""Rights that are lent in a thread at the same time; more are refused."""

LENT_BYTES = 100_000
"""Bytes of them, as JSON."""


class Known(NamedTuple):
    """How it is known who says something."""

    proof: Proof = ""
    key: str = ""
    """The public key whose signature was found right."""
    right: str = ""
    """Whose right to decide is used: their own, or one that was lent to them."""


class Refused(NamedTuple):
    """Why something does not count."""

    outcome: DecisionOutcome
    explanation: str


def policy_of(state: RunState) -> Policy:
    """The policy in force."""
    return state.spec.policy if state.spec else Policy()


def known(state: RunState, said: Signed) -> Known | Refused:
    """How it is known who says this, by the keys of the policy in force."""
    policy = policy_of(state)
    if not said.signature:
        if policy.signatures == "required":
            return Refused("unsigned", "the policy wants decisions to be signed; `starter.py keygen` makes a key")
        return Known()
    message = said.signed_bytes(state.thread)
    approver = policy.approver(said.by)
    for key in approver.keys if approver else ():
        if is_signed(key, said.signature, message):
            return Known("signed", key)
    for gateway in policy.gateways:
        for key in gateway.keys:
            if is_signed(key, said.signature, message):
                return Known("vouched", key)
    return Refused("bad_signature", f"no key of {said.by}, nor of a gateway, has signed this")


def once(state: RunState, said: Signed, *, at: datetime) -> Refused | None:
    """Why a signed statement cannot have its effect now: it has had it, or too many others are good; None if it can."""
    digest = said.signed_digest(state.thread)
    good = [spent.digest for spent in state.spent if spent.until > at]
    if digest in good:
        return Refused("duplicate", "this was said before, and counts once")
    if len(good) >= STATEMENTS:
        return Refused(
            "too_many", f"{STATEMENTS:,} signed statements are good in this thread; wait until one has ended"
        )
    return None


def asked(state: RunState, name: str) -> bool:
    """Whether this person may be one of those who gave the task and the messages."""
    return state.crowd or name in state.requesters


def may(policy: Policy, who: tuple[str, ...], name: str) -> bool:
    """Whether these names and roles stand for that person; without any, they stand for everybody."""
    return name in policy.entitled(who) if policy.approvers else not who or name in who


def right_of(state: RunState, decision: Decision, request: ApprovalRequest, *, at: datetime) -> str | Refused:
    """Whose right to decide this person uses, or why they have none. Each right is used once for a request."""
    policy, terms, by = policy_of(state), request.terms, decision.by
    denies = decision.decision == "deny"
    if policy.approvers and policy.approver(by) is None:
        return Refused("not_entitled", f"the policy names no approver {by!r}")
    rights = [right for right in (by, *_lent_to(state, by, at=at)) if _entitled(policy, request, right, denies=denies)]
    if not rights:
        who = ", ".join(request.who) or "an approver"
        return Refused("not_entitled", f"request {request.id} is decided by {who}, not {by}")
    if denies:
        return rights[0]
    if not terms.requester_may_decide:
        if state.unproven and policy.signatures == "required":
            unsigned = "a message was taken in unsigned, so it is not known who has asked"
            return Refused("not_entitled", f"{unsigned}; deny the request, and give the task to a new thread")
        rights = [] if asked(state, by) else [right for right in rights if not asked(state, right)]
        if not rights:
            return Refused("not_entitled", f"{by} has asked for this with the task or a message; somebody else decides")
    used = {vote.authority: vote.by for vote in request.votes if vote.by != by}
    unused = [right for right in rights if right not in used]
    if not unused:
        return Refused("duplicate", f"{used[rights[0]]} has answered with the right of {rights[0]}, which counts once")
    return unused[0]


def _entitled(policy: Policy, request: ApprovalRequest, name: str, *, denies: bool) -> bool:
    veto = request.terms.veto
    return may(policy, request.who, name) or bool(denies and veto and may(policy, veto, name))


def _lent_to(state: RunState, name: str, *, at: datetime) -> list[str]:
    """Those who have lent that person their right; where signatures count, by what the lender has signed."""
    return [
        right.by
        for right in state.lent
        if right.to == name and right.until > at and isinstance(known(state, right.said), Known)
    ]


def stands(terms: Terms, state: RunState, name: str) -> bool:
    """Whether a person who has decided under these terms could do so now, with a right of their own."""
    policy = policy_of(state)
    entitled = may(policy, terms.who(len(terms.escalate)), name)
    return entitled and (terms.requester_may_decide or not asked(state, name))


def on_delegation(
    state: RunState, delegation: AuthorityDelegation, *, at: datetime
) -> tuple[Refused | None, list[AgentEvent]]:
    """What becomes of an approver's wish to lend their right: why not, or None; and the events."""
    proven = known(state, delegation)
    if isinstance(proven, Refused):
        return proven, [_rejected("delegate_authority", proven)]
    until = delegation.until or at + timedelta(seconds=delegation.seconds or 0)
    if refused := _not_lent(state, delegation, proven, until=until, at=at):
        return refused, [_rejected("delegate_authority", refused)]
    proof = {"proof": proven.proof, "key": proven.key, "signature": delegation.signature}
    lent = {"by": delegation.by, "to": delegation.to, "until": until, "reason": delegation.reason}
    return None, [AuthorityDelegated.model_validate({**lent, **proof})]


def _not_lent(
    state: RunState, delegation: AuthorityDelegation, proven: Known, *, until: datetime, at: datetime
) -> Refused | None:
    """Why a right cannot be lent; None if it can."""
    policy, by, to = policy_of(state), delegation.by, delegation.to
    if not policy.approver(by):
        return Refused("not_entitled", f"{by} has no right to lend: the policy names no such approver")
    if not policy.approver(to):
        return Refused("not_entitled", f"{to} is no approver, so nobody could tell their decisions")
    if to == by:
        return Refused("malformed", f"{by} has that right already")
    if proven.proof and not delegation.until:
        return Refused("malformed", "signed for so many seconds, it would be good for ever: give `until`")
    if until <= at:
        return Refused("too_late", f"until {until.isoformat()} is over")
    if until - at > timedelta(seconds=LONGEST_DELEGATION):
        return Refused("malformed", f"until {until.isoformat()} is too far")
    others = [right for right in state.lent if right.until > at and (right.by, right.to) != (by, to)]
    size = sum(len(right.model_dump_json().encode()) for right in others) + len(delegation.model_dump_json().encode())
    if len(others) >= LENT or size > LENT_BYTES:
        return Refused("too_many", f"{LENT} rights are lent in this thread, or as many as fit; revoke one")
    return once(state, delegation, at=at) if proven.proof else None


def on_revocation(state: RunState, revocation: Revocation) -> tuple[Refused | None, list[AgentEvent]]:
    """What becomes of a wish to take back what was remembered or lent: why not, or None; and the events."""
    proven = known(state, revocation)
    if isinstance(proven, Refused):
        return proven, [_rejected("revoke", proven)]
    policy, by = policy_of(state), revocation.by
    if policy.approvers and not policy.approver(by):
        refused = Refused("not_entitled", f"the policy names no approver {by!r}")
        return refused, [_rejected("revoke", refused)]
    said = {"by": by, "reason": revocation.reason, "proof": proven.proof, "key": proven.key}
    said |= {"signature": revocation.signature}
    events: list[AgentEvent] = []
    if any(rule.rule == revocation.remembered for rule in state.remembered):
        events.append(RuleRevoked.model_validate({"rule": revocation.remembered, **said}))
    if any((right.by, right.to) == (by, revocation.delegated_to) for right in state.lent):
        events.append(DelegationRevoked.model_validate({"to": revocation.delegated_to, **said}))
    if not events:
        open_rules = ", ".join(rule.rule for rule in state.remembered) or "none"
        refused = Refused("unknown_request", f"nothing of {by}'s to revoke; remembered rules: {open_rules}")
        return refused, [_rejected("revoke", refused)]
    return None, events


def _rejected(signal: str, refused: Refused) -> SignalRejected:
    return SignalRejected(signal=signal, explanation=refused.explanation, outcome=refused.outcome)
