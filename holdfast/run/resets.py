"""What a run leads to that Temporal has taken back to an earlier event: it meets what it has done already.

1. A call of the current step that was asked about and not begun keeps its key: where the branch that was left has begun
   the very same call, that is the same effect.
2. Where that branch has made the same call under another number, people are asked about it anew: what they sign names
   the effect that there has been. A call that the policy lets run needs no question; it adopts that effect.
3. What the LLM asks for later, word for word, adopts what is left (`holdfast.run.decide`).
"""

from datetime import datetime

from holdfast.log.events import ApprovalRequested, RunReset
from holdfast.run.decisions import Events, ask_again
from holdfast.run.evolve import evolve
from holdfast.run.state import RunState
from holdfast.tools.effects import PastEffect


def on_reset(
    state: RunState, effects: tuple[PastEffect, ...], *, left_out: int = 0, asking: bool = False, at: datetime
) -> Events:
    """The events that a reset leads to.

    Args:
        state: The state before.
        effects: What the ledger has that this branch of the log has not begun, oldest first.
        left_out: How many older ones there are besides.
        asking: An LLM call is under way.
        at: Now.
    """
    reset = RunReset(effects=effects, left_out=left_out, asking=asking)
    events: Events = [reset]
    state = evolve(state, reset.model_copy(update={"at": at}))
    left, questions = list(state.past), 0
    for call in state.calls:
        request = state.request(call.request or "")
        waits = call.phase == "awaiting_approval" or (call.phase == "allowed" and call.grant and not call.undo)
        asked = request.call() if request else call.call
        past = next((each for each in left if (each.tool, each.call_digest) == (asked.name, asked.digest)), None)
        if call.past or not waits or past is None:
            continue
        left.remove(past)
        anew = ask_again(state, call, at=at, ahead=questions, past=past)
        questions += any(isinstance(event, ApprovalRequested) for event in anew)
        events += anew
    return events
