"""The effect ledger: the effects that started, those that finished, and their outcomes.

1. `claim` gives one attempt at a time an exclusive claim on an effect, across all workers: a PostgreSQL advisory lock.
   The claim ends with the connection, and so with the process; an attempt confirms it right before it acts. It covers
   the effect in all epochs up to its own, so that people's answers about earlier attempts do not split it.
2. The start is committed before the effect happens, in the same statement that takes the claim; `finish` after it. The
   first recorded outcome wins: an attempt that lost its claim and ends late overwrites nothing.
3. An outcome counts if a process of this fleet recorded it for this exact effect, as its MAC shows
   (`holdfast.core.mac.outcomes`). A worker does not adopt any other outcome: it asks people, and overwrites it with its
   own. A row without an outcome needs no MAC, because it can only make a worker check the effect, or ask.
4. A worker runs at most `EFFECTS_AT_ONCE` effects at a time. A further attempt waits for a few seconds; then it leaves
   its call to the next free worker. That is no failure.
5. The time that a lost attempt's request has had to arrive is measured by this server's clock alone. It starts again
   after an attempt that did not measure it, such as one of an older release.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

import psycopg
from psycopg_pool import AsyncConnectionPool

from holdfast.config.logs import EventLogger
from holdfast.core.llm.blocks import text_of
from holdfast.core.mac.outcomes import NO_SEALS, MACVerdict, OutcomeMACs, Recorded
from holdfast.core.mac.seals import FleetKeys
from holdfast.core.run.contracts.error_types import Waits
from holdfast.core.run.contracts.ledger import FIRST_ATTEMPT, CallAttempt, outcome_applies
from holdfast.core.run.contracts.loading import PastEffects
from holdfast.core.run.contracts.tool_calls import ToolOutcome
from holdfast.core.stores import EffectRow
from holdfast.core.tools.effects import PastEffect, effect_key
from holdfast.core.transcript.transcript import clip
from holdfast.storage.pool import EFFECTS_AT_ONCE, retried_by_temporal, unlock_all

log = EventLogger(__name__)

MOST_PAST_EFFECTS = 500
"""The most past effects that a reset run receives, so that its state stays small; further ones are only counted."""

WAIT_SECONDS = 5.0
"""Seconds that an attempt waits for one of the effects of its worker to end. They count against the tool's time limit,
whose margin is longer."""

RETRY_DELAY = timedelta(seconds=2)
"""Delay until an attempt that waits is offered again."""

PAST_RESULT_CHARS = 500
"""The most characters of the result of each past effect."""

_DOUBTS: Final[Mapping[MACVerdict, str]] = {
    "missing": "it carries no MAC of the fleet: a release before 0.2.0 has recorded it, or somebody else",
    "wrong": "its MAC is not of this effect and this outcome: somebody has altered or copied it",
    "unknown key": "its MAC is by a fleet key that this worker does not have: it was removed, or never ours",
}

_COLUMNS = ("key", "epoch", "tool", "number", "first_run_id", "call_digest", "call")
CONFIRMED_SECONDS = 1.0
"""Seconds for which a confirmed claim is valid without another check. Temporal gives a call to another worker only
after the first one crashed or was silent for longer (`HEARTBEAT_TIMEOUT`)."""

_OUTCOME = "SELECT outcome, mac FROM holdfast.effects WHERE key = %s AND epoch = %s"
_EPOCHS = "SELECT epoch, outcome, mac FROM holdfast.effects WHERE key = %s AND epoch <= %s ORDER BY epoch DESC"
_LOCK = "pg_try_advisory_lock(hashtextextended(%s, epoch))"
_CLAIM = f"SELECT bool_and({_LOCK}) FROM generate_series(0, %s) AS epoch"  # noqa: S608  # a constant
_INSERT = f"INSERT INTO holdfast.effects (thread, {', '.join(_COLUMNS)})"
_CLAIM_AND_START = f"""
    WITH claim AS MATERIALIZED (SELECT pg_try_advisory_lock(hashtextextended(%s, %s)) AS held), started AS (
        {_INSERT}
        SELECT %s{", %s" * len(_COLUMNS)} FROM claim WHERE held
        ON CONFLICT DO NOTHING RETURNING true
    )
    SELECT held, EXISTS (SELECT FROM started) FROM claim
"""  # noqa: S608  # constants
_ADD = f"{_INSERT} VALUES (%s{', %s' * len(_COLUMNS)}) ON CONFLICT DO NOTHING"
_START = f"""
    {_INSERT} VALUES (%s{", %s" * len(_COLUMNS)})
    ON CONFLICT (key, epoch) DO UPDATE SET settling_since = NULL, settling_by = NULL
"""
_SETTLING = """
    WITH lost AS (
        UPDATE holdfast.effects SET
            settling_since = CASE WHEN epoch < %(epoch)s OR settling_by = ANY (%(attempts)s)
                THEN coalesce(settling_since, clock_timestamp()) ELSE clock_timestamp() END,
            settling_by = CASE WHEN epoch < %(epoch)s THEN settling_by ELSE %(attempt)s END
        WHERE key = %(key)s AND epoch <= %(epoch)s AND (outcome IS NULL OR epoch = ANY (%(doubtful)s::int[]))
        RETURNING settling_since
    )
    SELECT extract(epoch FROM clock_timestamp() - max(settling_since))::float8 FROM lost
"""
_FINISH = """
    UPDATE holdfast.effects SET outcome = %s, mac = %s, finished_at = now()
    WHERE key = %s AND epoch = %s AND outcome IS NOT DISTINCT FROM %s AND mac IS NOT DISTINCT FROM %s
    RETURNING true
"""
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
    """The reason why a recorded outcome of this epoch does not count; else empty."""
    _doubtful: tuple[int, ...]
    """The epochs whose outcomes do not count."""
    _attempt: CallAttempt
    _connection: psycopg.AsyncConnection
    _confirmed: float
    """The last time at which this attempt certainly held the claim."""
    _ledger: "Ledger"

    @property
    def fresh(self) -> bool:
        """True if the claim was confirmed so recently that no other attempt can hold it."""
        return _clock() - self._confirmed < CONFIRMED_SECONDS

    async def confirm(self) -> None:
        """Check that this attempt still holds the claim, by a query on its connection.

        Raises:
            psycopg.OperationalError: The connection has ended, and the claim with it.
        """
        if not self.fresh:
            now = _clock()
            await self._connection.execute("SELECT 1")
            self._confirmed = now

    async def start(self) -> None:
        """Record that the effect may happen from here on, for the first time or again."""
        now = _clock()
        await self._connection.execute(_START, _row(self.thread, self.effect))
        self._confirmed = now

    async def settling(self) -> float | None:
        """Return the seconds since the last attempt whose request may still arrive; None if there is none."""
        values = {
            "key": self.effect.key,
            "epoch": self.effect.epoch,
            "attempt": self._attempt.name,
            "attempts": [self._attempt.name, self._attempt.previous],
            "doubtful": list(self._doubtful),
        }
        cursor = await self._connection.execute(_SETTLING, values)
        row = await cursor.fetchone()
        return None if row is None or row[0] is None else float(row[0])

    async def finish(self, outcome: ToolOutcome) -> ToolOutcome:
        """Record the outcome, unless another is recorded, and return the recorded one.

        The effect has happened, so this retries while the database is unavailable, up to the activity's time limit.
        """
        while True:
            try:
                if not self._connection.closed:
                    return await self._record(self._connection, outcome)
                async with await psycopg.AsyncConnection.connect(self._ledger.url, connect_timeout=5) as fresh:
                    return await self._record(fresh, outcome)
            except psycopg.OperationalError as error:
                log.warning("outcome_not_recorded_yet", key=self.effect.key, tool=self.effect.tool, reason=str(error))
                await asyncio.sleep(1)

    async def _record(self, connection: psycopg.AsyncConnection, outcome: ToolOutcome) -> ToolOutcome:
        encoded, mac = self._ledger.with_mac(self.effect, outcome, thread=self.thread)
        name = [self.effect.key, self.effect.epoch]
        # Without a row, the outcome was adopted from an earlier epoch, or is a rejection.
        if self.effect.epoch and not self.started_before:
            await connection.execute(_ADD, _row(self.thread, self.effect))
        stored: Sequence[Any] = (None, None)
        while not await _first_row(connection, _FINISH, [encoded, mac, *name, *stored]):
            row = await _first_row(connection, _OUTCOME, name)
            if row is None:  # somebody has deleted the row
                return outcome
            stored = row
            other, _ = self._ledger.outcome(self.effect, *stored, thread=self.thread)
            if other:
                return other
        return outcome


class Ledger:
    """The `holdfast.core.run.contracts.ledger.EffectLedger` in PostgreSQL.

    Args:
        pool: Open; each running effect holds a connection.
        url: URL of the same database, to reconnect if that connection is lost.
        seals: The fleet keys, for the MACs of outcomes.
        at_once: The most effects at a time; the pool has more connections than that.
    """

    def __init__(
        self, pool: AsyncConnectionPool, url: str, seals: FleetKeys = NO_SEALS, *, at_once: int = EFFECTS_AT_ONCE
    ) -> None:
        self._pool = pool
        self._free = asyncio.Semaphore(at_once)
        self.url = url
        self._macs = OutcomeMACs(seals)

    @asynccontextmanager
    async def claim(
        self, effect: PastEffect, *, thread: str, start: bool = False, attempt: CallAttempt = FIRST_ATTEMPT
    ) -> AsyncIterator[Entry]:
        """Hold an exclusive claim on an effect, in this epoch and all earlier ones, during the block.

        Args:
            effect: The effect, identified by key and epoch; its other fields describe the call.
            thread: The thread of the call.
            start: Record that the effect may happen from here on, unless an earlier attempt did. Only in the first
                epoch; in a later one, `Entry.start` records it.
            attempt: The attempt that claims the effect.

        Raises:
            ApplicationError: Another attempt holds the claim, this worker runs as many effects as it may, or the
                database is unavailable; Temporal retries.
        """
        async with self._slot(effect):
            with retried_by_temporal(effect.tool):
                async with self._pool.connection() as connection:
                    try:
                        yield await self._claim(connection, effect, thread=thread, start=start, attempt=attempt)
                    finally:
                        await unlock_all(connection)

    @asynccontextmanager
    async def _slot(self, effect: PastEffect) -> AsyncIterator[None]:
        """Hold one of the places for effects of this worker, in order of arrival, during the block.

        Raises:
            ApplicationError: None became free in time; Temporal offers the call to the next free worker.
        """
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._free.acquire()
        except TimeoutError:
            why = f"this worker runs as many effects as it may; {effect.tool} waits for one of them"
            raise Waits(why, type="EffectsFull", next_retry_delay=RETRY_DELAY) from None
        try:
            yield
        finally:
            self._free.release()

    async def past_effects(self, thread: str, *, after: int) -> PastEffects:
        """Read the effects of a thread's calls numbered above `after`: the newest `MOST_PAST_EFFECTS`, oldest first.

        Args:
            thread: The thread's id.
            after: The number of a call.
        """
        with retried_by_temporal(f"the effects of {thread}"):
            async with self._pool.connection() as connection:
                rows = await connection.execute(_PAST_EFFECTS, [thread, after])
                effects = [self._past_effect(thread, *row) for row in await rows.fetchall()]
        last = _last_of_each(effect for effect in effects if effect)
        newest = last[:MOST_PAST_EFFECTS]
        return PastEffects(effects=tuple(reversed(newest)), left_out=len(last) - len(newest))

    async def _claim(
        self,
        connection: psycopg.AsyncConnection,
        effect: PastEffect,
        *,
        thread: str,
        start: bool,
        attempt: CallAttempt,
    ) -> Entry:
        name, now = [effect.key, effect.epoch], _clock()
        started = False
        if start:
            held, started = await _first_row(connection, _CLAIM_AND_START, [*name, *_row(thread, effect)]) or (
                False,
                False,
            )
        else:
            (held,) = await _first_row(connection, _CLAIM, name) or (False,)
        if not held:
            why = f"another attempt of {effect.tool} is still running"
            raise Waits(why, type="EffectClaimed", next_retry_delay=RETRY_DELAY)
        if started:
            return Entry(effect, thread, False, None, "", (), attempt, connection, now, self)
        # A separate statement, because its snapshot must be taken after the claim.
        rows = await (await connection.execute(_EPOCHS, name)).fetchall()
        outcome, doubts = self._outcomes(effect, rows, thread=thread)
        started = bool(rows) and rows[0][0] == effect.epoch
        # People have already answered about earlier epochs.
        doubt = "" if outcome else doubts.get(effect.epoch, "")
        return Entry(effect, thread, started, outcome, doubt, tuple(doubts), attempt, connection, now, self)

    def _outcomes(
        self, effect: PastEffect, rows: Sequence[Sequence[Any]], *, thread: str
    ) -> tuple[ToolOutcome | None, dict[int, str]]:
        """Return the outcome of an effect that counts, and the reasons why others do not, by epoch."""
        outcome, doubts = None, dict[int, str]()
        for epoch, encoded, mac in rows:
            valid, doubt = self.outcome(effect.model_copy(update={"epoch": epoch}), encoded, mac, thread=thread)
            if doubt:
                doubts[epoch] = doubt
            if valid and outcome is None and outcome_applies(valid, effect, epoch):
                outcome = valid
        return outcome, doubts

    def with_mac(self, effect: PastEffect, outcome: ToolOutcome, *, thread: str) -> tuple[str, str | None]:
        """Return an outcome in its stored form, and its MAC."""
        encoded = outcome.model_dump_json()
        return encoded, self._macs.make(recorded(effect, encoded, thread=thread))

    def outcome(
        self, effect: PastEffect, encoded: str | None, mac: str | None, *, thread: str
    ) -> tuple[ToolOutcome | None, str]:
        """Return the stored outcome if it counts, and otherwise the reason; the reason is empty if none is stored."""
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
        """Return the effect of a row; None if its key does not belong to a call of the thread."""
        *columns, encoded, mac = row
        effect = PastEffect.model_validate(dict(zip(_COLUMNS, columns, strict=True)))
        number, chain, digest = effect.number, effect.first_run_id, effect.call_digest
        if effect.key != effect_key(thread=thread, first_run_id=chain, number=number, call_digest=digest):
            log.warning("effect_of_another_thread", thread=thread, key=effect.key, tool=effect.tool)
            return None
        outcome, _ = self.outcome(effect, encoded, mac, thread=thread)
        if outcome is None:
            return effect
        content = clip(text_of(outcome.content), PAST_RESULT_CHARS)
        return effect.model_copy(update={"status": outcome.status, "content": content})


async def _first_row(
    connection: psycopg.AsyncConnection, statement: str, values: Sequence[Any]
) -> tuple[Any, ...] | None:
    """Return the first row of a statement's result."""
    return await (await connection.execute(statement, values)).fetchone()


def _clock() -> float:
    """Return a clock in seconds that keeps running while this process, or the whole machine, is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic()


def _row(thread: str, effect: PastEffect) -> list[Any]:
    return [thread, *(getattr(effect, column) for column in _COLUMNS)]


def _last_of_each(effects: Iterable[PastEffect]) -> list[PastEffect]:
    """Return one row for each key: the last whose outcome applies (`outcome_applies`), else that of the last epoch.

    A row without an outcome never hides one with an outcome, because anybody who can write here may have added it.
    """
    last: dict[str, PastEffect] = {}
    for each in effects:
        other = last.get(each.key)
        if other is None or (each.status == "ok", each.epoch) > (other.status == "ok", other.epoch):
            last[each.key] = each
    return list(last.values())


def recorded(effect: PastEffect, outcome: str, *, thread: str) -> Recorded:
    """Return the values that the MAC of an outcome covers.

    Args:
        effect: The effect.
        outcome: A `ToolOutcome` as JSON.
        thread: The thread of the call.
    """
    return Recorded(thread, effect.key, effect.epoch, effect.tool, effect.call_digest, outcome)


async def effects_of(pool: AsyncConnectionPool, thread: str) -> list[EffectRow]:
    """Read the ledger's rows of a thread, oldest first."""
    with retried_by_temporal(f"the ledger of {thread}"):
        async with pool.connection() as connection:
            rows = await connection.execute(
                "SELECT key, epoch, tool, outcome, coalesce(call_digest, ''), mac, number, first_run_id, call "
                "FROM holdfast.effects WHERE thread = %s ORDER BY started_at, key, epoch",
                [thread],
            )
            found = await rows.fetchall()
            return [replace(EffectRow(*row[:6]), call=(row[6], row[7], row[8])) for row in found]
