"""A person extends the budget of a run. Pure functions over the run's state.

1. The policy says who may extend it (`Policy.extensions`). If it does not, the person who gave the task and every
   approver may, and anybody if the policy names no approvers. Requesters who may not approve may not extend either. No
   agent may: its name does not count.
2. If the policy requires signatures, only an extension counts that an approver has signed, or a gateway that vouches
   for its sender; else a name is taken on trust.
3. One extension gives at most what the policy allows, and raises only limits that the budget has.
4. The policies above have to allow it as well, each by its own keys. What is added to a sub-agent with an allowance is
   added to the whole tree.
5. A run that the end of its budget has blocked resumes, once every limit has room for a call and for the last one.
"""

from datetime import datetime

from holdfast.core.authority.extensions import Extension
from holdfast.core.authority.policy import Policy
from holdfast.core.budget.budget import Amounts, fits
from holdfast.core.log.events import BudgetExtended
from holdfast.core.run.inputs.messages import verify_sender
from holdfast.core.run.rules.authority import Reaction, Refusal, refuse_extender, refuse_reuse
from holdfast.core.run.rules.budget import has_room
from holdfast.core.run.rules.policies import policies_of, policy_of
from holdfast.core.run.state.features import EVERY_POLICY_ASKS
from holdfast.core.run.state.state import RunState

EXTENDED = "[The budget of this run was extended: {more}. Continue the task where you stopped; tools run again.]"


def on_extension(state: RunState, given: Extension, *, at: datetime) -> Reaction | Refusal:
    """Extend the budget. An extension that lets the run continue interrupts its last LLM call."""
    extended = _judge(state, given, at=at)
    if isinstance(extended, Refusal):
        return extended
    interrupts = extended.resumes and state.account.closing == "asked"
    return Reaction([extended], explanation=_accepted(state, extended), interrupts=interrupts)


def _accepted(state: RunState, event: BudgetExtended) -> str:
    if not state.account.closing:
        return "the budget is extended"
    if event.resumes:
        return "the budget is extended, and the run continues"
    return "the budget is extended, but it has no room for another call yet; `show` has what is left of each limit"


def _judge(state: RunState, given: Extension, *, at: datetime) -> BudgetExtended | Refusal:
    """The event that accepts an extension, or why it is refused."""
    if state.outcome:
        why = f"the run is {state.outcome}; a new run of the thread begins with the agent's own budget"
        return Refusal("too_late", why)
    if state.spec is None:  # whose policy says who may
        return Refusal("busy", "the agent is being loaded: send it again in a moment")
    policies = policies_of(state)
    if state.features < EVERY_POLICY_ASKS:
        policies = (policy_of(state), *(state.origin.policies if state.account.handed else ()))
    required = any(policy.signatures == "required" for policy in policies)
    if required and not given.signature:
        why = "the policy requires signatures: sign the extension (--key), or send it through a gateway"
        return Refusal("unsigned", why)
    speaker = verify_sender(state, given, required=required, at=at)
    if not isinstance(speaker, Refusal) and speaker.proof:
        speaker = refuse_reuse(state, given, at=at) or speaker
    if isinstance(speaker, Refusal):
        return speaker
    for policy in policies:
        if why := refuse_extender(state, policy, given.by):
            return Refusal("not_entitled", why)
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


def _refuse_amounts(state: RunState, policy: Policy, given: Extension) -> Refusal | None:
    account, most = state.account, policy.extensions.most
    if given.id and given.id in account.extensions:
        return Refusal("duplicate", "it was received before, and counts once")
    if not account.limits:
        return Refusal("no_budget", "the run has no budget, so there is nothing to extend")
    if other := [name for name in given.units if name not in account.limits]:
        return Refusal("no_budget", f"the budget limits {', '.join(account.limits)}, not {', '.join(other)}")
    if most and any(units > most.units.get(name, 0) for name, units in given.units.items()):
        return Refusal("too_much", f"one extension gives at most {most.words}, by the policy")
    if not fits(account.extend(given).limits):
        return Refusal("too_much", "no budget can be as large as that")
    return None
