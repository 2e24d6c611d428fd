"""Removes the content of a thread from the database, and keeps a tombstone (`holdfast.core.log.tombstones`).

Removed: events, artifacts that no other thread refers to, the thread's own memories with their vectors, and what the
ledger has of its calls and their outcomes. PostgreSQL keeps removed rows on disk until it vacuums, and in its backups.
This module does not access Temporal: the caller makes sure that no run is open, and removes the histories.
"""

import asyncio
from datetime import UTC, datetime

import psycopg
from psycopg_pool import AsyncConnectionPool

from holdfast.core.base.models import Frozen
from holdfast.core.log.tombstones import Tombstone, remains_of, tombstone
from holdfast.errors import ThreadForgotten
from holdfast.storage.blocks import Block, unpack
from holdfast.storage.prune import remove_artifacts
from holdfast.storage.thread_rows import list_asides

_BLOCKS = "SELECT position, stop, size, at, body FROM holdfast.events WHERE thread = %s ORDER BY position"
_SHARED = """
    SELECT count(*) FROM holdfast.artifact_threads AS own WHERE thread = ANY(%s) AND EXISTS (
        SELECT FROM holdfast.artifact_threads AS other WHERE other.digest = own.digest AND other.thread <> ALL(%s))
"""
_REMOVE = "DELETE FROM holdfast.events WHERE thread = %s"
_CLEAR_EFFECTS = """
    UPDATE holdfast.effects SET call = NULL, call_digest = NULL, mac = NULL,
        outcome = CASE WHEN outcome IS NOT NULL THEN '{}' END
    WHERE thread = %s AND (call IS NOT NULL OR call_digest IS NOT NULL OR mac IS NOT NULL OR outcome <> '{}')
"""
"""The keys stay: they show which effects there were, and say nothing about them."""
_MEMORIES = "SELECT id FROM holdfast.memories WHERE thread = %s AND text IS NOT NULL ORDER BY number"
_FIND = """
    SELECT threads.thread, forgotten_at, forgotten_by, reason, events, head, remains, digest
    FROM holdfast.tombstones JOIN holdfast.threads ON threads.id = tombstones.thread
    WHERE threads.thread = %s AND forgotten_at IS NOT NULL
"""
_FORKS = """
    SELECT DISTINCT threads.thread FROM holdfast.events JOIN holdfast.threads ON threads.id = events.thread
    WHERE origins @> ARRAY[%s::text] ORDER BY threads.thread
"""


class Forgotten(Frozen):
    """What was removed of a thread, and what could not be."""

    tombstone: Tombstone
    asides: tuple[str, ...] = ()
    """Logs that resets of the thread had set aside, forgotten with it."""
    memories: tuple[str, ...] = ()
    """Ids of memories in wider scopes that came from the thread: they stay."""
    shared_artifacts: int = 0
    """How many artifacts stay because other threads refer to them."""
    forks: tuple[str, ...] = ()
    """Threads that were forked from it: they have its events up to there, and stay."""


async def find_tombstone(pool: AsyncConnectionPool, thread: str) -> Tombstone | None:
    """Return the tombstone of a forgotten thread; None for any other."""
    async with pool.connection() as connection:
        row = await (await connection.execute(_FIND, [thread], binary=True)).fetchone()
    return Tombstone(**dict(zip(Tombstone.model_fields, row, strict=True))) if row else None


async def forget(pool: AsyncConnectionPool, thread: str, *, by: str, reason: str) -> Forgotten:
    """Remove the content of a thread, and of the logs set aside from it, in one transaction.

    Repeating it removes what a call that was still under way has written since. The first tombstone stays.

    Args:
        pool: Open, to a migrated database.
        thread: The thread's id. The database need not have it: then only the tombstone is made, so that the id cannot
            be used again.
        by: Who removes it.
        reason: Why; it is kept.
    """
    asides: list[str] = []
    shared = 0
    async with pool.connection() as connection, connection.transaction():
        number = await _lock(connection, thread)
        if number is not None:
            others = await list_asides(connection, thread)
            mine = [number, *(aside for aside, _ in others)]
            row = await (await connection.execute(_SHARED, [mine, mine])).fetchone()
            shared = row[0] if row else 0
            for each, name in [(number, thread), *others]:
                await _entomb(connection, each, name, by=by, reason=reason)
            asides = [name for _, name in others]
        await connection.execute("DELETE FROM holdfast.memories WHERE scope = %s", [f"thread:{thread}"])
        await connection.execute(_CLEAR_EFFECTS, [thread])
        rows = await (await connection.execute(_MEMORIES, [thread])).fetchall()
        forks = await (await connection.execute(_FORKS, [thread])).fetchall()
    found = await find_tombstone(pool, thread)
    assert found is not None
    return Forgotten(
        tombstone=found,
        asides=tuple(asides),
        memories=tuple(id for (id,) in rows),
        shared_artifacts=shared,
        forks=tuple(fork for (fork,) in forks),
    )


async def insert_tombstone(connection: psycopg.AsyncConnection, found: Tombstone) -> None:
    """Insert a tombstone from a backup, where the database does not have it.

    Raises:
        ThreadForgotten: The database has the thread's content.
    """
    number = await _lock(connection, found.thread)
    if number is None:
        return
    last = await connection.execute("SELECT FROM holdfast.events WHERE thread = %s LIMIT 1", [number])
    if last.rowcount:
        raise ThreadForgotten(
            f"the backup has forgotten thread {found.thread!r}, and the database has its content: remove it with "
            "`forget-thread`, then restore again"
        )
    await _insert(connection, number, found)


async def _lock(connection: psycopg.AsyncConnection, thread: str) -> int | None:
    """Lock a thread's row until the transaction ends, inserting it if it is new; None if it is forgotten."""
    await connection.execute("INSERT INTO holdfast.threads (thread) VALUES (%s) ON CONFLICT DO NOTHING", [thread])
    found = await connection.execute(
        "SELECT id, forgotten_at FROM holdfast.threads WHERE thread = %s FOR UPDATE", [thread]
    )
    row = await found.fetchone()
    if row is None:  # pruned meanwhile
        return await _lock(connection, thread)
    return int(row[0]) if row[1] is None else None


async def _entomb(connection: psycopg.AsyncConnection, number: int, thread: str, *, by: str, reason: str) -> None:
    remains: list[bytes] = []
    async with connection.cursor(name="forget", binary=True) as cursor:
        await cursor.execute(_BLOCKS, [number])
        async for row in cursor:
            remains += await asyncio.to_thread(_remains, Block(*row))
    await remove_artifacts(connection, number)
    await connection.execute(_REMOVE, [number])
    await _insert(connection, number, tombstone(thread, remains, at=datetime.now(UTC), by=by, reason=reason))


async def _insert(connection: psycopg.AsyncConnection, number: int, found: Tombstone) -> None:
    await connection.execute(
        "INSERT INTO holdfast.tombstones (thread, forgotten_by, reason, events, head, remains, digest) "
        "VALUES (%s, %s, %s, %s, %s, %s, %s)",
        [number, found.forgotten_by, found.reason, found.events, found.head, found.remains, found.digest],
    )
    await connection.execute(
        "UPDATE holdfast.threads SET forgotten_at = %s WHERE id = %s", [found.forgotten_at, number]
    )


def _remains(block: Block) -> list[bytes]:
    """What remains of the events of a block; of a damaged one, their positions."""
    try:
        lines = unpack(block)
    except ValueError:
        lines = [b""] * block.length
    return [remains_of(position, line) for position, line in enumerate(lines, block.position)]
