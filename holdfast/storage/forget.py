"""Removes the content of a thread from the database, and keeps a tombstone (`holdfast.core.log.tombstones`).

It removes events, artifacts that no other thread references, the thread's own memories with their vectors, and the
calls and outcomes in its ledger rows. PostgreSQL keeps removed rows on disk until it vacuums, and in its backups. This
module does not access Temporal: the caller ensures that no run is open, and removes the histories.
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
"""The keys stay: they identify the effects, and reveal nothing about them."""
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


class ForgetResult(Frozen):
    """The outcome of forgetting a thread: its tombstone, and content that stays elsewhere."""

    tombstone: Tombstone
    asides: tuple[str, ...] = ()
    """Archived branches of the thread, forgotten with it."""
    memories: tuple[str, ...] = ()
    """Ids of memories in wider scopes that came from the thread, and stay."""
    shared_artifacts: int = 0
    """The number of artifacts that stay because other threads reference them."""
    forks: tuple[str, ...] = ()
    """Forks of the thread: they stay, with its events up to the fork."""


async def find_tombstone(pool: AsyncConnectionPool, thread: str) -> Tombstone | None:
    """Return the tombstone of a forgotten thread; None for any other."""
    async with pool.connection() as connection:
        row = await (await connection.execute(_FIND, [thread], binary=True)).fetchone()
    return Tombstone(**dict(zip(Tombstone.model_fields, row, strict=True))) if row else None


async def forget(pool: AsyncConnectionPool, thread: str, *, by: str, reason: str) -> ForgetResult:
    """Remove the content of a thread and of its archived branches, in one transaction.

    Repeating it removes content that a running call has written since. The first tombstone stays.

    Args:
        pool: Open, to a migrated database.
        thread: The thread's id. If the database does not have it, only a tombstone is made, so that the id cannot be
            used again.
        by: The person who removes it.
        reason: The reason, which the tombstone keeps.
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
                await _replace_by_tombstone(connection, each, name, by=by, reason=reason)
            asides = [name for _, name in others]
        await connection.execute("DELETE FROM holdfast.memories WHERE scope = %s", [f"thread:{thread}"])
        await connection.execute(_CLEAR_EFFECTS, [thread])
        await connection.execute("DELETE FROM holdfast.streams WHERE thread = %s", [thread])
        rows = await (await connection.execute(_MEMORIES, [thread])).fetchall()
        forks = await (await connection.execute(_FORKS, [thread])).fetchall()
    kept = await find_tombstone(pool, thread)
    assert kept is not None
    return ForgetResult(
        tombstone=kept,
        asides=tuple(asides),
        memories=tuple(id for (id,) in rows),
        shared_artifacts=shared,
        forks=tuple(fork for (fork,) in forks),
    )


async def insert_tombstone(connection: psycopg.AsyncConnection, restored: Tombstone) -> None:
    """Insert a tombstone from a backup, unless the database has it.

    Raises:
        ThreadForgotten: The database has the thread's content.
    """
    number = await _lock(connection, restored.thread)
    if number is None:
        return
    last = await connection.execute("SELECT FROM holdfast.events WHERE thread = %s LIMIT 1", [number])
    if last.rowcount:
        raise ThreadForgotten(
            f"the backup has forgotten thread {restored.thread!r}, and the database has its content: remove it with "
            "`forget-thread`, then restore again"
        )
    await _insert(connection, number, restored)


async def _lock(connection: psycopg.AsyncConnection, thread: str) -> int | None:
    """Lock a thread's row until the transaction ends, inserting it if it is new; return its number.

    Returns None if the thread is forgotten already.
    """
    await connection.execute("INSERT INTO holdfast.threads (thread) VALUES (%s) ON CONFLICT DO NOTHING", [thread])
    rows = await connection.execute(
        "SELECT id, forgotten_at FROM holdfast.threads WHERE thread = %s FOR UPDATE", [thread]
    )
    row = await rows.fetchone()
    if row is None:  # pruned meanwhile
        return await _lock(connection, thread)
    return int(row[0]) if row[1] is None else None


async def _replace_by_tombstone(
    connection: psycopg.AsyncConnection, number: int, thread: str, *, by: str, reason: str
) -> None:
    remains: list[bytes] = []
    async with connection.cursor(name="forget", binary=True) as cursor:
        await cursor.execute(_BLOCKS, [number])
        async for row in cursor:
            remains += await asyncio.to_thread(_remains, Block(*row))
    await remove_artifacts(connection, number)
    await connection.execute(_REMOVE, [number])
    await _insert(connection, number, tombstone(thread, remains, at=datetime.now(UTC), by=by, reason=reason))


async def _insert(connection: psycopg.AsyncConnection, number: int, new: Tombstone) -> None:
    await connection.execute(
        "INSERT INTO holdfast.tombstones (thread, forgotten_by, reason, events, head, remains, digest) "
        "VALUES (%s, %s, %s, %s, %s, %s, %s)",
        [number, new.forgotten_by, new.reason, new.events, new.head, new.remains, new.digest],
    )
    await connection.execute("UPDATE holdfast.threads SET forgotten_at = %s WHERE id = %s", [new.forgotten_at, number])


def _remains(block: Block) -> list[bytes]:
    """Return the remains of a block's events, for a tombstone; if the block is damaged, those of empty lines."""
    try:
        lines = unpack(block)
    except ValueError:
        lines = [b""] * block.length
    return [remains_of(position, line) for position, line in enumerate(lines, block.position)]
