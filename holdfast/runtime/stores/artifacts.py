"""Artifacts: large content under its own digest, in PostgreSQL or in a folder.

What is given is what was put. The first read of an artifact in a process reads all of it, and compares its digest with
the address; later reads load the parts that they need, and compare those with what the first one found.
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

from holdfast.base.digests import address_of, digest_of
from holdfast.errors import ArtifactAltered, ArtifactNotFound
from holdfast.runtime.stores.threads import hold_thread
from holdfast.runtime.stores.unavailable import retried_by_temporal

PART_BYTES = 1_000_000
"""What one row holds: the most that is loaded, beyond what is asked for, to read a part of an artifact again."""

KNOWN = 1_000
"""Artifacts whose parts' digests a store keeps in memory; of each, 32 bytes a part."""


class PostgresArtifacts:
    """A `holdfast.stores.ArtifactStore` in PostgreSQL.

    While the database is away its methods raise an error that Temporal retries.

    Args:
        pool: Open, to a migrated database.
    """

    def __init__(self, pool: AsyncConnectionPool) -> None:
        self._pool = pool
        self._known = _Known()

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
        with retried_by_temporal(f"artifact {address}"):
            async with self._pool.connection() as connection:
                size = await _size(connection, address)
                reading = _reading(address, size, offset, limit, self._known)
                part, content = await asyncio.to_thread(_step, reading, None)
                while content is None:
                    rows = await connection.execute(
                        "SELECT content FROM holdfast.artifact_parts WHERE digest = %s AND part = %s",
                        [_key(address), part],
                        binary=True,
                    )
                    row = await rows.fetchone()
                    if row is None:  # pruned in this very moment
                        raise _not_found(address)
                    part, content = await asyncio.to_thread(_step, reading, row[0])
                return content

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
        self._known = _Known()

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
            with self._file(address).open("rb") as file:
                reading = _reading(address, os.fstat(file.fileno()).st_size, offset, limit, self._known)
                part, content = _step(reading, None)
                while content is None:
                    file.seek(part * PART_BYTES)
                    part, content = _step(reading, file.read(PART_BYTES))
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
        return self._path / digest[:2] / digest[2:4] / digest  # no folder with a million files


@dataclass(frozen=True)
class _Whole:
    """Content that was read whole, and had the digest that its address says."""

    size: int
    parts: tuple[bytes, ...]
    """The digest of each part."""


class _Known:
    """What a process has read whole, by address; what was used least recently makes room."""

    def __init__(self) -> None:
        self._wholes: OrderedDict[str, _Whole] = OrderedDict()

    def get(self, address: str) -> _Whole | None:
        """What is known of this content."""
        if whole := self._wholes.get(address):
            self._wholes.move_to_end(address)
        return whole

    def put(self, address: str, whole: _Whole) -> None:
        """Know this content from now on."""
        self._wholes[address] = whole
        while len(self._wholes) > KNOWN:
            self._wholes.popitem(last=False)


def _reading(address: str, size: int, offset: int, limit: int | None, known: _Known) -> Generator[int, bytes, bytes]:
    """Reads content, checked: yields the number of the part that it needs, is sent it, and returns what was asked for.

    Raises:
        ArtifactAltered: It is not the content of this address.
    """
    stop = size if limit is None else min(size, offset + limit)
    whole, all_parts = known.get(address), -(-size // PART_BYTES)
    numbers = range(all_parts)
    if whole:
        numbers = range(offset // PART_BYTES, -(-stop // PART_BYTES))
        if size != whole.size:
            raise _altered(address)
    pieces: list[bytes] = []
    digests: list[bytes] = []
    digest = hashlib.sha256()
    for number in numbers:
        part, begin = (yield number), number * PART_BYTES
        digests.append(hashlib.sha256(part).digest())
        # Parts of other lengths could be the same whole, and would give other bytes for an offset.
        if len(part) != min(PART_BYTES, size - begin) or (whole and digests[-1] != whole.parts[number]):
            raise _altered(address)
        if not whole:
            digest.update(part)
        pieces.append(part[max(0, offset - begin) : max(0, stop - begin)])
    if not whole:
        if digest.hexdigest() != digest_of(address):
            raise _altered(address)
        known.put(address, _Whole(size, tuple(digests)))
    return b"".join(pieces)


def _step(reading: Generator[int, bytes, bytes], part: bytes | None) -> tuple[int, bytes | None]:
    """Go on reading: the number of the part that is needed next, or the content."""
    try:
        return (next(reading) if part is None else reading.send(part)), None
    except StopIteration as end:
        return -1, end.value


def _key(address: str) -> bytes:
    return bytes.fromhex(digest_of(address))


def _not_found(address: str) -> ArtifactNotFound:
    return ArtifactNotFound(f"there is no artifact {address}: it was pruned, or is kept in another store")


def _altered(address: str) -> ArtifactAltered:
    return ArtifactAltered(
        f"what is kept as artifact {address} is not what was put: its digest is another, and none of it is given; "
        "restore it from a backup, and find out who could write to the store"
    )
