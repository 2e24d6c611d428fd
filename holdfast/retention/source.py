"""Read a backup, as input from outside: nothing in it is trusted before its digest is checked.

1. No link is followed below the folder, and only regular files are read: a device or a pipe is refused.
2. A part is read whole, up to its stated size, and its digest compared, before any row of it is decoded.
3. The events of a thread begin at position 0, have no gap, and their digests form a chain. Any other thread is
   damaged: it causes the whole backup to be rejected, or is left out whole.
"""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from holdfast.core.base.text import one_line
from holdfast.core.log.events import RunForked, RunStarted
from holdfast.core.log.loop_events import StoredEvent
from holdfast.core.log.stored_lines import read_lines
from holdfast.core.log.tombstones import Tombstone, fault_in
from holdfast.core.stores import origin_of
from holdfast.errors import BackupInvalid, RecordUnreadable
from holdfast.retention.files import open_artifact, open_regular_file, read
from holdfast.retention.format import (
    MANIFEST,
    MOST_ARTIFACT_BYTES,
    MOST_MANIFEST_BYTES,
    PARTS,
    ROWS,
    Artifact,
    Effect,
    EventBlock,
    Kind,
    Manifest,
    Memory,
    Part,
    Row,
    TombstoneRow,
)
from holdfast.storage.artifacts import PART_BYTES as PIECE
from holdfast.storage.blocks import Block, unpack

RowT = TypeVar("RowT", bound=Row)


@dataclass(frozen=True)
class Page:
    """Consecutive events of a thread, verified."""

    thread: str
    position: int
    lines: list[bytes]
    events: list[StoredEvent]


@dataclass
class Content:
    """The threads and artifacts of a backup that was checked."""

    threads: set[str] = field(default_factory=set)
    artifacts: dict[str, bool] = field(default_factory=dict)
    """Digest → whether the backup records the threads that refer to it."""


class Source:
    """A backup in a folder.

    Args:
        folder: The folder.
        without_damaged: Leave damaged threads out, instead of rejecting the backup.

    Raises:
        BackupInvalid: It has no usable manifest.
    """

    def __init__(self, folder: Path, *, without_damaged: bool = False) -> None:
        self.damaged: dict[str, str] = {}
        """Threads left out so far, as the events are read → the reason."""
        self._folder = folder
        self._without_damaged = without_damaged
        try:
            with open_regular_file(self._folder, MANIFEST) as fd:
                self.manifest = Manifest.model_validate_json(read(fd, MOST_MANIFEST_BYTES, MANIFEST))
        except FileNotFoundError:
            raise BackupInvalid(
                f"{folder} holds no backup: it has no {MANIFEST}, which is written last. Make one with `backup`."
            ) from None
        except ValidationError as error:
            raise BackupInvalid(f"{MANIFEST} is not that of a backup: {_first(error)}") from None

    # Checking.

    def check(self) -> Content:
        """Check all of the backup: every digest, every row, and the chain of every thread.

        Raises:
            BackupInvalid: The message names the first fault.
        """
        content, missing = Content(), set(self.manifest.missing)
        for page in self.events():
            content.threads.add(page.thread)
        for tombstone in self.tombstones():
            content.threads.add(tombstone.thread)
        for _ in self.effects():
            pass
        for _ in self.memories():
            pass
        for row in self.artifact_rows():
            if row.thread:
                content.threads.add(row.thread)
            if row.digest not in content.artifacts and row.digest not in missing:
                self._check_artifact(row.digest)
            content.artifacts[row.digest] = content.artifacts.get(row.digest, False) or bool(row.thread)
        return content

    def _check_artifact(self, digest: str) -> None:
        hashed = hashlib.sha256()
        with open_artifact(self._folder, digest) as fd:
            while piece := os.read(fd, PIECE):
                hashed.update(piece)
        if hashed.hexdigest() != digest:
            raise BackupInvalid(f"artifact sha256:{digest} was altered in the backup: its content has another digest")

    # Rows.

    def events(self) -> Iterator[Page]:
        """Yield the events of all threads, a block at a time, except those of threads known to be damaged.

        Raises:
            BackupInvalid: Events are missing, out of order or altered.
        """
        begun: set[str] = set()
        thread, position, head, owner = "", 0, None, ""
        for row in self._rows("events", EventBlock):
            if row.thread != thread:
                self._require_own(thread, owner)
                thread, position, head, owner = row.thread, 0, None, ""
                if thread in begun:
                    raise BackupInvalid(f"the events of thread {thread!r} are in the backup twice")
                begun.add(thread)
            if thread in self.damaged:
                continue
            if row.position != position or not row.position < row.stop <= row.position + row.size:
                self._leave_out(thread, f"event {position} is missing, or out of place")
                continue
            try:
                lines = unpack(Block(row.position, row.stop, row.size, row.at, row.body))
                events = read_lines(thread, position, lines, head=head)
            except (ValueError, MemoryError, RecordUnreadable) as error:
                self._leave_out(thread, f"events from {position} on cannot be used: {error}")
                continue
            owner = next((each.thread for each in reversed(events) if isinstance(each, RunStarted | RunForked)), owner)
            yield Page(thread, position, lines, events)
            position, head = row.stop, events[-1].digest
        self._require_own(thread, owner)

    def _require_own(self, thread: str, owner: str) -> None:
        """Check that a log is that of its thread.

        Args:
            thread: The thread's id.
            owner: The id in the last event that has one: a fork begins with the events of another thread.
        """
        if owner and thread not in self.damaged and owner != (origin_of(thread) or thread):
            self._leave_out(thread, f"it has the log of another one, {owner!r}")

    def _leave_out(self, thread: str, reason: str) -> None:
        """Leave a damaged thread out from here on.

        Raises:
            BackupInvalid: `without_damaged` is not set.
        """
        if not self._without_damaged:
            raise BackupInvalid(f"thread {thread!r}: {reason}. Add --without-damaged to restore all other threads.")
        self.damaged[thread] = reason

    def tombstones(self) -> Iterator[Tombstone]:
        """Yield the tombstones of forgotten threads.

        Raises:
            BackupInvalid: One was altered.
        """
        for row in self._rows("tombstones", TombstoneRow):
            try:
                tombstone = Tombstone(**row.model_dump())
                position, reason = fault_in(tombstone)
            except (ValueError, TypeError, OverflowError) as error:
                raise BackupInvalid(f"the tombstone of thread {row.thread!r} cannot be used: {error}") from None
            if reason:
                where = "" if position is None else f"event {position}: "
                raise BackupInvalid(f"the tombstone of thread {row.thread!r}: {where}{reason}")
            yield tombstone

    def effects(self) -> Iterator[Effect]:
        """Yield the rows of the effect ledger."""
        for row in self._rows("effects", Effect):
            if (row.finished_at is None) != (row.outcome is None):
                raise BackupInvalid(f"effect {row.key!r} has an outcome without a time, or a time without an outcome")
            yield row

    def memories(self) -> Iterator[Memory]:
        """Yield the items of semantic memory, in the order in which they were stored."""
        return self._rows("memories", Memory)

    def artifact_rows(self) -> Iterator[Artifact]:
        """Yield the references to artifacts."""
        return self._rows("artifacts", Artifact)

    def artifact(self, digest: str) -> bytes:
        """Read an artifact.

        Raises:
            BackupInvalid: It is missing, or was altered.
        """
        with open_artifact(self._folder, digest) as fd:
            content = read(fd, MOST_ARTIFACT_BYTES, f"artifact sha256:{digest}")
        if hashlib.sha256(content).hexdigest() != digest:
            raise BackupInvalid(f"artifact sha256:{digest} was altered in the backup: its content has another digest")
        return content

    def _rows(self, kind: Kind, model: type[RowT]) -> Iterator[RowT]:
        assert ROWS[kind] is model
        for part in self.manifest.parts:
            if part.kind == kind:
                yield from self._rows_in(part, model)

    def _rows_in(self, part: Part, model: type[RowT]) -> Iterator[RowT]:
        try:
            with open_regular_file(self._folder, PARTS, part.name) as fd:
                content = read(fd, part.bytes, part.name)
        except FileNotFoundError:
            raise BackupInvalid(f"{part.name} is missing from the backup") from None
        if hashlib.sha256(content).hexdigest() != part.sha256:
            raise BackupInvalid(f"{part.name} was altered: its content has another digest than its name")
        lines = content.removesuffix(b"\n").split(b"\n") if content else []
        if len(lines) != part.rows:
            raise BackupInvalid(f"{part.name} has {len(lines)} rows, and the manifest says {part.rows}")
        for number, line in enumerate(lines, 1):
            try:
                yield model.model_validate_json(line)
            except ValidationError as error:
                raise BackupInvalid(f"{part.name}, row {number}: {_first(error)}") from None


def _first(error: ValidationError) -> str:
    """Return the first error of a model, without its input."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    return one_line(f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": "), 300)
