"""Connections to PostgreSQL, and its schema: numbered migrations, each applied once."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
import structlog
from psycopg_pool import AsyncConnectionPool

from holdfast.errors import StackError

EFFECTS_AT_ONCE = 32
"""Tool calls with effects that one worker runs at the same time: each holds a database connection."""

MIGRATIONS = Path(__file__).parent / "migrations"
_LOCK = 0x686F6C64
"""Advisory lock of migrations: workers that start at the same time take turns."""


log = structlog.get_logger("worker")


def open_pool(url: str, *, size: int) -> AsyncConnectionPool:
    """Create a pool of at most `size` connections, not opened yet, that fails within seconds if it gets none."""
    return AsyncConnectionPool(
        url,
        min_size=1,
        max_size=size,
        timeout=5,
        open=False,
        check=_check,  # after the database restarts, all idle connections are dead
        reset=unlock_all,  # a cancelled call may not have released its lock
        kwargs={"autocommit": True, "connect_timeout": 5},
    )


async def _check(connection: psycopg.AsyncConnection) -> None:
    """Raise if the server has closed the connection, without a round trip: this runs before every use of a connection.

    The first read consumes the server's last message, if there is one; the second finds the end of the stream. Neither
    waits. If the host vanished silently, the next statement fails.
    """
    connection.pgconn.consume_input()
    connection.pgconn.consume_input()


async def unlock_all(connection: psycopg.AsyncConnection) -> None:
    """Release every advisory lock that the connection holds."""
    await connection.execute("SELECT pg_advisory_unlock_all()")


async def migrate(url: str) -> list[str]:
    """Bring the schema up to date.

    Returns:
        The names of the migrations applied, oldest first; empty if the schema was up to date.

    Raises:
        psycopg.Error: The database cannot be reached, or a migration fails; then all of them are rolled back.
    """
    applied = []
    async with await psycopg.AsyncConnection.connect(url, connect_timeout=5) as connection:
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        await connection.execute("CREATE SCHEMA IF NOT EXISTS holdfast")
        await connection.execute(
            "CREATE TABLE IF NOT EXISTS holdfast.migrations "
            "(name text PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())"
        )
        rows = await connection.execute("SELECT name FROM holdfast.migrations")
        done = {name for (name,) in await rows.fetchall()}
        for file in sorted(MIGRATIONS.glob("*.sql")):
            if file.stem not in done:
                await connection.execute(file.read_bytes())
                await connection.execute("INSERT INTO holdfast.migrations (name) VALUES (%s)", [file.stem])
                applied.append(file.stem)
    return applied


@asynccontextmanager
async def open_database(url: str, *, size: int) -> AsyncIterator[AsyncConnectionPool]:
    """Bring the schema up to date, and open a pool of `size` connections for the length of the block.

    Raises:
        StackError: The database cannot be used.
    """
    try:
        for name in await migrate(url):
            log.info("migrated", migration=name)
    except psycopg.Error as error:
        raise StackError(f"the database cannot be used: {str(error).strip()}. Check DATABASE_URL.") from None
    async with open_pool(url, size=size) as pool:
        yield pool
