"""Restore a backup into a migrated database.

1. All of the backup is checked before anything is written.
2. Restoring only adds: rows of the database stay, and must agree with the backup. So a restore that was killed
   can be repeated, and resumes.
3. A thread that the database has forgotten stays forgotten.
4. If a thread is damaged, either the whole backup is rejected or the thread's whole log is left out. Its rows of the
   ledger are restored in any case: no effect may happen twice.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar, cast

from psycopg_pool import AsyncConnectionPool

from holdfast.core.log.events import AgentEvent
from holdfast.core.log.references import artifacts_of
from holdfast.core.stores import ArtifactStore
from holdfast.errors import ArtifactAltered, BackupInvalid, StackError
from holdfast.retention.format import Effect, Memory, columns
from holdfast.retention.source import Content, Source
from holdfast.storage.artifacts import FolderArtifacts, PostgresArtifacts
from holdfast.storage.forget import insert_tombstone
from holdfast.storage.memory_search import lexeme_of
from holdfast.storage.pool import schema_of
from holdfast.storage.threads import PostgresThreads

_T = TypeVar("_T")

_ROWS_AT_ONCE = 500
"""Rows of one transaction."""

_VALUE = "%({})s"
_EFFECT = f"""
    INSERT INTO holdfast.effects ({columns(Effect)}) VALUES ({columns(Effect, _VALUE)})
    ON CONFLICT DO NOTHING
"""  # noqa: S608  # our models' columns
_MEMORY = f"""
    INSERT INTO holdfast.memories ({columns(Memory)}, lexemes)
    VALUES ({columns(Memory, _VALUE)}, CASE WHEN %(live)s THEN
        strip(to_tsvector('english', %(text)s)) || array_to_tsvector(ARRAY[%(lexeme)s::text]) END)
    ON CONFLICT DO NOTHING
"""  # noqa: S608

Report = Callable[[str], None]


@dataclass
class RestoreResult:
    """The counts of a restore. A repeated one also counts rows that were there already."""

    threads: set[str] = field(default_factory=set)
    events: int = 0
    effects: int = 0
    memories: int = 0
    artifacts: int = 0
    forgotten: set[str] = field(default_factory=set)
    """Threads of the backup that were left out, because the database has forgotten them."""
    damaged: dict[str, str] = field(default_factory=dict)
    """Threads of the backup whose logs were left out → the reason."""


async def check_schema(url: str) -> None:
    """Check that a database has every migration of this release.

    Raises:
        StackError: Migrations are missing.
        psycopg.Error: The database is unreachable.
    """
    if (schema := await schema_of(url)).missing:
        raise StackError(schema.advice())


async def restore(
    source: Source,
    pool: AsyncConnectionPool,
    artifacts: ArtifactStore,
    *,
    into_existing: bool = False,
    report: Report = lambda line: None,
) -> RestoreResult:
    """Restore a backup.

    Args:
        source: The backup.
        pool: An open pool of connections to a migrated database.
        artifacts: The store for the artifacts.
        into_existing: The database may have threads that the backup lacks.
        report: Called with a line about the progress.

    Raises:
        BackupInvalid: The backup was altered, or the database has other threads; nothing was written.
        RecordConflict: The database and the backup have different events at a position.
        psycopg.Error: The database cannot be written to.
    """
    content = await asyncio.to_thread(source.check)
    report(f"checked: {len(content.threads):,} threads, {len(content.artifacts):,} artifacts")
    if not into_existing:
        await _refuse_others(pool, content)
    restored = RestoreResult(damaged=dict(source.damaged))
    forgotten = {thread async for thread in _threads(pool, "WHERE forgotten_at IS NOT NULL")}
    restored.forgotten = forgotten & content.threads - {each.thread for each in source.tombstones()}
    keep = _Artifacts(source, artifacts, content)
    await _restore_events(source, pool, keep, restored, forgotten=forgotten)
    report(f"{restored.events:,} events of {len(restored.threads):,} threads")
    await _restore_tombstones(source, pool)
    # The ledger keeps the rows of a thread that was forgotten before the backup: an interrupted restore may lack them.
    rows = (row.model_dump() for row in source.effects())
    restored.effects = await _insert(pool, _EFFECT, rows, without=restored.forgotten)
    restored.memories = await _insert(pool, _MEMORY, map(_memory, source.memories()), without=forgotten)
    report(f"{restored.effects:,} effects, {restored.memories:,} memories")
    async for row in _stepwise(source.artifact_rows()):
        if row.thread not in forgotten and (row.thread or isinstance(artifacts, FolderArtifacts)):
            await keep(row.digest, row.thread)
    restored.artifacts = len(keep.digests)
    report(f"{restored.artifacts:,} artifacts")
    return restored


async def _refuse_others(pool: AsyncConnectionPool, content: Content) -> None:
    async for thread in _threads(pool):
        if thread not in content.threads:
            raise BackupInvalid(
                f"the database has threads that the backup lacks, such as {thread!r}: restore into an empty database, "
                "or add --into-existing to keep both"
            )


async def _threads(pool: AsyncConnectionPool, where: str = "") -> AsyncIterator[str]:
    async with pool.connection() as connection:
        query = f"SELECT thread FROM holdfast.threads {where}"  # noqa: S608  # constants
        async for (thread,) in connection.cursor().stream(query):
            yield thread


async def _restore_events(
    source: Source, pool: AsyncConnectionPool, keep: "_Artifacts", restored: RestoreResult, *, forgotten: set[str]
) -> None:
    threads = PostgresThreads(pool)
    async for page in _stepwise(source.events()):
        if page.thread in forgotten:
            continue
        await threads.append(page.thread, page.position, page.lines)
        restored.threads.add(page.thread)
        restored.events += len(page.lines)
        for event in page.events:
            for address in artifacts_of(cast(AgentEvent, event), named=False):  # loop events refer to none
                await keep.referred(address, page.thread)


async def _restore_tombstones(source: Source, pool: AsyncConnectionPool) -> None:
    async for tombstone in _stepwise(source.tombstones()):
        async with pool.connection() as connection, connection.transaction():
            await insert_tombstone(connection, tombstone)


class _Artifacts:
    """Puts artifacts of a backup into a store, each reference once, and replaces those that were altered there."""

    def __init__(self, source: Source, store: ArtifactStore, content: Content) -> None:
        self._source = source
        self._store = store
        self._content = content
        self._missing = set(source.manifest.missing)
        self._put: set[tuple[str, str]] = set()
        self.digests: set[str] = set()

    async def __call__(self, digest: str, thread: str) -> None:
        if digest in self._missing or (digest, thread) in self._put:
            return
        self._put.add((digest, thread))
        content = await asyncio.to_thread(self._source.artifact, digest)
        address = await self._store.put(content, thread=thread)
        try:
            await self._store.get(address, 0, 0)
        except ArtifactAltered:
            if not isinstance(self._store, PostgresArtifacts | FolderArtifacts):
                raise
            await self._store.repair(content, thread=thread)
        self.digests.add(digest)

    async def referred(self, address: str, thread: str) -> None:
        """Put an artifact that an event refers to, if the backup does not record the references to it."""
        digest = address.removeprefix("sha256:")
        if self._content.artifacts.get(digest) is False:
            await self(digest, thread)


def _memory(row: Memory) -> dict[str, Any]:
    live = row.text is not None and not row.superseded_by and row.forgotten_at is None
    return {**row.model_dump(), "live": live, "lexeme": lexeme_of(row.scope)}


async def _insert(
    pool: AsyncConnectionPool, statement: str, rows: Iterator[dict[str, Any]], *, without: set[str]
) -> int:
    """Insert rows, some hundred in a transaction; return their number."""
    count = 0
    while batch := await asyncio.to_thread(lambda: list(islice(rows, _ROWS_AT_ONCE))):
        wanted = [row for row in batch if _owner(row) not in without]
        count += len(wanted)
        async with pool.connection() as connection, connection.transaction(), connection.cursor() as cursor:
            if wanted:
                await cursor.executemany(statement, wanted)
    return count


def _owner(row: dict[str, Any]) -> str:
    """Return the thread that a row belongs to, and is forgotten with; empty for a memory in a wider scope."""
    if "scope" in row:
        return str(row["scope"]).removeprefix("thread:") if str(row["scope"]).startswith("thread:") else ""
    return str(row["thread"])


async def _stepwise(rows: Iterator[_T]) -> AsyncIterator[_T]:
    """Iterate over rows in an executor thread, because checking them takes time."""
    end = object()
    while (row := await asyncio.to_thread(next, rows, end)) is not end:
        yield row  # type: ignore[misc]  # not the end
