"""Artifacts: large content, addressed by its digest, in PostgreSQL or in a folder.

Reads are verified. The first read of an artifact in a process loads all of it and compares its digest with the address.
Later reads load only the parts that they need, and compare the digests of these parts with those of the first read.
"""

import asyncio
import hashlib
import os
from collections import OrderedDict
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import psycopg
from psycopg_pool import AsyncConnectionPool

from holdfast.core.base.canonical import address_of, digest_of
from holdfast.errors import ArtifactAltered, ArtifactNotFound
from holdfast.storage.pool import retried_by_temporal
from holdfast.storage.thread_rows import lock_thread

PART_BYTES = 1_000_000
"""Bytes in one row, and so the granularity of partial reads."""

MOST_VERIFIED = 1_000
"""The most artifacts whose part digests a store keeps in memory, at 32 bytes per part."""


class PostgresArtifacts:
    """A `holdfast.core.stores.ArtifactStore` in PostgreSQL.

    While the database is unavailable, its methods raise an error that Temporal retries.

    Args:
        pool: Open, to a migrated database.
    """

    def __init__(self, pool: AsyncConnectionPool) -> None:
        self._pool = pool
        self._verified = _VerifiedArtifacts()

    async def put(self, content: bytes, *, thread: str) -> str:
        """Store `content`, record that `thread` references it, and return its address."""
        return await self._put(content, thread, again=False)

    async def repair(self, content: bytes, *, thread: str) -> str:
        """Store `content` as `put` does, replacing altered content at its address."""
        return await self._put(content, thread, again=True)

    async def _put(self, content: bytes, thread: str, *, again: bool) -> str:
        address = await asyncio.to_thread(address_of, content)
        digest = _key(address)
        with retried_by_temporal(f"artifact {address}"):
            async with self._pool.connection() as connection, connection.transaction():
                number = await lock_thread(connection, thread, lock="KEY SHARE")
                # The update changes nothing, but locks the row against `prune` and other puts of the same content.
                await connection.execute(
                    "INSERT INTO holdfast.artifacts (digest, size) VALUES (%s, %s) "
                    "ON CONFLICT (digest) DO UPDATE SET size = excluded.size",
                    [digest, len(content)],
                )
                if again:
                    await connection.execute("DELETE FROM holdfast.artifact_parts WHERE digest = %s", [digest])
                stored = await connection.execute(
                    "SELECT FROM holdfast.artifact_parts WHERE digest = %s LIMIT 1", [digest]
                )
                if not stored.rowcount:
                    await _insert_parts(connection, digest, content)
                await connection.execute(
                    "INSERT INTO holdfast.artifact_threads (digest, thread) VALUES (%s, %s) ON CONFLICT DO NOTHING",
                    [digest, number],
                )
        return address

    async def share(self, origin: str, thread: str) -> None:
        """Record that `thread` references every artifact that `origin` references."""
        with retried_by_temporal(f"the artifacts of {origin}"):
            async with self._pool.connection() as connection, connection.transaction():
                # `prune` of the original waits for this, so that it finds the fork's references.
                source = await lock_thread(connection, origin, lock="KEY SHARE")
                number = await lock_thread(connection, thread, lock="KEY SHARE")
                await connection.execute(
                    "INSERT INTO holdfast.artifact_threads (digest, thread) "
                    "SELECT digest, %s FROM holdfast.artifact_threads WHERE thread = %s ON CONFLICT DO NOTHING",
                    [number, source],
                )

    async def get(self, address: str, offset: int = 0, limit: int | None = None) -> bytes:
        """Read the content, or a part of it."""
        with retried_by_temporal(f"artifact {address}"):
            async with self._pool.connection() as connection:
                size = await _size(connection, address)
                reader = _read_verified(address, size, offset, limit, self._verified)
                part, content = await asyncio.to_thread(_advance, reader, None)
                while content is None:
                    rows = await connection.execute(
                        "SELECT content FROM holdfast.artifact_parts WHERE digest = %s AND part = %s",
                        [_key(address), part],
                        binary=True,
                    )
                    row = await rows.fetchone()
                    if row is None:  # pruned meanwhile
                        raise _not_found(address)
                    part, content = await asyncio.to_thread(_advance, reader, row[0])
                return content

    async def size(self, address: str) -> int:
        """The size of the content in bytes."""
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
    """A `holdfast.core.stores.ArtifactStore` in a folder: on a shared disk, or in a mounted bucket.

    It does not record which threads reference an artifact, so it never prunes: use the bucket's lifecycle rules.

    Args:
        path: The folder; created with the first artifact.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._verified = _VerifiedArtifacts()

    async def put(self, content: bytes, *, thread: str) -> str:
        """Store `content` and return its address. The file appears atomically, even with concurrent writers."""
        return await asyncio.to_thread(self._put, content)

    async def repair(self, content: bytes, *, thread: str) -> str:
        """Store `content` as `put` does, replacing altered content at its address."""
        return await asyncio.to_thread(self._put, content, again=True)

    async def get(self, address: str, offset: int = 0, limit: int | None = None) -> bytes:
        """Read the content, or a part of it."""
        return await asyncio.to_thread(self._get, address, offset, limit)

    async def size(self, address: str) -> int:
        """The size of the content in bytes."""
        return await asyncio.to_thread(self._size, address)

    def _put(self, content: bytes, *, again: bool = False) -> str:
        address = address_of(content)
        file = self._file(address)
        if not again and file.exists() and file.stat().st_size == len(content):
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
            with self._file(address).open("rb") as file:
                reader = _read_verified(address, os.fstat(file.fileno()).st_size, offset, limit, self._verified)
                part, content = _advance(reader, None)
                while content is None:
                    file.seek(part * PART_BYTES)
                    part, content = _advance(reader, file.read(PART_BYTES))
                return content
        except FileNotFoundError:
            raise _not_found(address) from None

    def _size(self, address: str) -> int:
        try:
            return self._file(address).stat().st_size
        except FileNotFoundError:
            raise _not_found(address) from None

    def _file(self, address: str) -> Path:
        digest = digest_of(address)
        return self._path / digest[:2] / digest[2:4] / digest  # avoids a folder with a million files


@dataclass(frozen=True)
class _VerifiedArtifact:
    """An artifact that was read completely, and matched the digest in its address."""

    size: int
    parts: tuple[bytes, ...]
    """The digest of each part."""


class _VerifiedArtifacts:
    """The artifacts verified by this process, by address; the least recently used are dropped."""

    def __init__(self) -> None:
        self._artifacts: OrderedDict[str, _VerifiedArtifact] = OrderedDict()

    def get(self, address: str) -> _VerifiedArtifact | None:
        """Return the verified artifact at this address; None if there is none."""
        if artifact := self._artifacts.get(address):
            self._artifacts.move_to_end(address)
        return artifact

    def put(self, address: str, artifact: _VerifiedArtifact) -> None:
        """Add a verified artifact."""
        self._artifacts[address] = artifact
        while len(self._artifacts) > MOST_VERIFIED:
            self._artifacts.popitem(last=False)


def _read_verified(
    address: str, size: int, offset: int, limit: int | None, verified: _VerifiedArtifacts
) -> Generator[int, bytes, bytes]:
    """Read and verify content without I/O: yield the number of each required part, and receive that part.

    Returns:
        The content from `offset` on, up to `limit` bytes of it.

    Raises:
        ArtifactAltered: The parts are not the content of this address.
    """
    stop = size if limit is None else min(size, offset + limit)
    earlier, all_parts = verified.get(address), -(-size // PART_BYTES)
    numbers = range(all_parts)
    if earlier:
        numbers = range(offset // PART_BYTES, -(-stop // PART_BYTES))
        if size != earlier.size:
            raise _altered(address)
    pieces: list[bytes] = []
    digests: list[bytes] = []
    digest = hashlib.sha256()
    for number in numbers:
        part, begin = (yield number), number * PART_BYTES
        digests.append(hashlib.sha256(part).digest())
        # Parts of other lengths could add up to the same content, and give other bytes for an offset.
        if len(part) != min(PART_BYTES, size - begin) or (earlier and digests[-1] != earlier.parts[number]):
            raise _altered(address)
        if not earlier:
            digest.update(part)
        pieces.append(part[max(0, offset - begin) : max(0, stop - begin)])
    if not earlier:
        if digest.hexdigest() != digest_of(address):
            raise _altered(address)
        verified.put(address, _VerifiedArtifact(size, tuple(digests)))
    return b"".join(pieces)


def _advance(reader: Generator[int, bytes, bytes], part: bytes | None) -> tuple[int, bytes | None]:
    """Advance `_read_verified`: return the number of the next required part, or -1 and the content."""
    try:
        return (next(reader) if part is None else reader.send(part)), None
    except StopIteration as end:
        return -1, end.value


def _key(address: str) -> bytes:
    return bytes.fromhex(digest_of(address))


def _not_found(address: str) -> ArtifactNotFound:
    return ArtifactNotFound(f"there is no artifact {address}: it was pruned, or is in another store")


def _altered(address: str) -> ArtifactAltered:
    return ArtifactAltered(
        f"artifact {address} was altered: its content has another digest, so none of it is returned; "
        "restore it from a backup, and find out who could write to the store"
    )
