"""What was imported: a portable file whose log a thread continues in another place."""

from pydantic import Field

from holdfast.core.base.models import Frozen


class ImportPoint(Frozen):
    """The end of an imported file's log: what follows was recorded here."""

    position: int = Field(ge=1)
    """The position of the last event of the file."""
    head: str = Field(min_length=64, max_length=64)
    """The digest of that event, which vouches for all events before it."""
    manifest: str = Field(min_length=64, max_length=64)
    """The SHA-256 of the file's manifest, which lists all members by their digests."""
    signer: str = ""
    """The trusted public key that signed the file; empty where a person has allowed a file without one."""
