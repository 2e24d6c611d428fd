"""A person pauses a run, and resumes it. Pure functions.

1. What is under way when the run is paused ends, and is recorded. Nothing else starts, and the run does not end by
   itself: no LLM call, tool call, context compaction or `verify` tool, and no end of the wait for a message.
2. People still act. Decisions and messages are recorded, and take effect when the run resumes; `retry` unblocks it;
   a cancellation ends it at once.
3. The time limits of people keep running: requests are reminded of, escalated, and expire while the run is paused.
4. Who may pause and resume is in `holdfast.run.steering`.
"""

from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from pydantic import AwareDatetime, Field, ValidationError

from holdfast.authority.statements import validation_message
from holdfast.base.models import Frozen
from holdfast.log.events import AgentEvent, RunPaused, RunResumed, SignalRejected
from holdfast.run.refusals import bounded
from holdfast.run.state import RunState
from holdfast.run.steering import Steerer, SteeringOutcome, refuse_to_end_pause, steerer
from holdfast.run.substates.steps import Pause

PauseOutcome = Literal["accepted", "duplicate", "not_paused", "too_late", "too_many"] | SteeringOutcome
"""The outcome of a request to pause or to resume."""

PAUSES = 20
"""Unsigned pauses, and changes of a pause, between two replies of the LLM; more are refused, so that a flood of them
grows neither the log nor the permanent record."""

LONGEST_PAUSE = 10 * 365 * 86_400
"""Maximum number of seconds of a pause that ends by itself."""


class _End(Frozen):
    """When a pause ends by itself; never, where neither is given."""

    until: AwareDatetime | None = None
    seconds: float | None = Field(default=None, gt=0, le=LONGEST_PAUSE)

    def at(self, now: datetime) -> datetime | None:
        if self.seconds is not None:
            return now + timedelta(seconds=self.seconds)
        return self.until


def on_pause(state: RunState, payload: Any, *, at: datetime) -> tuple[PauseOutcome, str, list[AgentEvent]]:
    """Return the outcome of a request to pause the run, why, and the events that follow.

    Args:
        state: The state before.
        payload: `{"by": "alice", "reason": "…"}`, with `until` (a time) or `seconds` where the pause ends by itself.
        at: Now.
    """
    who, end = steerer(state, "pause", payload), read_end(payload, at=at)
    if state.outcome:
        refused: tuple[PauseOutcome, str] = "too_late", f"the run is {state.outcome}"
    elif not isinstance(who, Steerer):
        refused = who
    elif isinstance(end, str):
        refused = "malformed", end
    elif end and end <= at:
        refused = "too_late", f"until {end.isoformat()} is over"
    elif end and end - at > timedelta(seconds=LONGEST_PAUSE):
        refused = "malformed", f"until {end.isoformat()} is too far: leave it out for a pause without an end"
    elif who.signature and "seconds" in payload:
        refused = "malformed", "a signed pause that gives `seconds` could be sent again: give `until`"
    elif state.pause and _is_same(state.pause, who, end):
        refused = "duplicate", f"the run is paused already, by {state.pause.by}"
    elif weaker := refuse_to_end_pause(state, who):
        refused = weaker
    elif state.pauses >= PAUSES and not who.speaker.proof:
        refused = "too_many", f"the run was paused {PAUSES} times since the LLM's last reply"
    else:
        until = end.astimezone(UTC) if end and not who.signature else end
        event = RunPaused.model_validate({"by": who.by, "reason": who.reason, "until": until, **who.proven})
        return "accepted", _consequence(state, event), [event]
    return _refused("pause", refused, payload)


def on_resume(state: RunState, payload: Any) -> tuple[PauseOutcome, str, list[AgentEvent]]:
    """Return the outcome of a request to resume the run, why, and the events that follow."""
    if state.outcome:
        return _refused("resume", ("too_late", f"the run is {state.outcome}"), payload)
    if not state.pause:
        why = f"the run is {state.status}, not paused by a person"
        return _refused("resume", ("not_paused", why), payload)
    who = steerer(state, "resume", payload)
    refused = refuse_to_end_pause(state, who) if isinstance(who, Steerer) else who
    if refused or not isinstance(who, Steerer):
        assert refused
        return _refused("resume", refused, payload)
    then = "the run resumes"
    if state.blocked:
        then = "the pause is over; the run is blocked until its cause is fixed (`retry`)"
    return "accepted", then, [RunResumed.model_validate({"by": who.by, "reason": who.reason, **who.proven})]


def on_pause_due(state: RunState, *, at: datetime) -> list[AgentEvent]:
    """Return the event that ends a pause whose time is over; none where it is not."""
    due = state.pause and state.pause.until and state.pause.until <= at
    return [RunResumed()] if due else []


def read_end(payload: Any, *, at: datetime) -> datetime | str | None:
    """Return when the pause of a request ends by itself, None for never, or what is wrong with the request."""
    try:
        return _End.model_validate(payload if isinstance(payload, dict) else {}).at(at)
    except ValidationError as error:
        return validation_message(error)[:2_000]


def _is_same(pause: Pause, who: Steerer, end: datetime | None) -> bool:
    """Whether the run is paused like that already. A signature makes it another pause, which only one ends."""
    return (pause.reason, pause.until) == (who.reason, end) and bool(pause.proof or not who.speaker.proof)


def _consequence(state: RunState, event: RunPaused) -> str:
    ends = f"until {event.until:%Y-%m-%d %H:%M:%S} UTC" if event.until else "until somebody resumes it"
    if state.pause:
        return f"the run stays paused {ends}"
    started = sorted({call.call.name for call in state.running_calls})
    first = f"; {', '.join(started)} ends first" if started else "; an LLM call under way ends first"
    waits = state.idle.awaiting or state.blocked or (state.dormancy.waits and not started)
    return f"the run is paused {ends}{'' if waits else first}"


def _refused(
    signal: str, refused: tuple[PauseOutcome, str], payload: Any
) -> tuple[PauseOutcome, str, list[AgentEvent]]:
    outcome, why = refused
    return outcome, why, bounded([SignalRejected(signal=signal, explanation=why, outcome=outcome)], payload)
