"""A person pauses a run, and resumes it. Pure functions.

1. What is under way when the run is paused ends, and is recorded. Nothing else starts, and the run does not end by
   itself: no LLM call, tool call, context compaction or `verify` tool, and no end of the wait for a message.
2. People still act. Decisions and messages are recorded, and take effect when the run resumes; `retry` unblocks it;
   a cancellation ends it at once.
3. The time limits of people keep running: requests are reminded of, escalated, and expire while the run is paused.
4. Anybody who may send `retry` may pause and resume, by their own claim: a pause keeps nothing from being decided.
"""

from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from pydantic import AwareDatetime, Field, ValidationError

from holdfast.authority.statements import validation_message
from holdfast.base.models import Frozen
from holdfast.log.events import AgentEvent, RunPaused, RunResumed, SignalRejected
from holdfast.run.refusals import bounded
from holdfast.run.rights import claimed
from holdfast.run.state import RunState

PauseOutcome = Literal["accepted", "duplicate", "not_paused", "too_late", "too_many", "malformed"]
"""The outcome of a request to pause or to resume."""

PAUSES = 20
"""Pauses, and changes of a pause, between two replies of the LLM; more are refused, so that a flood of them grows
neither the log nor the permanent record."""

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
    by, reason = claimed(payload)
    end = _read_end(payload, at=at)
    if state.outcome:
        refused: tuple[PauseOutcome, str] = "too_late", f"the run is {state.outcome}"
    elif isinstance(end, str):
        refused = "malformed", end
    elif end and end <= at:
        refused = "too_late", f"until {end.isoformat()} is over"
    elif end and end - at > timedelta(seconds=LONGEST_PAUSE):
        refused = "malformed", f"until {end.isoformat()} is too far: leave it out for a pause without an end"
    elif state.pause and (state.pause.reason, state.pause.until) == (reason, end):
        refused = "duplicate", f"the run is paused already, by {state.pause.by}"
    elif state.pauses >= PAUSES:
        refused = "too_many", f"the run was paused {PAUSES} times since the LLM's last reply"
    else:
        event = RunPaused(by=by, reason=reason, until=end.astimezone(UTC) if end else None)
        return "accepted", _consequence(state, event), [event]
    return _refused("pause", refused, payload)


def on_resume(state: RunState, payload: Any) -> tuple[PauseOutcome, str, list[AgentEvent]]:
    """Return the outcome of a request to resume the run, why, and the events that follow."""
    if state.outcome:
        return _refused("resume", ("too_late", f"the run is {state.outcome}"), payload)
    if not state.pause:
        why = f"the run is {state.status}, not paused by a person"
        return _refused("resume", ("not_paused", why), payload)
    by, reason = claimed(payload)
    then = "the run resumes"
    if state.blocked:
        then = "the pause is over; the run is blocked until its cause is fixed (`retry`)"
    return "accepted", then, [RunResumed(by=by, reason=reason)]


def on_pause_due(state: RunState, *, at: datetime) -> list[AgentEvent]:
    """Return the event that ends a pause whose time is over; none where it is not."""
    due = state.pause and state.pause.until and state.pause.until <= at
    return [RunResumed()] if due else []


def _read_end(payload: Any, *, at: datetime) -> datetime | str | None:
    """When the pause ends by itself, None for never, or what is wrong with the payload."""
    try:
        return _End.model_validate(payload if isinstance(payload, dict) else {}).at(at)
    except ValidationError as error:
        return validation_message(error)[:2_000]


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
