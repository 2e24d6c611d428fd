"""Adds the rows for SQL (`holdfast.storage.log_rows`) that blocks of an older release lack."""

import asyncio
from functools import partial

import psycopg

from holdfast.storage.blocks import Block, unpack
from holdfast.storage.log_rows import Carried, carried_from, log_rows_of, with_bodies
from holdfast.storage.thread_rows import lock_thread

_BEHIND = """
    SELECT DISTINCT threads.id, threads.thread
    FROM holdfast.threads JOIN holdfast.events ON events.thread = threads.id
    WHERE carried IS NULL ORDER BY threads.id
"""
"""The threads with blocks without rows for SQL: always their last ones."""
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
    """Add all missing rows, thread by thread; return how many.

    Workers may append meanwhile.

    Args:
        url: A migrated database.
    """
    count = 0
    async with await psycopg.AsyncConnection.connect(url, connect_timeout=5, autocommit=True) as connection:
        behind = await (await connection.execute(_BEHIND)).fetchall()
        for number, thread in behind:
            count += await with_bodies(thread, partial(_fill, connection, number, thread))
    return count


async def _fill(connection: psycopg.AsyncConnection, number: int, thread: str, bodies: bool) -> int:
    """Add the missing rows of a thread, in a transaction; return how many."""
    async with connection.transaction():
        await lock_thread(connection, thread, lock="NO KEY UPDATE")
        added, _ = await add_missing_rows(connection, number, bodies=bodies)
        return added


async def add_missing_rows(
    connection: psycopg.AsyncConnection, number: int, *, bodies: bool, most: int | None = None
) -> tuple[int, Carried | None]:
    """Add the missing rows of a thread, unless it lacks too many.

    A damaged block gets none, and keeps no other from its rows: `verify` finds it.

    Args:
        connection: In a transaction that holds the thread's lock.
        number: The thread's number.
        bodies: Add the events' bodies to the rows, too.
        most: The most rows to add; None for all.

    Returns:
        How many were added, and what the rows of the next block take over: None where some are still missing.
    """
    found = await connection.execute(_WITHOUT_ROWS, [number], binary=True)
    blocks = [Block(*row) for row in await found.fetchall()]
    missing = sum(block.length for block in blocks)
    if most is not None and missing > most:
        return 0, None
    carried = Carried()
    if blocks:
        carried = await carried_before(connection, number, blocks[0].position) or Carried()
    for block in blocks:
        try:
            lines = await asyncio.to_thread(unpack, block)
        except ValueError:
            lines = []
        rows = await asyncio.to_thread(log_rows_of, block.position, lines, carried, bodies=bodies)
        await connection.execute(_SET_ROWS, [*rows, number, block.position])
    return missing, carried


async def carried_before(connection: psycopg.AsyncConnection, number: int, position: int) -> Carried | None:
    """What the rows of the block at a position take over; None where those before it are missing."""
    before = await (await connection.execute(_CARRIED_BEFORE, [number, position])).fetchone()
    return carried_from(before[0]) if before else Carried()
