"""Judges how a run loaded its agent: all that follows from its start, its import or its reclassification is recomputed.

What the worker alone knows is taken as it is: the agent's fields, its workspace, the values that its context model
gives, and prices.
"""

from typing import Any

from holdfast.audit.judge.events import IllegalEvent
from holdfast.core.agents.names import id_if_any
from holdfast.core.log import events as ev
from holdfast.core.run.state.features import JUDGED_LOADS
from holdfast.core.run.state.state import RunState
from holdfast.core.tools.typed_context import context_excess


def check_loaded(state: RunState, event: ev.AgentLoaded, *, started: ev.RunStarted | None) -> None:
    """Check an `agent_loaded`.

    Args:
        state: The state before the event.
        event: The event.
        started: The start for which the agent is loaded; None if it is loaded for another reason, or if the start is
            before the part of the log that is judged.

    Raises:
        IllegalEvent: It does not follow from the log before it.
    """
    spec = event.spec
    if event.spec_hash != spec.hash or event.policy_hash not in ("", spec.policy.hash):
        raise IllegalEvent("its digests are not those of the agent and of the policy that it holds")
    # The published test vectors of earlier levels have another agent than the one that their starts ask for.
    asked = started.agent if started and event.features >= JUDGED_LOADS else None
    if asked and id_if_any(asked) != id_if_any(spec.name):
        raise IllegalEvent(f"the start asks for the agent {asked}, and this is {spec.name}")
    if state.next_agent:
        _check_successor(state, event)
    _check_budget(state, event)
    _check_unattended(state, event)
    _check_context(state.typed_context.values, event)


def _check_budget(state: RunState, event: ev.AgentLoaded) -> None:
    budget = event.budget
    if (own := event.spec.budget) and budget != own.narrowed(budget):
        raise IllegalEvent(f"its budget allows more than the agent's own ({own.words})")
    if (allowance := state.origin.inherited_budget) and budget != allowance.narrowed(budget):
        raise IllegalEvent(f"its budget allows more than its parent gave it ({allowance.words})")
    if event.price and (budget is None or budget.usd is None):
        raise IllegalEvent("it has a price, and no budget of money")


def _check_successor(state: RunState, event: ev.AgentLoaded) -> None:
    if event.spec.name != state.next_agent:
        raise IllegalEvent(f"the run was reclassified to the agent {state.next_agent}, and this is {event.spec.name}")
    if state.calls.waiting or state.calls.startable(event.at):
        raise IllegalEvent("the agent of a run changes at the end of a step, and calls of this one are open")
    if (kept := state.account.budget) and (event.budget is None or event.budget != kept.narrowed(event.budget)):
        raise IllegalEvent(f"its budget allows more than the run had left ({kept.words})")


def _check_unattended(state: RunState, event: ev.AgentLoaded) -> None:
    """Check who is asked: the start decides, else the agent. What a plain start says about it is not recorded."""
    said = state.origin.when_blocked
    if said is None and not state.origin.sealed and not state.resumes_import:
        return
    unattended = state.unattended or (said or event.spec.when_blocked) == "fail"
    if event.unattended != unattended:
        says = f"when_blocked={said or event.spec.when_blocked!r}" if not state.unattended else "it was before"
        raise IllegalEvent(f"the run is {'un' if unattended else ''}attended ({says}), and this says otherwise")


def _check_context(values: dict[str, Any] | None, event: ev.AgentLoaded) -> None:
    """Check the typed context: a model completes it, and takes nothing away."""
    context, schema = event.context, event.spec.context
    if schema is None and context is not None:
        raise IllegalEvent("it has a context, and the agent has no model of one")
    if context is None:
        if schema is not None and values is None:
            raise IllegalEvent("it has no context, and the agent has a model of one")
        return
    if why := context_excess(context):
        raise IllegalEvent(f"its context {why}")
    fields, given = (schema or {}).get("properties", {}), values or {}
    if lost := sorted(given.keys() - context.keys()):
        raise IllegalEvent(f"its context lacks the field {lost[0]!r} of the run's context")
    if other := sorted(key for key in context.keys() - fields.keys() if key not in given or given[key] != context[key]):
        raise IllegalEvent(f"its context has {other[0]!r}, which is neither the run's nor a field of the agent's model")
