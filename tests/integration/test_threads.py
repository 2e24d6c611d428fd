"""Threads that span several Temporal runs are read, followed, re-opened, messaged, verified and pruned as one."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from google.protobuf.duration_pb2 import Duration
from psycopg_pool import AsyncConnectionPool
from temporalio import workflow
from temporalio.api.enums.v1 import TaskQueueKind
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import PollWorkflowTaskQueueRequest, RegisterNamespaceRequest
from temporalio.client import Client
from temporalio.worker import Worker

from holdfast import Agent, Catalog, Limits, Policy, allow, tool
from holdfast.audit.evidence.verify import verify
from holdfast.client.connect import connect_stack, ensure_search_attributes
from holdfast.client.follow import follow
from holdfast.client.interventions import intervene
from holdfast.client.listing import list_threads
from holdfast.client.messages import say
from holdfast.client.prune import list_prunable
from holdfast.client.reading.record import OpenRecord
from holdfast.client.reading.runs import Runs
from holdfast.client.sending import send_update
from holdfast.client.showing import show_thread
from holdfast.client.start_options import StartOptions, issued
from holdfast.client.threads import Threads
from holdfast.config.stack_file import Stack
from holdfast.core.llm.blocks import ImageBlock, TextBlock
from holdfast.core.llm.chat_completions import ChatCompletions
from holdfast.core.llm.messages import MAX_TEXT_BYTES, decode
from holdfast.core.run.contracts.runs import WORKFLOW, RunInput
from holdfast.errors import (
    EventsMissing,
    LogBroken,
    NoWorker,
    PositionInvalid,
    RecordUnreadable,
    ThreadExists,
    ThreadNotFound,
)
from holdfast.hosting.assembly import build_worker
from holdfast.storage.blocks import Block, pack, unpack
from holdfast.storage.pool import migrate, open_pool
from holdfast.storage.prune import prunable, prune
from holdfast.storage.threads import PostgresThreads
from holdfast.testing import Conversation, Reply, ScriptedLLM, call, slow, steps
from holdfast.testing import say as reply
from holdfast.testing.scripted_worker import LEAVE
from holdfast.worker.construction import running
from tests.support.rig import PATIENCE, Rig, StartRig, eventually

JSON = dict[str, Any]
LOOKS = [call("look", at=str(n)) for n in range(7)]


@tool(effect="read")
def look(at: str) -> str:
    """Look at something."""
    return f"it is {at}"


@tool(effect="unsafe")
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def catalog(**limits: Any) -> Catalog:
    """Return an agent that looks without asking."""
    policy = Policy(rules=(allow("look"),))
    return Catalog(
        agents=[Agent(name="clerk", instructions="Work.", policy=policy, limits=Limits(**limits), tools=[look, pay])]
    )


def script(conversation: Conversation) -> Reply:
    """Answer the last message, at length or late if it says so."""
    said = conversation.last_user_message
    number = sum(message["role"] == "user" for message in conversation.messages)
    if "long" in said:
        return steps([*LOOKS, call("pay", amount=1), reply("Paid.")])(conversation)
    return slow(reply(f"Answer {number}."), 0.4 if "slow" in said else 0)


@pytest.fixture
async def pool(stack: Stack) -> AsyncIterator[AsyncConnectionPool]:
    """Open connections to the database of the rig's worker."""
    await migrate(stack.database_url)
    async with open_pool(stack.database_url, size=2) as pool:
        yield pool


class Unavailable:
    """A permanent record that does not answer."""

    async def append(self, thread: str, start: int, lines: Sequence[bytes]) -> None:
        """Fail."""
        raise ConnectionError("the database is away")

    async def read(self, thread: str, start: int = 0) -> list[bytes]:
        """Fail."""
        raise ConnectionError("the database is away")

    async def length(self, thread: str) -> int:
        """Fail."""
        raise ConnectionError("the database is away")


@dataclass
class Site:
    """A running worker in another namespace."""

    client: Client
    llm: ScriptedLLM
    task_queue: str


def both(rig: Rig | Site, pool: AsyncConnectionPool) -> tuple[Threads, Threads]:
    """Return the threads of a rig, with their permanent record and without."""
    return (
        Threads(rig.client, task_queue=rig.task_queue, record=PostgresThreads(pool)),
        Threads(rig.client, task_queue=rig.task_queue),
    )


def fresh() -> str:
    """Return a new thread id."""
    return f"thread-{uuid4().hex[:8]}"


async def all_of(events: AsyncIterator[JSON]) -> list[JSON]:
    """Collect what an iterator yields."""
    return [event async for event in events]


async def until(threads: Threads, thread: str, status: str) -> JSON:
    """Wait until a thread has that status, and return its state."""
    state: JSON = await eventually(lambda: threads.state(thread), lambda state: state["status"] == status)
    return state


async def run_to_end(threads: Threads, thread: str, task: str = "short") -> None:
    """Run one run of a thread to its end."""
    await threads.start(task, thread=thread)
    await until(threads, thread, "completed")
    await threads.runs.until_closed(await threads.runs.describe(thread))  # its last events are recorded by then


@pytest.fixture
async def elsewhere(stack: Stack) -> Stack:
    """Yield a namespace on the same server without that thread, as if Temporal had removed all its runs."""
    client = await connect_stack(stack)
    name = f"elsewhere-{uuid4().hex[:8]}"
    kept = Duration(seconds=86_400)
    request = RegisterNamespaceRequest(namespace=name, workflow_execution_retention_period=kept)
    await client.workflow_service.register_namespace(request)
    other = stack.model_copy(update={"namespace": name})
    await ensure_search_attributes(await connect_stack(other))
    return other


@asynccontextmanager
async def working(stack: Stack, pool: AsyncConnectionPool, folder: Path) -> AsyncIterator[Site]:
    """Run a worker in another namespace."""
    with ScriptedLLM(script) as llm:
        async with llm.client() as endpoint:
            client = await connect_stack(stack)
            worker = build_worker(
                client,
                task_queue="elsewhere",
                catalog=catalog(),
                llm=endpoint,
                default_llm="scripted",
                pool=pool,
                database_url=stack.database_url,
                workspaces=folder,
                debug_mode=True,
            )
            async with running(worker, within=LEAVE):
                yield Site(client, llm, "elsewhere")


async def test_a_thread_of_several_temporal_runs_reads_as_one(rig: StartRig, pool: AsyncConnectionPool) -> None:
    """Open or closed, with its record or without, read or followed: one log without a gap, and all its messages."""
    async with rig(catalog(history_events=25), script) as r:
        recorded, alone = both(r, pool)
        thread = fresh()
        await alone.start("long", thread=thread)
        following = asyncio.create_task(all_of(follow(alone, thread)))
        waiting = await until(alone, thread, "waiting_approval")
        events: list[JSON] = []
        for threads in (recorded, alone):
            events = await all_of(threads.events(thread))
            assert [event["position"] for event in events] == list(range(len(events)))
            assert len(events) >= waiting["events"]  # it may have continued as new meanwhile
            settled = [event.digest for event in await threads.recorded_events(thread)]
            assert settled[: len(events)] == [each["digest"] for each in events]
            assert (await all_of(threads.events(thread, after=4)))[0]["position"] == 5
        assert sum(event["type"] == "run_continued" for event in events) >= 2

        await intervene(alone, thread, "decide", {"decision": "approve", "request": "1", "by": "ann"})
        done = await until(alone, thread, "completed")
        followed = await following
        assert [event["position"] for event in followed] == list(range(done["events"]))
        sent = r.llm.requests[-1].json()["messages"][1:]
        for threads in (recorded, alone):
            assert await all_of(threads.events(thread)) == followed
            assert await threads.state(thread) == done
            messages = await all_of(threads.messages(thread))
            assert messages[-1] | {"at": ""} == {"role": "assistant", "content": "Paid.", "at": ""}
            encoded = [ChatCompletions().encode(decode(json.dumps(message).encode())) for message in messages[:-1]]
            assert [json.loads(message) for message in encoded] == sent
            assert await all_of(threads.messages(thread, active=True)) == messages
            assert (await verify(threads, thread)).ok

        at = await alone.state_at(thread, waiting["events"] - 1)
        assert (at["status"], at["events"], at["pending"]) == (
            "waiting_approval",
            waiting["events"],
            waiting["pending"],
        )
        with pytest.raises(PositionInvalid, match=f"positions 0 to {done['events'] - 1}"):
            await alone.state_at(thread, done["events"])


@pytest.mark.extended
async def test_a_closed_thread_is_reopened(rig: StartRig, pool: AsyncConnectionPool) -> None:
    """A second run under the same id starts with the exact bytes of the first one's prompt, in one log.

    An open thread is rejected, and without an id no earlier run is looked up.
    """
    async with rig(catalog(), script) as r:
        recorded, alone = both(r, pool)
        thread = fresh()
        await run_to_end(alone, thread)
        first = await alone.recorded_events(thread)
        again = await alone.start("slow, please", thread=thread)
        assert again.continued
        with pytest.raises(ThreadExists, match=f"starter.py say {thread}"):
            await alone.start("more", thread=thread)
        followed = await all_of(follow(alone, thread))
        assert [event["type"] for event in followed].count("run_finished") == 2
        for threads in (recorded, alone):
            assert await all_of(threads.events(thread)) == followed
            assert [m["content"] for m in await all_of(threads.messages(thread))] == [
                *("short", "Answer 1."),
                *("slow, please", "Answer 2."),
            ]
        assert [event["digest"] for event in followed][: len(first)] == [event.digest for event in first]
        early, late = (request.body for request in r.llm.requests)
        assert late.startswith(early[: -len(b"]}")])
        rows = await eventually(
            partial(list_threads, alone, status="completed"), lambda rows: thread in [row["thread"] for row in rows]
        )
        assert [row["thread"] for row in rows].count(thread) == 1

        other = await alone.start("short")
        assert (await until(alone, other.thread, "completed"))["events"] < len(followed)
        begin = await r.client.get_workflow_handle(other.thread).fetch_history()
        scheduled = [event.activity_task_scheduled_event_attributes.activity_type.name for event in begin.events]
        assert "load_thread" not in scheduled


async def test_a_thread_that_temporal_has_removed_is_reopened(
    rig: StartRig, pool: AsyncConnectionPool, elsewhere: Stack, tmp_path: Path
) -> None:
    """A thread that only the permanent record has can be read, and is sent to the LLM again byte for byte."""
    silence: list[str] = []
    async with rig(catalog(), script) as r:
        recorded, alone = both(r, pool)
        thread = fresh()
        picture = ImageBlock(data="iVBORw0KGgo=", media_type="image/png")
        await recorded.start((TextBlock(text="Look at this."), picture), thread=thread)
        before = await until(recorded, thread, "completed")
        await recorded.runs.until_closed(await recorded.runs.describe(thread))
        events = await all_of(recorded.events(thread))
        messages = await all_of(recorded.messages(thread))
        (early,) = (request.body for request in r.llm.requests)
    async with working(elsewhere, pool, tmp_path) as site:
        recorded, alone = both(site, pool)
        away = Threads(site.client, record=Unavailable())
        with pytest.raises(ThreadNotFound):
            await alone.state(thread)
        with pytest.raises(ThreadNotFound, match="the permanent record cannot be read"):
            await away.state(thread)
        assert await recorded.state(thread) == before
        shown = await show_thread(recorded, thread, note=silence.append)
        assert (shown.last, silence) == (events[-1], [])
        assert (shown.view["lifecycle"], shown.view["now"], shown.view["next"]) == ("terminated", "has completed", [])
        assert (shown.view["running"], shown.view["errors"]) == ([], [])
        assert f"--thread {thread}" in shown.view["continue"]["command"]
        assert await all_of(recorded.events(thread)) == events
        assert await all_of(recorded.messages(thread)) == messages
        assert await all_of(follow(recorded, thread)) == events
        assert (await verify(recorded, thread)).sources == ("record",)
        assert await recorded.pending(thread) == []

        await run_to_end(recorded, thread, "And now?")
        (late,) = (request.body for request in site.llm.requests)
        assert late.startswith(early[: -len(b"]}")])
        whole = await all_of(recorded.events(thread))
        assert whole[: len(events)] == events
        with pytest.raises(EventsMissing, match=f"events 0 to {len(events) - 1} .* set DATABASE_URL"):
            await all_of(alone.events(thread))
        with pytest.raises(EventsMissing, match="the database is away"):
            await all_of(away.events(thread))
        assert (await alone.state(thread))["result"] == "Answer 2."
        notes: list[str] = []
        assert await all_of(follow(alone, thread, note=notes.append)) == whole[len(events) :]
        assert [f"events 0 to {len(events) - 1}" in note for note in notes] == [True]
        partly = await verify(alone, thread)
        assert (partly.ok, partly.first) == (True, len(events))
        assert {"record", "beginning"} <= {one.what for one in partly.unchecked}


@pytest.mark.extended
async def test_a_message_is_sent_to_the_open_run_or_reopens_the_thread(
    rig: StartRig, pool: AsyncConnectionPool
) -> None:
    """A waiting run accepts it at once, a busy one queues or rejects it, and a closed thread is re-opened with it."""
    async with rig(catalog(), script) as r:
        threads, _ = both(r, pool)
        thread = fresh()
        await threads.start("slow, first", thread, StartOptions(idle_limit=30))
        busy = await say(threads, thread, "not now", when_busy="reject")
        queued = await say(threads, thread, "queued", by="ann")
        assert [(answer.outcome, answer.counts) for answer in (busy, queued)] == [("busy", False), ("queued", True)]
        await until(threads, thread, "waiting_message")
        assert (await say(threads, thread, "third")).outcome == "accepted"
        await until(threads, thread, "waiting_message")
        for bad, outcome in ((" ", "malformed"), ("x" * (MAX_TEXT_BYTES + 1), "too_long")):
            answer = await say(threads, thread, bad)
            assert (answer.outcome, answer.counts) == (outcome, False)
        await r.client.get_workflow_handle(thread).cancel()
        await until(threads, thread, "cancelled")
        reopened = await say(threads, thread, "fourth")
        assert (reopened.outcome, reopened.counts) == ("reopened", True)
        await until(threads, thread, "completed")
        assert (await r.client.get_workflow_handle(thread).describe()).run_id == reopened.run_id
        assert [m["content"] for m in await all_of(threads.messages(thread)) if m["role"] == "user"] == [
            *("slow, first", "queued", "third", "fourth")
        ]
        with pytest.raises(ThreadNotFound):
            await say(threads, "nobody-knows", "hello")


@workflow.defn(name=WORKFLOW, sandboxed=False)
class Older:
    """An agent run of a release that has none of the later updates."""

    @workflow.run
    async def run(self, given: RunInput) -> None:
        """Wait for ever."""
        await workflow.wait_condition(lambda: False)


async def test_what_the_runs_worker_cannot_receive_is_not_called_sent(client: Client) -> None:
    """An older worker has no such update: its signal would be delivered, and dropped."""
    queue = fresh()
    async with running(Worker(client, task_queue=queue, workflows=[Older]), within=LEAVE):
        run = await client.start_workflow(WORKFLOW, RunInput(task="wait"), id=queue, task_queue=queue)
        payload = {"policy": "0" * 64, "by": "alice"}
        sent = await send_update(
            Threads(client, answer_within=PATIENCE), run.id, "adopt_policy", payload, signal="adopt_policy"
        )
        history = await run.fetch_history()
        await run.terminate()
    assert (sent.outcome, sent.counts) == ("unknown_update", False)
    assert "of a release without `adopt_policy`" in sent.explanation
    assert not [each for each in history.events if each.HasField("workflow_execution_signaled_event_attributes")]


async def test_a_message_sent_without_a_worker_arrives_once(rig: StartRig, pool: AsyncConnectionPool) -> None:
    """If no worker answers, Temporal keeps the message, and the agent reads it once."""
    queue, thread = f"test-{uuid4().hex[:8]}", fresh()
    async with rig(catalog(), script, task_queue=queue) as r:
        threads, _ = both(r, pool)
        await threads.start("first", thread, StartOptions(idle_limit=60))
        await until(threads, thread, "waiting_message")
    sent = await say(Threads(r.client, answer_within=1), thread, "second")
    assert (sent.outcome, sent.counts) == ("sent", True)
    async with rig(catalog(), script, task_queue=queue):
        patient = Threads(r.client, answer_within=PATIENCE)  # the new worker is busy at first
        await eventually(lambda: patient.state(thread), lambda state: state["result"] == "Answer 2.")
        contents = [m["content"] for m in await all_of(patient.messages(thread))]
        assert contents == ["first", "Answer 1.", "second", "Answer 2."]


async def test_an_altered_record_is_detected(rig: StartRig, pool: AsyncConnectionPool, elsewhere: Stack) -> None:
    """The verification names the first altered or missing row and its position; reading rejects the log."""
    async with rig(catalog(), script) as r:
        threads, alone = both(r, pool)
        thread = fresh()
        await run_to_end(threads, thread)
        await run_to_end(threads, thread, "more")
        good = await verify(threads, thread)
        assert (good.ok, good.events, good.sources) == (True, good.events, ("history", "record"))

        where = "thread = (SELECT id FROM holdfast.threads WHERE thread = %s)"
        async with pool.connection() as connection:
            last = f"DELETE FROM holdfast.events WHERE {where} AND stop = %s RETURNING position, stop, size, at, body"
            kept = await (await connection.execute(last, [thread, good.events])).fetchone()
            assert kept is not None
            short = await verify(threads, thread)
            assert (short.ok, short.where, short.position) == (False, "record", kept[0])
            await connection.execute(
                "INSERT INTO holdfast.events (thread, position, stop, size, at, body) "
                "SELECT id, %s, %s, %s, %s, %s FROM holdfast.threads WHERE thread = %s",
                [*kept, thread],
            )
            assert (await verify(threads, thread)).ok
            first = f"SELECT position, stop, size, at, body FROM holdfast.events WHERE {where} AND position = 0"
            block = Block(*(await (await connection.execute(first, [thread])).fetchone() or ()))
            lines = unpack(block)
            lines[1] = lines[1].replace(b'"content":"', b'"content":"other ')
            (altered,) = pack(0, lines)
            await connection.execute(
                f"UPDATE holdfast.events SET size = %s, body = %s WHERE {where} AND position = 0",
                [altered.size, altered.body, thread],
            )
        bad = await verify(threads, thread)
        assert (bad.ok, bad.where, bad.position) == (False, "record", 1)
        assert "was altered" in bad.reason
        assert (await verify(alone, thread)).ok
        forgotten = Threads(await connect_stack(elsewhere), record=PostgresThreads(pool))
        alone_bad = await verify(forgotten, thread)
        assert (alone_bad.ok, alone_bad.where, alone_bad.position) == (False, "record", 1)
        with pytest.raises(RecordUnreadable, match="event 1 of thread"):
            await all_of(forgotten.events(thread))
        await threads.start("more", thread=thread)
        failed = await threads.wait_until_loaded(thread, within=PATIENCE)
        assert failed is not None
        assert (failed["status"], "event 1 of thread" in failed["result"]) == ("failed", True)
        assert await threads.state(thread) == failed


@pytest.mark.extended
async def test_a_thread_with_a_damaged_record_fails_instead_of_retrying_forever(
    rig: StartRig, pool: AsyncConnectionPool
) -> None:
    """An unreadable block ends the run that continues the thread, and the result says what to do."""
    async with rig(catalog(), script) as r:
        threads, _ = both(r, pool)
        where = "thread = (SELECT id FROM holdfast.threads WHERE thread = %s)"
        for body in (b"", b"\xde\xad\xbe\xef", None):  # None: it was cut
            await run_to_end(threads, thread := fresh())
            async with pool.connection() as connection:
                damaged = "substring(body for 40)" if body is None else "%s"
                parameters = [thread] if body is None else [body, thread]
                await connection.execute(f"UPDATE holdfast.events SET body = {damaged} WHERE {where}", parameters)
            await threads.start("more", thread=thread)
            failed = await threads.wait_until_loaded(thread, within=PATIENCE)
            assert failed is not None, body
            said = "restore the record from a backup" in failed["result"]
            assert (failed["status"], said) == ("failed", True), body


@pytest.mark.extended
async def test_parts_that_do_not_join_are_an_error(rig: StartRig, pool: AsyncConnectionPool) -> None:
    """If the record and Temporal have different events, reading raises an error instead of mixing them."""
    async with rig(catalog(), script) as r:
        threads, _ = both(r, pool)
        thread, other = fresh(), fresh()
        await run_to_end(threads, thread)
        await run_to_end(threads, other)
        await run_to_end(threads, thread, "more")
        store = PostgresThreads(pool)

        class Mixed(Unavailable):
            async def read(self, _: str, start: int = 0) -> list[bytes]:
                return await store.read(other, start)

            async def length(self, _: str) -> int:
                return await store.length(other)

        with pytest.raises(LogBroken, match="does not follow from the one before it"):
            await all_of(Threads(r.client, record=Mixed()).events(thread))
        report = await verify(Threads(r.client, record=Mixed()), thread)
        assert (report.ok, report.where, report.position) == (False, "record", 0)


async def test_only_closed_threads_are_pruned(rig: StartRig, pool: AsyncConnectionPool) -> None:
    """A thread whose record ended long ago, but which was re-opened, is left out."""
    async with rig(catalog(), script) as r:
        threads, _ = both(r, pool)
        old, live = fresh(), fresh()
        for thread in (old, live):
            await run_to_end(threads, thread)
        async with pool.connection() as connection:
            await connection.execute(
                "UPDATE holdfast.events SET at = at - %s WHERE thread IN "
                "(SELECT id FROM holdfast.threads WHERE thread = ANY(%s))",
                [400 * 86_400 * 1_000_000, [old, live]],
            )
        record = OpenRecord(PostgresThreads(pool), partial(prunable, pool), partial(prune, pool))
        held = await r.client.start_workflow("AgentRunWorkflow", {}, id=live, task_queue="nobody")
        names = {one.thread for one in await list_prunable(threads.runs, record, older_than=timedelta(days=399))}
        await held.terminate()
        again = {one.thread for one in await list_prunable(threads.runs, record, older_than=timedelta(days=399))}
        assert (old in names, live in names) == (True, False)
        assert {old, live} <= again


@pytest.mark.extended
async def test_a_run_whose_worker_died_in_a_workflow_task_is_not_called_stuck(client: Client) -> None:
    """A worker's crash adds an attempt to the task, like a failure, but needs no fix of the code."""
    queue = fresh()
    order, limit = issued(RunInput(task="go")), timedelta(seconds=1)
    run = await client.start_workflow(WORKFLOW, order, id=queue, task_queue=queue, task_timeout=limit)
    taken = PollWorkflowTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=queue, kind=TaskQueueKind.TASK_QUEUE_KIND_NORMAL),
        identity="dies",
    )
    await client.workflow_service.poll_workflow_task_queue(taken, timeout=timedelta(seconds=30))
    await eventually(run.describe, lambda found: found.raw_description.pending_workflow_task.attempt > 1)
    with pytest.raises(NoWorker):
        await Runs(client, answer_within=1).query(run.id, "state")
    await run.terminate()
