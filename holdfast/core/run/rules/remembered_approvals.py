"""Remembered rules: the same call is allowed from now on, as long as the approvals that made the rule would count.

1. A rule is made if every person of the quorum asked for it, each with their own approval authority.
2. It overrides only "approval required", and only while each of those people could still approve the call under the
   terms in force. If signatures are required, each approval is verified again, with the keys of the policy in force. If
   several policies ask, each is satisfied by the approvals that count under it.
"""

from holdfast.core.authority.policy import Policy, Requirement, Verdict
from holdfast.core.authority.votes import Vote
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.run.rules.authority import Rejection, policy_for, verify_principal
from holdfast.core.run.rules.standings import could_decide
from holdfast.core.run.state.authority import RememberedRule
from holdfast.core.run.state.state import RunState


def rule_for(state: RunState, call: ToolCall, verdict: Verdict) -> RememberedRule | None:
    """Return the remembered rule that allows this call without another approval; None if there is none.

    Args:
        state: The run's state.
        call: The call, as it is to run.
        verdict: The verdict of the policies, with the terms of an approval.
    """
    digest = call.digest
    for rule in state.authority.rules:
        if (rule.tool, rule.call_digest) == (call.name, digest) and _counts(state, rule, verdict):
            return rule
    return None


def rule_made_by(votes: tuple[Vote, ...], *, number: int, quorum: int) -> RememberedRule | None:
    """Return the rule that these approvals of one call make; None if they make none.

    Args:
        votes: The votes that decide.
        number: The number of the rule in the thread.
        quorum: How many have to approve.
    """
    asking = [vote for vote in votes if vote.said.remember and not vote.delegated]
    if len(asking) < max(quorum, len(votes)):
        return None
    (last,) = votes[-1:]
    return RememberedRule(rule=str(number), tool=last.seen.tool, call_digest=last.approved_digest, votes=votes)


def _counts(state: RunState, rule: RememberedRule, verdict: Verdict) -> bool:
    several = bool(verdict.requirements)
    return all(_satisfied(state, rule, required, several=several) for required in verdict.required)


def _satisfied(state: RunState, rule: RememberedRule, required: Requirement, *, several: bool) -> bool:
    """Return whether a requirement is met by the votes that count under its policy; if it is the only one, by all."""
    policy = policy_for(state, required)
    if policy is None:
        return False
    people = {vote.by for vote in rule.votes if _approves(state, rule, vote, policy, required)}
    return len(people) >= required.terms.quorum and (several or len(people) == len({vote.by for vote in rule.votes}))


def _approves(state: RunState, rule: RememberedRule, vote: Vote, policy: Policy, required: Requirement) -> bool:
    """Return whether this vote approves the rule's call, and its person could approve it now."""
    said = vote.said
    asked = said.decision == "approve" and said.remember and not vote.delegated
    if not asked or (vote.seen.tool, vote.approved_digest) != (rule.tool, rule.call_digest):
        return False
    if policy.signatures == "required":
        # Only a signature over what the person saw counts here; the recorded proof does not.
        verified = not isinstance(verify_principal(state, said, policy), Rejection)
        if not verified or said.digest != vote.seen.digest:
            return False
    return could_decide(state, policy, required.terms, vote.by)
