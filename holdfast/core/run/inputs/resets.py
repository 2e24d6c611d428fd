"""Handle a reset of a run to an earlier event by Temporal: match its calls with effects that have already happened.

1. A call of the current step that needs approval and has not begun keeps its key: if the abandoned branch has begun the
   identical call, that is the same effect.
2. If that branch has made the same call under another number, approval is requested again, so that the signature names
   the effect that has happened. A call that the policy allows adopts that effect without a request.
3. An identical call that the LLM requests later adopts a remaining effect (`holdfast.core.run.decide.replies`).
"""

from datetime import datetime

from holdfast.core.log.events import AgentEvent, RunReset
from holdfast.core.run.fold.evolve import evolve
from holdfast.core.run.rules.approval_requests import ask_again, asks
from holdfast.core.run.state.state import RunState
from holdfast.core.tools.effects import PastEffect


def on_reset(
    state: RunState, effects: tuple[PastEffect, ...], *, left_out: int = 0, asking: bool = False, at: datetime
) -> list[AgentEvent]:
    """Return the events that follow from a reset.

    Args:
        state: The state before.
        effects: Effects in the ledger that this branch of the log has not begun, oldest first.
        left_out: The number of older effects that were left out.
        asking: An LLM call is under way.
        at: Now.
    """
    reset = RunReset(effects=effects, left_out=left_out, asking=asking)
    events: list[AgentEvent] = [reset]
    state = evolve(state, reset.model_copy(update={"at": at}))
    left, opened = list(state.calls.past), 0
    for call in state.calls.current:
        request = state.authority.request(call.request or "")
        waits = call.phase in ("previewing", "awaiting_approval") or (
            call.phase == "allowed" and call.grant and not call.undo
        )
        request = request or call.asked
        current = request.call() if request else call.call
        past = next((each for each in left if (each.tool, each.call_digest) == (current.name, current.digest)), None)
        if call.past or not waits or past is None:
            continue
        left.remove(past)
        new_events = ask_again(state, call, at=at, ahead=opened, past=past)
        opened += any(map(asks, new_events))
        events += new_events
    return events
