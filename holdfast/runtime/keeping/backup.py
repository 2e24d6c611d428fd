"""Make a backup: the database as of one moment, and the artifacts, in a folder (`holdfast.runtime.keeping.format`).

1. One transaction reads all rows in one snapshot, while workers go on writing.
2. Rows and artifacts are streamed: memory does not grow with the database.
3. A backup that is killed leaves the one before intact. The next one to the same folder reuses the artifacts there,
   and removes those that it does not have.
4. Of two backups to one folder at the same time, one is refused: each would remove the other's files.
"""

import asyncio
import fcntl
import hashlib
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import psycopg
from psycopg.rows import class_row, dict_row

from holdfast.errors import BackupInvalid
from holdfast.runtime.keeping.format import (
    ARTIFACTS,
    MANIFEST,
    NAME,
    PART_BYTES,
    PARTS,
    ROWS,
    Artifact,
    Kind,
    Manifest,
    Part,
    Row,
)
from holdfast.runtime.stores.artifacts import PART_BYTES as PIECE
from holdfast.version import __version__

_ROWS_AT_ONCE = 100

_SELECT: dict[Kind, str] = {
    "events": """
        SELECT threads.thread, position, stop, size, at, body
        FROM holdfast.events JOIN holdfast.threads ON threads.id = events.thread
        ORDER BY events.thread, position
    """,
    "tombstones": """
        SELECT threads.thread, forgotten_at, forgotten_by, reason, events, head, remains, digest
        FROM holdfast.tombstones JOIN holdfast.threads ON threads.id = tombstones.thread
        ORDER BY tombstones.thread
    """,
    "effects": """
        SELECT key, epoch, thread, tool, started_at, finished_at, outcome, number, first_run_id, call_digest, call, mac
        FROM holdfast.effects ORDER BY key, epoch
    """,
    "memories": """
        SELECT id, key, scope, text, trust, standing, kind, thread, position, by, created_at, expires_at, supersedes,
            superseded_by, forgotten_at, forgotten_by, forgotten_why
        FROM holdfast.memories ORDER BY number
    """,
    "artifacts": """
        SELECT encode(digest, 'hex') AS digest, threads.thread
        FROM holdfast.artifact_threads JOIN holdfast.threads ON threads.id = artifact_threads.thread
        ORDER BY artifact_threads.digest, artifact_threads.thread
    """,
}
_PIECES = "SELECT content FROM holdfast.artifact_parts WHERE digest = %s ORDER BY part"
_LOCK = ".lock"
_UNFINISHED = ".unfinished-"
_HEX = re.compile(r"[0-9a-f]{64}", re.ASCII)

Report = Callable[[str], None]
"""Called with a line about the progress."""


@dataclass(frozen=True)
class Made:
    """A backup that was made."""

    manifest: Manifest
    copied: int
    """How many artifacts were written; the others were in the folder already."""


async def back_up(url: str, folder: Path, *, artifacts: Path | None, report: Report = lambda line: None) -> Made:
    """Write a backup to a folder, which is created, or holds an earlier backup.

    Args:
        url: The database, migrated.
        folder: Where to.
        artifacts: The folder of artifacts that the workers have; None for those in the database.
        report: Called with a line about the progress.

    Raises:
        BackupInvalid: The folder holds something else, or another process is writing a backup to it.
        OSError: It cannot be written to.
        psycopg.Error: The database cannot be read.
    """
    _prepare(folder)
    with _locked(folder):
        return await _back_up(url, folder, artifacts, report)


async def _back_up(url: str, folder: Path, artifacts: Path | None, report: Report) -> Made:
    parts: list[Part] = []
    async with await psycopg.AsyncConnection.connect(url, connect_timeout=5) as connection:
        await connection.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
        await connection.set_read_only(True)
        for kind in ROWS:
            rows = _rows(connection, kind)
            if kind == "artifacts" and artifacts:
                rows = _files(artifacts)
            made = [part async for part in _written(folder, kind, rows)]
            parts += made
            report(f"{sum(part.rows for part in made):,} {kind}")
        copied, found, missing = 0, 0, list[str]()
        for digest in _digests(folder, parts):
            content = _from_folder(artifacts, digest) if artifacts else _from_database(connection, digest)
            kept = await _keep(folder, digest, content)
            copied, found = copied + (kept == "copied"), found + (kept != "missing")
            if kept == "missing":
                missing.append(digest)
    manifest = Manifest(
        release=__version__,
        created_at=datetime.now(UTC),
        parts=tuple(parts),
        artifacts=found,
        missing=tuple(missing),
    )
    await asyncio.to_thread(_publish, folder, manifest)
    return Made(manifest, copied)


def _prepare(folder: Path) -> None:
    """Create the folders, for their owner alone.

    Raises:
        BackupInvalid: There is a folder with something else.
    """
    if folder.exists() and not folder.is_dir():
        raise BackupInvalid(f"{folder} is a file: name a new folder, or one with an earlier backup")
    others = (
        {each.name for each in folder.iterdir()} - {MANIFEST, PARTS, ARTIFACTS, _LOCK} if folder.exists() else set()
    )
    if any(not name.startswith(_UNFINISHED) for name in others):
        raise BackupInvalid(f"{folder} holds something else than a backup: name a new folder")
    for each in (folder, folder / PARTS, folder / ARTIFACTS):
        each.mkdir(mode=0o700, parents=True, exist_ok=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other backups to the folder away for a block. The lock ends with the process."""
    with os.fdopen(os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BackupInvalid(f"another backup is being written to {folder}: wait until it has ended") from None
        yield


async def _rows(connection: psycopg.AsyncConnection, kind: Kind) -> AsyncIterator[Row]:
    name = f"backup_{kind}"
    async with connection.cursor(name=name, binary=True, row_factory=class_row(ROWS[kind])) as cursor:
        cursor.itersize = _ROWS_AT_ONCE
        await cursor.execute(_SELECT[kind])
        async for row in cursor:
            yield row


async def _files(artifacts: Path) -> AsyncIterator[Row]:
    """The artifacts in a folder; their store does not record which threads refer to them."""
    for first in await asyncio.to_thread(_matching, artifacts, "[0-9a-f][0-9a-f]"):
        for file in await asyncio.to_thread(_matching, first, "[0-9a-f][0-9a-f]/*"):
            if _HEX.fullmatch(file.name):
                yield Artifact(digest=file.name, thread="")


def _matching(folder: Path, pattern: str) -> list[Path]:
    return sorted(folder.glob(pattern))


async def _written(folder: Path, kind: Kind, rows: AsyncIterator[Row]) -> AsyncIterator[Part]:
    """Write rows into as many parts as they need; yield each part."""
    lines: list[bytes] = []
    size = 0
    async for row in rows:
        lines.append(row.model_dump_json().encode() + b"\n")
        size += len(lines[-1])
        if size >= PART_BYTES:
            yield await asyncio.to_thread(_write_part, folder, kind, lines)
            lines, size = [], 0
    if lines:
        yield await asyncio.to_thread(_write_part, folder, kind, lines)


def _write_part(folder: Path, kind: Kind, lines: list[bytes]) -> Part:
    content = b"".join(lines)
    part = Part(kind=kind, sha256=hashlib.sha256(content).hexdigest(), bytes=len(content), rows=len(lines))
    _write(folder / PARTS / part.name, content)
    return part


def _write(file: Path, content: bytes) -> None:
    """Write a file so that it appears with all its content, or not at all."""
    unfinished = file.with_name(f"{_UNFINISHED}{uuid4().hex}")
    try:
        with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as output:
            output.write(content)
            output.flush()
            os.fsync(output.fileno())
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)


def _digests(folder: Path, parts: list[Part] | tuple[Part, ...]) -> Iterator[str]:
    """The digest of each artifact, once and in order: the rows are in it."""
    last = ""
    for part in parts:
        if part.kind == "artifacts":
            for line in (folder / PARTS / part.name).read_bytes().splitlines():
                digest = Artifact.model_validate_json(line).digest
                if digest != last:
                    yield (last := digest)


async def _from_database(connection: psycopg.AsyncConnection, digest: str) -> AsyncIterator[bytes]:
    async with connection.cursor(name="backup_pieces", binary=True, row_factory=dict_row) as cursor:
        cursor.itersize = 1
        await cursor.execute(_PIECES, [bytes.fromhex(digest)])
        async for row in cursor:
            yield row["content"]


async def _from_folder(artifacts: Path, digest: str) -> AsyncIterator[bytes]:
    with suppress(OSError), (artifacts / digest[:2] / digest[2:4] / digest).open("rb") as file:
        while piece := await asyncio.to_thread(file.read, PIECE):
            yield piece


async def _keep(folder: Path, digest: str, content: AsyncIterator[bytes]) -> str:
    """Copy an artifact, unless the backup has it unaltered; return `copied`, `kept`, or `missing` if it is altered."""
    file = folder / ARTIFACTS / digest[:2] / digest[2:4] / digest
    if await asyncio.to_thread(_is_intact, file, digest):
        return "kept"
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    unfinished, found = file.with_name(f"{_UNFINISHED}{uuid4().hex}"), hashlib.sha256()
    try:
        with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as output:
            async for piece in content:
                found.update(piece)
                await asyncio.to_thread(output.write, piece)
            output.flush()
            os.fsync(output.fileno())
        if found.hexdigest() != digest:
            return "missing"
        unfinished.replace(file)
        return "copied"
    finally:
        unfinished.unlink(missing_ok=True)


def _is_intact(file: Path, digest: str) -> bool:
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest() == digest
    except OSError:
        return False


def _publish(folder: Path, manifest: Manifest) -> None:
    """Write the manifest, then remove what no longer belongs to the backup."""
    _write(folder / MANIFEST, manifest.model_dump_json(indent=1).encode())
    mine = {part.name for part in manifest.parts}
    for each in (folder / PARTS).iterdir():
        if each.name not in mine and (NAME.fullmatch(each.name) or each.name.startswith(_UNFINISHED)):
            each.unlink(missing_ok=True)
    _remove_others(folder, manifest)


def _remove_others(folder: Path, manifest: Manifest) -> None:
    """Remove the artifacts of earlier backups alone: their threads were pruned, or forgotten."""
    wanted = _digests(folder, manifest.parts)
    digest = next(wanted, "")
    for inner in sorted((folder / ARTIFACTS).glob("[0-9a-f][0-9a-f]/[0-9a-f][0-9a-f]")):
        prefix, mine = inner.parent.name + inner.name, set[str]()
        while digest and digest[:4] <= prefix:
            mine.add(digest)
            digest = next(wanted, "")
        for each in inner.iterdir():
            if each.name not in mine and (_HEX.fullmatch(each.name) or each.name.startswith(_UNFINISHED)):
                each.unlink(missing_ok=True)
