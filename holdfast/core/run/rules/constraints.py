"""Constraints: their enforcement, and their removal by people. Pure functions over the run's state.

1. A constraint stems from a tool's own result, `Cannot` (`holdfast.core.tools.cannot`): the LLM can neither make nor
   lift one.
2. It is checked when a call is requested, when people approve it, and again before it starts. It takes precedence over
   the policy, approvals and remembered rules. Its end grants nothing: the call is judged like any other.
3. Undoing an effect is never refused.
4. A constraint on a call refuses polls of that call, too (`holdfast.core.run.waits.polling`).
"""

from datetime import datetime

from holdfast.core.authority.statements import Lift
from holdfast.core.base.constraint_names import constraint_name
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.log.events import AgentEvent, ConstraintLifted, ToolCallFinished, VerdictGiven
from holdfast.core.run.rules.authority import Reaction, Rejection, policies_of, refuse_stranger, verify_for_all
from holdfast.core.run.state.constraints import Constraint
from holdfast.core.run.state.origin import FORK
from holdfast.core.run.state.state import RunState
from holdfast.core.tools.effects import PastEffect, words_of


def constraint_on(state: RunState, call: ToolCall, *, at: datetime) -> Constraint | None:
    """Return a constraint that refuses this call, or the call that it polls; None for none."""
    calls = state.spec.calls_of(call) if state.spec else (call,)
    constraints = (state.constraints.find_for(each, at=at) for each in calls)
    return next(filter(None, constraints), None)


def refuse_call(
    state: RunState, number: int, call: ToolCall, *, past: PastEffect | None, at: datetime
) -> list[AgentEvent]:
    """Return the events that refuse a requested call because of a constraint; none if none refuses it.

    Args:
        state: The state before.
        number: The call's number.
        call: The call.
        past: The effect that the call had before a reset.
        at: Now.
    """
    constraint = constraint_on(state, call, at=at)
    if constraint is None:
        return []
    verdict = VerdictGiven(number=number, verdict="deny", rule=f"constraint {constraint.number}")
    return [verdict, constraint_result(number, constraint, past)]


def constraint_result(number: int, constraint: Constraint, past: PastEffect | None) -> ToolCallFinished:
    """Return the event that ends a call because this constraint refuses it."""
    content = words_of(f"Not called. It cannot be done: {constraint.line}", past)
    return ToolCallFinished(number=number, status="cannot", content=content)


def refuse_approval(state: RunState, call: ToolCall, *, at: datetime) -> Rejection | None:
    """Return a refusal if a constraint keeps people from approving this call now; else None."""
    constraint = constraint_on(state, call, at=at)
    if constraint is None:
        return None
    why = f"it cannot be done: {constraint.line}"
    return Rejection("against_policy", f"{why}; lift constraint {constraint.name} first")


def on_lift(state: RunState, lift: Lift, *, at: datetime) -> Reaction | Rejection:
    """React to a person who lifts a constraint."""
    principal = verify_for_all(state, lift)
    if isinstance(principal, Rejection):
        return principal
    if refusal := _refuse_lift(state, lift, at=at):
        return refusal
    lifted = ConstraintLifted(
        constraint=lift.constraint,
        by=lift.by,
        reason=lift.reason,
        proof=principal.proof,
        key=principal.key,
        signature=lift.signature,
    )
    return Reaction([lifted])


def _refuse_lift(state: RunState, lift: Lift, *, at: datetime) -> Rejection | None:
    """Return a refusal if this person cannot lift this constraint; else None."""
    constraint = state.constraints.find(lift.constraint)
    if stranger := refuse_stranger(state, lift.by):
        return stranger
    if lift.constraint == FORK:
        return _refuse_lift_of_fork(state, lift)
    if constraint is None or not constraint.is_active(at):
        others = ", ".join(each.name for each in state.constraints.active(at).kept) or "none"
        name = constraint_name(lift.constraint)
        return Rejection("unknown_request", f"no constraint {name} refuses anything; those that do: {others}")
    return None


def _refuse_lift_of_fork(state: RunState, lift: Lift) -> Rejection | None:
    """Return a refusal if this person cannot let a fork's effects run as the policy says; else None."""
    if state.fork is None or state.fork.lifted_by is not None:
        return Rejection("unknown_request", "no effect asks first because of a fork")
    barred = any(not policy.terms.requester_may_decide for policy in policies_of(state))
    if barred and state.authority.is_requester(lift.by):
        return Rejection("not_entitled", f"{lift.by} is one of the requesters, who may not approve here")
    return None
