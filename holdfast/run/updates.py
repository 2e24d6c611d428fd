"""What an update to a run leads to, by its name. Pure functions."""

from datetime import datetime
from typing import Any, NamedTuple

from holdfast.base.unread import is_unread
from holdfast.log.events import DecisionReceived, SignalRejected
from holdfast.run.decisions import Events, on_due
from holdfast.run.dormancy import on_wake
from holdfast.run.evolve import evolve
from holdfast.run.extending import on_extension
from holdfast.run.features import (
    BUDGETS,
    COMPACT_ON_REQUEST,
    CONSTRAINTS,
    DORMANCY,
    KEYS_REVOKED,
    MOVES,
    PAUSE_BY_PERSON,
    REFINE_TASK,
    SIGNED_STEERING,
)
from holdfast.run.inputs import on_compact, on_mandate, on_message, on_payload, on_retry
from holdfast.run.moving import on_move
from holdfast.run.pausing import on_pause, on_resume
from holdfast.run.refining import on_refinement
from holdfast.run.refusals import bounded, is_refused
from holdfast.run.state import RunState

UPDATES: dict[str, int] = dict.fromkeys(("decide", "say", "delegate_authority", "revoke"), 0) | {
    "compact": COMPACT_ON_REQUEST,
    "lift": CONSTRAINTS,
    "pause": PAUSE_BY_PERSON,
    "resume": PAUSE_BY_PERSON,
    "refine": REFINE_TASK,
    "wake": DORMANCY,
    "extend": BUDGETS,
    "move": MOVES,
    "retry": SIGNED_STEERING,
    "revoke_key": KEYS_REVOKED,
}
"""The updates of a run, each with the feature level from which on a run has it: a validator refuses it below that."""


class UpdateOutcome(NamedTuple):
    """What an update leads to."""

    outcome: str
    explanation: str
    events: Events
    interrupts: bool = False
    """The LLM call under way is given up for it."""

    @property
    def answer(self) -> dict[str, str]:
        """What the sender gets."""
        return {"outcome": self.outcome, "explanation": self.explanation}


def on_update(state: RunState, name: str, payload: Any, *, at: datetime) -> UpdateOutcome:
    """Return what an update leads to.

    Args:
        state: The state before.
        name: The update's: one of `UPDATES`.
        payload: What was sent.
        at: Now.
    """
    if is_unread(payload):
        rejected = SignalRejected(signal=name, explanation=str(payload), outcome="malformed")
        return UpdateOutcome("malformed", str(payload), bounded([rejected], payload))
    if name == "say":
        outcome, explanation, events = on_message(state, payload, name=name, at=at)
        return UpdateOutcome(outcome, explanation, events, outcome == "interrupting")
    if name == "refine":
        refined = on_refinement(state, payload, at=at)
        return UpdateOutcome(*refined, interrupts=refined[0] == "interrupting")
    if name == "extend":
        return UpdateOutcome(*on_extension(state, payload, at=at))
    if name == "compact":
        return UpdateOutcome(*on_compact(state, payload))
    if name == "pause":
        return UpdateOutcome(*on_pause(state, payload, at=at))
    if name == "resume":
        return UpdateOutcome(*on_resume(state, payload))
    if name == "move":
        return UpdateOutcome(*on_move(state, payload))
    if name == "retry":
        return UpdateOutcome(*on_retry(state, payload))
    if name == "wake":
        return UpdateOutcome(*on_wake(state, payload, at=at))
    if name != "decide":
        return UpdateOutcome(*on_mandate(state, name, payload, at=at))
    events = on_payload(state, name, payload, at=at)
    received = events[0]
    assert isinstance(received, DecisionReceived | SignalRejected)
    return UpdateOutcome(received.outcome, received.explanation, events)


def refuse_update(state: RunState, name: str, payload: Any, *, at: datetime) -> dict[str, str] | None:
    """Return what the sender of an update gets that would be refused at that time; None for one that would not."""
    for event in on_due(state, at=at):  # recorded before the update
        state = evolve(state, event.model_copy(update={"at": at}))
    update = on_update(state, name, payload, at=at)
    return update.answer if all(map(is_refused, update.events)) else None
