"""The policies that judge a run, and the authentication and authorization of the people who intervene in it. Pure
functions over the run's state.

1. A signature authenticates a sender: their own, or that of a gateway that vouches for them. A name without a signature
   is accepted if the policy allows that.
2. A signed statement takes effect once, however often it is sent, until it expires.
3. A statement that lets more run (a lift, a resumption, more budget) needs a sender whom every policy that judges the
   run allows to do that. A statement that takes authority away may come from anybody whom one of them names.
4. Before the agent is loaded, no policy is in force: nobody delegates, revokes or lifts anything. A reopened run has
   rules, delegations and constraints even then.
5. The policies that judge a run are its agent's own, and those above: of the agents that started the run, and those
   that came with a fork or an import. Changing what may run takes the permission of each of them: no sub-agent and no
   fork is a way around one.
6. A policy identifies people by its own approvers, keys and gateways, never by another policy's.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from holdfast.core.authority.approvals import DecisionOutcome
from holdfast.core.authority.interventions import InterventionOutcome
from holdfast.core.authority.policy import Policy, Requirement, Verdict
from holdfast.core.authority.signatures import is_signed
from holdfast.core.authority.statements import Proof, Signed
from holdfast.core.authority.votes import Standing
from holdfast.core.log.events import AgentEvent
from holdfast.core.run.state.features import AUTHORITY_NEEDS_AGENT, EVERY_POLICY_ASKS
from holdfast.core.run.state.state import RunState

STATEMENTS = 1_000
"""Unexpired signed delegations and messages of a thread; more are refused, and none is dropped."""

Outcome = DecisionOutcome | InterventionOutcome


class Principal(NamedTuple):
    """The sender of a statement, as far as authenticated; without proof, the name is a claim."""

    proof: Proof = ""
    key: str = ""
    """The public key that verified the signature; empty for none."""
    right: str = ""
    """The person whose approval authority is used: the sender, or somebody who delegated it to them."""
    standings: tuple[Standing, ...] = ()
    """The requirements for which a decision counts, if several policies ask."""


class Rejection(NamedTuple):
    """The outcome and the reason of an input that has no effect."""

    outcome: Outcome
    explanation: str


class Reaction(NamedTuple):
    """A run's reaction to an intervention: the events that follow, and the answer to the sender."""

    events: list[AgentEvent]
    outcome: Outcome = "accepted"
    explanation: str = ""
    interrupts: bool = False
    """The LLM call under way is abandoned."""

    @property
    def answer(self) -> dict[str, str]:
        """The answer to the sender."""
        return {"outcome": self.outcome, "explanation": self.explanation}


# The policies.


def policy_of(state: RunState) -> Policy:
    """Return the policy of the run's agent; before the agent is loaded, one that names nobody and requires nothing."""
    return state.spec.policy if state.spec else Policy()


def policies_above(state: RunState) -> tuple[Policy, ...]:
    """Return the policies above that differ from the agent's own, each once."""
    own = policy_of(state).hash
    return tuple({policy.hash: policy for policy in state.origin.policies if policy.hash != own}.values())


def policies_of(state: RunState) -> tuple[Policy, ...]:
    """Return the policies that decide who may change what runs, the agent's own first."""
    above = policies_above(state) if state.features >= EVERY_POLICY_ASKS else ()
    return (policy_of(state), *above)


def policy_for(state: RunState, requirement: Requirement) -> Policy | None:
    """Return the policy of a requirement; None if it no longer judges the run, so that nobody can satisfy it."""
    if not requirement.policy:
        return policy_of(state)
    return next((policy for policy in state.origin.policies if policy.hash == requirement.policy), None)


def requirements_of_all(state: RunState, rule: str) -> tuple[Requirement, ...]:
    """Return the requirement of every policy, each by its own terms, for a request that the run itself makes.

    Empty if only the agent's own policy judges the run.
    """
    own, *above = policies_of(state)
    if not above:
        return ()
    asked = (Requirement(policy=policy.hash, rule=rule, terms=policy.terms) for policy in above)
    return (Requirement(rule=rule, terms=own.terms), *asked)


def ask_all_policies(state: RunState, *, rule: str, reason: str) -> Verdict:
    """Return the verdict on a call about which the run itself asks, regardless of the policies' verdicts."""
    terms, requirements = policy_of(state).terms, requirements_of_all(state, rule)
    return Verdict(verdict="ask", rule=rule, reason=reason, terms=terms, requirements=requirements)


def signatures_required(state: RunState) -> bool:
    """Return whether any of the policies requires signatures."""
    return any(policy.signatures == "required" for policy in policies_of(state))


# The people.


def read_claim(payload: Any) -> tuple[str, str]:
    """Return the unauthenticated sender and the reason of a request that anybody may make."""
    fields = payload if isinstance(payload, dict) else {}
    by, reason = (str(fields.get(name) or "")[:2_000] for name in ("by", "reason"))
    return by or "unknown", reason


def verify_principal(state: RunState, statement: Signed, policy: Policy | None = None) -> Principal | Rejection:
    """Authenticate the sender of a statement by the keys of a policy, by default the agent's own."""
    if state.spec is None and state.features >= AUTHORITY_NEEDS_AGENT:
        return Rejection("busy", "the agent is not loaded yet, and its policy says who may: send it again in a moment")
    policy = policy or policy_of(state)
    if not statement.signature:
        if policy.signatures == "required":
            return Rejection("unsigned", "the policy requires signed decisions; `holdfast keygen` makes a key")
        return Principal()
    message = statement.signed_bytes(state.thread)
    approver = policy.approver(statement.by)
    known: list[tuple[Proof, str]] = [("signed", key) for key in (approver.keys if approver else ())]
    known += [("vouched", key) for gateway in policy.gateways for key in gateway.keys]
    for proof, key in known:
        if is_signed(key, statement.signature, message):
            if key in state.authority.revoked_keys:
                return Rejection("bad_signature", f"the key {key} was revoked in this thread")
            if state.lost and key not in policy_of(state).keys:  # policies from above are as old as the lost events
                lost = "events of this thread were lost, and one of them may have revoked"
                return Rejection("bad_signature", f"{lost} the key {key}: list it in the policy of the agent")
            return Principal(proof, key)
    return Rejection("bad_signature", f"the signature fits no key of {statement.by}, and no key of a gateway")


def verify_each(state: RunState, statement: Signed, policies: Sequence[Policy]) -> list[Principal | Rejection]:
    """Authenticate the sender of a statement by the keys of each policy.

    A policy that accepts an unsigned name also accepts one whose signature only another policy can verify.
    """
    judged = [verify_principal(state, statement, policy) for policy in policies]
    if not any(isinstance(each, Principal) and each.proof for each in judged):
        return judged
    unverified = [isinstance(each, Rejection) and each.outcome == "bad_signature" for each in judged]
    return [
        Principal() if claim and policy.signatures == "optional" else each
        for policy, each, claim in zip(policies, judged, unverified, strict=True)
    ]


def verify_for_all(state: RunState, statement: Signed) -> Principal | Rejection:
    """Authenticate the sender of a statement by the keys of every policy that judges the run."""
    judged = verify_each(state, statement, policies_of(state))
    refused = next((each for each in judged if isinstance(each, Rejection)), None)
    return refused or next((each for each in judged if isinstance(each, Principal) and each.proof), Principal())


def refuse_stranger(state: RunState, by: str) -> Rejection | None:
    """Return a refusal unless every policy that names approvers names this person; else None."""
    if any(policy.approvers and not policy.approver(by) for policy in policies_of(state)):
        return Rejection("not_entitled", f"the policy names no approver {by!r}")
    return None


def verify_by_any(state: RunState, statement: Signed) -> Principal | Rejection:
    """Authenticate an approver of one of the policies, by its keys, for a statement that only takes authority away."""
    policies = policies_of(state)
    naming = [policy for policy in policies if policy.approver(statement.by)]
    if not naming:
        principal = verify_principal(state, statement)
        return principal if isinstance(principal, Rejection) else refuse_stranger(state, statement.by) or principal
    judged = [verify_principal(state, statement, policy) for policy in naming]
    return next((each for each in judged if isinstance(each, Rejection)), judged[0])


def refuse_reuse(state: RunState, statement: Signed, *, at: datetime) -> Rejection | None:
    """Return a refusal if a signed statement was used before, or too many others are unexpired; else None."""
    digest = statement.signed_digest(state.thread)
    unexpired = [used.digest for used in state.authority.used_statements if used.until > at]
    if digest in unexpired:
        return Rejection("duplicate", "this statement was received before, and counts once")
    if len(unexpired) >= STATEMENTS:
        limit = f"{STATEMENTS:,} signed statements of this thread have not expired yet"
        return Rejection("too_many", f"{limit}; wait until one of them expires")
    return None


def refuse_bystander(state: RunState, by: str) -> Rejection | None:
    """Return a refusal if a person has neither given the task nor is an approver of each policy that names any."""
    found = (_is_bystander(state, policy, by) for policy in policies_of(state))
    return next((Rejection("not_entitled", why) for why in found if why), None)


def _is_bystander(state: RunState, policy: Policy, by: str) -> str:
    """Return in words that a person has neither given the task nor is an approver; empty if one of them is true."""
    if not policy.approvers or policy.approver(by) or by == state.origin.user:
        return ""
    return f"{by} has not given the task, and the policy names no approver {by!r}"


def refuse_extender(state: RunState, policy: Policy, by: str) -> str:
    """Return why a policy forbids a person to extend the budget of a run; empty if it allows it."""
    who = policy.extensions.by
    if state.spec and by == state.spec.name:
        return f"{by} is the agent of this run, and an agent extends no budget"
    if who:
        entitled = by in policy.entitled(who) if policy.approvers else by in who
        return "" if entitled else f"the policy lets {', '.join(who)} extend budgets, not {by}"
    if why := _is_bystander(state, policy, by):
        return why
    if policy.approvers and not policy.terms.requester_may_decide and state.authority.is_requester(by):
        return f"{by} asked for this with the task or a message; another person extends its budget"
    return ""
