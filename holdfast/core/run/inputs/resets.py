"""What follows when Temporal resets a run to an earlier event: its calls meet the effects that they have already had.

1. A call of the current step that people were asked about, and that has not begun, keeps its key: where the abandoned
   branch has begun the very same call, that is the same effect.
2. Where that branch has made the same call under another number, people are asked again: what they sign names the
   effect that has happened. A call that the policy allows adopts that effect without a question.
3. A call that the LLM requests later, word for word, adopts what is left (`holdfast.core.run.decide.reactions`).
"""

from datetime import datetime

from holdfast.core.log.events import AgentEvent, ApprovalRequested, RunReset
from holdfast.core.run.fold.evolve import evolve
from holdfast.core.run.rules.approval_requests import ask_again
from holdfast.core.run.state.state import RunState
from holdfast.core.tools.effects import PastEffect


def on_reset(
    state: RunState, effects: tuple[PastEffect, ...], *, left_out: int = 0, asking: bool = False, at: datetime
) -> list[AgentEvent]:
    """Return the events that follow from a reset.

    Args:
        state: The state before.
        effects: Those in the ledger that this branch of the log has not begun, oldest first.
        left_out: How many older ones there are besides.
        asking: An LLM call is under way.
        at: Now.
    """
    reset = RunReset(effects=effects, left_out=left_out, asking=asking)
    events: list[AgentEvent] = [reset]
    state = evolve(state, reset.model_copy(update={"at": at}))
    left, opened = list(state.calls.past), 0
    for call in state.calls.current:
        request = state.authority.request(call.request or "")
        waits = call.phase == "awaiting_approval" or (call.phase == "allowed" and call.grant and not call.undo)
        asked = request.call() if request else call.call
        past = next((each for each in left if (each.tool, each.call_digest) == (asked.name, asked.digest)), None)
        if call.past or not waits or past is None:
            continue
        left.remove(past)
        anew = ask_again(state, call, at=at, ahead=opened, past=past)
        opened += any(isinstance(event, ApprovalRequested) for event in anew)
        events += anew
    return events
