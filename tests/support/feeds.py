"""Feeds of the record, read one after the other: PostgreSQL keeps the lock of a closed connection for a moment."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import psycopg

from holdfast.storage.feeds import Feed, reading_feed
from tests.support.rig import eventually


async def is_read(url: str) -> bool:
    """Return whether somebody reads a feed of this database. To try to read it would take it from them."""
    async with await psycopg.AsyncConnection.connect(url) as connection:
        counted = await connection.execute(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 "
            "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        return await counted.fetchone() != (0,)


@asynccontextmanager
async def own_feed(url: str, name: str, *, past: bool = False) -> AsyncIterator[Feed]:
    """Read a feed during a block, once nobody else does; afterwards its lock is free."""
    await eventually(partial(is_read, url), lambda read: not read)
    async with reading_feed(url, name, past=past) as feed:
        assert feed is not None
        yield feed
    await eventually(partial(is_read, url), lambda read: not read)
