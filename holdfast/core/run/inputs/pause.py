"""Pause, resume and unblock a run at a person's request. Pure functions.

1. Work under way when the run is paused finishes and is recorded. No LLM call, tool call, context compaction or
   `verify` tool starts, and neither the run nor its wait for a message ends.
2. Decisions and messages are recorded during a pause, and take effect when the run resumes; `retry` unblocks it; a
   cancellation ends it at once.
3. Deadlines of approval requests keep running: reminders, escalations and expiry happen during a pause.
4. `holdfast.core.run.inputs.steering` authorizes the sender.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import AwareDatetime, Field, ValidationError

from holdfast.core.authority.interventions import Pause as PauseStatement
from holdfast.core.authority.interventions import Resume, Retry
from holdfast.core.authority.statements import validation_message
from holdfast.core.base.models import Frozen
from holdfast.core.log.events import AgentEvent, RunPaused, RunResumed, RunUnblocked
from holdfast.core.run.inputs.steering import Steerer, refuse_to_end_pause, steerer
from holdfast.core.run.rules.authority import Reaction, Rejection
from holdfast.core.run.rules.budget import BUDGET_SPENT
from holdfast.core.run.state.progress import Pause
from holdfast.core.run.state.state import RunState

PAUSES = 20
"""Maximum number of unsigned pauses, and changes of a pause, between two replies of the LLM: a flood of them must not
grow the log or the permanent record."""

LONGEST_PAUSE = 10 * 365 * 86_400
"""Maximum number of seconds of a pause that ends by itself."""


class _End(Frozen):
    """The automatic end of a pause; none if both fields are empty."""

    until: AwareDatetime | None = None
    seconds: float | None = Field(default=None, gt=0, le=LONGEST_PAUSE)

    def at(self, now: datetime) -> datetime | None:
        if self.seconds is not None:
            return now + timedelta(seconds=self.seconds)
        return self.until


def on_pause(state: RunState, payload: Any, *, at: datetime) -> Reaction | Rejection:
    """Pause the run, or change the reason and the end of a pause.

    Args:
        state: The state before.
        payload: `{"by": "alice", "reason": "…"}`, with `until` (a time) or `seconds` for a pause that ends by itself.
        at: Now.
    """
    who, end = steerer(state, PauseStatement, payload), read_end(payload, at=at)
    if state.outcome:
        return Rejection("too_late", f"the run is {state.outcome}")
    if isinstance(who, Rejection):
        return who
    if isinstance(end, str):
        return Rejection("malformed", end)
    if end and end <= at:
        return Rejection("too_late", f"until {end.isoformat()} is over")
    if end and end - at > timedelta(seconds=LONGEST_PAUSE):
        return Rejection("malformed", f"until {end.isoformat()} is too far: leave it out for a pause without an end")
    if who.signature and "seconds" in payload:
        return Rejection("malformed", "a signed pause that gives `seconds` could be sent again: give `until`")
    if state.pause and _is_same(state.pause, who, end):
        return Rejection("duplicate", f"the run is paused already, by {state.pause.by}")
    if weaker := refuse_to_end_pause(state, who):
        return weaker
    if state.pauses >= PAUSES and not who.speaker.proof:
        return Rejection("too_many", f"the run was paused {PAUSES} times since the LLM's last reply")
    until = end.astimezone(UTC) if end and not who.signature else end
    event = RunPaused.model_validate({"by": who.by, "reason": who.reason, "until": until, **who.proven})
    return Reaction([event], explanation=_consequence(state, event))


def on_resume(state: RunState, payload: Any, *, at: datetime) -> Reaction | Rejection:
    """Resume the run after a pause."""
    if state.outcome:
        return Rejection("too_late", f"the run is {state.outcome}")
    if not state.pause:
        return Rejection("not_paused", f"the run is {state.status}, not paused by a person")
    if isinstance(who := steerer(state, Resume, payload), Rejection):
        return who
    if refused := refuse_to_end_pause(state, who):
        return refused
    then = "the run resumes"
    if state.blocked:
        then = "the pause is over; the run is blocked until its cause is fixed (`retry`)"
    resumed = RunResumed.model_validate({"by": who.by, "reason": who.reason, **who.proven})
    return Reaction([resumed], explanation=then)


def on_retry(state: RunState, payload: Any, *, at: datetime) -> Reaction | Rejection:
    """Unblock the run, once its cause is fixed."""
    if state.blocked is None:
        return Rejection("not_blocked", f"the run is {state.status}, not blocked")
    if state.blocked.cause == BUDGET_SPENT and state.account.limits:
        return Rejection("budget_spent", "the budget of the run has ended: extend it (`extend`)")
    if isinstance(who := steerer(state, Retry, payload), Rejection):
        return who
    then = "the run is not blocked any more, and stays paused" if state.pause else "the run resumes"
    unblocked = RunUnblocked.model_validate({"by": who.by, "reason": who.reason, **who.proven})
    return Reaction([unblocked], explanation=then)


def on_pause_due(state: RunState, *, at: datetime) -> list[AgentEvent]:
    """Return the event that ends an expired pause; none if the pause has not expired."""
    due = state.pause and state.pause.until and state.pause.until <= at
    return [RunResumed()] if due else []


def read_end(payload: Any, *, at: datetime) -> datetime | str | None:
    """Return the time at which the requested pause ends automatically, None for never, or an error message."""
    try:
        return _End.model_validate(payload if isinstance(payload, dict) else {}).at(at)
    except ValidationError as error:
        return validation_message(error)[:2_000]


def _is_same(pause: Pause, who: Steerer, end: datetime | None) -> bool:
    """Return whether the run is already paused like this. A signed pause differs: only a signed statement ends it."""
    return (pause.reason, pause.until) == (who.reason, end) and bool(pause.proof or not who.speaker.proof)


def _consequence(state: RunState, event: RunPaused) -> str:
    ends = f"until {event.until:%Y-%m-%d %H:%M:%S} UTC" if event.until else "until somebody resumes it"
    if state.pause:
        return f"the run stays paused {ends}"
    started = sorted({call.call.name for call in state.running_calls})
    first = f"; {', '.join(started)} ends first" if started else "; an LLM call under way ends first"
    waits = state.idle.awaiting or state.blocked or (state.dormancy.waits and not started)
    return f"the run is paused {ends}{'' if waits else first}"
