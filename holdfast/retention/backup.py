"""Make a backup: the database as of one moment, and the artifacts, in a folder (`holdfast.retention.format`).

1. One transaction reads all rows in one snapshot, while workers continue to write.
2. Rows and artifacts are streamed: memory use is independent of the size of the database.
3. A backup that is killed leaves the earlier one intact. The next one to the same folder reuses its artifacts, and
   removes those that no longer belong to a backup.
4. A second backup to the same folder at the same time is refused: each would remove the other's files.

This is not `pg_dump`: `pg_restore` would run the SQL in an archive, could not merge into a database that has threads or
has forgotten some, and needs client programs of the server's version, which the worker image lacks.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import psycopg
from psycopg.rows import class_row, dict_row

from holdfast.retention.files import HEX, digests_in, keep_artifact, lock_folder, prepare, publish, write_part
from holdfast.retention.format import (
    PART_BYTES,
    ROWS,
    Artifact,
    Effect,
    Kind,
    Manifest,
    Memory,
    Part,
    Row,
    columns,
)
from holdfast.storage.artifacts import PART_BYTES as PIECE
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
    "effects": f"SELECT {columns(Effect)} FROM holdfast.effects ORDER BY key, epoch",  # noqa: S608  # our models' columns
    "memories": f"SELECT {columns(Memory)} FROM holdfast.memories ORDER BY number",  # noqa: S608
    "artifacts": """
        SELECT encode(digest, 'hex') AS digest, threads.thread
        FROM holdfast.artifact_threads JOIN holdfast.threads ON threads.id = artifact_threads.thread
        ORDER BY artifact_threads.digest, artifact_threads.thread
    """,
}
_PIECES = "SELECT content FROM holdfast.artifact_parts WHERE digest = %s ORDER BY part"

Report = Callable[[str], None]
"""Called with a line about the progress."""


@dataclass(frozen=True)
class NewBackup:
    """A new backup."""

    manifest: Manifest
    copied: int
    """The number of artifacts that were written; the others were in the folder already."""


async def back_up(url: str, folder: Path, *, artifacts: Path | None, report: Report = lambda line: None) -> NewBackup:
    """Write a backup to a folder, which is created, or holds an earlier backup.

    Args:
        url: The database, migrated.
        folder: The backup's folder.
        artifacts: The workers' folder of artifacts; None if artifacts are in the database.
        report: Called with a line about the progress.

    Raises:
        BackupInvalid: The folder has other files, or another process is writing a backup to it.
        OSError: The folder cannot be written to.
        psycopg.Error: The database cannot be read.
    """
    prepare(folder)
    with lock_folder(folder):
        return await _back_up(url, folder, artifacts, report)


async def _back_up(url: str, folder: Path, artifacts: Path | None, report: Report) -> NewBackup:
    parts: list[Part] = []
    async with await psycopg.AsyncConnection.connect(url, connect_timeout=5) as connection:
        await connection.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
        await connection.set_read_only(True)
        for kind in ROWS:
            rows = _rows(connection, kind)
            if kind == "artifacts" and artifacts:
                rows = _files(artifacts)
            of_kind = [part async for part in _write_parts(folder, kind, rows)]
            parts += of_kind
            report(f"{sum(part.rows for part in of_kind):,} {kind}")
        copied, present, missing = 0, 0, list[str]()
        for digest in digests_in(folder, parts):
            content = _from_folder(artifacts, digest) if artifacts else _from_database(connection, digest)
            kept = await keep_artifact(folder, digest, content)
            copied, present = copied + (kept == "copied"), present + (kept != "missing")
            if kept == "missing":
                missing.append(digest)
    manifest = Manifest(
        release=__version__,
        created_at=datetime.now(UTC),
        parts=tuple(parts),
        artifacts=present,
        missing=tuple(missing),
    )
    await asyncio.to_thread(publish, folder, manifest)
    return NewBackup(manifest, copied)


async def _rows(connection: psycopg.AsyncConnection, kind: Kind) -> AsyncIterator[Row]:
    name = f"backup_{kind}"
    async with connection.cursor(name=name, binary=True, row_factory=class_row(ROWS[kind])) as cursor:
        cursor.itersize = _ROWS_AT_ONCE
        await cursor.execute(_SELECT[kind])
        async for row in cursor:
            yield row


async def _files(artifacts: Path) -> AsyncIterator[Row]:
    """Yield the artifacts in a folder, without threads: that store does not record the references to them."""
    for first in await asyncio.to_thread(_matching, artifacts, "[0-9a-f][0-9a-f]"):
        for file in await asyncio.to_thread(_matching, first, "[0-9a-f][0-9a-f]/*"):
            if HEX.fullmatch(file.name):
                yield Artifact(digest=file.name, thread="")


def _matching(folder: Path, pattern: str) -> list[Path]:
    return sorted(folder.glob(pattern))


async def _write_parts(folder: Path, kind: Kind, rows: AsyncIterator[Row]) -> AsyncIterator[Part]:
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
    write_part(folder, part, content)
    return part


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
