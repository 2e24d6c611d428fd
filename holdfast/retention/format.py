"""The format of a backup: a folder with a manifest, parts with rows, and artifacts under their digests.

    manifest.json                  the parts of the backup, with their digests
    parts/events-DIGEST.jsonl      a row per line, all of one kind; parts are in the order of the manifest
    artifacts/3f/09/DIGEST         the content

1. The manifest is written last, under a temporary name, and renamed. A folder without one holds no backup.
2. Names contain digests, so that a later backup to the same folder overwrites nothing of an earlier one.
3. Everything in a backup is input from outside: the models have bounds, and no text of it becomes SQL or a path.
"""

import re
from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

MANIFEST = "manifest.json"
PARTS = "parts"
ARTIFACTS = "artifacts"

PART_BYTES = 8_000_000
"""A part ends with the first row beyond this size."""
MOST_ROW_BYTES = 256_000_000
"""The largest row, as JSON: the tombstone of a thread with a million events."""
MOST_MANIFEST_BYTES = 64_000_000
MOST_ARTIFACT_BYTES = 1 << 30
MOST_BLOCK_BYTES = 32_000_000
"""The most bytes of events in one block, decompressed."""

Kind = Literal["events", "tombstones", "effects", "memories", "artifacts"]
"""The kind of a part's rows. A backup has the kinds in this order."""

NAME = re.compile(r"(events|tombstones|effects|memories|artifacts)-[0-9a-f]{64}\.jsonl", re.ASCII)


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("a text in PostgreSQL has no NUL character")
    return text


Text = Annotated[str, StringConstraints(max_length=MOST_ROW_BYTES), AfterValidator(_without_nul)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=10_000), AfterValidator(_without_nul)]
Digest = Annotated[str, StringConstraints(pattern=r"\A[0-9a-f]{64}\z")]
Integer = Annotated[int, Field(ge=0, lt=2**31)]
BigInteger = Annotated[int, Field(ge=-(2**63), lt=2**63)]


class Row(BaseModel):
    """A row of a part."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_bytes="base64", val_json_bytes="base64")


def columns(row: type[Row], form: str = "{}") -> str:
    """Return a row's columns as SQL, each formatted with `form`."""
    return ", ".join(map(form.format, row.model_fields))


class EventBlock(Row):
    """A block of events (`holdfast.storage.blocks`); those of a thread follow one another, in order."""

    thread: Name
    position: Integer
    stop: Integer
    size: Annotated[int, Field(ge=0, le=MOST_BLOCK_BYTES)]
    at: BigInteger | None
    body: bytes


class TombstoneRow(Row):
    """A forgotten thread (`holdfast.core.log.tombstones`)."""

    thread: Name
    forgotten_at: datetime
    forgotten_by: Text
    reason: Text
    events: Integer
    head: Digest
    remains: bytes
    digest: Digest


class Effect(Row):
    """A row of the effect ledger."""

    key: Name
    epoch: Integer
    thread: Name
    tool: Text
    started_at: datetime
    finished_at: datetime | None
    outcome: Text | None
    number: Integer | None
    first_run_id: Text | None
    call_digest: Text | None
    call: Text | None
    mac: Text | None = None
    """Missing in backups made by releases before 0.2.0."""


class Memory(Row):
    """An item of semantic memory, without its vector: workers compute that again."""

    id: Name
    key: Name
    scope: Name
    text: Text | None
    trust: Literal["person", "agent", "tool", "web"]
    standing: bool
    kind: Text
    thread: Text
    position: Integer
    by: Text
    created_at: datetime
    expires_at: datetime | None
    supersedes: Text
    superseded_by: Text
    forgotten_at: datetime | None
    forgotten_by: Text
    forgotten_why: Text


class Artifact(Row):
    """A thread's reference to an artifact."""

    digest: Digest
    thread: Annotated[str, StringConstraints(max_length=10_000), AfterValidator(_without_nul)]
    """Empty if the store does not record references."""


ROWS: dict[Kind, type[Row]] = {
    "events": EventBlock,
    "tombstones": TombstoneRow,
    "effects": Effect,
    "memories": Memory,
    "artifacts": Artifact,
}


class Part(Row):
    """A file of rows."""

    kind: Kind
    sha256: Digest
    bytes: Annotated[int, Field(ge=0, le=PART_BYTES + MOST_ROW_BYTES)]
    rows: Integer

    @property
    def name(self) -> str:
        """The file's name in the folder of parts."""
        return f"{self.kind}-{self.sha256}.jsonl"


class Manifest(Row):
    """The parts of a backup, and facts about it."""

    format: Literal["holdfast-backup-1"] = "holdfast-backup-1"
    release: Annotated[str, StringConstraints(max_length=100)]
    """The release that made the backup."""
    created_at: datetime
    parts: tuple[Part, ...]
    artifacts: Integer
    """The number of artifacts in the backup."""
    missing: tuple[Digest, ...] = ()
    """Artifacts that are not in the backup, because the store lacked them or they were altered there."""

    @property
    def counts(self) -> dict[str, int]:
        """The number of rows of each kind."""
        return {kind: sum(part.rows for part in self.parts if part.kind == kind) for kind in ROWS}
