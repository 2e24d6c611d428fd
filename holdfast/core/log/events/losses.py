"""The event of a gap: a restored backup has only the beginning of a thread."""

from typing import Literal

from holdfast.core.log.events.base import Event


class EventsLost(Event):
    """A backup was restored that has only the events before this one. Later ones are lost: neither the record nor a
    history of Temporal's has them. `restore` or the worker that continues the thread writes this event into the record;
    no run does. Recorded from feature level 2 on.

    Followed by: `run_started`, when the thread is continued.
    Correlate: `events` and `head` are those of the node seal or of the closed run that shows the loss.
    """

    type: Literal["events_lost"] = "events_lost"
    events: int
    """How many events the thread had before the loss, as far as anything shows it."""
    head: str
    """The digest of the last of them."""
    features: int = 0
    """The feature level that a reader of this record needs."""
