"""Artifact stores: PostgreSQL and a folder."""

import asyncio
from pathlib import Path

import pytest
from psycopg_pool import AsyncConnectionPool
from temporalio.exceptions import ApplicationError

from holdfast.core.base.canonical import digest_of
from holdfast.core.stores import ArtifactStore
from holdfast.errors import ArtifactAltered, ArtifactNotFound
from holdfast.storage.artifacts import PART_BYTES, FolderArtifacts, PostgresArtifacts
from holdfast.storage.pool import open_pool
from holdfast.testing import ArtifactStoreConformance


async def alter(pool: AsyncConnectionPool, address: str, content: bytes, part_bytes: int = PART_BYTES) -> None:
    """Replace the content at an address."""
    digest = bytes.fromhex(digest_of(address))
    async with pool.connection() as connection:
        await connection.execute("DELETE FROM holdfast.artifact_parts WHERE digest = %s", [digest])
        for part, start in enumerate(range(0, len(content), part_bytes)):
            await connection.execute(
                "INSERT INTO holdfast.artifact_parts (digest, part, content) VALUES (%s, %s, %s)",
                [digest, part, content[start : start + part_bytes]],
            )


class TestFolderArtifacts(ArtifactStoreConformance):
    @pytest.fixture
    def store(self, tmp_path: Path) -> ArtifactStore:
        """Return a store for this test, in a folder that does not exist yet."""
        return FolderArtifacts(tmp_path / "artifacts")

    async def alter(self, store: ArtifactStore, address: str, content: bytes) -> None:
        """Write another file in its place."""
        assert isinstance(store, FolderArtifacts)
        store._file(address).write_bytes(content)

    async def test_nothing_but_whole_files_is_left(self, tmp_path: Path) -> None:
        """After any number of concurrent writes, the folder holds the content once and nothing else."""
        store = FolderArtifacts(tmp_path)
        await asyncio.gather(*(store.put(b"content", thread="t") for _ in range(8)))
        assert [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()] == [b"content"]

    async def test_a_truncated_file_is_written_again(self, tmp_path: Path) -> None:
        """A truncated file is restored when its content is stored again."""
        store = FolderArtifacts(tmp_path)
        address = await store.put(b"content", thread="t")
        (file,) = (file for file in tmp_path.rglob("*") if file.is_file())
        file.write_bytes(b"con")
        await store.put(b"content", thread="t")
        assert await store.get(address) == b"content"


class TestPostgresArtifacts(ArtifactStoreConformance):
    @pytest.fixture
    def store(self, pool: AsyncConnectionPool) -> ArtifactStore:
        """Return the database that all tests share."""
        return PostgresArtifacts(pool)

    async def alter(self, store: ArtifactStore, address: str, content: bytes) -> None:
        """Update the rows, as the database's owner can."""
        assert isinstance(store, PostgresArtifacts)
        await alter(store._pool, address, content)

    async def test_parts_of_other_lengths_are_altered_content(
        self, store: ArtifactStore, pool: AsyncConnectionPool
    ) -> None:
        """The same bytes in parts of other lengths would give wrong content for an offset, and are rejected."""
        content = b"\x00" * PART_BYTES + b"\x01" * 10
        address = await store.put(content, thread="cut")
        await alter(pool, address, content, part_bytes=PART_BYTES - 5)
        with pytest.raises(ArtifactAltered, match=address):
            await store.get(address, PART_BYTES, 5)

    async def test_large_content_is_kept_in_parts(self, store: ArtifactStore, pool: AsyncConnectionPool) -> None:
        """No row holds more than one part, so that reading a little of an artifact loads little."""
        address = await store.put(b"\x00" * (2 * PART_BYTES + 1), thread="parts")
        async with pool.connection() as connection:
            rows = await connection.execute(
                "SELECT octet_length(content) FROM holdfast.artifact_parts WHERE digest = %s ORDER BY part",
                [bytes.fromhex(digest_of(address))],
            )
            assert await rows.fetchall() == [(PART_BYTES,), (PART_BYTES,), (1,)]

    async def test_content_that_lost_a_part_is_not_found(self, store: ArtifactStore, pool: AsyncConnectionPool) -> None:
        """An artifact is returned completely or not at all."""
        address = await store.put(b"\x01" * (PART_BYTES + 1), thread="lost")
        async with pool.connection() as connection:
            await connection.execute(
                "DELETE FROM holdfast.artifact_parts WHERE part = 1 AND digest = %s",
                [bytes.fromhex(digest_of(address))],
            )
        with pytest.raises(ArtifactNotFound):
            await store.get(address)


async def test_without_a_database_artifacts_wait() -> None:
    """Every method fails with an error that Temporal retries."""
    pool = open_pool("postgresql://postgres@127.0.0.1:1/postgres", size=1)
    pool.timeout = 0.2
    await pool.open(wait=False)
    try:
        store = PostgresArtifacts(pool)
        address = f"sha256:{64 * '0'}"
        for call in (store.put(b"", thread="t"), store.get(address), store.size(address)):
            with pytest.raises(ApplicationError, match="no connection to the database; artifact sha256:") as error:
                await call
            assert error.value.type == "DatabaseUnavailable"
            assert not error.value.non_retryable
    finally:
        await pool.close()
