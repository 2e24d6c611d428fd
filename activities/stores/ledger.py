"""The effect ledger: what was started, what was finished, and with which outcome.

1. `claim` lets one attempt at a time have an effect, across all workers: a PostgreSQL advisory lock, which ends
   with the connection, and so with the process.
2. `start` is committed before the effect, `finish` after it.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

import psycopg
import structlog
from psycopg_pool import AsyncConnectionPool
from temporalio.exceptions import ApplicationError

from activities.stores.away import retried_by_temporal
from activities.stores.postgres import unlock_all
from holdfast.contracts import ToolOutcome
from holdfast.stores import EffectRow

log = structlog.get_logger(__name__)


@dataclass
class Entry:
    """One effect, claimed by one attempt."""

    key: str
    epoch: int
    thread: str
    tool: str
    started_before: bool
    """An earlier attempt got as far as starting it."""
    outcome: ToolOutcome | None
    """What an earlier attempt came to, if it finished."""
    _connection: psycopg.AsyncConnection
    _url: str

    async def start(self) -> None:
        """Write down that the effect may happen from here on."""
        await self._connection.execute(
            "INSERT INTO holdfast.effects (key, epoch, thread, tool) VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING",
            [self.key, self.epoch, self.thread, self.tool],
        )

    async def finish(self, outcome: ToolOutcome) -> None:
        """Write down what it came to.

        The effect has happened, so this does not give up while the database is away: it tries until the activity's
        own time limit ends it.
        """
        while True:
            try:
                if not self._connection.closed:
                    return await self._record(self._connection, outcome)
                async with await psycopg.AsyncConnection.connect(self._url, connect_timeout=5) as fresh:
                    return await self._record(fresh, outcome)
            except psycopg.OperationalError as error:
                log.warning("ledger_waits", key=self.key, tool=self.tool, reason=str(error))
                await asyncio.sleep(1)

    async def _record(self, connection: psycopg.AsyncConnection, outcome: ToolOutcome) -> None:
        await connection.execute(
            "UPDATE holdfast.effects SET outcome = %s, finished_at = now() WHERE key = %s AND epoch = %s",
            [outcome.model_dump_json(), self.key, self.epoch],
        )


class Ledger:
    """The ledger in PostgreSQL.

    Args:
        pool: Open; one connection is held per effect under way.
        url: The same database, for when the connection held is lost.
    """

    def __init__(self, pool: AsyncConnectionPool, url: str) -> None:
        self._pool = pool
        self._url = url

    @asynccontextmanager
    async def claim(self, key: str, epoch: int, *, thread: str, tool: str) -> AsyncIterator[Entry]:
        """Have the effect to oneself for the length of the block.

        Raises:
            ApplicationError: Another attempt still has it, or the database is away; to be tried again.
        """
        with retried_by_temporal(tool):
            async with self._pool.connection() as connection:
                entry = await self._read(connection, key, epoch, thread=thread, tool=tool)
                try:
                    yield entry
                finally:
                    if not connection.closed:
                        await unlock_all(connection)

    async def _read(
        self, connection: psycopg.AsyncConnection, key: str, epoch: int, *, thread: str, tool: str
    ) -> Entry:
        locked = await connection.execute("SELECT pg_try_advisory_lock(hashtextextended(%s, %s))", [key, epoch])
        if await locked.fetchone() != (True,):
            raise ApplicationError(
                f"another attempt of {tool} is still running",
                type="EffectClaimed",
                next_retry_delay=timedelta(seconds=2),
            )
        rows = await connection.execute(
            "SELECT outcome FROM holdfast.effects WHERE key = %s AND epoch = %s", [key, epoch]
        )
        row = await rows.fetchone()
        outcome = ToolOutcome.model_validate_json(row[0]) if row and row[0] else None
        return Entry(key, epoch, thread, tool, row is not None, outcome, connection, self._url)


async def effects_of(pool: AsyncConnectionPool, thread: str) -> list[EffectRow]:
    """The rows of a thread, as they are kept, the oldest first."""
    with retried_by_temporal(f"the ledger of {thread}"):
        async with pool.connection() as connection:
            rows = await connection.execute(
                "SELECT key, epoch, tool, outcome FROM holdfast.effects WHERE thread = %s "
                "ORDER BY started_at, key, epoch",
                [thread],
            )
            return [EffectRow(*row) for row in await rows.fetchall()]
