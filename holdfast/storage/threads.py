"""The permanent record in PostgreSQL, in blocks of consecutive events (`holdfast.storage.blocks`).

Blocks are only inserted or moved to an archived branch, which may split one in two. `holdfast.storage.prune` removes
threads. A lock on the thread's row serializes appends to one thread, so that its positions have no gaps.
"""

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial

import psycopg
from psycopg_pool import AsyncConnectionPool

from holdfast.core.log.event_log import PAGE_BYTES
from holdfast.errors import RecordConflict, RecordGap, RecordUnreadable
from holdfast.storage.blocks import Block, pack, pack_like, unpack
from holdfast.storage.forked import original_of
from holdfast.storage.log_rows import NOT_YET, RowContext, carried_from, log_rows_of, with_bodies
from holdfast.storage.missing_rows import add_missing_rows, carried_before
from holdfast.storage.pool import retried_by_temporal
from holdfast.storage.thread_rows import forgotten_error, list_asides, lock_thread, new_aside, refuse_forgotten

_PAGE_BLOCKS = 2000
"""The most blocks read to fill a page."""
_NO_END = 2**31 - 1
"""A position after all others."""

_BLOCKS = """
    SELECT position, stop, size, at, body
    FROM (
        SELECT *, sum(size) OVER (ORDER BY position) - size AS bytes_before
        FROM (
            SELECT position, stop, size, at, body FROM holdfast.events
            WHERE thread = (SELECT id FROM holdfast.threads WHERE thread = %(thread)s)
            AND position < %(stop)s AND position >= coalesce((
                SELECT max(position) FROM holdfast.events
                WHERE thread = (SELECT id FROM holdfast.threads WHERE thread = %(thread)s) AND position <= %(start)s
            ), 0)
            ORDER BY position LIMIT %(most)s::integer
        ) AS next
    ) AS counted
    WHERE bytes_before < %(size)s ORDER BY position
"""

CATCH_UP = 2_000
"""The most events for which one append adds the rows for SQL that an older release did not write. `holdfast migrate`
adds them for all events."""

_INSERT = """
    INSERT INTO holdfast.events (thread, position, stop, size, at, body, log_rows, carried, origins)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)
"""
_NEW_THREAD = "INSERT INTO holdfast.threads (thread) VALUES (%s) ON CONFLICT DO NOTHING"
_LOCK_TO_APPEND = "SELECT id, forgotten_at FROM holdfast.threads WHERE thread = %s FOR NO KEY UPDATE"
_LAST_BLOCK = """
    SELECT stop, carried FROM holdfast.events WHERE thread = (SELECT id FROM holdfast.threads WHERE thread = %s)
    ORDER BY position DESC LIMIT 1
"""
"""The number of a thread's events, and the context for the SQL rows of the next ones."""


class PostgresThreads:
    """A `holdfast.core.stores.ThreadStore` in PostgreSQL.

    While the database is unavailable, its methods raise an error that Temporal retries.

    Args:
        pool: Open, to a migrated database.
    """

    def __init__(self, pool: AsyncConnectionPool) -> None:
        self._pool = pool

    async def append(self, thread: str, start: int, lines: Sequence[bytes]) -> None:
        """Store `lines` at the positions from `start` on, atomically and idempotently."""
        blocks = await self._pack(start, lines) if lines else []  # before taking the lock
        with retried_by_temporal(f"the record of {thread}"):
            async with self._pool.connection() as connection:
                await with_bodies(thread, partial(_append, connection, thread, start, lines, blocks))

    async def _pack(self, start: int, lines: Sequence[bytes]) -> list[Block]:
        """Pack lines. A fork reuses the packed blocks of its original."""
        original = None if start else original_of(lines)
        if original is None:
            return await asyncio.to_thread(pack, start, lines)
        with retried_by_temporal(f"the record of {original.thread}"):
            async with self._pool.connection() as connection:
                stored = await _blocks(connection, original.thread, 0, original.events)
        return await asyncio.to_thread(pack_like, stored, lines)

    async def read(self, thread: str, start: int = 0) -> list[bytes]:
        """Read a page of lines from position `start` on."""
        with retried_by_temporal(f"the record of {thread}"):
            async with self._pool.connection() as connection:
                blocks = await _blocks(connection, thread, start, most=_PAGE_BLOCKS, size=PAGE_BYTES)
                if not blocks:
                    await refuse_forgotten(connection, thread)
        return await asyncio.to_thread(_page, thread, start, blocks) if blocks else []

    async def set_aside(self, thread: str, start: int, lines: Sequence[bytes]) -> str:
        """Make room for `lines`, which continue the thread from an earlier event after its run was reset.

        The complete log so far becomes an archived branch: a separate thread, with its artifacts. This thread keeps the
        events before the first one that differs from `lines`. Returns the id of the archived branch.
        """
        with retried_by_temporal(f"the record of {thread}"):
            async with self._pool.connection() as connection:
                return await with_bodies(thread, partial(_set_aside, connection, thread, start, lines))

    async def asides(self, thread: str) -> list[str]:
        """Return the ids of a thread's archived branches, oldest first."""
        with retried_by_temporal(f"the record of {thread}"):
            async with self._pool.connection() as connection:
                return [aside for _, aside in await list_asides(connection, thread)]

    async def length(self, thread: str) -> int:
        """Return the number of recorded events."""
        with retried_by_temporal(f"the record of {thread}"):
            async with self._pool.connection() as connection:
                length = await _length(connection, thread)
                if not length:
                    await refuse_forgotten(connection, thread)
                return length


async def _append(
    connection: psycopg.AsyncConnection,
    thread: str,
    start: int,
    lines: Sequence[bytes],
    blocks: Sequence[Block],
    bodies: bool,
) -> None:
    """Append in one transaction. Statements that do not need each other's results are sent together.

    Args:
        connection: A connection outside a transaction.
        thread: The thread's id.
        start: The position of the first line.
        lines: The lines.
        blocks: The same lines, packed.
        bodies: Whether to add the events' bodies to the rows for SQL.
    """
    async with connection.pipeline(), connection.transaction():
        number, length, carried = await _lock_to_append(connection, thread, start=start)
        if start > length:
            raise RecordGap(
                f"thread {thread} has {length} events in the record, so none can follow at position {start}; "
                f"append from position {length} on"
            )
        stored = length - start
        if lines[:stored]:
            await _compare(connection, thread, start, lines[:stored])
            blocks = await asyncio.to_thread(pack, length, lines[stored:]) if lines[stored:] else []
        if blocks and carried is None:
            _, carried = await add_missing_rows(connection, number, bodies=bodies, most=CATCH_UP)
        await _insert(connection, number, blocks, lines[stored:], carried, bodies=bodies)


async def _set_aside(
    connection: psycopg.AsyncConnection, thread: str, start: int, lines: Sequence[bytes], bodies: bool
) -> str:
    """Make room for `lines` in one transaction; return the id of the archived branch."""
    async with connection.transaction():
        number = await lock_thread(connection, thread, lock="NO KEY UPDATE")
        stored = await _stored_lines(connection, thread, start, start + len(lines))
        differs = start
        while differs < start + len(lines) and stored.get(differs) == lines[differs - start]:
            differs += 1
        cut = [block for block in await _blocks(connection, thread, differs, differs) if block.stop > differs]
        aside, branch = await new_aside(connection, thread)
        await connection.execute(
            "INSERT INTO holdfast.events (thread, position, stop, size, at, body, log_rows, carried, origins) "
            "SELECT %s, position, stop, size, at, body, log_rows, carried, origins FROM holdfast.events "
            "WHERE thread = %s AND stop <= %s",
            [branch, number, differs],
        )
        await connection.execute(
            "UPDATE holdfast.events SET thread = %s WHERE thread = %s AND stop > %s",
            [branch, number, differs],
        )
        for block in cut:  # the update moved the whole block, but the thread still needs its beginning
            stays = [line for position, line in _with_positions(thread, block) if position < differs]
            carried = await carried_before(connection, number, block.position)
            if stays:
                await _insert(connection, number, pack(block.position, stays), stays, carried, bodies=bodies)
        await connection.execute(
            "INSERT INTO holdfast.artifact_threads (digest, thread) "
            "SELECT digest, %s FROM holdfast.artifact_threads WHERE thread = %s",
            [branch, number],
        )
        return aside


async def _lock_to_append(
    connection: psycopg.AsyncConnection, thread: str, *, start: int
) -> tuple[int, int, RowContext | None]:
    """Lock a thread's row until the transaction ends. The append of the first events inserts the row.

    Returns:
        The thread's number, the number of its events, and the context for the SQL rows of the next ones: None if
        earlier events have no rows yet.

    Raises:
        ThreadForgotten: The thread's content was removed, and nothing may be added.
    """
    while True:
        if not start:
            # Not "ON CONFLICT DO UPDATE", which would leave a dead row behind on every append.
            await connection.execute(_NEW_THREAD, [thread])
        locked = await connection.execute(_LOCK_TO_APPEND, [thread])
        # A separate statement: its snapshot includes the changes of the transaction that the lock waited for.
        last = await connection.execute(_LAST_BLOCK, [thread])
        row, block = await locked.fetchone(), await last.fetchone()
        if row and row[1] is not None:
            raise forgotten_error(thread, row[1])
        if row and block:
            return int(row[0]), int(block[0]), carried_from(block[1])
        if row:
            return int(row[0]), 0, RowContext()
        if start:
            return 0, 0, RowContext()


async def _length(connection: psycopg.AsyncConnection, thread: str) -> int:
    last = await connection.execute(
        "SELECT stop FROM holdfast.events "
        "WHERE thread = (SELECT id FROM holdfast.threads WHERE thread = %s) ORDER BY position DESC LIMIT 1",
        [thread],
    )
    row = await last.fetchone()
    return int(row[0]) if row else 0


async def _compare(connection: psycopg.AsyncConnection, thread: str, start: int, lines: Sequence[bytes]) -> None:
    stored = await _stored_lines(connection, thread, start, start + len(lines))
    for position, line in enumerate(lines, start):
        if stored.get(position) != line:
            raise RecordConflict(
                f"thread {thread} has another event at position {position} in the record than the one to append; "
                "nothing was appended. Two runs write under one thread id: start one of them under another id."
            )


async def _stored_lines(connection: psycopg.AsyncConnection, thread: str, start: int, stop: int) -> dict[int, bytes]:
    """Return the lines from position `start` up to `stop`, and those in the same blocks, by position."""
    blocks = await _blocks(connection, thread, start, stop)
    return await asyncio.to_thread(
        lambda: {at: line for block in blocks for at, line in _with_positions(thread, block)}
    )


async def _blocks(
    connection: psycopg.AsyncConnection,
    thread: str,
    start: int,
    stop: int = _NO_END,
    *,
    most: int | None = None,
    size: int = 2**62,
) -> list[Block]:
    """Read the blocks that hold the positions from `start` up to `stop`.

    Args:
        connection: A connection to the database.
        thread: The thread's id.
        start: The first position.
        stop: The position after the last.
        most: The maximum number of blocks; None for all.
        size: Bytes of lines after which no further block is returned.
    """
    values = {"thread": thread, "start": start, "stop": stop, "most": most, "size": size}
    rows = await connection.execute(_BLOCKS, values, binary=True)
    return [Block(*row) for row in await rows.fetchall()]


async def _insert(
    connection: psycopg.AsyncConnection,
    number: int,
    blocks: Sequence[Block],
    lines: Sequence[bytes],
    carried: RowContext | None,
    *,
    bodies: bool,
) -> None:
    """Insert blocks, with the SQL rows of their lines.

    Args:
        connection: A connection in a transaction that holds the thread's lock.
        number: The thread's number.
        blocks: The blocks.
        lines: Their lines.
        carried: The context from earlier rows; None if those are missing, so that no rows are added now.
        bodies: Whether to add the events' bodies to the rows.
    """
    for block in blocks:
        rows, own, lines = NOT_YET, lines[: block.length], lines[block.length :]
        if carried is not None:
            rows = await asyncio.to_thread(log_rows_of, block.position, own, carried, bodies=bodies)
        await connection.execute(_INSERT, [number, *block, *rows])


def _page(thread: str, start: int, blocks: list[Block]) -> list[bytes]:
    lines: list[bytes] = []
    size = 0
    for block in blocks:
        if lines and size + block.size > PAGE_BYTES:
            break  # the next page begins with this block, so that it is unpacked once
        for position, line in _with_positions(thread, block):
            if position < start:
                continue
            size += len(line)
            if lines and size > PAGE_BYTES:
                return lines
            lines.append(line)
    return lines


def _with_positions(thread: str, block: Block) -> Iterator[tuple[int, bytes]]:
    """Return the lines of a block, each with its position."""
    try:
        return enumerate(unpack(block), block.position)
    except ValueError as error:
        raise RecordUnreadable(
            f"event {block.position} of thread {thread}, or one up to event {block.stop - 1}, was altered or damaged "
            f"({error}); restore the record from a backup"
        ) from error
