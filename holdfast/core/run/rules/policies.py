"""The policies that judge a run: its agent's own, and those above. Pure functions over the run's state.

1. Those above are the policies of the agents that started the run, and those that came with a fork or an import.
2. Changing what may run takes the permission of each of them: no sub-agent and no fork is a way around one.
3. A policy identifies people by its own approvers, keys and gateways, never by another policy's.
"""

from holdfast.core.authority.policy import Policy, Requirement, Verdict
from holdfast.core.run.state.features import EVERY_POLICY_ASKS
from holdfast.core.run.state.state import RunState


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
