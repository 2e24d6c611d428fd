"""Traces reach a collector: each span at least once and under one id, whoever is killed, and nothing is lost."""

import asyncio
import signal
import sys
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import httpx2
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import AsyncConnectionPool

import holdfast
from holdfast import Agent, Catalog, Policy, ask, tool
from holdfast.config.stack_file import Stack
from holdfast.storage.feeds import reading_feed
from holdfast.storage.forget import forget
from holdfast.storage.threads import PostgresThreads
from holdfast.telemetry.exporter import FEED, TraceExporter, exporting_traces
from holdfast.telemetry.following import look
from holdfast.telemetry.traces.tracer import spans_of
from holdfast.testing import call, say
from tests.support.collector import Collector, attributes_of, collecting
from tests.support.feeds import is_read, own_feed
from tests.support.keeping import new_pool
from tests.support.logs import WrittenLog, three_weeks
from tests.support.rig import PATIENCE, environ_of, eventually

ROOT = Path(__file__).parents[2]

EXPORTER = """
import asyncio, sys
from holdfast.storage.pool import open_pool
from holdfast.storage.threads import PostgresThreads
from holdfast.telemetry.exporter import exporting_traces

async def main(database, collector):
    async with open_pool(database, size=2) as pool:
        exporting = exporting_traces(
            collector, headers={}, resource={}, content=False, database_url=database, threads=PostgresThreads(pool)
        )
        async with exporting:
            await asyncio.sleep(600)

asyncio.run(main(*sys.argv[1:]))
"""


async def begin(url: str) -> None:
    """Make the feed, so that whatever is recorded from now on is exported."""
    async with own_feed(url, FEED):
        pass


async def export(url: str, pool: AsyncConnectionPool, collector: Collector) -> None:
    """Export everything that is new, as an exporter does in one process."""
    async with httpx2.AsyncClient() as client, own_feed(url, FEED) as feed:
        exporter = TraceExporter(client, f"{collector.url}/v1/traces", {})
        for _ in range(2):  # the cursor moves in the second sweep
            while await look(feed, exporter, PostgresThreads(pool)):
                pass


async def cursor(pool: AsyncConnectionPool) -> int:
    """Return where the feed's cursor is."""
    async with pool.connection() as connection:
        row = await (await connection.execute("SELECT number FROM holdfast.feeds")).fetchone()
    assert row is not None
    return int(row[0])


def ids_of(log: WrittenLog) -> set[tuple[str, str]]:
    """Return the ids of all spans of a log."""
    return {tuple(span.context) for trace in spans_of(log.events, log.thread) for span in trace.spans}  # type: ignore[misc]


@pytest.mark.extended
async def test_a_run_is_exported_as_it_grows_and_joins_at_the_collector(stack: Stack) -> None:
    """A run of three weeks, recorded wait by wait, arrives as 21 traces that links join; each span once."""
    log = three_weeks()
    waits = [at + 1 for at, event in enumerate(log.events) if event.type == "approval_requested"]
    async with new_pool(stack.database_url) as (url, pool):
        with collecting() as collector:
            await begin(url)
            for start, stop in zip([0, *waits], [*waits, len(log.lines)], strict=True):
                await PostgresThreads(pool).append(log.thread, start, log.lines[start:stop])
                await export(url, pool, collector)
        assert set(collector.spans) == ids_of(log)
        assert set(collector.received.values()) == {1}
    roots = {root.trace_id: root for root in collector.roots if "holdfast.activation.number" in attributes_of(root)}
    assert len(roots) == 21
    (at,) = (root for root in roots.values() if attributes_of(root)["holdfast.activation.number"] == 21)
    joined = [at]
    while before := [
        link for link in joined[-1].links if attributes_of(link)["holdfast.link"] == "previous_activation"
    ]:
        joined.append(roots[before[0].trace_id])
    assert len(joined) == 21, "the links lead from the last activation to the first"


@pytest.mark.extended
async def test_nothing_is_lost_when_a_collector_breaks_off_or_refuses(stack: Stack) -> None:
    """A request without a confirmation is sent again with the same ids; a span that is malformed goes alone."""
    good, bad = three_weeks("good", run="good", waits=2), WrittenLog("bad", run="r-2")
    (number,) = bad.reply("wipe")
    bad.run_call(number)
    bad.finish()
    async with new_pool(stack.database_url) as (url, pool):
        with collecting() as collector:
            collector.answers = [503, 429]
            collector.rejected = {"execute_tool wipe"}
            await begin(url)
            for log in (good, bad):
                await PostgresThreads(pool).append(log.thread, 0, log.lines)
            for _ in range(2):
                with pytest.raises(Exception, match="collector of traces"):
                    await export(url, pool, collector)
            assert await cursor(pool) == 0
            await export(url, pool, collector)
            await export(url, pool, collector)
    (wiped,) = {tuple(s.context) for t in spans_of(bad.events, "bad") for s in t.spans if s.name == "execute_tool wipe"}
    assert set(collector.spans) == (ids_of(good) | ids_of(bad)) - {wiped}


@pytest.mark.extended
async def test_what_is_new_at_the_end_of_a_program_is_exported(stack: Stack) -> None:
    """A program that is shorter than the time between two looks has traces, too: it looks once more when it ends."""
    log = three_weeks("short", run="short", waits=2)
    async with new_pool(stack.database_url) as (url, pool):
        with collecting() as collector:
            to, threads = f"{collector.url}/v1/traces", PostgresThreads(pool)
            exporting = exporting_traces(to, headers={}, resource={}, content=False, database_url=url, threads=threads)
            async with exporting:
                await threads.append(log.thread, 0, log.lines)
        assert set(collector.spans) == ids_of(log)


async def test_a_killed_exporter_loses_nothing_and_doubles_nothing(stack: Stack) -> None:
    """After a SIGKILL between the request and its confirmation, another process sends the same spans under their ids.

    While the first process lives, the second one sends nothing.
    """
    logs = [three_weeks(f"t{number}", run=f"t{number}", waits=2) for number in range(5)]
    async with new_pool(stack.database_url) as (url, pool):
        with collecting() as collector:
            await begin(url)
            first = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", EXPORTER, url, f"{collector.url}/v1/traces"), cwd=ROOT
            )
            try:
                await eventually(partial(is_read, url), bool)
                async with reading_feed(url, FEED) as feed:
                    assert feed is None, "one process exports at a time"
                collector.answers = [0] * 1_000  # nothing is confirmed
                for log in logs:
                    await PostgresThreads(pool).append(log.thread, 0, log.lines)
                await asyncio.to_thread(collector.wait)
            finally:
                first.send_signal(signal.SIGKILL)
                await first.wait()
            collector.answers = []
            await export(url, pool, collector)
        assert set(collector.spans) == set().union(*map(ids_of, logs))
        assert max(collector.received.values()) > 1, "what was not confirmed was sent again"


@pytest.mark.extended
async def test_a_block_that_appears_late_is_exported(stack: Stack) -> None:
    """Numbers of blocks are taken before their transactions end: the cursor waits for those that have not ended."""
    early, late = three_weeks("early", run="early", waits=1), three_weeks("late", run="late", waits=1)
    async with new_pool(stack.database_url) as (url, pool):
        with collecting() as collector:
            await begin(url)
            async with await psycopg.AsyncConnection.connect(url) as slow:
                await slow.execute("INSERT INTO holdfast.threads (thread) VALUES ('slow')")
                await slow.execute("SELECT nextval('holdfast.block_numbers')")  # the block of a commit under way
                await PostgresThreads(pool).append("early", 0, early.lines)
                await export(url, pool, collector)
                assert set(collector.spans) == ids_of(early)
                assert await cursor(pool) == 0, "a lower number may still appear"
                await slow.rollback()
            await PostgresThreads(pool).append("late", 0, late.lines)
            await export(url, pool, collector)
            assert await cursor(pool) == 3
        assert set(collector.spans) == ids_of(early) | ids_of(late)
        assert set(collector.received.values()) == {1}


@pytest.mark.extended
async def test_forgotten_damaged_and_reset_threads_stop_no_other(stack: Stack) -> None:
    """A thread that cannot be read is left out; one whose run was reset is exported again from its beginning."""
    good, reset = three_weeks("good", run="good", waits=1), three_weeks("reset", run="reset", waits=2)
    branch = three_weeks("reset", run="reset", waits=1)
    async with new_pool(stack.database_url) as (url, pool):
        threads = PostgresThreads(pool)
        with collecting() as collector:
            await begin(url)
            await threads.append("forgotten", 0, three_weeks("forgotten", run="forgotten").lines)
            await forget(pool, "forgotten", by="ann", reason="asked")
            await threads.append("damaged", 0, [b'{"type":"unheard_of","position":0,"schema_version":1}'])
            await threads.append("reset", 0, reset.lines)
            await export(url, pool, collector)
            assert set(collector.spans) == ids_of(reset)
            await threads.set_aside("reset", 0, branch.lines)
            await threads.append("reset", await threads.length("reset"), branch.lines[await threads.length("reset") :])
            await threads.append("good", 0, good.lines)
            collector.spans.clear()
            await export(url, pool, collector)
        assert ids_of(good) <= set(collector.spans)
        assert ids_of(branch) <= set(collector.spans)


@tool(effect="unsafe")
def pay(note: str) -> str:
    """Pay."""
    return f"paid {note} MARKED-result"


async def test_a_worker_exports_what_its_runs_do_and_none_of_what_they_say(
    stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the settings of a collector, a worker exports each activation soon after; content and secrets stay out."""
    policy = Policy(rules=(ask("pay", reason="MARKED-why"),))
    clerk = Agent(name="clerk", instructions="MARKED-instructions", tools=[pay], policy=policy)
    replies = [call("pay", note="MARKED-argument"), say("MARKED-answer")]
    async with new_pool(stack.database_url) as (url, _):
        with collecting() as collector:
            database = conninfo_to_dict(url)["dbname"]
            environ = {
                **environ_of(stack),
                "DATABASE_URL": urlsplit(stack.database_url)._replace(path=f"/{database}").geturl(),
                "HOLDFAST_TRACES_ENDPOINT": collector.url,
                "HOLDFAST_TELEMETRY_HEADERS": "Authorization=COLLECTOR_TOKEN",
                "COLLECTOR_TOKEN": "Bearer MARKED-token",
            }
            for name, value in environ.items():
                monkeypatch.setenv(name, value)
            queue = f"traced-{uuid4().hex[:8]}"
            running = holdfast.running(
                Catalog(agents=[clerk]), script=replies, task_queue=queue, home=tmp_path / "home"
            )
            async with running as client:
                await eventually(partial(is_read, url), bool)
                thread = await client.start("MARKED-task", thread=queue)
                await thread.result(until="attention", timeout=PATIENCE)
                await asyncio.to_thread(collector.wait)
                (request,) = await thread.pending()
                await thread.decide(request, "approve", by="MARKED-person", reason="MARKED-reason")
                await thread.result(timeout=PATIENCE)
                await asyncio.to_thread(collector.wait, 2)
    assert all(headers["authorization"] == "Bearer MARKED-token" for headers in collector.headers)
    assert b"MARKED" not in b"".join(collector.bodies)
    assert [root.name for root in collector.roots] == ["invoke_agent clerk"] * 3
    assert {attributes_of(root)["gen_ai.conversation.id"] for root in collector.roots} == {queue}
