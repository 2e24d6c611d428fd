"""The permanent record in PostgreSQL. Rows are only inserted, or set aside; `activities.stores.prune` removes threads.

Appends to one thread take turns, by a lock on the thread's row, so that its positions have no gaps.
"""

import asyncio
import itertools
from collections.abc import Sequence
from typing import Literal

import psycopg
from psycopg_pool import AsyncConnectionPool

from activities.stores.away import retried_by_temporal
from activities.stores.rows import Row, pack, unpack
from holdfast.errors import RecordConflict, RecordGap, RecordUnreadable
from holdfast.model import PAGE_BYTES
from holdfast.stores import aside_id, origin_of

_PAGE_ROWS = 2000
"""The most rows that are looked at to fill a page."""

_PAGE = """
    SELECT position, at, digest, body
    FROM (
        SELECT *, sum(octet_length(body)) OVER (ORDER BY position) - octet_length(body) AS bytes_before
        FROM (
            SELECT * FROM holdfast.events
            WHERE thread = (SELECT id FROM holdfast.threads WHERE thread = %s) AND position >= %s
            ORDER BY position LIMIT %s
        ) AS next
    ) AS counted
    WHERE bytes_before < %s ORDER BY position
"""

_INSERT = """
    INSERT INTO holdfast.events (thread, position, at, digest, body)
    SELECT %s, * FROM unnest(%s::integer[], %s::bigint[], %s::bytea[], %s::bytea[])
"""


class PostgresThreads:
    """A `holdfast.stores.ThreadStore` in PostgreSQL.

    While the database is away its methods raise an error that Temporal retries.

    Args:
        pool: Open, to a migrated database.
    """

    def __init__(self, pool: AsyncConnectionPool) -> None:
        self._pool = pool

    async def append(self, thread: str, start: int, lines: Sequence[bytes]) -> None:
        """Keep `lines` at the positions from `start` on: all of them, or none. Twice is the same as once."""
        rows = await asyncio.to_thread(lambda: [pack(position, line) for position, line in enumerate(lines, start)])
        with retried_by_temporal(f"the record of {thread}"):
            async with self._pool.connection() as connection, connection.transaction():
                number = await hold_thread(connection, thread, lock="NO KEY UPDATE")
                length = await _length(connection, thread)
                if start > length:
                    raise RecordGap(
                        f"thread {thread} has {length} events in the record, so none can follow at position {start}; "
                        f"append from position {length} on"
                    )
                kept = length - start
                if lines[:kept]:
                    await _compare(connection, thread, start, lines[:kept])
                if fresh := rows[kept:]:
                    await connection.execute(_INSERT, [number, *map(list, zip(*fresh, strict=True))])

    async def read(self, thread: str, start: int = 0) -> list[bytes]:
        """A page of lines from position `start` on."""
        with retried_by_temporal(f"the record of {thread}"):
            async with self._pool.connection() as connection:
                page = await connection.execute(_PAGE, [thread, start, _PAGE_ROWS, PAGE_BYTES], binary=True)
                rows = [Row(*row) for row in await page.fetchall()]
        return await asyncio.to_thread(_page, thread, rows)

    async def set_aside(self, thread: str, start: int, lines: Sequence[bytes]) -> str:
        """Make room for `lines`: the log as it is becomes a thread of its own, whole, with its artifacts; the thread
        keeps the events before the first one that is not that of `lines`.

        That is what became of a run that was reset: its thread goes on from an earlier event.
        """
        with retried_by_temporal(f"the record of {thread}"):
            async with self._pool.connection() as connection, connection.transaction():
                number = await hold_thread(connection, thread, lock="NO KEY UPDATE")
                other = start
                for row, line in zip(await _rows(connection, thread, start, len(lines)), lines, strict=False):
                    if _line(thread, row) != line:
                        break
                    other = row.position + 1
                aside, branch = await _new_aside(connection, thread)
                await connection.execute(
                    "INSERT INTO holdfast.events (thread, position, at, digest, body) "
                    "SELECT %s, position, at, digest, body FROM holdfast.events WHERE thread = %s AND position < %s",
                    [branch, number, other],
                )
                await connection.execute(
                    "UPDATE holdfast.events SET thread = %s WHERE thread = %s AND position >= %s",
                    [branch, number, other],
                )
                await connection.execute(
                    "INSERT INTO holdfast.artifact_threads (digest, thread) "
                    "SELECT digest, %s FROM holdfast.artifact_threads WHERE thread = %s",
                    [branch, number],
                )
                return aside

    async def asides(self, thread: str) -> list[str]:
        """The ids of the logs that were set aside of a thread, the oldest first."""
        with retried_by_temporal(f"the record of {thread}"):
            async with self._pool.connection() as connection:
                return [aside for _, aside in await asides_of(connection, thread)]

    async def length(self, thread: str) -> int:
        """How many events are kept."""
        with retried_by_temporal(f"the record of {thread}"):
            async with self._pool.connection() as connection:
                return await _length(connection, thread)


async def hold_thread(
    connection: psycopg.AsyncConnection, thread: str, *, lock: Literal["NO KEY UPDATE", "KEY SHARE"]
) -> int:
    """The number of a thread, known from now on if it was not; locked until the transaction ends.

    Args:
        connection: In a transaction.
        thread: Its id.
        lock: `NO KEY UPDATE` to be the only one who appends, `KEY SHARE` to keep it from being pruned.
    """
    while True:
        query = f"SELECT id FROM holdfast.threads WHERE thread = %s FOR {lock}"  # noqa: S608  # one of two constants
        found = await connection.execute(query, [thread])
        if row := await found.fetchone():
            return int(row[0])
        # Not "ON CONFLICT DO UPDATE", which would leave a dead row behind at every append.
        await connection.execute("INSERT INTO holdfast.threads (thread) VALUES (%s) ON CONFLICT DO NOTHING", [thread])


async def asides_of(connection: psycopg.AsyncConnection, thread: str) -> list[tuple[int, str]]:
    """Number and id of the logs that were set aside of a thread, the oldest first."""
    rows = await connection.execute(
        "SELECT id, thread FROM holdfast.threads WHERE starts_with(thread, %s) ORDER BY id", [f"{thread}~"]
    )
    return [(int(number), aside) for number, aside in await rows.fetchall() if origin_of(aside) == thread]


async def _new_aside(connection: psycopg.AsyncConnection, thread: str) -> tuple[str, int]:
    """A thread that was not there before: never one that holds anything already, whoever made it."""
    for count in itertools.count(1):
        made = await connection.execute(
            "INSERT INTO holdfast.threads (thread) VALUES (%s) ON CONFLICT DO NOTHING RETURNING id",
            [aside_id(thread, count)],
        )
        if row := await made.fetchone():
            return aside_id(thread, count), int(row[0])
    raise AssertionError("numbers do not end")


async def _length(connection: psycopg.AsyncConnection, thread: str) -> int:
    counted = await connection.execute(
        "SELECT coalesce(max(position) + 1, 0) FROM holdfast.events "
        "WHERE thread = (SELECT id FROM holdfast.threads WHERE thread = %s)",
        [thread],
    )
    row = await counted.fetchone()
    return int(row[0]) if row else 0


async def _compare(connection: psycopg.AsyncConnection, thread: str, start: int, lines: Sequence[bytes]) -> None:
    for row, line in zip(await _rows(connection, thread, start, len(lines)), lines, strict=True):
        if _line(thread, row) != line:
            raise RecordConflict(
                f"thread {thread} has another event at position {row.position} in the record than the one to append; "
                "nothing was appended. Two runs write under one thread id: start one of them under another."
            )


async def _rows(connection: psycopg.AsyncConnection, thread: str, start: int, count: int) -> list[Row]:
    rows = await connection.execute(
        "SELECT position, at, digest, body FROM holdfast.events "
        "WHERE thread = (SELECT id FROM holdfast.threads WHERE thread = %s) AND position >= %s "
        "ORDER BY position LIMIT %s",
        [thread, start, count],
        binary=True,
    )
    return [Row(*row) for row in await rows.fetchall()]


def _page(thread: str, rows: list[Row]) -> list[bytes]:
    lines: list[bytes] = []
    size = 0
    for row in rows:
        line = _line(thread, row)
        size += len(line)
        if lines and size > PAGE_BYTES:
            break
        lines.append(line)
    return lines


def _line(thread: str, row: Row) -> bytes:
    try:
        return unpack(row)
    except ValueError as error:
        raise RecordUnreadable(
            f"event {row.position} of thread {thread} does not decode ({error}); restore the record from a backup"
        ) from error
