"""Removes threads that ended long ago from the permanent record. `forget` removes the content of a single thread.

This module does not access Temporal: the caller ensures that no run of a thread is open before pruning it.
"""

from datetime import UTC, datetime, timedelta

import psycopg
from psycopg_pool import AsyncConnectionPool

from holdfast.core.base.models import Frozen
from holdfast.core.log.event_log import LATE, has_ended
from holdfast.core.stores import origin_of
from holdfast.storage.blocks import EPOCH, Block, events_reversed
from holdfast.storage.thread_rows import list_asides

_LAST_BLOCKS = """
    SELECT threads.id, threads.thread, last.position, last.stop, last.size, last.at, last.body
    FROM holdfast.threads
    CROSS JOIN LATERAL (
        SELECT position, stop, size, at, body FROM holdfast.events
        WHERE thread = threads.id ORDER BY position DESC LIMIT 1
    ) AS last
    WHERE threads.id > %s AND last.at BETWEEN 0 AND %s
    ORDER BY threads.id LIMIT %s
"""

_BLOCK_BEFORE = """
    SELECT position, stop, size, at, body FROM holdfast.events
    WHERE thread = %s AND position < %s ORDER BY position DESC LIMIT 1
"""

_ROW_BYTES = 100
"""Size of a block's row without its body: header, columns, index entry."""
_SIZES = """
    SELECT thread, sum(pg_column_size(body) + coalesce(pg_column_size(log_rows), 0) + %s)::bigint
    FROM holdfast.events WHERE thread = ANY(%s) GROUP BY thread
"""

# Rows are removed before the rows that they reference.
_REMOVE_THREAD = (
    "DELETE FROM holdfast.memories WHERE scope = 'thread:' || (SELECT thread FROM holdfast.threads WHERE id = %s)",
    "DELETE FROM holdfast.streams WHERE thread = (SELECT thread FROM holdfast.threads WHERE id = %s)",
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
    outcome: str = ""
    """The outcome of its last run: `completed`, `failed` or `cancelled`."""

    @property
    def last_position(self) -> int:
        """The position of its last event, which `prune` compares."""
        return self.events - 1


BEGINNING = 0
"""A number before that of the first thread. Numbers grow, so a pass in their order reads each thread once."""

BATCH = 500
"""The number of threads that are read together."""


async def prunable(pool: AsyncConnectionPool, older_than: timedelta) -> list[Prunable]:
    """List the threads whose last run has finished and whose last event is older than `older_than`, oldest first.

    Raises:
        psycopg.OperationalError: The database is unavailable.
    """
    threads: list[Prunable] = []
    cursor: int | None = BEGINNING
    while cursor is not None:
        batch, cursor = await prunable_batch(pool, older_than, after=cursor)
        threads += batch
    return sorted(threads, key=lambda each: each.last_at)


async def prunable_batch(
    pool: AsyncConnectionPool, older_than: timedelta, *, after: int, size: int = BATCH
) -> tuple[list[Prunable], int | None]:
    """List the next threads to prune by number, and the number to continue after; None at the end.

    Archived branches are removed with their thread, and not listed. Events that arrived while the run closed may follow
    its end (`holdfast.core.log.event_log.has_ended`). A thread is omitted if the event that would show its end does not
    decode.

    Args:
        pool: Open, to a migrated database.
        older_than: The minimum age of the last event.
        after: The number at which the last batch ended; `BEGINNING` for the first.
        size: The number of threads to read.

    Raises:
        psycopg.OperationalError: The database is unavailable.
    """
    cutoff = (datetime.now(UTC) - EPOCH - older_than) // timedelta(microseconds=1)
    ended: dict[int, Prunable] = {}
    async with pool.connection() as connection:
        last_blocks = await connection.execute(_LAST_BLOCKS, [after, cutoff, size], binary=True)
        rows = await last_blocks.fetchall()
        for number, thread, *columns in rows:
            block = Block(*columns)
            if origin_of(thread) or not (outcome := await _outcome(connection, number, block)):
                continue
            last_at = EPOCH + timedelta(microseconds=columns[3])
            ended[number] = Prunable(thread=thread, events=block.stop, bytes=0, last_at=last_at, outcome=outcome)
        size_rows = await connection.execute(_SIZES, [_ROW_BYTES, list(ended)])
        sizes: dict[int, int] = dict(await size_rows.fetchall())
    threads = [each.model_copy(update={"bytes": sizes.get(number, 0)}) for number, each in ended.items()]
    return threads, rows[-1][0] if len(rows) == size else None


async def prune(pool: AsyncConnectionPool, thread: str, *, last_position: int) -> bool:
    """Remove a thread and its archived branches, with their events, ledger rows, memories and unshared artifacts.

    Args:
        pool: Open, to a migrated database.
        thread: The thread's id.
        last_position: The position that `prunable` listed.

    Returns:
        True if it was removed; False if the thread has grown since it was listed, or no longer exists.

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
    await remove_artifacts(connection, number)
    for statement in _REMOVE_THREAD:
        await connection.execute(statement, [number])


async def remove_artifacts(connection: psycopg.AsyncConnection, number: int) -> None:
    """Remove a thread's references to artifacts, and the artifacts that no other thread references."""
    # Lock first, in the same order in every prune, so that the statements below see all other references.
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


async def _outcome(connection: psycopg.AsyncConnection, number: int, block: Block) -> str:
    """Return the outcome of a thread's last run, from its last event that is not late; empty if it has not ended."""
    while True:
        last = next((event for event in events_reversed(block) if event.get("type") not in LATE), None)
        if last is not None:
            ended = has_ended([str(last.get("type"))])
            return str(last.get("outcome") or "finished") if ended else ""
        found = await connection.execute(_BLOCK_BEFORE, [number, block.position], binary=True)
        row = await found.fetchone()
        if row is None:
            return ""
        block = Block(*row)
