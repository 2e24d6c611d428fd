"""Authentication and authorization of the people who intervene in a run. Pure functions over the run's state.

1. A signature authenticates a sender: their own, or that of a gateway that vouches for them. A name without a signature
   is accepted if the policy allows that.
2. A signed statement takes effect once, however often it is sent, until it expires.
3. A statement that lets more run (a lift, a resumption, more budget) needs a sender whom every policy that judges the
   run allows to do that. A statement that takes authority away may come from anybody whom one of them names.
4. Before the agent is loaded, no policy is in force: nobody delegates, revokes or lifts anything. A reopened run has
   rules, delegations and constraints even then.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple

from holdfast.core.authority.approvals import DecisionOutcome
from holdfast.core.authority.extensions import ExtensionOutcome
from holdfast.core.authority.follow_ups import MessageOutcome
from holdfast.core.authority.policy import Policy
from holdfast.core.authority.refinements import RefinementOutcome
from holdfast.core.authority.signatures import is_signed
from holdfast.core.authority.statements import Proof, Signed
from holdfast.core.authority.votes import Standing
from holdfast.core.log.events import AgentEvent
from holdfast.core.run.rules.policies import policies_of, policy_of
from holdfast.core.run.state.features import AUTHORITY_NEEDS_AGENT
from holdfast.core.run.state.state import RunState

STATEMENTS = 1_000
"""Unexpired signed delegations and messages of a thread; more are refused, and none is dropped."""

SteeringOutcome = Literal[
    "not_paused", "not_blocked", "budget_spent", "not_movable", "nothing_to_compact", "outdated", "unknown_signal"
]
"""Why a pause, a resumption, a retry, a move or a compaction has no effect; or that there is no such signal."""

WakeOutcome = Literal["delivered", "buffered", "not_waiting", "wrong_event"]
"""The outcome of an event: it ended a wait · it is buffered until a call waits for it · no call sleeps, or the agent
cannot · the call that it is sent to waits for another event."""

Outcome = DecisionOutcome | MessageOutcome | RefinementOutcome | ExtensionOutcome | SteeringOutcome | WakeOutcome
"""The outcome of an intervention. `busy`: the agent, whose policy says who may intervene, is not loaded yet."""


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


def refuse_extender(state: RunState, policy: Policy, by: str) -> str:
    """Return why a policy forbids a person to extend the budget of a run; empty if it allows it."""
    who = policy.extensions.by
    if state.spec and by == state.spec.name:
        return f"{by} is the agent of this run, and an agent extends no budget"
    if who:
        entitled = by in policy.entitled(who) if policy.approvers else by in who
        return "" if entitled else f"the policy lets {', '.join(who)} extend budgets, not {by}"
    if policy.approvers and not policy.approver(by) and by != state.origin.user:
        return f"{by} has not given the task, and the policy names no approver {by!r}"
    if policy.approvers and not policy.terms.requester_may_decide and state.authority.is_requester(by):
        return f"{by} asked for this with the task or a message; another person extends its budget"
    return ""
