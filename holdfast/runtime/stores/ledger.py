"""The effect ledger: which effects were started, which were finished, and with which outcome.

1. `claim` gives one attempt at a time an exclusive claim on an effect, across all workers: a PostgreSQL advisory lock.
   It ends with the connection, and so with the process.
2. The start is committed before the effect happens, in the same statement that takes the claim; `finish` after it.
3. An outcome counts if a process of this fleet has recorded it for this very effect: its MAC shows that
   (`holdfast.seals.outcomes`). Any other is none that a worker adopts: people are asked. A row without an
   outcome needs none, because it can only make a worker look, or ask.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import psycopg
import structlog
from psycopg_pool import AsyncConnectionPool
from temporalio.exceptions import ApplicationError

from holdfast.llm.blocks import text_of
from holdfast.run.contracts import PastEffects, ToolOutcome
from holdfast.runtime.stores.pool import unlock_all
from holdfast.runtime.stores.unavailable import retried_by_temporal
from holdfast.seals.outcomes import NO_SEALS, MACVerdict, OutcomeMACs, Recorded
from holdfast.seals.seals import Seals
from holdfast.stores import EffectRow
from holdfast.tools.effects import PastEffect, effect_key
from holdfast.transcript.transcript import clip

log = structlog.get_logger(__name__)

MOST_PAST_EFFECTS = 500
"""The most past effects that a reset run is given, which fits into its state; further ones are only counted."""

PAST_RESULT_CHARS = 500
"""The most characters of the result of each."""

_DOUBTS: Final[Mapping[MACVerdict, str]] = {
    "missing": "it carries no MAC of the fleet: a release before 0.2.0 has recorded it, or somebody else",
    "wrong": "its MAC is not of this effect and this outcome: somebody has altered or copied it",
    "unknown key": "its MAC is by a fleet key that this worker does not have: it was removed, or never ours",
}

_COLUMNS = ("key", "epoch", "tool", "number", "first_run_id", "call_digest", "call")
_OUTCOME = "SELECT outcome, mac FROM holdfast.effects WHERE key = %s AND epoch = %s"
_CLAIM = "SELECT pg_try_advisory_lock(hashtextextended(%s, %s))"
_CLAIM_AND_START = f"""
    WITH claim AS MATERIALIZED ({_CLAIM} AS held), started AS (
        INSERT INTO holdfast.effects (thread, {", ".join(_COLUMNS)})
        SELECT %s{", %s" * len(_COLUMNS)} FROM claim WHERE held
        ON CONFLICT DO NOTHING RETURNING true
    )
    SELECT held, EXISTS (SELECT FROM started) FROM claim
"""  # noqa: S608  # constants
_PAST_EFFECTS = f"""
    SELECT {", ".join(_COLUMNS)}, outcome, mac FROM holdfast.effects
    WHERE thread = %s AND number > %s
        AND first_run_id IS NOT NULL AND call_digest IS NOT NULL AND call IS NOT NULL
    ORDER BY started_at DESC, epoch DESC
"""  # noqa: S608  # constants


@dataclass
class Entry:
    """One effect, claimed by one attempt."""

    effect: PastEffect
    thread: str
    started_before: bool
    """Whether an earlier attempt started the effect."""
    outcome: ToolOutcome | None
    """The outcome of an earlier attempt, if one finished."""
    doubt: str
    """Why an outcome that is recorded does not count; empty for no doubt."""
    _connection: psycopg.AsyncConnection
    _url: str
    _macs: OutcomeMACs

    async def finish(self, outcome: ToolOutcome) -> None:
        """Record the outcome.

        The effect has happened, so this retries while the database is unavailable, until the activity's own time limit
        ends it.
        """
        while True:
            try:
                if not self._connection.closed:
                    return await self._record(self._connection, outcome)
                async with await psycopg.AsyncConnection.connect(self._url, connect_timeout=5) as fresh:
                    return await self._record(fresh, outcome)
            except psycopg.OperationalError as error:
                log.warning("outcome_not_recorded_yet", key=self.effect.key, tool=self.effect.tool, reason=str(error))
                await asyncio.sleep(1)

    async def _record(self, connection: psycopg.AsyncConnection, outcome: ToolOutcome) -> None:
        encoded = outcome.model_dump_json()
        mac = self._macs.make(recorded(self.effect, encoded, thread=self.thread))
        await connection.execute(
            "UPDATE holdfast.effects SET outcome = %s, mac = %s, finished_at = now() WHERE key = %s AND epoch = %s",
            [encoded, mac, self.effect.key, self.effect.epoch],
        )


class Ledger:
    """The `holdfast.run.ledger.EffectLedger` in PostgreSQL.

    Args:
        pool: Open; one connection is held per effect under way.
        url: The same database, to reconnect if the connection held is lost.
        seals: The fleet keys, for the MACs of outcomes.
    """

    def __init__(self, pool: AsyncConnectionPool, url: str, seals: Seals = NO_SEALS) -> None:
        self._pool = pool
        self._url = url
        self._macs = OutcomeMACs(seals)

    @asynccontextmanager
    async def claim(self, effect: PastEffect, *, thread: str, start: bool = False) -> AsyncIterator[Entry]:
        """Hold an exclusive claim on an effect during the block.

        Args:
            effect: The effect, identified by key and epoch; its other fields describe the call.
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
                    await unlock_all(connection)

    async def past_effects(self, thread: str, *, after: int) -> PastEffects:
        """Read the effects of a thread's calls numbered above `after`: the newest `MOST_PAST_EFFECTS`, oldest first.

        Args:
            thread: The thread's id.
            after: A call's number.
        """
        with retried_by_temporal(f"the effects of {thread}"):
            async with self._pool.connection() as connection:
                rows = await connection.execute(_PAST_EFFECTS, [thread, after])
                read = [self._past_effect(thread, *row) for row in await rows.fetchall()]
        found = _last_of_each(effect for effect in read if effect)
        newest = found[:MOST_PAST_EFFECTS]
        return PastEffects(effects=tuple(reversed(newest)), left_out=len(found) - len(newest))

    async def _claimed(
        self, connection: psycopg.AsyncConnection, effect: PastEffect, *, thread: str, start: bool
    ) -> Entry:
        name = [effect.key, effect.epoch]
        started = False
        if start:
            row = [thread, *(getattr(effect, column) for column in _COLUMNS)]
            held, started = await _first_row(connection, _CLAIM_AND_START, [*name, *row]) or (False, False)
        else:
            (held,) = await _first_row(connection, _CLAIM, name) or (False,)
        if not held:
            raise ApplicationError(
                f"another attempt of {effect.tool} is still running",
                type="EffectClaimed",
                next_retry_delay=timedelta(seconds=2),
            )
        if started:
            return Entry(effect, thread, False, None, "", connection, self._url, self._macs)
        # A separate statement, because its snapshot must be taken after the claim was.
        found = await _first_row(connection, _OUTCOME, name)
        encoded, mac = found or (None, None)
        outcome, doubt = self._outcome(effect, encoded, mac, thread=thread)
        return Entry(effect, thread, found is not None, outcome, doubt, connection, self._url, self._macs)

    def _outcome(
        self, effect: PastEffect, encoded: str | None, mac: str | None, *, thread: str
    ) -> tuple[ToolOutcome | None, str]:
        """Return the outcome that a row has, if it counts; else why it does not, if it has one."""
        if encoded is None:
            return None, ""
        if doubt := _DOUBTS.get(self._macs.verify(mac, recorded(effect, encoded, thread=thread))):
            log.warning("outcome_not_adopted", thread=thread, key=effect.key, tool=effect.tool, reason=doubt)
            return None, (
                f"the ledger has an outcome of this effect that does not count: {doubt}. Find out in the effect's own "
                "system whether it happened"
            )
        return ToolOutcome.model_validate_json(encoded), ""

    def _past_effect(self, thread: str, *row: Any) -> PastEffect | None:
        """Return the effect of a row; None for one whose key is not that of any call of the thread."""
        *columns, encoded, mac = row
        effect = PastEffect.model_validate(dict(zip(_COLUMNS, columns, strict=True)))
        number, chain, digest = effect.number, effect.first_run_id, effect.call_digest
        if effect.key != effect_key(thread=thread, first_run_id=chain, number=number, call_digest=digest):
            log.warning("effect_of_another_thread", thread=thread, key=effect.key, tool=effect.tool)
            return None
        outcome, _ = self._outcome(effect, encoded, mac, thread=thread)
        if outcome is None:
            return effect
        content = clip(text_of(outcome.content), PAST_RESULT_CHARS)
        return effect.model_copy(update={"status": outcome.status, "content": content})


async def _first_row(
    connection: psycopg.AsyncConnection, statement: str, values: Sequence[Any]
) -> tuple[Any, ...] | None:
    """The first row that a statement returns."""
    return await (await connection.execute(statement, values)).fetchone()


def _last_of_each(effects: Iterable[PastEffect]) -> list[PastEffect]:
    """Return one row for each key: that with an outcome that counts, as the last one there is; else the last epoch."""
    found: dict[str, PastEffect] = {}
    for each in effects:
        known = found.get(each.key)
        if known is None or (each.status != "started", each.epoch) > (known.status != "started", known.epoch):
            found[each.key] = each
    return list(found.values())


def recorded(effect: PastEffect, outcome: str, *, thread: str) -> Recorded:
    """Return what the MAC of an outcome covers.

    Args:
        effect: The effect.
        outcome: A `ToolOutcome` as JSON.
        thread: The thread of the call.
    """
    return Recorded(thread, effect.key, effect.epoch, effect.tool, effect.call_digest, outcome)


async def effects_of(pool: AsyncConnectionPool, thread: str) -> list[EffectRow]:
    """Read the ledger's rows of a thread, the oldest first."""
    with retried_by_temporal(f"the ledger of {thread}"):
        async with pool.connection() as connection:
            rows = await connection.execute(
                "SELECT key, epoch, tool, outcome, coalesce(call_digest, ''), mac FROM holdfast.effects "
                "WHERE thread = %s ORDER BY started_at, key, epoch",
                [thread],
            )
            return [EffectRow(*row) for row in await rows.fetchall()]
