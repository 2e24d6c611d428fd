"""Connections to PostgreSQL, and its schema: numbered migrations, each applied once."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg_pool import AsyncConnectionPool
from temporalio.exceptions import ApplicationError

from holdfast.config.logs import EventLogger
from holdfast.config.programs import CLI
from holdfast.errors import StackError

EFFECTS_AT_ONCE = 32
"""The most tool calls with effects that one worker runs at the same time: each holds a database connection."""

WORKER_CONNECTIONS = EFFECTS_AT_ONCE + 8
"""The most connections of a worker: however many effects run, some are left for the record, artifacts and memories."""

MIGRATIONS = Path(__file__).parent / "migrations"
_LOCK = 0x686F6C64
"""Advisory lock that serializes concurrent migrations."""

WAIT_SECONDS = 2.0
"""Seconds between polls of a schema that somebody has to migrate."""

log = EventLogger("worker")


def open_pool(url: str, *, size: int) -> AsyncConnectionPool:
    """Create an unopened pool of at most `size` connections, which fails within seconds if it cannot get one."""
    return AsyncConnectionPool(
        url,
        min_size=1,
        max_size=size,
        timeout=5,
        open=False,
        check=_check,  # a restart of the database breaks all idle connections
        reset=_reset,
        kwargs={"autocommit": True, "connect_timeout": 5},
    )


async def _check(connection: psycopg.AsyncConnection) -> None:
    """Raise if the server has closed the connection, without a round trip: this runs before every use of a connection.

    The first read consumes the server's last message, if there is one; the second finds the end of the stream. Neither
    waits. If the host vanished silently, the next statement fails.
    """
    connection.pgconn.consume_input()
    connection.pgconn.consume_input()


async def _reset(connection: psycopg.AsyncConnection) -> None:
    """Reject a connection that comes back in pipeline mode, so that the pool replaces it.

    Cancelling a task within a pipeline or `executemany` can leave the mode on (psycopg 3.3); the next borrower's
    statements would fail.
    """
    if connection.pgconn.pipeline_status:
        raise psycopg.ProgrammingError("the pipeline was cut off")


async def unlock_all(connection: psycopg.AsyncConnection) -> None:
    """Release every advisory lock that the connection holds."""
    if connection.closed:
        return
    try:
        await connection.execute("SELECT pg_advisory_unlock_all()")
    except BaseException:  # also on cancellation: closing the connection releases the locks
        await connection.close()
        raise


@dataclass(frozen=True)
class Schema:
    """The migrations of a database, compared with those of this release."""

    version: str
    """The last applied migration; empty if there is none."""
    missing: tuple[str, ...]
    """Migrations of this release that the database lacks, oldest first."""
    unknown: tuple[str, ...]
    """Applied migrations of a later release."""

    def advice(self) -> str:
        """Return the next step for a person; empty if none is needed."""
        if self.missing:
            at = f"at {self.version}" if self.version else "empty"
            return (
                f"the database is {at} and lacks {', '.join(self.missing)}: run `{CLI.command('migrate')}`, with a "
                "DATABASE_URL whose role owns the schema"
            )
        if self.unknown:
            return (
                f"the database was migrated by a later release, to {self.version}. This release works with it; "
                "upgrade it here, too"
            )
        return ""


async def read_schema(connection: psycopg.AsyncConnection) -> Schema:
    """Compare the migrations of a database with those of this release."""
    table = await (await connection.execute("SELECT to_regclass('holdfast.migrations') IS NOT NULL")).fetchone()
    rows = await connection.execute("SELECT name FROM holdfast.migrations") if table == (True,) else None
    applied = sorted(name for (name,) in await rows.fetchall()) if rows else []
    ours = [file.stem for file in _files()]
    return Schema(
        version=applied[-1] if applied else "",
        missing=tuple(name for name in ours if name not in applied),
        unknown=tuple(name for name in applied if name not in ours),
    )


async def schema_of(url: str) -> Schema:
    """Connect to a database, and compare its migrations with those of this release.

    Raises:
        psycopg.Error: The database cannot be reached.
    """
    async with await psycopg.AsyncConnection.connect(url, connect_timeout=5) as connection:
        return await read_schema(connection)


async def migrate(url: str) -> list[str]:
    """Bring the schema up to date. Concurrent callers wait for the first, and then find nothing to do.

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
        missing = (await read_schema(connection)).missing
        for file in _files():
            if file.stem in missing:
                await connection.execute(file.read_bytes())
                await connection.execute("INSERT INTO holdfast.migrations (name) VALUES (%s)", [file.stem])
                applied.append(file.stem)
    return applied


def _files() -> list[Path]:
    return sorted(MIGRATIONS.glob("*.sql"))


async def until_migrated(url: str) -> None:
    """Wait until the database has every migration of this release. The log names the missing ones and the command.

    Raises:
        psycopg.Error: The database cannot be reached.
    """
    logged = ""
    while (schema := await schema_of(url)).missing:
        if logged != (logged := schema.advice()):
            log.warning("waiting_for_migration", reason=logged)
        await asyncio.sleep(WAIT_SECONDS)
    if schema.unknown:
        log.warning("schema_is_newer", reason=schema.advice())


@asynccontextmanager
async def open_database(url: str, *, size: int, migrating: bool) -> AsyncIterator[AsyncConnectionPool]:
    """Open a pool of `size` connections for a block, to a database with an up-to-date schema.

    Args:
        url: The database.
        size: The most connections.
        migrating: Bring the schema up to date; otherwise wait until somebody else has.

    Raises:
        StackError: The database cannot be used.
    """
    try:
        if migrating:
            for name in await migrate(url):
                log.info("migrated", migration=name)
        else:
            await until_migrated(url)
    except psycopg.Error as error:
        raise StackError(f"the database cannot be used: {str(error).strip()}. Check DATABASE_URL.") from None
    async with open_pool(url, size=size) as pool:
        yield pool


@contextmanager
def retried_by_temporal(what: str) -> Iterator[None]:
    """Convert connection errors within the block into an error that Temporal retries.

    Args:
        what: The item that needs the database, for the message.

    Raises:
        ApplicationError: `DatabaseUnavailable`.
    """
    try:
        yield
    except psycopg.OperationalError as error:  # includes the pool's timeout
        reason = f"no connection to the database; {what} waits for one ({str(error).strip()})"
        raise ApplicationError(reason, type="DatabaseUnavailable") from None
