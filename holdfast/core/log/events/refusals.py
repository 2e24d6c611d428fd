"""Events of rejected signals and updates."""

from typing import Literal

from holdfast.core.log.events.base import Event


class SignalRejected(Event):
    """A signal or update was rejected: its name is unknown, its payload is malformed, or its sender is not authorized.

    Followed by: no particular event. Correlate: `sent_digest` is that of the payload in Temporal's history.
    """

    type: Literal["signal_rejected"] = "signal_rejected"
    signal: str
    explanation: str
    outcome: str = ""
    """A short name of the reason: `malformed`, `unknown_signal`, `not_entitled`, …"""
    by: str = ""
    """The sender's name, unauthenticated."""
    sent_digest: str = ""
    """SHA-256 of its body, which is not kept."""
    sent_bytes: int = 0


class RefusalsCounted(Event):
    """This Temporal run rejected more inputs than are recorded one by one; this counts the others so far.

    Followed by: no particular event. Correlate: it counts rejections since the last `refusals_counted` or
    `run_continued`.
    """

    type: Literal["refusals_counted"] = "refusals_counted"
    count: int
    sent_bytes: int
    """Total size of their bodies."""
    refusals_digest: str
    """Digest of the chain over the events that were not recorded, without position and time. Temporal's history has
    their bodies.
    """
