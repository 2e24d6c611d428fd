"""The events of signals and updates that were refused."""

from typing import Literal

from holdfast.core.log.events.base import Event


class SignalRejected(Event):
    """A signal or update was refused: its name is unknown, its payload malformed, or it may not do what it asks for.

    Followed by: nothing of its own. Correlate: `sent_digest` is that of the payload in Temporal's history.
    """

    type: Literal["signal_rejected"] = "signal_rejected"
    signal: str
    explanation: str
    outcome: str = ""
    """Why, in a word: `malformed`, `unknown_signal`, `not_entitled`, …"""
    by: str = ""
    """Who sent it, by their own claim."""
    sent_digest: str = ""
    """SHA-256 of what was sent, in place of its body."""
    sent_bytes: int = 0


class RefusalsCounted(Event):
    """More was refused in this Temporal run than is recorded one by one: the number of the other refusals, up to here.

    Followed by: nothing of its own. Correlate: it counts refusals since the last `refusals_counted` or `run_continued`.
    """

    type: Literal["refusals_counted"] = "refusals_counted"
    count: int
    sent_bytes: int
    """Bytes that were sent with them."""
    refusals_digest: str
    """Digest of the chain over the events that they would have been, without position and time. Temporal's history has
    what was sent.
    """
