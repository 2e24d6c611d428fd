"""Gaps that a restored backup leaves in a log: the trace of what was lost, and the event about it."""

from datetime import datetime

from holdfast.core.base.models import Frozen
from holdfast.core.log.event_log import EventLog
from holdfast.core.log.events import AgentEvent, EventsLost
from holdfast.core.run.state.features import LOSSES


class LostLog(Frozen):
    """What is known about a log whose last part is lost."""

    events: int
    """How many events it had at least."""
    head: str
    """The digest of the last of them."""


def lost_after(last: AgentEvent, lost: LostLog, *, at: datetime) -> EventsLost:
    """Return the event that follows `last`, the last event of a restored record: later ones are lost.

    Args:
        last: The last event that is left.
        lost: The lost log.
        at: Now.
    """
    log = EventLog(position=last.position + 1, head=last.digest)
    return log.append(EventsLost(events=lost.events, head=lost.head, features=LOSSES), at=at)


def says(last: AgentEvent, lost: LostLog) -> bool:
    """Return whether the last event of a record says that this log was lost."""
    return isinstance(last, EventsLost) and (last.events, last.head) == (lost.events, lost.head)
