"""The manifest of a portable file, which lists its members, and the in-toto statement about it.

The statement is derived from the manifest. Its subjects are the head of the log's chain, under the thread's id, and the
digest of the manifest: so a signature over the statement covers the log and every member.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from pydantic import Field, ValidationError

from holdfast.core.base.canonical import canonical
from holdfast.core.base.models import Frozen
from holdfast.errors import NotPortable
from holdfast.portable.format.layout import Unsound
from holdfast.portable.format.members import FORMAT, MANIFEST

PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE: Final = "urn:holdfast:portable-file:1"

LeftOut = Literal["artifacts", "ledger", "subagents"]

_HEX = r"^[0-9a-f]{64}$"


class Member(Frozen):
    """A member, as the manifest lists it."""

    name: str
    size: int = Field(ge=0)
    sha256: str = Field(pattern=_HEX)


class Manifest(Frozen):
    """The contents of a portable file."""

    format: str = FORMAT
    thread: str = Field(max_length=1_000)
    events: int = Field(ge=0)
    """The number of events of the log."""
    head: str = Field(pattern=_HEX)
    """The digest of the last event."""
    redacted: bool = False
    """Bodies were dropped, and only their digests kept."""
    left_out: tuple[LeftOut, ...] = ()
    """The parts that the exporter could not read, or left out on request."""
    members: tuple[Member, ...]
    """All other members of the file, in their order, without the manifest and the statement."""

    @property
    def encoded(self) -> bytes:
        """The bytes of the manifest: canonical JSON with all fields."""
        return canonical(self.model_dump(mode="json"))


class Subject(NamedTuple):
    """A subject of a statement."""

    name: str
    sha256: str


@dataclass(frozen=True)
class Exported:
    """The result of an export."""

    thread: str
    events: int
    """The number of events in the log."""
    head: str
    """The digest of the last event, with which one can check that a later copy of the log begins with this one."""
    bytes: int
    """Its size."""
    signed: bool
    redacted: bool
    left_out: tuple[LeftOut, ...]
    """Parts that are missing or incomplete: `artifacts`, `ledger`, `subagents`."""
    seals: int = 0
    """The number of node seals in the file."""
    subagents: int = 0
    """The number of sub-agents' logs in the file."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """Threads of sub-agents whose logs could not be read, each with the reason."""
    not_vouched_for: str = ""
    """The check that could not be made, so that the file is unsigned although there is a key; empty for none."""


@dataclass(frozen=True)
class Imported:
    """The result of an import."""

    thread: str
    run_id: str
    """Temporal's id of the run that continues it."""
    events: int
    """The number of events in the file."""
    head: str
    """The digest of the last event."""
    signer: str
    """The key that vouches for the file; empty for none."""
    new: bool
    """False if the same file had been imported before."""
    subagents: int = 0
    """The number of sub-agents' logs that were imported."""


def read_manifest(data: bytes) -> Manifest:
    """Read a manifest.

    Raises:
        Unsound: The bytes are not a manifest of this format in canonical JSON.
    """
    try:
        read = json.loads(data)
        if isinstance(read, dict) and read.get("format") != FORMAT:
            actual = str(read.get("format"))[:100]
            raise Unsound(MANIFEST, f"its format is {actual!r}, and this release reads {FORMAT!r}")
        manifest = Manifest.model_validate(read)
        if manifest.encoded == data:
            return manifest
    except (ValueError, RecursionError, NotPortable, ValidationError):
        pass
    raise Unsound(MANIFEST, "it was altered: it is not a manifest in canonical JSON")


def statement_of(manifest: Manifest) -> bytes:
    """Return the statement about a file: canonical JSON, the payload of its DSSE envelope."""
    subjects = [Subject(manifest.thread, manifest.head), Subject(MANIFEST, sha256(manifest.encoded))]
    statement: dict[str, Any] = {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": each.name, "digest": {"sha256": each.sha256}} for each in subjects],
        "predicateType": PREDICATE_TYPE,
        "predicate": {"format": manifest.format, "events": manifest.events, "redacted": manifest.redacted},
    }
    return canonical(statement)


def sha256(data: bytes) -> str:
    """Return the SHA-256 of `data`, in hex."""
    return hashlib.sha256(data).hexdigest()
