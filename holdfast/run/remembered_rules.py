"""Remembered rules: the same call is allowed from now on, for as long as the approvals that made the rule would count.

1. A rule is made where every person of the quorum asked for it, each with a right of their own.
2. It lifts `ask` only, and only while each of those people could still approve the call under the terms that ask now;
   where signatures are required, each approval is verified again, with the keys of the policy in force.
"""

from holdfast.authority.policy import Terms
from holdfast.authority.votes import Vote
from holdfast.llm.messages import ToolCall
from holdfast.run.rights import Refused, known, policy_of, stands
from holdfast.run.state import Remembered, RunState


def rule_for(state: RunState, call: ToolCall, terms: Terms) -> Remembered | None:
    """The remembered rule that lets this call run without asking; None for none.

    Args:
        state: The run's.
        call: As it is to run.
        terms: How the rule that asks would have it decided.
    """
    digest = call.digest
    for rule in state.remembered:
        if (rule.tool, rule.call_digest) == (call.name, digest) and _counts(state, rule, terms):
            return rule
    return None


def made_by(votes: tuple[Vote, ...], *, number: int, quorum: int) -> Remembered | None:
    """The rule that these approvals of one call make; None where they make none.

    Args:
        votes: Those that decide.
        number: Of the rule, in the thread.
        quorum: How many have to approve.
    """
    asked_by = [vote for vote in votes if vote.said.remember and not vote.right]
    if len(asked_by) < max(quorum, len(votes)):
        return None
    (last,) = votes[-1:]
    return Remembered(rule=str(number), tool=last.seen.tool, call_digest=last.approved_digest, votes=votes)


def _counts(state: RunState, rule: Remembered, terms: Terms) -> bool:
    people = {vote.by for vote in rule.votes}
    return len(people) >= terms.quorum and all(_approves(state, rule, vote, terms) for vote in rule.votes)


def _approves(state: RunState, rule: Remembered, vote: Vote, terms: Terms) -> bool:
    """Whether this vote is an approval of the rule's call, by somebody who could give it now."""
    said = vote.said
    meant = said.decision == "approve" and said.remember and not vote.right
    if not meant or (vote.seen.tool, vote.approved_digest) != (rule.tool, rule.call_digest):
        return False
    if policy_of(state).signatures == "required":
        # What the thread's past says of proofs is not asked: only the signature over what was seen.
        proven = not isinstance(known(state, said), Refused)
        if not proven or said.digest != vote.seen.digest:
            return False
    return stands(terms, state, vote.by)
