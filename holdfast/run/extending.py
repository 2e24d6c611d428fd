"""A person extends the budget of a run. Pure functions over the run's state.

1. The policy says who may (`Policy.extensions`); without a word of it, the person who gave the task and every approver,
   or anybody where the policy names no approvers. Where requesters may not approve, they may not extend either. No
   agent may: an agent has no way to say it, and its name does not count.
2. Where the policy requires signatures, only a signed extension counts, signed by an approver or by a gateway that
   vouches for its sender; else a name is taken on trust.
3. One extension gives at most what the policy allows, and raises only limits that the budget has.
4. The policies above have to allow it as well, each by its own keys. What is added to a sub-agent with an allowance is
   added to the whole tree.
5. A run that the end of its budget has blocked resumes, once every limit has room for a call and for the last one.
"""

from datetime import datetime
from typing import Any, cast

from holdfast.authority.extensions import Extension, ExtensionOutcome, read_extension
from holdfast.authority.policy import Policy
from holdfast.budget.budget import Amounts, fits
from holdfast.log.events import AgentEvent, BudgetExtended, SignalRejected
from holdfast.run.arrivals import verify_sender
from holdfast.run.budgeting import has_room
from holdfast.run.features import EVERY_POLICY_ASKS
from holdfast.run.policies import policies_of, policy_of
from holdfast.run.refusals import bounded
from holdfast.run.rights import Refusal, refuse_extender, refuse_reuse
from holdfast.run.state import RunState

EXTENDED = "[The budget of this run was extended: {more}. Continue the task where you stopped; tools run again.]"

Refused = tuple[ExtensionOutcome, str]


def on_extension(
    state: RunState, payload: Any, *, at: datetime
) -> tuple[ExtensionOutcome, str, list[AgentEvent], bool]:
    """Return the outcome of an extension, why, the events that follow, and whether it interrupts the last LLM call.

    Args:
        state: The state before.
        payload: `{"usd": "1", "by": "alice"}`.
        at: Now.
    """
    given = read_extension(payload)
    judged = given if isinstance(given, tuple) else _judge(state, given, at=at)
    if isinstance(judged, BudgetExtended):
        interrupts = judged.resumes and state.account.closing == "asked"
        return "accepted", _accepted(state, judged), [judged], interrupts
    outcome, why = judged
    return outcome, why, bounded([SignalRejected(signal="extend", explanation=why, outcome=outcome)], payload), False


def _accepted(state: RunState, event: BudgetExtended) -> str:
    if not state.account.closing:
        return "the budget is extended"
    if event.resumes:
        return "the budget is extended, and the run continues"
    return "the budget is extended, but it has no room for another call yet; `show` has what is left of each limit"


def _judge(state: RunState, given: Extension, *, at: datetime) -> BudgetExtended | Refused:
    """The event that accepts an extension, or the outcome and the reason why it is refused."""
    if state.outcome:
        return "too_late", f"the run is {state.outcome}; a new run of the thread begins with the agent's own budget"
    if state.spec is None:  # whose policy says who may
        return "busy", "the agent is being loaded: send it again in a moment"
    policies = policies_of(state)
    if state.features < EVERY_POLICY_ASKS:
        policies = (policy_of(state), *(state.origin.policies if state.account.handed else ()))
    required = any(policy.signatures == "required" for policy in policies)
    if required and not given.signature:
        return "unsigned", "the policy requires signatures: sign the extension (--key), or send it through a gateway"
    speaker = verify_sender(state, given, required=required, at=at)
    if not isinstance(speaker, Refusal) and speaker.proof:
        speaker = refuse_reuse(state, given, at=at) or speaker
    if isinstance(speaker, Refusal):
        return cast(ExtensionOutcome, speaker.outcome), speaker.explanation
    for policy in policies:
        if why := refuse_extender(state, policy, given.by):
            return "not_entitled", why
        if refused := _refuse_amounts(state, policy, given):
            return refused
    proven = bool(speaker.proof)  # without a proof, what would expire counts for nothing
    more = Amounts(**given.model_dump(include=set(Amounts.model_fields)))
    resumes = bool(state.account.closing) and has_room(state, state.account.extend(more))
    return BudgetExtended(
        by=given.by,
        reason=given.reason,
        more=more,
        id=given.id,
        until=given.until if proven else None,
        resumes=resumes,
        notice=EXTENDED.format(more=more.words) if resumes else "",
        proof=speaker.proof,
        key=speaker.key,
        signature=given.signature if proven else "",
    )


def _refuse_amounts(state: RunState, policy: Policy, given: Extension) -> Refused | None:
    account, most = state.account, policy.extensions.most
    if given.id and given.id in account.extensions:
        return "duplicate", "it was received before, and counts once"
    if not account.limits:
        return "no_budget", "the run has no budget, so there is nothing to extend"
    if other := [name for name in given.units if name not in account.limits]:
        return "no_budget", f"the budget limits {', '.join(account.limits)}, not {', '.join(other)}"
    if most and any(units > most.units.get(name, 0) for name, units in given.units.items()):
        return "too_much", f"one extension gives at most {most.words}, by the policy"
    if not fits(account.extend(given).limits):
        return "too_much", "no budget can be as large as that"
    return None
