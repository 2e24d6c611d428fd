"""The effect ledger: what was started, what was finished, and with which outcome.

1. `claim` gives one attempt at a time an exclusive claim on an effect, across all workers: a PostgreSQL advisory lock.
   It ends with the connection, and so with the process.
2. The start is committed before the effect, by the very statement that takes the claim; `finish` after it.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psycopg
import structlog
from psycopg_pool import AsyncConnectionPool
from temporalio.exceptions import ApplicationError

from holdfast.run.contracts import PastEffects, ToolOutcome
from holdfast.runtime.stores.pool import unlock_all
from holdfast.runtime.stores.unavailable import retried_by_temporal
from holdfast.stores import EffectRow
from holdfast.tools.effects import PastEffect
from holdfast.transcript.transcript import clip

log = structlog.get_logger(__name__)

MADE = 500
"""How many effects a run that was reset is given at the most. It can hold them; more are counted."""

MADE_CHARS = 500
"""Of what each has come to."""

_COLUMNS = ("key", "epoch", "tool", "number", "first_run_id", "call_digest", "call")
_CLAIM = "SELECT pg_try_advisory_lock(hashtextextended(%s, %s))"
_CLAIM_AND_START = f"""
    WITH claim AS MATERIALIZED ({_CLAIM} AS held), started AS (
        INSERT INTO holdfast.effects (thread, {", ".join(_COLUMNS)})
        SELECT %s{", %s" * len(_COLUMNS)} FROM claim WHERE held
        ON CONFLICT DO NOTHING RETURNING true
    )
    SELECT held, EXISTS (SELECT FROM started) FROM claim
"""  # noqa: S608  # constants
_MADE = f"""
    SELECT {", ".join(_COLUMNS)}, outcome FROM (
        SELECT DISTINCT ON (key) * FROM holdfast.effects
        WHERE thread = %s AND number > %s
        ORDER BY key, epoch DESC
    ) AS last
    ORDER BY started_at DESC
"""  # noqa: S608  # constants


@dataclass
class Entry:
    """One effect, claimed by one attempt."""

    effect: PastEffect
    thread: str
    started_before: bool
    """An earlier attempt got as far as starting it."""
    outcome: ToolOutcome | None
    """What an earlier attempt came to, if it finished."""
    _connection: psycopg.AsyncConnection
    _url: str

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
                log.warning("ledger_waits", key=self.effect.key, tool=self.effect.tool, reason=str(error))
                await asyncio.sleep(1)

    async def _record(self, connection: psycopg.AsyncConnection, outcome: ToolOutcome) -> None:
        await connection.execute(
            "UPDATE holdfast.effects SET outcome = %s, finished_at = now() WHERE key = %s AND epoch = %s",
            [outcome.model_dump_json(), self.effect.key, self.effect.epoch],
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
    async def claim(self, effect: PastEffect, *, thread: str, start: bool = False) -> AsyncIterator[Entry]:
        """Hold an exclusive claim on an effect for the length of the block.

        Args:
            effect: Key and epoch name it; the rest says which call it is.
            thread: The thread of the call.
            start: Record that the effect may happen from here on, unless an earlier attempt has.

        Raises:
            ApplicationError: Another attempt holds the claim, or the database is unavailable; Temporal tries again.
        """
        with retried_by_temporal(effect.tool):
            async with self._pool.connection() as connection:
                try:
                    yield await self._claimed(connection, effect, thread=thread, start=start)
                finally:
                    if not connection.closed:
                        await unlock_all(connection)

    async def made(self, thread: str, *, after: int) -> PastEffects:
        """The effects of a thread whose calls have a higher number, oldest first: the newest `MADE` of them.

        Args:
            thread: The thread.
            after: That number.
        """
        with retried_by_temporal(f"the effects of {thread}"):
            async with self._pool.connection() as connection:
                rows = await connection.execute(_MADE, [thread, after])
                found = [_past(*row) for row in await rows.fetchall()]
        return PastEffects(effects=tuple(reversed(found[:MADE])), left_out=max(0, len(found) - MADE))

    async def _claimed(
        self, connection: psycopg.AsyncConnection, effect: PastEffect, *, thread: str, start: bool
    ) -> Entry:
        name = [effect.key, effect.epoch]
        started = False
        if start:
            row = [thread, *(getattr(effect, column) for column in _COLUMNS)]
            held, started = await _one(connection, _CLAIM_AND_START, [*name, *row]) or (False, False)
        else:
            (held,) = await _one(connection, _CLAIM, name) or (False,)
        if not held:
            raise ApplicationError(
                f"another attempt of {effect.tool} is still running",
                type="EffectClaimed",
                next_retry_delay=timedelta(seconds=2),
            )
        if started:
            return Entry(effect, thread, False, None, connection, self._url)
        # A statement of its own: only what it reads is as of a time when the claim was held.
        found = await _one(connection, "SELECT outcome FROM holdfast.effects WHERE key = %s AND epoch = %s", name)
        outcome = ToolOutcome.model_validate_json(found[0]) if found and found[0] else None
        return Entry(effect, thread, found is not None, outcome, connection, self._url)


async def _one(connection: psycopg.AsyncConnection, statement: str, values: Sequence[Any]) -> tuple[Any, ...] | None:
    """The first row that a statement returns."""
    return await (await connection.execute(statement, values)).fetchone()


def _past(*row: Any) -> PastEffect:
    *known, outcome = row
    effect = PastEffect.model_validate(dict(zip(_COLUMNS, known, strict=True)))
    if outcome is None:
        return effect
    told = ToolOutcome.model_validate_json(outcome)
    return effect.model_copy(update={"status": told.status, "content": clip(told.content, MADE_CHARS)})


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
