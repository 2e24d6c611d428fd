"""The fields of every event, and the proof of the sender of an event's input."""

from datetime import UTC, datetime
from typing import ClassVar

from holdfast.core.authority.statements import Proof, Signed
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


class Stated(Event, Proven):
    """An event that records a person's statement. An audit sends the statement again, and expects the event."""

    STATEMENT: ClassVar[type[Signed]]
    """The statement, whose fields the event has under the same names, if `said` does not say otherwise."""

    @property
    def said(self) -> Signed:
        """The statement as it was sent, which the signature covers."""
        own = type(self).model_fields
        return self.STATEMENT(**{name: getattr(self, name) for name in self.STATEMENT.model_fields if name in own})
