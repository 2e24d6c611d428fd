"""The drill: destroy the database, restore the backup, and every thread continues. It uses separate servers."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from google.protobuf.duration_pb2 import Duration
from psycopg_pool import AsyncConnectionPool
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest, RegisterNamespaceRequest

from holdfast import Agent, Catalog, Policy, allow, ask, tool
from holdfast.audit.evidence.verify import verify
from holdfast.client.connect import connect_stack, ensure_search_attributes
from holdfast.client.interventions import intervene
from holdfast.client.messages import say as send
from holdfast.client.reading.histories import fetch
from holdfast.client.reading.record import Evidence
from holdfast.client.start_options import StartOptions
from holdfast.client.threads import Threads
from holdfast.composition.stores import collect_evidence
from holdfast.config.stack_file import Stack
from holdfast.core.memory.semantic import NewMemory
from holdfast.encryption.fleet_keys import stack_seals
from holdfast.retention.backup import back_up
from holdfast.retention.rerecord import record_losses, rerecord
from holdfast.retention.restore import restore
from holdfast.retention.source import Source
from holdfast.storage.artifacts import PostgresArtifacts
from holdfast.storage.memories import PostgresMemories
from holdfast.storage.pool import migrate, open_pool
from holdfast.storage.threads import PostgresThreads
from holdfast.testing import Conversation, Reply, call, say, steps
from tests.support.rig import Rig, eventually, start_rig
from tests.support.servers import open_stack

THREADS = ("closed", "asks", "open")


@tool(effect="read")
def look(at: str) -> str:
    """Look at something, at length."""
    return "".join(f"line {number} of {at}\n" for number in range(2_000))


@tool(effect="unsafe")
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


CATALOG = Catalog(
    agents=[
        Agent(name="clerk", instructions="Work.", policy=Policy(rules=(allow("look"), ask("pay"))), tools=[look, pay])
    ],
)


def script(conversation: Conversation) -> Reply:
    """Look, then pay if asked to; answer later messages."""
    if "continue" in conversation.last_user_message:
        return say("Continued.")
    if "once more" in conversation.last_user_message:
        return say("Done.") if conversation.results else call("pay", amount=1)
    pays = [call("pay", amount=1)] if "pay" in conversation.last_user_message else []
    return steps([call("look", at="it"), *pays, say("Done.")])(conversation)


@asynccontextmanager
async def site(stack: Stack, folder: Path) -> AsyncIterator[tuple[Rig, Threads, AsyncConnectionPool]]:
    """Run a worker on the stack."""
    client, worker = await connect_stack(stack), await connect_stack(stack)
    url = stack.database_url
    async with (
        start_rig(
            client, CATALOG, script, worker_client=worker, database_url=url, folder=folder, task_queue="drill"
        ) as rig,
        open_pool(url, size=2) as pool,
    ):
        yield rig, Threads(client, task_queue="drill", record=PostgresThreads(pool)), pool


async def until(threads: Threads, thread: str, *wanted: str) -> dict[str, Any]:
    """Wait until a thread has one of these statuses."""
    state: dict[str, Any] = await eventually(partial(threads.state, thread), lambda state: state["status"] in wanted)
    return state


async def check(threads: Threads, pool: AsyncConnectionPool) -> None:
    """Verify every thread."""
    evidence = collect_evidence(PostgresThreads(pool), pool, PostgresArtifacts(pool))
    for thread in THREADS:
        report = await verify(threads, thread, evidence=evidence)
        assert report.ok, f"{thread}: {report.where}: {report.reason}"
        assert report.events


async def destroy_and_restore(stack: Stack, backup: Path) -> None:
    """Drop the database, and restore it."""
    async with await psycopg.AsyncConnection.connect(stack.database_url, autocommit=True) as connection:
        await connection.execute("DROP SCHEMA holdfast CASCADE")
    await migrate(stack.database_url)
    async with open_pool(stack.database_url, size=2) as pool:
        done = await restore(Source(backup), pool, PostgresArtifacts(pool))
        assert done.threads == set(THREADS)
        (item,) = (await PostgresMemories(pool).recall("blue", ["global"])).items
        assert item.text == "the sky is blue"


async def new_namespace(stack: Stack) -> Stack:
    """Return a namespace without any run, as after Temporal's server has lost everything."""
    client = await connect_stack(stack)
    await client.workflow_service.register_namespace(
        RegisterNamespaceRequest(namespace="lost", workflow_execution_retention_period=Duration(seconds=86_400))
    )
    other = stack.model_copy(update={"namespace": "lost"})
    await ensure_search_attributes(await connect_stack(other))
    return other


@pytest.mark.extended
async def test_every_thread_continues_after_the_database_is_destroyed_and_restored(tmp_path: Path) -> None:
    """Closed, waiting for approval or waiting for a message: each continues, with Temporal's histories and without."""
    with open_stack(tmp_path / "stack") as stack:
        await ensure_search_attributes(await connect_stack(stack))
        async with site(stack, tmp_path) as (_, threads, pool):
            await threads.start("look", thread="closed")
            await threads.start("look and pay", thread="asks")
            await threads.start("look", "open", StartOptions(idle_limit=3_600))
            await until(threads, "closed", "completed")
            await until(threads, "asks", "waiting_approval")
            await until(threads, "open", "waiting_message")
            await PostgresMemories(pool).remember(
                NewMemory(scope="global", text="the sky is blue", trust="person", thread="closed", position=1, by="a"),
                key="k",
            )
            for thread in THREADS:
                await eventually(partial(PostgresThreads(pool).length, thread), bool)
            made = await back_up(stack.database_url, tmp_path / "backup", artifacts=None)
            assert made.copied == made.manifest.artifacts > 0
            again = await back_up(stack.database_url, tmp_path / "backup", artifacts=None)
            assert (again.copied, again.manifest.artifacts) == (0, made.manifest.artifacts)

        await destroy_and_restore(stack, tmp_path / "backup")
        async with site(stack, tmp_path) as (_, threads, pool):
            await check(threads, pool)
            assert (await send(threads, "closed", "continue")).counts
            approval = {"decision": "approve", "request": "1", "by": "ann"}
            assert (await intervene(threads, "asks", "decide", approval)).outcome == "accepted"
            assert (await send(threads, "open", "continue")).counts
            for thread in THREADS:
                state = await until(threads, thread, "waiting_message", "completed")
                assert state["result"] in ("Continued.", "Done.")
            await check(threads, pool)

        await destroy_and_restore(stack, tmp_path / "backup")
        async with site(await new_namespace(stack), tmp_path) as (_, threads, pool):
            await check(threads, pool)
            for thread in THREADS:
                assert (await send(threads, thread, "continue")).outcome == "reopened"
            for thread in THREADS:
                state = await until(threads, thread, "waiting_message", "completed")
                assert state["result"] == "Continued."
            await check(threads, pool)


@pytest.mark.extended
async def test_a_thread_that_continued_after_the_backup_is_recorded_again(tmp_path: Path) -> None:
    """From Temporal's histories, when it continues, or with the restore, which also brings threads and effects since
    the backup: a restored record is never called altered, and nothing is left out.
    """
    with open_stack(tmp_path / "stack") as stack:
        await ensure_search_attributes(await connect_stack(stack))
        async with site(stack, tmp_path) as (_, threads, pool):
            await threads.start("look", thread="closed")
            await until(threads, "closed", "completed")
            await eventually(partial(PostgresThreads(pool).length, "closed"), bool)
            await back_up(stack.database_url, tmp_path / "backup", artifacts=None)
            first = len(await lines_of(threads, "closed"))
            await continue_closed(threads, "closed")
            await threads.start("pay", thread="later")
            await until(threads, "later", "waiting_approval")
            approval = {"decision": "approve", "request": "1", "by": "ann"}
            assert (await intervene(threads, "later", "decide", approval)).outcome == "accepted"
            await until(threads, "later", "completed")
            second = await lines_of(threads, "closed")
            assert len(second) > first

        await wipe_and_restore(stack, tmp_path / "backup")
        async with site(stack, tmp_path) as (_, threads, pool):
            await continue_closed(threads, "closed")
            third = await lines_of(threads, "closed")
            assert third[: len(second)] == second
            report = await verify(threads, "closed", evidence=evidence_of(pool))
            assert (report.reason, {gap.what for gap in report.unchecked}) == ("", {"artifacts"})

        await wipe_and_restore(stack, tmp_path / "backup")
        async with open_pool(stack.database_url, size=2) as pool:
            threads = Threads(await connect_stack(stack), task_queue="drill", record=PostgresThreads(pool))
            before = await verify(threads, "closed", evidence=evidence_of(pool))
            assert before.verdict == "altered"  # until it is recorded again, it looks as if somebody had removed events
            done = await rerecord(threads, pool, seals=stack_seals(stack))
            assert (done.left, set(done.events), done.effects) == ({}, {"closed", "later"}, 1)
            again = await rerecord(threads, pool, seals=stack_seals(stack))
            assert (again.events, again.effects) == ({}, 0)
            assert await lines_of(threads, "closed") == third
            for thread in ("closed", "later"):
                report = await verify(threads, thread, evidence=evidence_of(pool))
                assert (report.reason, {gap.what for gap in report.unchecked}) == ("", {"artifacts"}), thread


@pytest.mark.extended
async def test_the_log_says_which_events_a_restored_backup_and_temporal_have_lost(tmp_path: Path) -> None:
    """A run between the backup and the last one is gone: the gap is an event, with the restore or when the thread
    continues; the thread continues, and no verification calls that altered or proven.
    """
    with open_stack(tmp_path / "stack") as stack:
        await ensure_search_attributes(await connect_stack(stack))
        async with site(stack, tmp_path) as (_, threads, pool):
            await threads.start("look and pay", thread="closed")
            await until(threads, "closed", "waiting_approval")
            approval = {"decision": "approve", "request": "1", "by": "ann", "remember": True}
            assert (await intervene(threads, "closed", "decide", approval)).outcome == "accepted"
            await until(threads, "closed", "completed")
            first = await lines_of(threads, "closed")
            await eventually(partial(PostgresThreads(pool).length, "closed"), lambda length: length == len(first))
            await back_up(stack.database_url, tmp_path / "backup", artifacts=None)
            await continue_closed(threads, "closed")
            second = await threads.runs.describe("closed")
            await continue_closed(threads, "closed", "once more")
            whole = await lines_of(threads, "closed")
            await delete_run(threads, "closed", second.run_id)

        for restores in (True, False):
            await wipe_and_restore(stack, tmp_path / "backup")
            async with site(stack, tmp_path) as (_, threads, pool):
                if restores:
                    await record_losses_twice(stack, threads, pool)
                    lines = await lines_of(threads, "closed")
                    assert json.loads(lines[-1])["type"] == "events_lost"
                    assert (await threads.state("closed"))["lost"]["events"] == len(whole) - len(first)
                    report = await verify(threads, "closed", evidence=evidence_of(pool))
                    assert (report.verdict, report.reason) == ("not_proven", "")
                await continue_closed(threads, "closed")
                lines = await lines_of(threads, "closed")
                loss = json.loads(lines[len(first)])
                assert lines[: len(first)] == first
                assert (loss["type"], loss["events"]) == ("events_lost", len(whole))
                assert loss["head"] == json.loads(whole[-1])["digest"]
                assert (await threads.state("closed"))["remembered"] == []
                report = await verify(threads, "closed", evidence=evidence_of(pool))
                assert (report.verdict, report.reason) == ("not_proven", "")
                assert "lost" in {gap.what for gap in report.unchecked}
                whole = lines


async def record_losses_twice(stack: Stack, threads: Threads, pool: AsyncConnectionPool) -> None:
    """Do what `restore` does after the rows of the backup are there, twice."""
    done = await rerecord(threads, pool, seals=stack_seals(stack))
    assert (set(done.lost), done.left, done.effects) == ({"closed"}, {}, 1)
    assert await record_losses(threads, pool, done.lost, histories=done.lost)
    assert not await record_losses(threads, pool, done.lost, histories=done.lost)
    again = await rerecord(threads, pool, seals=stack_seals(stack))
    assert (again.lost, again.left, again.events) == ({}, {}, {})


async def delete_run(threads: Threads, thread: str, run_id: str) -> None:
    """Delete the history of a run, as Temporal does after its retention."""
    execution = WorkflowExecution(workflow_id=thread, run_id=run_id)
    await threads.runs.client.workflow_service.delete_workflow_execution(
        DeleteWorkflowExecutionRequest(namespace=threads.runs.client.namespace, workflow_execution=execution)
    )
    await eventually(lambda: fetch(threads.runs, thread, run_id), lambda run: run is None)


async def lines_of(threads: Threads, thread: str) -> list[bytes]:
    """Return the lines of a thread's log."""
    return [line async for line in threads.reader.lines(thread, 0, found=None, note=None, use_worker=False)]


async def continue_closed(threads: Threads, thread: str, message: str = "continue") -> None:
    """Continue a closed thread, and wait for its end, which is in the record."""
    assert (await send(threads, thread, message)).counts
    state = await until(threads, thread, "completed")
    assert state["result"] == ("Continued." if message == "continue" else "Done.")
    assert threads.reader.record is not None
    lines = await lines_of(threads, thread)
    await eventually(partial(threads.reader.record.length, thread), lambda length: length == len(lines))


async def wipe_and_restore(stack: Stack, backup: Path) -> None:
    """Drop the database, and restore it."""
    async with await psycopg.AsyncConnection.connect(stack.database_url, autocommit=True) as connection:
        await connection.execute("DROP SCHEMA holdfast CASCADE")
    await migrate(stack.database_url)
    async with open_pool(stack.database_url, size=2) as pool:
        await restore(Source(backup), pool, PostgresArtifacts(pool))


def evidence_of(pool: AsyncConnectionPool) -> Evidence:
    """Return the ledger and no artifacts: those since the backup are lost."""
    return replace(collect_evidence(PostgresThreads(pool), pool, PostgresArtifacts(pool)), artifacts=None)
