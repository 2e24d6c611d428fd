"""Forgetting a thread removes its content everywhere, keeps its digests, and retires its id."""

import asyncio
import json
from functools import partial
from uuid import uuid4

import pytest
from temporalio.client import Client, WorkflowFailureError

from holdfast import Agent, Catalog, Limits, Policy, allow, tool
from holdfast.audit.evidence.verify import verify
from holdfast.client.messages import say as send
from holdfast.client.reading.runs import Runs
from holdfast.client.start_options import StartOptions
from holdfast.client.threads import Threads
from holdfast.composition.stores import Stores, collect_evidence
from holdfast.config.stack_file import Stack
from holdfast.core.base.canonical import address_of
from holdfast.core.log.event_log import digest_after
from holdfast.core.run.contracts.runs import RunInput
from holdfast.errors import Refused, ThreadForgotten, ThreadNotFound
from holdfast.retention.forget import forget_thread
from holdfast.retention.histories import remove_histories, runs_of
from holdfast.storage.artifacts import PostgresArtifacts
from holdfast.storage.pool import open_pool
from holdfast.storage.threads import PostgresThreads
from holdfast.testing import call, say, steps
from tests.support.keeping import add_thread, fork_of, lines_of, new_pool
from tests.support.rig import PATIENCE, StartRig, eventually

SECRET = b"the combination is 7391"


@tool(effect="idempotent")
def look(at: str) -> str:
    """Look at something, and return long text."""
    return f"{SECRET.decode()} of {at}\n" * 2_000


CATALOG = Catalog(
    agents=[
        Agent(
            name="clerk",
            instructions="Work.",
            policy=Policy(rules=(allow("look"),)),
            limits=Limits(history_events=20),
            tools=[look],
        )
    ],
)


async def test_a_forgotten_thread_keeps_its_digests_and_nothing_else(rig: StartRig, stack: Stack) -> None:
    """No table or history has its content; every verb says so; the digests prove a copy of an event."""
    thread = f"for'get-{uuid4().hex[:8]}"
    looks = [call("look", at=str(n)) for n in range(3)]
    async with rig(CATALOG, steps([*looks, say("Done.")])) as r, open_pool(stack.database_url, size=3) as pool:
        store, artifacts = PostgresThreads(pool), PostgresArtifacts(pool)
        threads = Threads(r.client, task_queue=r.task_queue, record=store)
        evidence = collect_evidence(store, pool, artifacts)
        stores = Stores(store, artifacts, None)
        forget = partial(forget_thread, threads, pool, stores, thread, by="ann", reason="asked to")
        with pytest.raises(ThreadNotFound):
            await forget()
        await threads.start("look", thread, StartOptions(idle_limit=3_600))
        await eventually(partial(threads.state, thread), lambda state: state["status"] == "waiting_message")
        with pytest.raises(Refused, match="has an open run"):
            await forget()
        await r.client.get_workflow_handle(thread).terminate()
        await eventually(partial(threads.state, thread), lambda state: state["status"] == "failed")
        copy = [json.loads(line) async for line in threads.reader.lines(thread, 0, found=None, note=None)]
        assert SECRET.decode() in json.dumps(copy)

        done = await forget()

        assert (done.content.tombstone.events, done.unrecorded) == (len(copy), "")
        assert done.content.tombstone.head == copy[-1]["digest"]
        remains = [json.loads(line) for line in done.content.tombstone.remains.split(b"\n")]
        assert [{name: event[name] for name in ("position", "type", "at", "digest")} for event in copy] == remains
        assert digest_after(remains[4]["digest"], copy[5]) == remains[5]["digest"], "a copy of an event is proved"
        await eventually(partial(runs_of, threads.runs, thread), lambda report: not report)
        async with pool.connection() as connection:
            for table in ("events", "artifact_threads"):
                left = await connection.execute(
                    f"SELECT FROM holdfast.{table} WHERE thread = (SELECT id FROM holdfast.threads WHERE thread = %s)",
                    [thread],
                )
                assert left.rowcount == 0
            effects = await connection.execute(
                "SELECT outcome, call, call_digest, mac FROM holdfast.effects WHERE thread = %s", [thread]
            )
            assert {*await effects.fetchall()} == {("{}", None, None, None)}
        report = await verify(threads, thread, evidence=evidence)
        assert (report.ok, report.events, report.unchecked[0].what) == (True, len(copy), "content")
        assert "ann removed it" in report.unchecked[0].why
        for verb in (
            threads.state(thread),
            send(threads, thread, "again"),
            threads.start("anew", thread=thread),
            threads.start("anew", thread=thread, once=True),
            store.append(thread, 0, [b"{}"]),
            artifacts.put(b"more", thread=thread),
        ):
            with pytest.raises(ThreadForgotten, match="was forgotten on"):
                await verb
        # A client without the database cannot see that; the worker can.
        plain = await r.client.start_workflow(
            "AgentRunWorkflow", RunInput(task="x"), id=thread, task_queue=r.task_queue
        )
        with pytest.raises(WorkflowFailureError) as refused:
            await plain.result()
        assert "was forgotten on" in str(refused.value.cause)
        late = await Threads(r.client, task_queue=r.task_queue).start("anew", thread=thread)
        with pytest.raises(WorkflowFailureError) as failed:
            await r.client.get_workflow_handle(thread, run_id=late.run_id).result()
        assert "was forgotten on" in str(failed.value.cause)
        assert not (await verify(threads, thread, evidence=evidence)).ok
        again = await forget()
        assert again.content.tombstone == done.content.tombstone, "the first one stays"
        assert late.run_id in again.histories.runs
        await eventually(partial(verify, threads, thread, evidence=evidence), lambda report: report.ok)


@pytest.mark.extended
async def test_content_that_other_threads_need_stays(stack: Stack, client: Client) -> None:
    """A shared artifact and a memory in a wider scope stay and are named; an altered tombstone is detected."""
    async with new_pool(stack.database_url) as (_, pool):
        store, artifacts = PostgresThreads(pool), PostgresArtifacts(pool)
        for thread in ("gone", "other"):
            await add_thread(pool, thread)
            await artifacts.put(b"shared", thread=thread)
        await store.append("fork", 0, fork_of("gone", "fork"))
        threads = Threads(client, record=store)
        done = await forget_thread(threads, pool, Stores(store, artifacts, None), "gone", by="ann", reason="")
        assert (done.content.shared_artifacts, len(done.content.memories)) == (1, 1)
        assert done.content.forks == ("fork",)
        assert await artifacts.get(address_of(b"shared")) == b"shared"
        assert await store.length("other") == 3
        async with pool.connection() as connection:
            scopes = await connection.execute("SELECT scope FROM holdfast.memories ORDER BY scope")
            assert [scope for (scope,) in await scopes.fetchall()] == ["global", "global", "thread:other"]
            evidence = collect_evidence(store, pool, artifacts)
            assert (await verify(threads, "gone", evidence=evidence)).ok
            await connection.execute("UPDATE holdfast.tombstones SET forgotten_by = 'bob'")
        report = await verify(threads, "gone", evidence=evidence)
        assert (report.ok, report.reason) == (False, "the tombstone was altered: its digest does not match")


async def test_a_tombstone_does_not_hide_remaining_content(stack: Stack, client: Client) -> None:
    """Repeating removes content recorded by a late call; a tombstone on an altered thread is detected."""
    async with new_pool(stack.database_url) as (_, pool):
        store, artifacts = PostgresThreads(pool), PostgresArtifacts(pool)
        evidence, threads = collect_evidence(store, pool, artifacts), Threads(client, record=store)
        forget = partial(forget_thread, threads, pool, Stores(store, artifacts, None), "gone", by="ann", reason="")
        await add_thread(pool, "gone")
        await forget()
        async with pool.connection() as connection:
            await connection.execute("UPDATE holdfast.effects SET outcome = 'the secret', finished_at = now()")
            report = await verify(threads, "gone", evidence=evidence)
            assert (report.ok, report.where) == (False, "ledger")
            await forget()
            assert (await verify(threads, "gone", evidence=evidence)).ok
            effects = await connection.execute("SELECT outcome FROM holdfast.effects")
            assert await effects.fetchall() == [("{}",)]
            await store.append("other", 0, lines_of("other"))
            await connection.execute("UPDATE holdfast.events SET thread = (SELECT thread FROM holdfast.tombstones)")
            report = await verify(threads, "gone", evidence=evidence)
            assert (report.ok, report.reason) == (False, "it still has 3 events of this thread, which was forgotten")
            await connection.execute("UPDATE holdfast.threads SET forgotten_at = NULL")
            assert not (await verify(threads, "gone", evidence=evidence)).ok


@pytest.mark.extended
async def test_all_runs_are_removed_for_any_thread_id(client: Client) -> None:
    """Runs that visibility queries cannot name, and runs that no later run names, are removed; those of others stay."""
    await asyncio.gather(
        *(all_are_removed(client, name) for name in ("it's", 'say "x"', "both ' and \"", "back\\slash"))
    )


async def all_are_removed(client: Client, name: str) -> None:
    """Check that all runs of a thread are removed, and none of another id or type."""
    thread = f"{name}-{uuid4().hex[:8]}"
    foreign = await client.start_workflow("Foreign", {}, id=thread, task_queue="nobody")
    await foreign.terminate()
    started = set[str | None]()
    for _ in range(2):
        run = await client.start_workflow("AgentRunWorkflow", {}, id=thread, task_queue="nobody")
        started.add(run.first_execution_run_id)
        await run.terminate()
    other = await client.start_workflow("AgentRunWorkflow", {}, id=f"{thread}-not", task_queue="nobody")
    runs = Runs(client, answer_within=PATIENCE)
    await eventually(partial(runs_of, runs, thread), lambda found: started == {*found})
    removed = await remove_histories(runs, thread, patience=PATIENCE)
    assert ({*removed.runs}, removed.remaining) == (started, ())
    with pytest.raises(ThreadNotFound):
        await runs.describe(thread)
    left = client.get_workflow_handle(thread, run_id=foreign.first_execution_run_id)
    assert (await left.describe()).workflow_type == "Foreign"
    assert (await runs.describe(other.id)).run_id == other.first_execution_run_id
    with pytest.raises(Refused, match="its run is open"):
        await remove_histories(runs, other.id)
    await other.terminate()
