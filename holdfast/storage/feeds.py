"""Feeds of the record in PostgreSQL: each reads every event of every thread once, in its thread's order, as it arrives.

1. A feed has a cursor over all blocks, and a place in each thread. Both move in one transaction, after delivery: a
   feed that is killed delivers the same events again, and loses none.
2. One process reads a feed at a time: it holds an advisory lock on the connection that also moves the cursor. If the
   connection breaks, the cursor stays, and another process takes over.
3. Blocks are numbered when they are written and visible when their transaction ends, so a lower number may appear after
   a higher one. The cursor therefore moves only past numbers whose transactions have all ended.
"""

from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import psycopg
from psycopg.types.json import Jsonb

from holdfast.core.stores import origin_of

_LOCK_CLASS = 0x686F6C67
"""The first key of the advisory locks of feeds; the second is a hash of the name."""

MOST_BLOCKS = 500
"""The most blocks of a page."""

_BEGIN = """
    INSERT INTO holdfast.feeds (name, number)
    SELECT %s, CASE WHEN %s THEN 0 ELSE coalesce(max(number), 0) END FROM holdfast.events ON CONFLICT DO NOTHING
"""
_NEWS = """
    SELECT events.number, threads.id, threads.thread, threads.forgotten_at IS NOT NULL
    FROM holdfast.events JOIN holdfast.threads ON threads.id = events.thread
    WHERE events.number > %s ORDER BY events.number LIMIT %s
"""
_HORIZON = """
    SELECT pg_snapshot_xmin(taken.now)::text::bigint, pg_snapshot_xmax(taken.now)::text::bigint
    FROM (SELECT pg_current_snapshot() AS now) AS taken
"""
"""The id of the oldest transaction that has not ended, and the id after all that have begun."""
_PLACES = "SELECT thread, position, head, carried FROM holdfast.feed_threads WHERE feed = %s AND thread = ANY(%s)"
_MOVE = """
    INSERT INTO holdfast.feed_threads (feed, thread, position, head, carried)
    SELECT %s, id, %s, %s, %s FROM holdfast.threads WHERE id = %s FOR KEY SHARE
    ON CONFLICT (feed, thread) DO UPDATE
    SET position = EXCLUDED.position, head = EXCLUDED.head, carried = EXCLUDED.carried
"""


class Place(NamedTuple):
    """How far a feed has delivered a thread."""

    position: int
    """The first event that has not been delivered."""
    head: str
    """The digest of the event before; empty for none."""
    carried: Any
    """What the feed needs from the events before, as JSON; None for nothing."""


BEGINNING = Place(0, "", None)


class Growing(NamedTuple):
    """A thread with new blocks."""

    number: int
    thread: str
    place: Place


@dataclass(frozen=True)
class News:
    """What is new in the record since a feed last looked."""

    threads: Sequence[Growing]
    """Without archived branches and forgotten threads."""
    more: bool
    """Whether the sweep has another page."""


class Feed:
    """One feed, while this process may read it.

    Args:
        connection: Holds the feed's lock.
        name: The feed's name.
        number: Where its cursor is.
    """

    def __init__(self, connection: psycopg.AsyncConnection, name: str, number: int) -> None:
        self._connection = connection
        self._name = name
        self._number = number
        self._settled = number
        """Every number up to this one was visible when the sweep began."""
        self._unsettled: deque[tuple[int, int]] = deque()
        """Numbers, each with the id of a transaction: once all before it have ended, the number is settled."""
        self._at: int | None = None
        """Where the sweep is; None before its first page."""
        self._reach = number
        """Where the cursor may move when the page was delivered."""

    async def news(self) -> News:
        """Return the next page of a sweep, which goes from the cursor to the newest block.

        Raises:
            psycopg.Error: The database is unavailable.
        """
        if self._at is None:
            await self._begin_sweep()
        at = self._number if self._at is None else self._at
        rows = await (await self._connection.execute(_NEWS, [at, MOST_BLOCKS])).fetchall()
        more = len(rows) == MOST_BLOCKS
        self._reach = min(int(rows[-1][0]), self._settled) if more else self._settled
        self._at = int(rows[-1][0]) if more else None
        threads = {
            number: thread for _, number, thread, forgotten in rows if not forgotten and origin_of(thread) is None
        }
        found = await self._connection.execute(_PLACES, [self._name, list(threads)])
        places = {row[0]: Place(*row[1:]) for row in await found.fetchall()}
        growing = [Growing(number, thread, places.get(number, BEGINNING)) for number, thread in threads.items()]
        return News(growing, more=more)

    async def _begin_sweep(self) -> None:
        lowest, _ = await self._horizon()
        while self._unsettled and self._unsettled[0][1] <= lowest:
            self._settled, _ = self._unsettled.popleft()
        newest = await (await self._connection.execute("SELECT max(number) FROM holdfast.events")).fetchone()
        if newest and newest[0] is not None and newest[0] > self._settled:
            # A transaction locks its thread, which gives it an id, before it takes a number. So the transactions that
            # may still write a number up to this one have ids below the snapshot that is taken now.
            _, horizon = await self._horizon()
            self._unsettled.append((int(newest[0]), horizon))

    def stay(self) -> None:
        """Keep the cursor where it is: not everything of the page was delivered."""
        self._reach, self._at = self._number, None

    async def move(self, moved: Sequence[tuple[Growing, Place]]) -> None:
        """Record that a page was delivered: the new places in its threads, and the cursor.

        Raises:
            psycopg.Error: The database is unavailable; nothing was recorded.
        """
        if not moved and self._reach <= self._number:
            return
        async with self._connection.transaction():
            for growing, place in moved:
                carried = None if place.carried is None else Jsonb(place.carried)
                values = [self._name, place.position, place.head, carried, growing.number]
                await self._connection.execute(_MOVE, values)
            await self._connection.execute(
                "UPDATE holdfast.feeds SET number = greatest(number, %s) WHERE name = %s", [self._reach, self._name]
            )
        self._number = max(self._number, self._reach)

    async def _horizon(self) -> tuple[int, int]:
        row = await (await self._connection.execute(_HORIZON)).fetchone()
        assert row is not None
        return int(row[0]), int(row[1])


@asynccontextmanager
async def reading_feed(url: str, name: str, *, past: bool = False) -> AsyncIterator[Feed | None]:
    """Read a feed for a block; None if another process reads it.

    Args:
        url: The database, migrated. A pooler in transaction mode cannot hold the lock.
        name: The feed's name. A new feed begins with the next block.
        past: Let a new feed begin with the first block instead.

    Raises:
        psycopg.Error: The database is unavailable.
    """
    async with await psycopg.AsyncConnection.connect(url, autocommit=True, connect_timeout=5) as connection:
        lock = "SELECT pg_try_advisory_lock(%s, hashtext(%s))"
        if await (await connection.execute(lock, [_LOCK_CLASS, name])).fetchone() != (True,):
            yield None
            return
        await connection.execute(_BEGIN, [name, past])
        row = await (await connection.execute("SELECT number FROM holdfast.feeds WHERE name = %s", [name])).fetchone()
        assert row is not None
        yield Feed(connection, name, int(row[0]))
