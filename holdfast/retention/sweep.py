"""Prune on a schedule, in the workers: `HOLDFAST_PRUNE` has the rules, `HOLDFAST_PRUNE_EVERY` the interval.

1. Of all workers, one sweeps at a time: a lock in the database says which. It ends with the process.
2. When the last sweep began, and how far one is that is under way, is in the database. So neither restarts of workers
   nor threads that have to stay keep a sweep from reaching every thread.
3. A sweep goes by the number of threads, in batches, so that it looks at each once.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import psycopg
import structlog
from psycopg_pool import AsyncConnectionPool

from holdfast.client.prune import is_needed, seal_pruned
from holdfast.client.reading.runs import Runs
from holdfast.core.base.retention import Retention
from holdfast.core.log.node_seals import SealRecord, unsealed
from holdfast.errors import HoldfastError, ServerUnreachable
from holdfast.storage.pool import unlock_all
from holdfast.storage.prune import BATCH, BEGINNING, Prunable, prunable_batch, prune
from holdfast.storage.threads import PostgresThreads

LOOK_SECONDS = 600.0
"""The longest time between two looks whether a sweep is due."""

_LOCK = 0x686F6C66
"""Advisory lock of the worker that sweeps."""

_BEGIN = """
    INSERT INTO holdfast.prune_sweeps (began_at, last_id) VALUES (now(), %(beginning)s)
    ON CONFLICT (one) DO UPDATE SET began_at = now(), ended_at = NULL, last_id = %(beginning)s
    WHERE prune_sweeps.ended_at IS NOT NULL AND prune_sweeps.began_at <= now() - %(every)s
"""
_WHERE = "SELECT last_id FROM holdfast.prune_sweeps WHERE ended_at IS NULL"

log = structlog.get_logger("worker")


async def sweep(
    runs: Runs,
    pool: AsyncConnectionPool,
    retention: Retention,
    *,
    every: timedelta,
    batch: int = BATCH,
    seal: SealRecord = unsealed,
) -> list[str] | None:
    """Sweep, or complete the sweep that another worker began; return the threads that were removed.

    Args:
        runs: The namespace's runs.
        pool: Open, to a migrated database.
        retention: Which threads are due.
        every: How long after the beginning of the last sweep the next is due.
        batch: How many threads to look at together.
        seal: Seals that a thread is pruned.

    Returns:
        None if no sweep is due, or another worker is sweeping.

    Raises:
        ServerUnreachable: Temporal does not answer. The next call continues where this one stopped.
        psycopg.Error: The database does not.
    """
    async with pool.connection() as connection:
        try:  # a call that is cancelled may have locked already
            locked = await (await connection.execute("SELECT pg_try_advisory_lock(%s)", [_LOCK])).fetchone()
            if locked != (True,):
                return None
            await connection.execute(_BEGIN, {"beginning": BEGINNING, "every": every})
            row = await (await connection.execute(_WHERE)).fetchone()
            return None if row is None else await _sweep(connection, runs, pool, retention, row[0], batch, seal)
        finally:
            await unlock_all(connection)


async def _sweep(
    connection: psycopg.AsyncConnection,
    runs: Runs,
    pool: AsyncConnectionPool,
    retention: Retention,
    start: int,
    batch: int,
    seal: SealRecord,
) -> list[str]:
    removed: list[str] = []
    place: int | None = start
    while place is not None:
        found, following = await prunable_batch(pool, retention.least, after=place, size=batch)
        for one in found:
            if not retention.is_due(one.outcome, datetime.now(UTC) - one.last_at):
                continue
            if await _removed(runs, pool, one, seal):
                removed.append(one.thread)
        if following is not None:
            await connection.execute("UPDATE holdfast.prune_sweeps SET last_id = %s", [following])
        place = following
    await connection.execute("UPDATE holdfast.prune_sweeps SET ended_at = now()")
    return removed


async def _removed(runs: Runs, pool: AsyncConnectionPool, one: Prunable, seal: SealRecord) -> bool:
    """Remove a thread, unless it is needed; return whether it was removed."""
    try:
        if await is_needed(runs, one.thread):
            return False
        await seal_pruned(PostgresThreads(pool), one, seal)
        return await prune(pool, one.thread, last_position=one.last_position)
    except ServerUnreachable:
        raise
    except HoldfastError as error:  # Temporal refuses this id: it must not keep the sweep from the threads after it
        log.warning("not_pruned", thread=one.thread, reason=str(error))
        return False


@asynccontextmanager
async def sweeping(
    runs: Runs, pool: AsyncConnectionPool, retention: Retention, *, every: timedelta, seal: SealRecord = unsealed
) -> AsyncIterator[None]:
    """Sweep whenever it is due, for the length of a block."""
    task = asyncio.create_task(_keep_sweeping(runs, pool, retention, every, seal))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _keep_sweeping(
    runs: Runs, pool: AsyncConnectionPool, retention: Retention, every: timedelta, seal: SealRecord
) -> None:
    while True:
        try:
            removed = await sweep(runs, pool, retention, every=every, seal=seal)
            if removed is not None:
                log.info("pruned", threads=len(removed))
        # The worker continues without pruning; the next look continues where this one stopped.
        except Exception as error:
            log.warning("not_pruned", reason=str(error) or type(error).__name__)
        await asyncio.sleep(min(LOOK_SECONDS, every.total_seconds()))
