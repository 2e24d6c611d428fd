"""The standing of a decision: whether its sender may decide a request, for which of the policies that ask, and by which
person's approval authority. Pure functions over the run's state.

1. A person decides by their own authority, or by authority that was delegated to them; a delegation is valid as long as
   its signature.
2. If several policies ask, a decision counts for each policy that lets its sender decide, by that policy's people and
   keys, and for no other. A policy that accepts anybody accepts somebody whom another policy names.
3. If requesters may not decide, and the requesters are unknown, nobody decides.
"""

from datetime import datetime

from holdfast.core.authority.approvals import ApprovalRequest
from holdfast.core.authority.policy import Policy, Requirement, Terms
from holdfast.core.authority.statements import Decision
from holdfast.core.authority.votes import Standing
from holdfast.core.run.rules.authority import Principal, Rejection, policy_for, verify_each, verify_principal
from holdfast.core.run.state.state import RunState


def standing_of(
    state: RunState, decision: Decision, request: ApprovalRequest, *, at: datetime
) -> Principal | Rejection:
    """Return the sender and the approval authority of a decision, or why it does not count.

    If several policies ask, it counts for each that lets its sender decide, by that policy's people and keys.
    """
    policies = [policy_for(state, required) for required in request.required]
    principals = verify_each(state, decision, [policy or Policy() for policy in policies])
    judged = [
        _standing(state, policy, principal, decision, request, number, at=at)
        for number, (policy, principal) in enumerate(zip(policies, principals, strict=True))
    ]
    if not request.requirements:
        return judged[0]
    counting = [(number, each) for number, each in enumerate(judged) if isinstance(each, Principal)]
    refused = next((each for each in judged if isinstance(each, Rejection)), None)
    if refused and all(_open_to_all(state, request.required[number]) for number, _ in counting):
        return refused  # another policy names its approvers, and this person is none of them
    standings = tuple(
        Standing(requirement=number, right=each.right if each.right != decision.by else "", proof=each.proof)
        for number, each in counting
    )
    first = next((each for _, each in counting if each.proof), counting[0][1])
    return first._replace(standings=standings)


def _open_to_all(state: RunState, required: Requirement) -> bool:
    """Return whether a policy accepts the approval of any single person."""
    policy = policy_for(state, required)
    return policy is not None and not policy.approvers and not required.terms.by and required.terms.quorum == 1


def _standing(
    state: RunState,
    policy: Policy | None,
    principal: Principal | Rejection,
    decision: Decision,
    request: ApprovalRequest,
    number: int,
    *,
    at: datetime,
) -> Principal | Rejection:
    """Return the sender and authority of a decision for one requirement, or why it does not count for it."""
    if policy is None:
        return Rejection(
            "not_entitled", f"a policy that asked for request {request.id} does not judge this run any more"
        )
    if isinstance(principal, Rejection):
        return principal
    if principal.proof and not decision.digest:
        return Rejection("digest_mismatch", f"a signature has to cover what was seen: give the digest {request.digest}")
    right = _right_of(state, policy, decision, request, number, at=at)
    return right if isinstance(right, Rejection) else principal._replace(right=right)


def _right_of(
    state: RunState, policy: Policy, decision: Decision, request: ApprovalRequest, number: int, *, at: datetime
) -> str | Rejection:
    """Return the person whose authority the sender uses, or why there is none. Each counts once for a requirement."""
    terms, by, denies = request.required[number].terms, decision.by, decision.decision == "deny"
    if policy.approvers and policy.approver(by) is None:
        return Rejection("not_entitled", f"the policy names no approver {by!r}")
    candidates = (by, *_delegators_to(state, policy, by, at=at))
    rights = [right for right in candidates if _entitled(policy, request, number, right, denies=denies)]
    if not rights:
        who = ", ".join(request.who_for(number)) or "an approver"
        return Rejection("not_entitled", f"request {request.id} is decided by {who}, not {by}")
    if denies:
        return rights[0]
    if not terms.requester_may_decide:
        if state.authority.requesters_unproven and policy.signatures == "required":
            unsigned = "an unsigned message was accepted, so it is not known who asked"
            return Rejection("not_entitled", f"{unsigned}; deny the request, and give the task to a new thread")
        is_requester = state.authority.is_requester
        rights = [] if is_requester(by) else [right for right in rights if not is_requester(right)]
        if not rights:
            return Rejection("not_entitled", f"{by} asked for this with the task or a message; another person decides")
    used = {
        each.right or vote.by: vote.by
        for vote in request.votes
        for each in vote.counts
        if vote.by != by and each.requirement == number
    }
    unused = [right for right in rights if right not in used]
    if not unused:
        why = f"{used[rights[0]]} has answered with the approval authority of {rights[0]}, which counts once"
        return Rejection("duplicate", why)
    return unused[0]


def stands_for(policy: Policy, who: tuple[str, ...], name: str) -> bool:
    """Return whether these names and roles include this person; an empty list includes everybody."""
    return name in policy.entitled(who) if policy.approvers else not who or name in who


def _entitled(policy: Policy, request: ApprovalRequest, number: int, name: str, *, denies: bool) -> bool:
    veto, who = request.required[number].terms.veto, request.who_for(number)
    return stands_for(policy, who, name) or bool(denies and veto and stands_for(policy, veto, name))


def _delegators_to(state: RunState, policy: Policy, name: str, *, at: datetime) -> list[str]:
    """Return the people who delegated their approval authority to this person, with a statement that is still valid."""
    return [
        delegation.by
        for delegation in state.authority.delegations
        if delegation.to == name
        and delegation.until > at
        and isinstance(verify_principal(state, delegation.statement, policy), Principal)
    ]


def could_decide(state: RunState, policy: Policy, terms: Terms, name: str) -> bool:
    """Return whether a person could decide under these terms now, with their own approval authority."""
    entitled = stands_for(policy, terms.who(len(terms.escalate)), name)
    return entitled and (terms.requester_may_decide or not state.authority.is_requester(name))
