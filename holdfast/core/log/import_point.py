"""The import of a portable file, whose log a thread continues on this cluster."""

from pydantic import Field

from holdfast.core.base.models import Frozen


class ImportPoint(Frozen):
    """The end of an imported file's log: later events were recorded on this cluster."""

    position: int = Field(ge=1)
    """The position of the last event of the file."""
    head: str = Field(min_length=64, max_length=64)
    """The digest of that event, which covers all events before it."""
    manifest: str = Field(min_length=64, max_length=64)
    """The SHA-256 of the file's manifest, which lists all members by their digests."""
    signer: str = ""
    """The trusted public key that signed the file; empty if a person allowed an unsigned file."""
