"""Artifacts: large content under its own digest, in PostgreSQL or in a folder."""

import asyncio
import os
from pathlib import Path
from uuid import uuid4

import psycopg
from psycopg_pool import AsyncConnectionPool

from activities.stores.away import retried_by_temporal
from activities.stores.record import hold_thread
from holdfast.errors import ArtifactNotFound
from holdfast.stores import address_of, digest_of

PART_BYTES = 1_000_000
"""What one row holds: the most that is loaded, beyond what is asked for, to read a part of an artifact."""


class PostgresArtifacts:
    """A `holdfast.stores.ArtifactStore` in PostgreSQL.

    While the database is away its methods raise an error that Temporal retries.

    Args:
        pool: Open, to a migrated database.
    """

    def __init__(self, pool: AsyncConnectionPool) -> None:
        self._pool = pool

    async def put(self, content: bytes, *, thread: str) -> str:
        """Keep `content`, note that `thread` refers to it, and return its address."""
        address = await asyncio.to_thread(address_of, content)
        digest = _key(address)
        with retried_by_temporal(f"artifact {address}"):
            async with self._pool.connection() as connection, connection.transaction():
                number = await hold_thread(connection, thread, lock="KEY SHARE")
                # The update changes nothing, but locks the row: who puts the same content waits, and so does `prune`.
                await connection.execute(
                    "INSERT INTO holdfast.artifacts (digest, size) VALUES (%s, %s) "
                    "ON CONFLICT (digest) DO UPDATE SET size = excluded.size",
                    [digest, len(content)],
                )
                kept = await connection.execute(
                    "SELECT FROM holdfast.artifact_parts WHERE digest = %s LIMIT 1", [digest]
                )
                if not kept.rowcount:
                    await _insert_parts(connection, digest, content)
                await connection.execute(
                    "INSERT INTO holdfast.artifact_threads (digest, thread) VALUES (%s, %s) ON CONFLICT DO NOTHING",
                    [digest, number],
                )
        return address

    async def get(self, address: str, offset: int = 0, limit: int | None = None) -> bytes:
        """The content, or a part of it."""
        digest = _key(address)
        pieces: list[bytes] = []
        with retried_by_temporal(f"artifact {address}"):
            async with self._pool.connection() as connection:
                size = await _size(connection, address)
                stop = size if limit is None else min(size, offset + limit)
                while offset < stop:
                    part, skip = divmod(offset, PART_BYTES)
                    row = await (
                        await connection.execute(
                            "SELECT substring(content FROM %s FOR %s) FROM holdfast.artifact_parts "
                            "WHERE digest = %s AND part = %s",
                            [skip + 1, min(stop - offset, PART_BYTES), digest, part],
                            binary=True,
                        )
                    ).fetchone()
                    if row is None or not row[0]:  # pruned in this very moment
                        raise _not_found(address)
                    pieces.append(row[0])
                    offset += len(row[0])
        return b"".join(pieces)

    async def size(self, address: str) -> int:
        """How many bytes the content has."""
        with retried_by_temporal(f"artifact {address}"):
            async with self._pool.connection() as connection:
                return await _size(connection, address)


async def _insert_parts(connection: psycopg.AsyncConnection, digest: bytes, content: bytes) -> None:
    view = memoryview(content)
    for part, start in enumerate(range(0, len(content), PART_BYTES)):
        await connection.execute(
            "INSERT INTO holdfast.artifact_parts (digest, part, content) VALUES (%s, %s, %s)",
            [digest, part, view[start : start + PART_BYTES]],
        )


async def _size(connection: psycopg.AsyncConnection, address: str) -> int:
    rows = await connection.execute("SELECT size FROM holdfast.artifacts WHERE digest = %s", [_key(address)])
    if row := await rows.fetchone():
        return int(row[0])
    raise _not_found(address)


class FolderArtifacts:
    """A `holdfast.stores.ArtifactStore` in a folder: on a shared disk, or a bucket that is mounted.

    It does not note which threads refer to what, so nothing is ever pruned: let the bucket's lifecycle rules do it.

    Args:
        path: The folder; made when the first artifact is kept.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    async def put(self, content: bytes, *, thread: str) -> str:
        """Keep `content` and return its address. The file appears whole, whoever writes it at the same time."""
        return await asyncio.to_thread(self._put, content)

    async def get(self, address: str, offset: int = 0, limit: int | None = None) -> bytes:
        """The content, or a part of it."""
        return await asyncio.to_thread(self._get, address, offset, limit)

    async def size(self, address: str) -> int:
        """How many bytes the content has."""
        return await asyncio.to_thread(self._size, address)

    def _put(self, content: bytes) -> str:
        address = address_of(content)
        file = self._file(address)
        if file.exists() and file.stat().st_size == len(content):
            return address
        file.parent.mkdir(parents=True, exist_ok=True)
        unfinished = file.with_name(f".{file.name}.{uuid4().hex}")
        try:
            with unfinished.open("xb") as output:
                output.write(content)
                output.flush()
                os.fsync(output.fileno())
            unfinished.replace(file)
        finally:
            unfinished.unlink(missing_ok=True)
        return address

    def _get(self, address: str, offset: int, limit: int | None) -> bytes:
        try:
            with self._file(address).open("rb") as content:
                content.seek(offset)
                # Never more than there is: `read` makes room for all that it is asked for.
                left = max(0, os.fstat(content.fileno()).st_size - offset)
                return content.read(left if limit is None else min(limit, left))
        except FileNotFoundError:
            raise _not_found(address) from None

    def _size(self, address: str) -> int:
        try:
            return self._file(address).stat().st_size
        except FileNotFoundError:
            raise _not_found(address) from None

    def _file(self, address: str) -> Path:
        digest = digest_of(address)
        return self._path / digest[:2] / digest[2:4] / digest  # no folder with a million files


def _key(address: str) -> bytes:
    return bytes.fromhex(digest_of(address))


def _not_found(address: str) -> ArtifactNotFound:
    return ArtifactNotFound(f"there is no artifact {address}: it was pruned, or is kept in another store")
