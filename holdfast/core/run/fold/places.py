"""The fold of events about nodes. A call that no node took has not run: it is allowed again, with its approval."""

from holdfast.core.base.models import replace
from holdfast.core.log import events as ev
from holdfast.core.run.fold.calls import lower_trust
from holdfast.core.run.state.calls import CallState
from holdfast.core.run.state.state import RunState
from holdfast.core.trust import least
from holdfast.errors import EventOutOfPlace


def accept_node(state: RunState, event: ev.NodeAccepted) -> RunState:
    """Record the node that took the work."""
    return replace(state, places=state.places.accepted(event.node, event.policy))


def await_node(state: RunState, event: ev.NodeAwaited) -> RunState:
    """Wait for a node. A started call is allowed again.

    Raises:
        EventOutOfPlace: The call is not under way.
    """
    state = replace(state, places=state.places.awaiting(event.rejected, event.until))
    call = state.calls.find(event.number) if event.number else None
    if event.number and (call is None or call.phase not in ("started", "orphaned")):
        raise EventOutOfPlace(f"call {event.number} is not under way")
    if call is None or call.phase == "orphaned":  # the run still has to resolve it
        return state
    return replace(state, calls=state.calls.put(_returned(call, event.request)))


def reroute_call(state: RunState, event: ev.ToolCallRerouted) -> RunState:
    """Send a call to other nodes, and from here on every call of its tool, until the constraint ends. Nothing of the
    call has happened, so another attempt has a row of its own in the ledger.

    Raises:
        EventOutOfPlace: The call is not under way.
    """
    call = state.calls.get(event.number)
    again = replace(_returned(call, event.request), epoch=call.epoch + 1)
    constraints = state.constraints.add(
        event.number,
        call.call,
        scope="everywhere",
        reason=event.reason,
        until=event.until,
        at=event.at,
        nodes=event.nodes,
    )
    tool = state.spec.tool(call.call.name) if state.spec else None
    after = replace(state, calls=state.calls.put(again), constraints=constraints)
    return lower_trust(after, least(tool.trust, "tool")) if tool else after


def _returned(call: CallState, grant: str) -> CallState:
    """Return a call that has not run as allowed, with the approval that its start did not use.

    Raises:
        EventOutOfPlace: It is not under way.
    """
    return replace(call, phase=call.after("return"), grant=grant, used_grant="")
