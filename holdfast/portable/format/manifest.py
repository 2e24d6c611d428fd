"""The manifest of a portable file, which lists its members, and the in-toto statement about it.

The statement follows from the manifest. Its subjects are the head of the log's chain, under the thread's id, and the
manifest, by its digest: so a signature over the statement covers the log and every member.
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
    """What a portable file holds."""

    format: str = FORMAT
    thread: str = Field(max_length=1_000)
    events: int = Field(ge=0)
    """The number of events of the log."""
    head: str = Field(pattern=_HEX)
    """The digest of the last of them."""
    redacted: bool = False
    """Bodies were dropped, and only their digests kept."""
    left_out: tuple[LeftOut, ...] = ()
    """What the exporting program could not read, or left out on purpose."""
    members: tuple[Member, ...]
    """All others of the file, in their order, without the manifest and the statement."""

    @property
    def encoded(self) -> bytes:
        """The bytes of the manifest: canonical JSON with all fields."""
        return canonical(self.model_dump(mode="json"))


class Subject(NamedTuple):
    """What a statement is about."""

    name: str
    sha256: str


@dataclass(frozen=True)
class Exported:
    """A portable file that was written."""

    thread: str
    events: int
    """How many events the log has."""
    head: str
    """The digest of the last event. Who has it can tell whether a later copy of the log begins with this one."""
    bytes: int
    """Its size."""
    signed: bool
    redacted: bool
    left_out: tuple[LeftOut, ...]
    """What the file does not have, or not all of it: `artifacts`, `ledger`, `subagents`."""
    seals: int = 0
    """How many seals of nodes it has."""
    subagents: int = 0
    """How many sub-agents' logs it has."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """Threads of sub-agents whose logs could not be read, each with the reason."""
    not_vouched_for: str = ""
    """Why the file is not signed although there is a key: what could not be checked; empty for nothing."""


@dataclass(frozen=True)
class Imported:
    """A thread that was imported."""

    thread: str
    run_id: str
    """Temporal's id of the run that continues it."""
    events: int
    """How many events the file has."""
    head: str
    """The digest of the last of them."""
    signer: str
    """The key that vouches for the file; empty for none."""
    new: bool
    """False if the same file had been imported before."""
    subagents: int = 0
    """How many logs of sub-agents it brought."""


def read_manifest(data: bytes) -> Manifest:
    """Read a manifest.

    Raises:
        Unsound: The bytes are no manifest of this format, or not as the format writes it.
    """
    try:
        read = json.loads(data)
        if isinstance(read, dict) and read.get("format") != FORMAT:
            found = str(read.get("format"))[:100]
            raise Unsound(MANIFEST, f"its format is {found!r}, and this release reads {FORMAT!r}")
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
