"""Move a run to another cluster: it ends here as `moved`, with its open requests and waits, and is imported there. Pure
functions.

1. After the request, nothing starts. An LLM call under way is dropped, and repeated there; tools under way end first.
2. Requests, waits, messages, a pause and a block stay open in the log. They are open there, and no longer here.
3. `holdfast.core.run.inputs.steering` authorizes the sender.
4. The sender may name the only cluster that can import the run, so that it cannot continue on two.
"""

import re
from datetime import datetime
from typing import Any

from holdfast.core.authority.interventions import Move
from holdfast.core.log.events import MoveRequested, RunFinished
from holdfast.core.run.inputs.steering import steerer
from holdfast.core.run.rules.authority import Reaction, Rejection
from holdfast.core.run.state.state import RunState
from holdfast.core.tools.subagents import SUBAGENT_TOOLS

_PLACE = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
"""The id of a cluster: that of its Temporal namespace."""


def on_move(state: RunState, payload: Any, *, at: datetime) -> Reaction | Rejection:
    """End the run as moved, once the tools under way have ended.

    Args:
        state: The state before.
        payload: `{"by": "alice", "reason": "…", "to": "<id of a cluster>"}`.
        at: Now.
    """
    if state.outcome:
        return Rejection("too_late", f"the run is {state.outcome}")
    if state.moving:
        return Rejection("duplicate", f"the run is being moved, as {state.moving.by} asked")
    if state.spec is None:
        return Rejection("busy", "the agent is being loaded: move the run in a moment")
    if (to := _destination(payload)) is None:
        return Rejection("not_movable", "`to` is not the id of a place: `holdfast import --place` prints it there")
    if why := immovable(state):
        return Rejection("not_movable", why)
    if isinstance(who := steerer(state, Move, payload), Rejection):
        return who
    event = MoveRequested.model_validate({"by": who.by, "reason": who.reason, "to": to, **who.proven})
    return Reaction([event], explanation=_consequence(state))


def _destination(payload: Any) -> str | None:
    """Return the id of the cluster that a request names; empty for none, None for an invalid id."""
    to = (payload.get("to") if isinstance(payload, dict) else "") or ""
    return to if to == "" or (isinstance(to, str) and _PLACE.fullmatch(to)) else None


def immovable(state: RunState) -> str:
    """Return why a run cannot continue on another cluster; empty if it can."""
    if state.origin.lineage:
        return f"it is a sub-agent of {state.origin.lineage.parent}, which waits for it here"
    if state.origin.allowance:
        return "it is an iteration of a loop, which waits for it here"
    if state.subagents.open or any(call.call.name in SUBAGENT_TOOLS for call in state.running_calls):
        return "its sub-agents are open: wait until they have ended, or cancel them"
    return ""


def on_moved(state: RunState) -> RunFinished:
    """Return the event that ends a moving run, once no call is under way."""
    assert state.moving is not None
    to = f" to the place {state.moving.to}" if state.moving.to else ""
    because = f": {state.moving.reason}" if state.moving.reason else ""
    return RunFinished(outcome="moved", result=f"Moved by {state.moving.by}{to}{because}")


def _consequence(state: RunState) -> str:
    tools = ", ".join(sorted({call.call.name for call in state.running_calls}))
    return f"the run ends here as moved, when {tools} has ended" if tools else "the run ends here as moved"
