"""Removes threads that ended long ago from the permanent record. No other code removes any.

This module does not access Temporal: the caller makes sure that no run of a thread is open before pruning it.
"""

from datetime import UTC, datetime, timedelta

import psycopg
from psycopg_pool import AsyncConnectionPool

from holdfast.base.models import Frozen
from holdfast.log.event_log import LATE, has_ended
from holdfast.runtime.stores.blocks import EPOCH, Block, event_types_reversed
from holdfast.runtime.stores.threads import list_asides
from holdfast.stores import origin_of

_LAST_BLOCKS = """
    SELECT threads.id, threads.thread, last.position, last.stop, last.size, last.at, last.body
    FROM holdfast.threads
    CROSS JOIN LATERAL (
        SELECT * FROM holdfast.events WHERE thread = threads.id ORDER BY position DESC LIMIT 1
    ) AS last
    WHERE last.at BETWEEN 0 AND %s
"""

_BLOCK_BEFORE = """
    SELECT position, stop, size, at, body FROM holdfast.events
    WHERE thread = %s AND position < %s ORDER BY position DESC LIMIT 1
"""

_ROW_BYTES = 100
"""Size of a block's row without its body: header, columns, index entry."""
_SIZES = """
    SELECT thread, sum(pg_column_size(body) + %s)::bigint FROM holdfast.events WHERE thread = ANY(%s) GROUP BY thread
"""

# In this order: rows that refer to others are removed before them.
_REMOVE_THREAD = (
    "DELETE FROM holdfast.memories WHERE scope = 'thread:' || (SELECT thread FROM holdfast.threads WHERE id = %s)",
    "DELETE FROM holdfast.effects WHERE thread = (SELECT thread FROM holdfast.threads WHERE id = %s)",
    "DELETE FROM holdfast.events WHERE thread = %s",
    "DELETE FROM holdfast.threads WHERE id = %s",
)


class Prunable(Frozen):
    """A thread that ended long enough ago."""

    thread: str
    events: int
    bytes: int
    """Approximate size of its events in the database, without its artifacts."""
    last_at: datetime
    """The time of its last event."""

    @property
    def last_position(self) -> int:
        """The position of its last event, which `prune` compares."""
        return self.events - 1


async def prunable(pool: AsyncConnectionPool, older_than: timedelta) -> list[Prunable]:
    """List the threads whose last run has finished and whose last event is older than that, the oldest first.

    Logs set aside are removed with their thread, and not listed. Events that arrived while the run closed may follow
    its end (`holdfast.log.event_log.has_ended`). A thread is left out if the event that would show its end does not
    decode.

    Raises:
        psycopg.OperationalError: The database is unavailable.
    """
    before = datetime.now(UTC) - older_than
    cutoff = (before - EPOCH) // timedelta(microseconds=1)
    ended: dict[int, Prunable] = {}
    late: dict[int, tuple[Prunable, Block]] = {}
    async with pool.connection() as connection:
        async for number, thread, *columns in connection.cursor(binary=True).stream(_LAST_BLOCKS, [cutoff]):
            if origin_of(thread):
                continue
            block = Block(*columns)
            last_at = EPOCH + timedelta(microseconds=columns[3])
            candidate = Prunable(thread=thread, events=block.stop, bytes=0, last_at=last_at)
            ends = _has_ended(block)
            if ends is None:
                late[number] = candidate, block
            elif ends:
                ended[number] = candidate
        for number, (candidate, block) in late.items():
            if await _ended_before(connection, number, block):
                ended[number] = candidate
        rows = await connection.execute(_SIZES, [_ROW_BYTES, list(ended)])
        sizes: dict[int, int] = dict(await rows.fetchall())
    found = [each.model_copy(update={"bytes": sizes.get(number, 0)}) for number, each in ended.items()]
    return sorted(found, key=lambda each: each.last_at)


async def prune(pool: AsyncConnectionPool, thread: str, *, last_position: int) -> bool:
    """Remove a thread: its events, its effects in the ledger, its own memories, the artifacts that only it refers to,
    and the logs set aside from it.

    Args:
        pool: Open, to a migrated database.
        thread: The thread's id.
        last_position: As `prunable` listed it.

    Returns:
        Whether it was removed; False if the thread has grown since it was listed, or is gone.

    Raises:
        psycopg.OperationalError: The database is unavailable; nothing was removed.
    """
    async with pool.connection() as connection, connection.transaction():
        locked = await connection.execute("SELECT id FROM holdfast.threads WHERE thread = %s FOR UPDATE", [thread])
        row = await locked.fetchone()
        if row is None:
            return False
        number = int(row[0])
        last = await connection.execute("SELECT max(stop) - 1 FROM holdfast.events WHERE thread = %s", [number])
        if await last.fetchone() != (last_position,):
            return False
        for aside, _ in await list_asides(connection, thread):
            await _remove(connection, aside)
        await _remove(connection, number)
        return True


async def _remove(connection: psycopg.AsyncConnection, number: int) -> None:
    await _remove_artifacts(connection, number)
    for statement in _REMOVE_THREAD:
        await connection.execute(statement, [number])


async def _remove_artifacts(connection: psycopg.AsyncConnection, number: int) -> None:
    # Lock first, in an order that all prunes share, so that the statements below see every other reference.
    locked = await connection.execute(
        "SELECT digest FROM holdfast.artifacts "
        "WHERE digest IN (SELECT digest FROM holdfast.artifact_threads WHERE thread = %s) ORDER BY digest FOR UPDATE",
        [number],
    )
    digests = [digest for (digest,) in await locked.fetchall()]
    await connection.execute("DELETE FROM holdfast.artifact_threads WHERE thread = %s", [number])
    await connection.execute(
        "DELETE FROM holdfast.artifacts WHERE digest = ANY(%s) AND NOT EXISTS ("
        "SELECT FROM holdfast.artifact_threads WHERE artifact_threads.digest = artifacts.digest)",
        [digests],
    )


async def _ended_before(connection: psycopg.AsyncConnection, number: int, block: Block) -> bool:
    """Whether the blocks before `block` contain the end of the last run, followed only by late events."""
    while True:
        found = await connection.execute(_BLOCK_BEFORE, [number, block.position], binary=True)
        row = await found.fetchone()
        if row is None:
            return False
        block = Block(*row)
        ends = _has_ended(block)
        if ends is not None:
            return ends


def _has_ended(block: Block) -> bool | None:
    """Whether the last run of a thread has finished, judged by its last block; None if it has only late events."""
    last = next((type for type in event_types_reversed(block) if type not in LATE), None)
    return None if last is None else has_ended([last])
