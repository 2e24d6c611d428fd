"""Prune on a schedule, in the workers: `HOLDFAST_PRUNE` has the rules, `HOLDFAST_PRUNE_EVERY` the interval.

1. One worker sweeps at a time: it holds an advisory lock in the database, which ends with the process.
2. The database records when the last sweep began, and the progress of an unfinished one. So a sweep reaches every
   thread in spite of worker restarts and of threads that have to stay.
3. A sweep visits threads in the order of their database ids, in batches, so that it visits each once.
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
from holdfast.core.log.node_seals import SignRecord, unsealed
from holdfast.errors import HoldfastError, ServerUnreachable
from holdfast.storage.pool import unlock_all
from holdfast.storage.prune import BATCH, BEGINNING, Prunable, prunable_batch, prune
from holdfast.storage.threads import PostgresThreads

LOOK_SECONDS = 600.0
"""The longest time between two checks whether a sweep is due."""

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
    seal: SignRecord = unsealed,
) -> list[str] | None:
    """Sweep, or complete a sweep that another worker began; return the threads that were removed.

    Args:
        runs: The namespace's runs.
        pool: An open pool of connections to a migrated database.
        retention: The rules that decide which threads are due.
        every: The time from the beginning of one sweep to that of the next.
        batch: The number of threads to check together.
        seal: Seals the fact that a thread was pruned.

    Returns:
        None if no sweep is due, or another worker is sweeping.

    Raises:
        ServerUnreachable: Temporal is unreachable. The next call resumes this sweep.
        psycopg.Error: The database is unreachable.
    """
    async with pool.connection() as connection:
        try:  # a cancelled call may already hold the lock
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
    seal: SignRecord,
) -> list[str]:
    removed: list[str] = []
    last_id: int | None = start
    while last_id is not None:
        candidates, following = await prunable_batch(pool, retention.least, after=last_id, size=batch)
        for one in candidates:
            if not retention.is_due(one.outcome, datetime.now(UTC) - one.last_at):
                continue
            if await _remove(runs, pool, one, seal):
                removed.append(one.thread)
        if following is not None:
            await connection.execute("UPDATE holdfast.prune_sweeps SET last_id = %s", [following])
        last_id = following
    await connection.execute("UPDATE holdfast.prune_sweeps SET ended_at = now()")
    return removed


async def _remove(runs: Runs, pool: AsyncConnectionPool, one: Prunable, seal: SignRecord) -> bool:
    """Remove a thread, unless it is needed; return whether it was removed."""
    try:
        if await is_needed(runs, one.thread):
            return False
        await seal_pruned(PostgresThreads(pool), one, seal)
        return await prune(pool, one.thread, last_position=one.last_position)
    except ServerUnreachable:
        raise
    except HoldfastError as error:  # Temporal rejects this id: the sweep must still reach the threads after it
        log.warning("not_pruned", thread=one.thread, reason=str(error))
        return False


@asynccontextmanager
async def sweeping(
    runs: Runs, pool: AsyncConnectionPool, retention: Retention, *, every: timedelta, seal: SignRecord = unsealed
) -> AsyncIterator[None]:
    """Sweep whenever a sweep is due, during a block."""
    task = asyncio.create_task(_keep_sweeping(runs, pool, retention, every, seal))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _keep_sweeping(
    runs: Runs, pool: AsyncConnectionPool, retention: Retention, every: timedelta, seal: SignRecord
) -> None:
    while True:
        try:
            removed = await sweep(runs, pool, retention, every=every, seal=seal)
            if removed is not None:
                log.info("pruned", threads=len(removed))
        # The worker continues without pruning; the next check resumes this sweep.
        except Exception as error:
            log.warning("not_pruned", reason=str(error) or type(error).__name__)
        await asyncio.sleep(min(LOOK_SECONDS, every.total_seconds()))
