"""Pausing, resuming and retrying a loop. Pure functions.

1. Before a pause begins, the current iteration ends and is recorded; no other one starts. A pause does not end a block.
2. Anybody who may send a signal may steer a loop; as for a run, the name of the sender is an unverified claim.
3. From feature level 1 on, the outcomes and options are those of a run (`holdfast.core.run.inputs.pause`). Below it,
   they are those of 0.1.0: a pause has no end, must name its sender, and is rejected as `nothing_to_do`.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.core.base.models import is_unread
from holdfast.core.log.events import RunPaused, RunResumed, RunUnblocked, SignalRejected
from holdfast.core.log.loop_events import LoopEvent
from holdfast.core.loop.state import WORDS, LoopState, Steering
from holdfast.core.run.inputs.pause import LONGEST_PAUSE, PAUSES, read_end
from holdfast.core.run.rules.authority import read_claim
from holdfast.core.run.rules.refusals import bound_rejection

SteeringResult = tuple[str, str, list[LoopEvent]]
"""The outcome, an explanation, and the events that follow."""


def on_steering(state: LoopState, what: Steering, payload: Any, *, at: datetime) -> SteeringResult:
    """Pause, resume or retry the loop on a person's request.

    Args:
        state: The state before.
        what: The request.
        payload: `{"by": "alice", "reason": "…"}`, with `until` or `seconds` for a pause; unvalidated.
        at: The current time.

    Returns:
        The outcome (`accepted`, or the kind of rejection), an explanation, and the events that follow.
    """
    if is_unread(payload):
        return _rejected(what, "malformed", str(payload), payload)
    if not state.logged:
        return _as_in_0_1(state, what, payload)
    by, reason = read_claim(payload)
    by, reason = by[:200], reason[:WORDS]
    if state.outcome:
        return _rejected(what, "too_late", f"the loop is {state.outcome}", payload)
    if what == "pause":
        return _on_pause(state, payload, by=by, reason=reason, at=at)
    if what == "resume":
        if not state.paused:
            return _rejected(what, "not_paused", f"the loop is {state.status}, not paused by a person", payload)
        then = "the loop resumes"
        if state.blocked:
            then = "the pause is over; the loop is blocked until its cause is fixed (`retry`)"
        return "accepted", then, [RunResumed(by=by, reason=reason)]
    if not state.blocked:
        return _rejected(what, "not_blocked", f"the loop is {state.status}, not blocked", payload)
    then = "the loop resumes"
    if state.paused:
        then = f"the block is over; the loop is paused by {state.paused.by} (`resume`)"
    return "accepted", then, [RunUnblocked(by=by, reason=reason)]


def on_pause_due(state: LoopState, *, at: datetime) -> list[LoopEvent]:
    """Return the event that ends a pause whose time is over; an empty list if there is none."""
    due = state.paused and state.paused.until and state.paused.until <= at
    return [RunResumed()] if due else []


def _on_pause(state: LoopState, payload: Any, *, by: str, reason: str, at: datetime) -> SteeringResult:
    end = read_end(payload, at=at)
    if isinstance(end, str):
        return _rejected("pause", "malformed", end, payload)
    if end and end <= at:
        return _rejected("pause", "too_late", f"until {end.isoformat()} is over", payload)
    if end and end - at > timedelta(seconds=LONGEST_PAUSE):
        why = f"until {end.isoformat()} is too far: leave it out for a pause without an end"
        return _rejected("pause", "malformed", why, payload)
    if state.paused and (state.paused.reason, state.paused.until) == (reason, end):
        return _rejected("pause", "duplicate", f"the loop is paused already, by {state.paused.by}", payload)
    if state.pauses >= PAUSES:
        why = f"the loop was paused {PAUSES} times since its last iteration began"
        return _rejected("pause", "too_many", why, payload)
    event = RunPaused(by=by, reason=reason, until=end.astimezone(UTC) if end else None)
    ends = f"until {event.until:%Y-%m-%d %H:%M:%S} UTC" if event.until else "until somebody resumes it"
    verb = "stays" if state.paused else "is"
    first = "; the current iteration ends first" if state.current else ""
    return "accepted", f"the loop {verb} paused {ends}{first}", [event]


def _as_in_0_1(state: LoopState, what: Steering, payload: Any) -> SteeringResult:
    if not isinstance(payload, dict) or not isinstance(by := payload.get("by"), str) or not by.strip():
        why = 'it must be a JSON object that names you: {"by": "your name"}'
        return _rejected(what, "malformed", why, payload)
    by, reason = by[:200], str(payload.get("reason") or "")[:WORDS]
    if what == "pause":
        if state.paused:
            return _rejected(what, "nothing_to_do", f"the loop is paused already, by {state.paused.by}", payload)
        when = "the loop pauses when the current iteration has ended" if state.current else "the loop is paused"
        return "accepted", when, [RunPaused(by=by, reason=reason)]
    if what == "resume":
        if not state.paused:
            return _rejected(what, "nothing_to_do", "the loop is not paused", payload)
        return "accepted", "the loop resumes", [RunResumed(by=by, reason=reason)]
    if not state.blocked:
        return _rejected(what, "nothing_to_do", "the loop is not blocked", payload)
    return "accepted", "the loop resumes", [RunUnblocked(by=by, reason=reason)]


def _rejected(what: Steering, outcome: str, why: str, payload: Any) -> SteeringResult:
    event = bound_rejection(SignalRejected(signal=what, explanation=why, outcome=outcome), payload)
    return outcome, why, [event]
