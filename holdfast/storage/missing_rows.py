"""Adds the SQL rows (`holdfast.storage.log_rows`) that blocks of an older release lack."""

import asyncio
from functools import partial

import psycopg

from holdfast.storage.blocks import Block, unpack
from holdfast.storage.log_rows import RowContext, carried_from, log_rows_of, with_bodies
from holdfast.storage.thread_rows import lock_thread

_THREADS_WITHOUT_ROWS = """
    SELECT DISTINCT threads.id, threads.thread
    FROM holdfast.threads JOIN holdfast.events ON events.thread = threads.id
    WHERE carried IS NULL ORDER BY threads.id
"""
"""Threads with blocks without SQL rows; such blocks are always the last ones."""
_WITHOUT_ROWS = """
    SELECT position, stop, size, at, body FROM holdfast.events WHERE thread = %s AND carried IS NULL ORDER BY position
"""
_CARRIED_BEFORE = """
    SELECT carried FROM holdfast.events WHERE thread = %s AND position < %s ORDER BY position DESC LIMIT 1
"""
_SET_ROWS = """
    UPDATE holdfast.events SET log_rows = %s, carried = %s, origins = %s WHERE thread = %s AND position = %s
"""


async def fill_rows(url: str) -> int:
    """Add all missing rows, thread by thread, and return their number.

    Workers may append events at the same time.

    Args:
        url: URL of a migrated database.
    """
    count = 0
    async with await psycopg.AsyncConnection.connect(url, connect_timeout=5, autocommit=True) as connection:
        threads = await (await connection.execute(_THREADS_WITHOUT_ROWS)).fetchall()
        for number, thread in threads:
            count += await with_bodies(thread, partial(_fill, connection, number, thread))
    return count


async def _fill(connection: psycopg.AsyncConnection, number: int, thread: str, bodies: bool) -> int:
    """Add the missing rows of a thread in a transaction, and return their number."""
    async with connection.transaction():
        await lock_thread(connection, thread, lock="NO KEY UPDATE")
        added, _ = await add_missing_rows(connection, number, bodies=bodies)
        return added


async def add_missing_rows(
    connection: psycopg.AsyncConnection, number: int, *, bodies: bool, most: int | None = None
) -> tuple[int, RowContext | None]:
    """Add the missing rows of a thread, unless it lacks too many.

    A damaged block gets no rows, but other blocks do: `verify` reports the damage.

    Args:
        connection: A connection in a transaction that holds the thread's lock.
        number: The thread's number.
        bodies: Whether to add the events' bodies to the rows.
        most: The maximum number of rows to add; None for all.

    Returns:
        The number of added rows, and the context for the rows of the next block: None if some are still missing.
    """
    rows_of_blocks = await connection.execute(_WITHOUT_ROWS, [number], binary=True)
    blocks = [Block(*row) for row in await rows_of_blocks.fetchall()]
    missing = sum(block.length for block in blocks)
    if most is not None and missing > most:
        return 0, None
    carried = RowContext()
    if blocks:
        carried = await carried_before(connection, number, blocks[0].position) or RowContext()
    for block in blocks:
        try:
            lines = await asyncio.to_thread(unpack, block)
        except ValueError:
            lines = []
        rows = await asyncio.to_thread(log_rows_of, block.position, lines, carried, bodies=bodies)
        await connection.execute(_SET_ROWS, [*rows, number, block.position])
    return missing, carried


async def carried_before(connection: psycopg.AsyncConnection, number: int, position: int) -> RowContext | None:
    """Return the context for the rows of the block at a position; None if earlier rows are missing."""
    before = await (await connection.execute(_CARRIED_BEFORE, [number, position])).fetchone()
    return carried_from(before[0]) if before else RowContext()
