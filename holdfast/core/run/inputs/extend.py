"""A person extends the budget of a run. Pure functions over the run's state.

1. The policy names the people who may extend the budget (`Policy.extensions`). By default, these are the person who
   gave the task and every approver, or anybody if the policy names no approvers. Requesters who may not approve may not
   extend either. Agents may never extend a budget: their names are ignored.
2. If the policy requires signatures, an extension needs the signature of an approver, or of a gateway that vouches for
   its sender. Otherwise a name is taken on trust.
3. One extension adds at most as much as the policy allows, and raises only limits that the budget has.
4. The policies of the runs above have to allow it as well, each by its own keys. An extension of a sub-agent with an
   allowance extends the whole tree.
5. A run that is blocked by its spent budget resumes once every limit has room for a call and for the last one.
"""

from datetime import datetime

from holdfast.core.authority.interventions import Extension
from holdfast.core.authority.policy import Policy
from holdfast.core.budget.budget import Amounts, fits
from holdfast.core.log.events import BudgetExtended
from holdfast.core.run.inputs.messages import verify_sender
from holdfast.core.run.rules.authority import Reaction, Rejection, policies_of, refuse_extender, refuse_reuse
from holdfast.core.run.rules.budget import has_room
from holdfast.core.run.state.state import RunState

EXTENDED = "[The budget of this run was extended: {more}. Continue the task where you stopped; tools run again.]"


def on_extension(state: RunState, extension: Extension, *, at: datetime) -> Reaction | Rejection:
    """Extend the budget. An extension that lets the run continue interrupts its last LLM call."""
    extended = _judge(state, extension, at=at)
    if isinstance(extended, Rejection):
        return extended
    interrupts = extended.resumes and state.account.closing == "asked"
    return Reaction([extended], explanation=_accepted(state, extended), interrupts=interrupts)


def _accepted(state: RunState, event: BudgetExtended) -> str:
    if not state.account.closing:
        return "the budget is extended"
    if event.resumes:
        return "the budget is extended, and the run continues"
    return "the budget is extended, but it has no room for another call yet; `show` has what is left of each limit"


def _judge(state: RunState, extension: Extension, *, at: datetime) -> BudgetExtended | Rejection:
    """Return the event that accepts an extension, or why it is rejected."""
    if state.outcome:
        why = f"the run is {state.outcome}; a new run of the thread begins with the agent's own budget"
        return Rejection("too_late", why)
    if state.spec is None:  # its policy has to authorize the sender
        return Rejection("busy", "the agent is being loaded: send it again in a moment")
    policies = policies_of(state)
    required = any(policy.signatures == "required" for policy in policies)
    if required and not extension.signature:
        why = "the policy requires signatures: sign the extension (--key), or send it through a gateway"
        return Rejection("unsigned", why)
    speaker = verify_sender(state, extension, required=required, at=at)
    if not isinstance(speaker, Rejection) and speaker.proof:
        speaker = refuse_reuse(state, extension, at=at) or speaker
    if isinstance(speaker, Rejection):
        return speaker
    for policy in policies:
        if why := refuse_extender(state, policy, extension.by):
            return Rejection("not_entitled", why)
        if refused := _refuse_amounts(state, policy, extension):
            return refused
    proven = bool(speaker.proof)  # without a proof, ignore the expiry and the signature
    more = Amounts(**extension.model_dump(include=set(Amounts.model_fields)))
    resumes = bool(state.account.closing) and has_room(state, state.account.extend(more))
    return BudgetExtended(
        by=extension.by,
        reason=extension.reason,
        more=more,
        id=extension.id,
        until=extension.until if proven else None,
        resumes=resumes,
        notice=EXTENDED.format(more=more.words) if resumes else "",
        proof=speaker.proof,
        key=speaker.key,
        signature=extension.signature if proven else "",
    )


def _refuse_amounts(state: RunState, policy: Policy, extension: Extension) -> Rejection | None:
    account, most = state.account, policy.extensions.most
    if extension.id and extension.id in account.extensions:
        return Rejection("duplicate", "it was received before, and counts once")
    if not account.limits:
        return Rejection("no_budget", "the run has no budget, so there is nothing to extend")
    if other := [name for name in extension.units if name not in account.limits]:
        return Rejection("no_budget", f"the budget limits {', '.join(account.limits)}, not {', '.join(other)}")
    if most and any(units > most.units.get(name, 0) for name, units in extension.units.items()):
        return Rejection("too_much", f"one extension gives at most {most.words}, by the policy")
    if not fits(account.extend(extension).limits):
        return Rejection("too_much", "no budget can be as large as that")
    return None
