"""The fields of every event, and the proof of the sender of an event's input."""

from datetime import UTC, datetime

from holdfast.core.authority.statements import Proof
from holdfast.core.base.models import Frozen


class Event(Frozen):
    """The fields of every event. The log sets the three that have no meaningful default."""

    schema_version: int = 1
    position: int = -1
    """0 for the first event of the thread, then without gaps."""
    at: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    """Temporal's time of the workflow task that recorded the event: the same on every replay."""
    digest: str = ""
    """SHA-256 of the previous event's digest and this event's canonical JSON (`event_json`) without `digest`."""


class Proven(Frozen):
    """The proof of the sender of the input that an event records."""

    proof: Proof = ""
    key: str = ""
    """The public key that verified the signature."""
    signature: str = ""
