"""Scheduled pruning by rules: each outcome has its own age, every thread is reached, and needed threads stay."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool
from temporalio.client import Client

from holdfast.client.prune import is_needed
from holdfast.client.reading.runs import Runs
from holdfast.config.stack_file import Stack
from holdfast.core.base.retention import read_rules
from holdfast.errors import HoldfastError
from holdfast.retention import sweep as sweeps
from holdfast.retention.sweep import sweep
from holdfast.storage.threads import PostgresThreads
from tests.support.keeping import lines_of, new_pool
from tests.support.rig import PATIENCE

NOW = datetime.now(UTC)
EVERY = timedelta(days=1)
RULES = read_rules(["finished=10d", "failed=30d"])


async def record(pool: AsyncConnectionPool, thread: str, days: int, outcome: str = "completed") -> None:
    """Record a thread that ended that many days ago."""
    lines = lines_of(thread, ended=NOW - timedelta(days=days), outcome=outcome)
    await PostgresThreads(pool).append(thread, 0, lines)


async def left(pool: AsyncConnectionPool) -> set[str]:
    """Return the threads that remain."""
    async with pool.connection() as connection:
        return {
            thread for (thread,) in await (await connection.execute("SELECT thread FROM holdfast.threads")).fetchall()
        }


async def test_each_outcome_has_its_own_age_and_open_threads_stay(
    stack: Stack, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that an open run needs stays; after the interval, the next sweep is due.

    A thread that Temporal fails to look up does not keep later threads from being pruned.
    """

    async def needed(runs: Runs, thread: str) -> bool:
        if thread == "refused":
            raise HoldfastError("Temporal refused (INVALID_ARGUMENT)")
        return await is_needed(runs, thread)

    monkeypatch.setattr(sweeps, "is_needed", needed)
    held = await client.start_workflow("AgentRunWorkflow", {}, id="sweep-open", task_queue="nobody")
    runs = Runs(client, answer_within=PATIENCE)
    async with new_pool(stack.database_url) as (_, pool):
        await record(pool, "sweep-open", 50)
        await record(pool, "sweep-open.1", 50)
        await record(pool, "refused", 50)
        await record(pool, "old", 20)
        await record(pool, "new", 5)
        await record(pool, "failed", 20, "failed")
        await record(pool, "failed long ago", 40, "failed")
        removed = await sweep(runs, pool, RULES, every=EVERY, batch=2)
        assert removed == ["old", "failed long ago"]
        assert await left(pool) == {"sweep-open", "sweep-open.1", "refused", "new", "failed"}
        await held.terminate()
        assert await sweep(runs, pool, RULES, every=EVERY) is None, "not due yet"
        assert await sweep(runs, pool, RULES, every=timedelta(0)) == ["sweep-open", "sweep-open.1"]


@pytest.mark.extended
async def test_an_interrupted_sweep_resumes_where_it_stopped(
    stack: Stack, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads that must stay do not delay the ones after them, however often the worker is killed."""
    runs, looked = Runs(client, answer_within=PATIENCE), list[str]()
    async with new_pool(stack.database_url) as (_, pool):
        for number in range(6):
            await record(pool, f"t{number}", 60 - number)

        async def killed_after_two(runs: Runs, thread: str) -> bool:
            if len(looked) % 3 == 2:
                looked.append("killed")
                raise ConnectionError("the worker is killed")
            looked.append(thread)
            return thread < "t4"

        monkeypatch.setattr(sweeps, "is_needed", killed_after_two)
        removed: list[str] | None = None
        for _ in range(4):
            try:
                removed = await sweep(runs, pool, RULES, every=EVERY, batch=1)
                break
            except ConnectionError:
                continue
        assert [each for each in looked if each != "killed"] == [f"t{number}" for number in range(6)]
        assert removed == ["t4", "t5"]
        assert await left(pool) == {"t0", "t1", "t2", "t3"}


@pytest.mark.extended
async def test_a_sweep_that_is_cancelled_while_it_locks_excludes_nobody(
    stack: Stack, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database may have granted the lock although its response never reaches the worker."""
    execute = AsyncConnection.execute

    async def cancelled(self: Any, query: Any, *args: Any, **kwargs: Any) -> Any:
        cursor = await execute(self, query, *args, **kwargs)
        if "pg_try_advisory_lock" in query:
            raise asyncio.CancelledError
        return cursor

    async with new_pool(stack.database_url) as (url, pool), await AsyncConnection.connect(url) as other:
        with monkeypatch.context() as patched:
            patched.setattr(AsyncConnection, "execute", cancelled)
            with pytest.raises(asyncio.CancelledError):
                await sweep(Runs(client, answer_within=PATIENCE), pool, RULES, every=EVERY)
        locks = (
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' "
            "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        assert await (await other.execute(locks)).fetchone() == (0,)


@pytest.mark.parametrize(
    "rules", [[], ["finished"], ["open=1d"], ["finished=soon"], ["failed=1d", "failed=2d"], ["finished=-1d"]]
)
def test_an_ambiguous_rule_is_rejected(rules: list[str]) -> None:
    """Nothing is removed by a rule whose meaning differs from its appearance."""
    with pytest.raises(ValueError, match=r"rule|age"):
        read_rules(rules)
