"""The waits for people, which Temporal's Web UI shows as a pending timer. Pure functions.

A wait without a deadline has a timer, too, whose end changes nothing. It starts when the events before the wait are in
the permanent record, so that an input which arrives sooner costs none. It is started anew when the run waits for
something else, because its summary cannot change. So that a later release replays the same timers, this depends on
`awaited_input` alone, and not on the words of the summary.
"""

from datetime import datetime, timedelta

from holdfast.core.run.state.features import SHOWS_WAITS
from holdfast.core.run.state.state import RunState

OPEN_WAIT = timedelta(days=365)
"""Duration of the timer of a wait without a deadline."""


def awaited_input(state: RunState, *, at: datetime) -> str:
    """Return what a run waits for from outside; empty for nothing, and below the feature level of these timers."""
    if state.features < SHOWS_WAITS or state.outcome or state.moving:
        return ""
    if state.pause:
        return "resume"
    if state.blocked:
        return f"retry {state.blocked.cause}"
    if requests := state.authority.requests:
        return f"decide {' '.join(request.id for request in requests)}"
    if state.dormancy.waits:
        return f"wake {' '.join(str(wait.number) for wait in state.dormancy.waits)}"
    return "say" if state.status == "waiting_message" and state.idle.until and state.idle.until > at else ""
