"""Backups are consistent and repeatable; a restore only adds and repairs, and can be repeated."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg_pool import AsyncConnectionPool

from holdfast.config.stack_file import Stack
from holdfast.core.base.canonical import address_of
from holdfast.errors import BackupInvalid, RecordConflict, ThreadForgotten
from holdfast.retention.backup import NewBackup, back_up
from holdfast.retention.restore import restore
from holdfast.retention.source import Source
from holdfast.storage.artifacts import FolderArtifacts, PostgresArtifacts
from holdfast.storage.forget import find_tombstone, forget
from holdfast.storage.memories import PostgresMemories
from holdfast.storage.pool import migrate
from holdfast.storage.threads import PostgresThreads
from tests.support.keeping import add_thread, fork_of, lines_of, new_pool
from tests.support.rig import eventually

COPIED = {"threads", "events", "artifact_threads", "artifacts", "artifact_parts", "effects", "memories", "tombstones"}
DERIVED = {
    "feed_threads": "a feed delivers a restored thread again when it grows",
    "feeds": "likewise",
    "memory_spaces": "workers make them again",
    "memory_vectors": "workers compute them again",
    "migrations": "of the database that is restored into",
    "prune_sweeps": "only where a sweep is",
    "streams": "previews of replies, which a crash may lose",
}


async def content_of(pool: AsyncConnectionPool) -> dict[str, Any]:
    """Return everything that a database stores about threads, except its generated row ids."""
    queries = {
        "events": "SELECT t.thread, position, stop, size, at, body FROM holdfast.events e JOIN holdfast.threads t "
        "ON t.id = e.thread ORDER BY 1, 2",
        "rows": "SELECT thread, position, type, body::text FROM holdfast.log ORDER BY 1, 2",
        "effects": "SELECT * FROM holdfast.effects ORDER BY key",
        "memories": "SELECT id, scope, text, created_at, lexemes IS NULL FROM holdfast.memories ORDER BY number",
        "artifacts": "SELECT digest, size FROM holdfast.artifacts ORDER BY 1",
        "parts": "SELECT * FROM holdfast.artifact_parts ORDER BY 1, 2",
        "references": "SELECT digest, t.thread FROM holdfast.artifact_threads a JOIN holdfast.threads t "
        "ON t.id = a.thread ORDER BY 1, 2",
        "tombstones": "SELECT t.thread, t.forgotten_at, d.digest FROM holdfast.tombstones d JOIN holdfast.threads t "
        "ON t.id = d.thread ORDER BY 1",
    }
    async with pool.connection() as connection:
        return {name: await (await connection.execute(query)).fetchall() for name, query in queries.items()}


async def test_a_restored_database_has_all_that_the_first_one_had(stack: Stack, tmp_path: Path) -> None:
    """A restored database has everything, including forgotten threads, even if an earlier restore was killed."""
    async with new_pool(stack.database_url) as (url, pool), new_pool(stack.database_url) as (_, other):
        for name in ("a", "b", "gone"):
            await add_thread(pool, name)
        await forget(pool, "gone", by="ann", reason="asked")
        await PostgresThreads(pool).append("fork", 0, fork_of("a", "fork"))
        made = await back_up(url, tmp_path / "b", artifacts=None)
        assert (made.manifest.counts["events"], made.copied, made.manifest.missing) == (3, 2, ())
        assert (tmp_path / "b").stat().st_mode & 0o077 == 0
        source = Source(tmp_path / "b")
        first = asyncio.create_task(restore(source, other, PostgresArtifacts(other)))
        await eventually(partial(PostgresThreads(other).length, "a"), bool)
        first.cancel()
        await asyncio.wait([first])
        for _ in range(2):
            done = await restore(source, other, PostgresArtifacts(other))
            assert (done.threads, done.artifacts) == ({"a", "b", "fork"}, 2)
            assert await content_of(other) == await content_of(pool)
            async with other.connection() as connection:  # as a restore leaves it if it is killed after the tombstones
                await connection.execute("DELETE FROM holdfast.effects")
        await restore(source, other, PostgresArtifacts(other))
        assert await content_of(other) == await content_of(pool)
        assert len((await PostgresMemories(other).recall("secret", None)).items) == 5
        assert await find_tombstone(other, "gone") == await find_tombstone(pool, "gone")
        with pytest.raises(ThreadForgotten):
            await PostgresThreads(other).append("gone", 0, lines_of("gone"))


async def test_a_backup_is_one_snapshot_and_the_next_one_adds_what_is_new(stack: Stack, tmp_path: Path) -> None:
    """A write during a backup appears whole in the next one; an interrupted backup leaves the previous one intact."""
    async with new_pool(stack.database_url) as (url, pool), new_pool(stack.database_url) as (_, other):
        await add_thread(pool, "a")
        added: list[asyncio.Task[list[bytes]]] = []

        def write(line: str) -> None:
            if "events" in line:
                added.append(asyncio.create_task(add_thread(pool, "b")))
                with psycopg.connect(url) as connection:
                    connection.execute("DELETE FROM holdfast.effects")

        await back_up(url, tmp_path / "b", artifacts=None, report=write)
        await asyncio.gather(*added)  # its events come before its artifact, effect and memories
        content = Source(tmp_path / "b").check()
        assert content.threads == {"a"}
        assert Source(tmp_path / "b").manifest.counts["effects"] == 1

        def fail(line: str) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            await back_up(url, tmp_path / "b", artifacts=None, report=fail)
        assert Source(tmp_path / "b").check().threads == {"a"}
        again = await back_up(url, tmp_path / "b", artifacts=None)
        assert (again.copied, again.manifest.artifacts) == (1, 2)
        assert (await restore(Source(tmp_path / "b"), other, PostgresArtifacts(other))).threads == {"a", "b"}

        attempts: list[asyncio.Task[NewBackup]] = []

        def begin(line: str) -> None:
            if not attempts:
                attempts.append(asyncio.create_task(back_up(url, tmp_path / "b", artifacts=None)))

        await forget(pool, "a", by="ann", reason="asked")
        await back_up(url, tmp_path / "b", artifacts=None, report=begin)
        with pytest.raises(BackupInvalid, match="another backup is being written"):
            await attempts[0]
        (left,) = (each for each in (tmp_path / "b" / "artifacts").rglob("*") if each.is_file())
        assert left.read_bytes() == b"content of b", "what was forgotten leaves the backup, too"
        Source(tmp_path / "b").check()


async def test_artifacts_in_a_folder_are_copied_and_altered_ones_are_repaired(stack: Stack, tmp_path: Path) -> None:
    """Artifacts are copied to a folder and to a database; one altered at its source is reported as missing."""
    async with new_pool(stack.database_url) as (url, pool):
        await add_thread(pool, "a")
        content = b"content of a"
        folder, kept = FolderArtifacts(tmp_path / "store"), address_of(content)
        await folder.put(content, thread="a")
        digest = kept.removeprefix("sha256:")
        inside = Path(digest[:2]) / digest[2:4] / digest
        backup = tmp_path / "b"
        made = await back_up(url, backup, artifacts=tmp_path / "store")
        assert made.copied == 1
        (backup / "artifacts" / inside).write_bytes(b"x" * len(content))
        assert (await back_up(url, backup, artifacts=tmp_path / "store")).copied == 1
        (tmp_path / "store" / inside).write_bytes(b"x" * len(content))
        await restore(Source(backup), pool, folder)
        assert await FolderArtifacts(tmp_path / "store").get(kept) == content
        await back_up(url, backup, artifacts=None)
        async with pool.connection() as connection:
            await connection.execute("UPDATE holdfast.artifact_parts SET content = 'x'")
        done = await restore(Source(backup), pool, PostgresArtifacts(pool))
        assert (done.artifacts, await PostgresArtifacts(pool).get(kept)) == (1, content)
        async with pool.connection() as connection:
            await connection.execute("UPDATE holdfast.artifact_parts SET content = 'x'")
        fresh = await back_up(url, tmp_path / "c", artifacts=None)
        assert fresh.manifest.missing == (digest,)
        assert Source(tmp_path / "c").check().threads == {"a"}


async def test_a_restore_only_adds(stack: Stack, tmp_path: Path) -> None:
    """A restore rejects other threads unless told to keep them, reports diverging logs, and keeps threads forgotten."""
    async with new_pool(stack.database_url) as (url, pool), new_pool(stack.database_url) as (_, other):
        await add_thread(pool, "a")
        await add_thread(pool, "b")
        await back_up(url, tmp_path / "b", artifacts=None)
        source = Source(tmp_path / "b")
        await PostgresThreads(other).append("mine", 0, lines_of("mine"))
        with pytest.raises(BackupInvalid, match="such as 'mine'"):
            await restore(source, other, PostgresArtifacts(other))
        assert await PostgresThreads(other).length("a") == 0
        await forget(other, "a", by="ann", reason="")
        done = await restore(source, other, PostgresArtifacts(other), into_existing=True)
        assert (done.threads, done.forgotten) == ({"b"}, {"a"})
        assert await PostgresThreads(other).length("mine") == 3
        assert "the secret of a" not in json.dumps(await content_of(other), default=str)
        await PostgresThreads(pool).append("c", 0, lines_of("c"))
        await back_up(url, tmp_path / "b", artifacts=None)
        course = lines_of("c", ended=datetime.now(UTC) - timedelta(days=9))
        await PostgresThreads(other).append("c", 0, course)
        with pytest.raises(RecordConflict, match="thread c"):
            await restore(Source(tmp_path / "b"), other, PostgresArtifacts(other), into_existing=True)


async def test_every_table_is_in_a_backup_or_left_out_for_a_reason(stack: Stack) -> None:
    """A migration that adds a table must declare here whether backups include it."""
    async with new_pool(stack.database_url) as (url, pool):
        assert await migrate(url) == []
        async with pool.connection() as connection:
            found = await connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'holdfast'")
            assert {name for (name,) in await found.fetchall()} == COPIED | DERIVED.keys()
