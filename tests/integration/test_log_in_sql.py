"""The record in SQL, and migrations: the documented queries and grants, on a database with real runs."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from copy import deepcopy
from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg.rows import dict_row

from holdfast.core.base.canonical import canonical
from holdfast.core.log.event_log import event_line
from holdfast.core.log.events import RunForked
from holdfast.core.log.fork_point import ForkPoint
from holdfast.core.run.contracts.commands import Call
from holdfast.core.run.contracts.tool_calls import ToolOutcome, ToolRequest
from holdfast.storage.log_rows import TEXT_CHARS, RowContext, fit, rows_of
from holdfast.storage.missing_rows import fill_rows
from holdfast.storage.pool import migrate, open_database, open_pool, schema_of
from holdfast.storage.threads import PostgresThreads
from tests.support.logs import WrittenLog
from tests.support.runs import calls, loaded_thread, says

FORGET_ROWS = "UPDATE holdfast.events SET log_rows = NULL, carried = NULL, origins = NULL"
"""The state in which a release without rows for SQL leaves blocks."""
DOCS = Path(__file__).parents[2] / "docs/how-to"


def sql_of(page: str) -> list[str]:
    """Return the SQL blocks of a page."""
    return re.findall(r"```sql\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


def at(url: str, name: str, *, user: str | None = None) -> str:
    """Return the URL of another database, or user, on the same server."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(path=f"/{name}", netloc=f"{user}@{host}" if user else parts.netloc).geturl()


@pytest.fixture
async def url(database_url: str) -> AsyncIterator[str]:
    """Return a new database without tables; remove the documented roles afterwards."""
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as admin:
        await admin.execute("CREATE DATABASE sql_log")
        try:
            yield at(database_url, "sql_log")
        finally:
            await admin.execute("DROP DATABASE sql_log WITH (FORCE)")
            for role in ("auditor", "holdfast_worker"):
                await admin.execute(f"DROP ROLE IF EXISTS {role}")


def a_run() -> list[bytes]:
    """Return the lines of a run with a failed call, one that alice approved and one that she denied."""
    thread = loaded_thread()
    thread.reply(calls("look", "pay", "pay", "wipe"))
    thread.finish(1, "no such file", status="failed")
    thread.decide("1", by="alice", reason="fine")
    (paying,) = (call for call in thread.waiting(ToolRequest) if isinstance(call, Call) and call.number == 2)
    thread.end(paying, ToolOutcome(status="ok", content="paid", duration_ms=1_500))
    thread.decide("2", "deny", by="alice", reason="not twice")
    thread.reply(says("done"))
    return [event_line(event) for event in thread.log]


async def test_the_documented_queries_work_for_a_role_that_may_read_only_the_view(url: str) -> None:
    """The view shows approvals, failures, cost, latency and denials, and the role can read no table."""
    await migrate(url)
    lines = a_run()
    async with open_pool(url, size=2) as pool:
        await PostgresThreads(pool).append("t", 0, lines)
    grants, *queries = sql_of("query-the-record.md")
    assert len(queries) == 5
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as owner:
        await owner.execute("CREATE ROLE auditor LOGIN")
        await owner.execute(grants)
        await owner.execute(
            "UPDATE holdfast.events SET log_rows = (SELECT jsonb_agg(row || jsonb_build_object('at', now())) "
            "FROM jsonb_array_elements(log_rows) AS row)"
        )
        await owner.execute("SET ROLE auditor")
        approved, failed, cost, slow, denied = [await (await owner.execute(each)).fetchall() for each in queries]
        for forbidden in ("events", "threads", "effects", "migrations"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                await owner.execute(f"SELECT * FROM holdfast.{forbidden}")
        with pytest.raises(psycopg.Error):
            await owner.execute("DELETE FROM holdfast.log")
    assert [(row[1], row[2], row[3], row[4]) for row in approved] == [("t", "pay", 2, "fine")]
    assert failed == [("look", 1, 1)]
    assert [row[1:6] for row in cost] == [("agent", "t", 2, 20, 2)]
    assert slow == [(1_500, "pay", "ok", "t", 2)]
    assert {(row[2], row[4]) for row in denied} == {("pay", "alice"), ("wipe", None)}


async def test_each_llm_call_costs_once(url: str) -> None:
    """A fork does not pay for the events that it begins with, nor an archived branch for what its thread has, too."""
    log = WrittenLog("acme-1")
    (number,) = log.reply("look", cost=1_500_000_000)
    log.run_call(number)
    shared = len(log.lines)
    fork, branch = deepcopy(log), deepcopy(log)
    point = ForkPoint(thread="acme-1", position=shared - 1, head=64 * "0")
    fork.add(RunForked(thread="acme-2", first_run_id="f", point=point, origin="acme-1"))
    fork.reply(text="done", cost=250_000_000)
    log.reply(text="one", cost=10_000_000_000)
    branch.reply(text="two")
    await migrate(url)
    async with open_pool(url, size=1) as pool:
        threads = PostgresThreads(pool)
        await threads.append("acme-1", 0, log.lines)
        await threads.append("acme-2", 0, fork.lines)
        await threads.set_aside("acme-1", shared, branch.lines[shared:])
        await threads.append("acme-1", shared, branch.lines[shared:])
        async with pool.connection() as connection:
            found = await connection.execute("SELECT thread, day, agent, usd FROM holdfast.costs ORDER BY thread, at")
            rows = [(row[0], str(row[1]), row[2], row[3] and float(row[3])) for row in await found.fetchall()]
    day = "2026-03-02"
    assert rows == [("acme-1", day, "agent", 1.5), ("acme-1", day, "agent", None), ("acme-2", day, "agent", 0.25)]


async def test_rows_follow_the_record_through_retries_resets_and_older_releases(url: str) -> None:
    """The view has each stored event once; an archived branch is a separate thread; gaps are filled."""
    await migrate(url)
    lines = a_run()

    async def positions() -> dict[str, list[int]]:
        async with await psycopg.AsyncConnection.connect(url) as connection:
            rows = await connection.execute("SELECT thread, position FROM holdfast.log ORDER BY thread, position")
            found: dict[str, list[int]] = {}
            for thread, position in await rows.fetchall():
                found.setdefault(thread, []).append(position)
            return found

    async with open_pool(url, size=2) as pool:
        threads = PostgresThreads(pool)
        await threads.append("t", 0, lines[:6])
        await threads.append("t", 0, lines[:6])
        await threads.append("t", 4, lines[4:9])
        assert await positions() == {"t": list(range(9))}
        async with pool.connection() as connection:  # as an older release leaves it
            await connection.execute(f"{FORGET_ROWS} WHERE position >= 6")
        await threads.append("t", 9, lines[9:])
        assert await positions() == {"t": list(range(len(lines)))}
        async with pool.connection() as connection:
            await connection.execute(FORGET_ROWS)
        assert await fill_rows(url) == len(lines)
        assert await fill_rows(url) == 0
        async with pool.connection() as connection:
            rows = await connection.execute(
                "SELECT tool, call, status FROM holdfast.log WHERE type = 'decision_received'"
            )
            assert await rows.fetchall() == [("pay", 2, "accepted"), ("pay", 3, "accepted")]
        aside = await threads.set_aside("t", 5, [canonical({"type": "other"})])
        assert await positions() == {"t": list(range(5)), aside: list(range(len(lines)))}


@pytest.mark.parametrize("recorded", ["the same", "other", "none"])
async def test_a_fork_has_the_rows_that_its_lines_imply(url: str, recorded: str) -> None:
    """A fork has its rows even if its original has diverged or is missing."""
    original = loaded_thread()
    original.reply(calls("look", "pay"))
    original.finish(1, "seen")
    other = loaded_thread()
    other.reply(says("nothing to do, at some length"))
    fork = original.fork(task="again")
    lines = [event_line(event) for event in fork.log]
    await migrate(url)
    async with open_pool(url, size=2) as pool:
        store = PostgresThreads(pool)
        if recorded != "none":
            log = original.log if recorded == "the same" else [*other.log, *other.log]
            await store.append("t", 0, [event_line(event) for event in log])
        await store.append("u", 0, lines)
        async with pool.connection() as connection:
            found = await connection.cursor(row_factory=dict_row).execute(
                "SELECT * FROM holdfast.log WHERE thread = 'u' ORDER BY position"
            )
            rows = await found.fetchall()
    expected = rows_of(0, [json.loads(line) for line in lines], RowContext())
    shown = [{name: value for name, value in row.items() if value is not None and name != "thread"} for row in rows]
    assert shown == [{**row, "at": datetime.fromisoformat(row["at"])} for row in expected]


@pytest.mark.parametrize(
    "line",
    [
        b"not json",
        b'"text"',
        b"[" * 5_000,
        canonical({"type": "user_message_received", "content": "\x00" * 10, "by": "a\x00b", "at": "never"}),
        b'{"type":"x\\ud800","n":1' + b"0" * 4_000 + b',"number":-1,"call":7,"request":[1]}',
        canonical({"type": ["x"], "request": {"id": 5, "number": True}, "spec": "x", "status": {}}),
        b'{"type":"deep","x":' + b"[" * 900 + b"]" * 900 + b"}",
        b'{"type":"x","n":1e400}',  # its body is omitted
    ],
)
async def test_any_event_can_be_recorded(url: str, line: bytes) -> None:
    """An event that jsonb rejects stops no run."""
    await migrate(url)
    async with open_pool(url, size=2) as pool:
        threads = PostgresThreads(pool)
        await threads.append("t", 0, [line])
        assert await threads.read("t") == [line]
        async with pool.connection() as connection:
            assert len(await (await connection.execute("SELECT * FROM holdfast.log")).fetchall()) == 1


@pytest.mark.parametrize("altered", ["[]", '"x"', '{"step": "many"}', '{"tools": [1]}', '{"requests": {"1": []}}'])
async def test_altered_rows_keep_no_event_out_of_the_record(url: str, altered: str) -> None:
    """Rows for SQL are a copy: altered ones may be wrong, but stop no append."""
    await migrate(url)
    lines = a_run()
    async with open_pool(url, size=2) as pool:
        threads = PostgresThreads(pool)
        await threads.append("t", 0, lines[:9])
        async with pool.connection() as connection:
            await connection.execute("UPDATE holdfast.events SET carried = %s", [altered])
        await threads.append("t", 9, lines[9:])
        assert await threads.read("t") == lines
        async with pool.connection() as connection:
            found = await connection.execute("SELECT position FROM holdfast.log ORDER BY position")
            assert [position for (position,) in await found.fetchall()] == list(range(len(lines)))


async def test_a_thread_that_lacks_many_rows_is_filled_only_by_migrate(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An append stays fast although an older release left many rows missing, and adds no row beyond the gap."""
    await migrate(url)
    lines = a_run()
    monkeypatch.setattr("holdfast.storage.threads.CATCH_UP", 5)
    async with open_pool(url, size=2) as pool:
        threads = PostgresThreads(pool)
        await threads.append("t", 0, lines[:6])
        async with pool.connection() as connection:
            await connection.execute(FORGET_ROWS)
        await threads.append("t", 6, lines[6:])
        async with pool.connection() as connection:
            assert not await (await connection.execute("SELECT * FROM holdfast.log")).fetchall()
    assert await fill_rows(url) == len(lines)


def test_long_texts_are_clipped() -> None:
    """A row is for reading; the record keeps the whole text."""
    assert fit({"a": ["x" * (TEXT_CHARS + 5)]}) == {"a": ["x" * TEXT_CHARS + "… (5 more characters)"]}


async def test_workers_wait_for_the_migration_and_need_no_ddl_rights(url: str) -> None:
    """A worker of a new release starts once somebody has migrated; its role owns no table."""

    async def started() -> None:
        async with open_database(url, size=1, migrating=False):
            pass

    waiting = asyncio.create_task(started())
    done, _ = await asyncio.wait([waiting], timeout=0.5)
    assert not done
    assert "run `" in (await schema_of(url)).advice()
    both = await asyncio.gather(migrate(url), migrate(url))
    assert sorted(map(bool, both)) == [False, True]
    await waiting
    (grants,) = sql_of("migrate.md")
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as owner:
        await owner.execute(grants)
    async with open_database(at(url, "sql_log", user="holdfast_worker"), size=1, migrating=False) as pool:
        await PostgresThreads(pool).append("t", 0, a_run())
        async with pool.connection() as connection:
            for forbidden in (
                "DROP TABLE holdfast.events",
                "CREATE TABLE holdfast.x ()",
                "DELETE FROM holdfast.migrations",
            ):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    await connection.execute(forbidden)


async def test_a_database_of_a_later_release_is_used_and_reported(url: str) -> None:
    """A rolling upgrade migrates first: workers of the previous release may restart meanwhile."""
    await migrate(url)
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as owner:
        await owner.execute("INSERT INTO holdfast.migrations (name) VALUES ('9999_later')")
    assert await migrate(url) == []
    schema = await schema_of(url)
    assert (schema.missing, schema.unknown) == ((), ("9999_later",))
    assert "a later release" in schema.advice()
    async with open_database(url, size=1, migrating=False):
        pass
