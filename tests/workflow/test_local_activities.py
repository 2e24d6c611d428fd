"""Calls that only read are local activities: the log does not depend on when the SDK reports their ends."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

import pytest
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client
from temporalio.service import RPCError

from holdfast import Agent, Catalog, Limits, Policy, allow, tool
from holdfast.client.start_options import issued
from holdfast.core.log.events import ToolCallFinished
from holdfast.core.run.contracts.runs import WORKFLOW, RunInput
from holdfast.core.temporal.history_reader import read_events
from holdfast.core.tools.decorator import Tool
from holdfast.errors import HistoryUnreadable
from holdfast.testing import call, say, steps, together
from tests.support.rig import StartRig, check_thread, events_of, eventually, status_of
from tests.support.runs import calls, says
from tests.workflow.test_history import SPEC, Desk, Handle, begin, check, deciding, working

LOCAL = SPEC.model_copy(update={"limits": Limits(max_steps=200)})


def catalog(*tools: Tool, local_seconds: float = 1) -> Catalog:
    """Return one agent that may do anything."""
    limits = Limits(local_seconds=local_seconds)
    clerk = Agent(name="clerk", instructions="Work.", policy=Policy(rules=(allow(),)), limits=limits, tools=tools)
    return Catalog(agents=[clerk])


async def history(run: Handle) -> list[HistoryEvent]:
    """Return the history of a run."""
    return list((await run.fetch_history()).events)


def scheduled(events: list[HistoryEvent]) -> Counter[str]:
    """Return the number of ordinary activities of each type."""
    names = (event.activity_task_scheduled_event_attributes.activity_type.name for event in events)
    return Counter(name for name in names if name)


def markers(events: list[HistoryEvent]) -> list[str]:
    """Return the Web UI's text for each local activity."""
    marked = (event for event in events if event.HasField("marker_recorded_event_attributes"))
    return [event.user_metadata.summary.data.decode() for event in marked]


async def test_reads_are_local_activities_with_markers(rig: StartRig) -> None:
    """Loading the agent and reading each leave a marker with text; effects and the LLM stay ordinary activities."""

    @tool(effect="read")
    def look(at: str) -> str:
        """Look."""
        return f"it is {at}"

    @tool(effect="unsafe")
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    script = steps([call("look", at="a"), together(call("look", at="b"), call("pay", amount=1)), say("done")])
    async with rig(catalog(look, pay), script) as r:
        run = await r.start()
        await run.result()
        events = await history(run)
        assert scheduled(events) == {"call_llm": 3, "call_tool": 1, "archive": 1}
        assert [text for text in markers(events) if "load" not in text] == [
            '"look(at=\\"a\\")"',
            '"look(at=\\"b\\")"',
        ]
        await check_thread(r.client, run)


@pytest.mark.extended
async def test_a_slow_read_becomes_an_ordinary_activity(rig: StartRig) -> None:
    """It does so at once, without a message to the LLM; later calls of that tool are ordinary from the start."""
    began: list[int] = []

    @tool(effect="read")
    async def crawl(page: int) -> str:
        """Read slowly."""
        began.append(page)
        await asyncio.sleep(0.5)
        return f"page {page}"

    script = steps([call("crawl", page=1), call("crawl", page=2), say("done")])
    async with rig(catalog(crawl, local_seconds=0.1), script) as r:
        run = await r.start()
        await run.result()
        assert began in ([1, 1, 2], [1, 2])  # on a busy machine, the limit may pass before the local activity begins
        assert scheduled(await history(run))["call_tool"] == 2
        results = [event.content for event in await check_thread(r.client, run) if isinstance(event, ToolCallFinished)]
        assert results == ["page 1", "page 2"]
        assert len(r.llm.requests) == 3


@pytest.mark.extended
async def test_the_reads_of_a_step_run_in_parallel(rig: StartRig) -> None:
    """Three reads that wait for each other all end."""
    all_there = asyncio.Barrier(3)

    @tool(effect="read")
    async def meet(name: str) -> str:
        """Wait for the others."""
        await all_there.wait()
        return name

    script = steps([together(*(call("meet", name=name) for name in "abc")), say("done")])
    async with rig(catalog(meet, local_seconds=5), script) as r:
        run = await r.start()
        await run.result()
        assert scheduled(await history(run))["call_tool"] == 0
        await check_thread(r.client, run)


@pytest.mark.parametrize("local_seconds", [0, pytest.param(0.3, marks=pytest.mark.extended)])
async def test_a_cancellation_waits_for_a_local_activity_only_for_its_time_limit(
    rig: StartRig, local_seconds: float
) -> None:
    """A read that never ends does not keep a run from being cancelled."""
    reading = asyncio.Event()

    @tool(effect="read")
    async def stare() -> str:
        """Never return."""
        reading.set()
        await asyncio.sleep(3_600)
        return "never"

    async with rig(catalog(stare, local_seconds=local_seconds), steps([call("stare"), say("done")])) as r:
        run = await r.start()
        await reading.wait()
        await run.cancel()
        await status_of(run, "cancelled")
        await check_thread(r.client, run)


@pytest.mark.extended
async def test_a_workflow_task_that_is_extended_for_a_read_keeps_one_log(client: Client) -> None:
    """The SDK extends a workflow task at four fifths of its time-out; signals that arrive then wait for the read."""
    desk = Desk(calls("look"), says("done"), spec=LOCAL.model_copy(update={"limits": Limits(local_seconds=5)}))
    async with working(client, desk) as queue, deciding(client, queue, desk):
        order, limit = issued(RunInput(task="do it")), timedelta(seconds=1)
        run = await client.start_workflow(WORKFLOW, order, id=queue, task_queue=queue, task_timeout=limit)
        await eventually(lambda: asyncio.sleep(0, len(desk.began)), lambda count: count == 2)
        for _ in range(3):
            await run.signal("what", {"by": "x"})
            await asyncio.sleep(0.4)  # together longer than four fifths of the time-out: the read is still open
        desk.open.set()
        await run.result()
        events = await check(run)
        types = [event.type for event in events]
        assert types.count("signal_rejected") == 3
        assert types.index("signal_rejected") > types.index("tool_call_finished")
        assert await check_thread(client, run) == events


async def test_a_forged_marker_is_named(client: Client) -> None:
    """Forging the end of a local activity requires forging the events that led to it."""
    desk = Desk(calls("look"), says("done"), spec=LOCAL)
    desk.open.set()
    async with working(client, desk) as queue, deciding(client, queue, desk):
        run = await begin(client, queue)
        await run.result()
    for actual, forged in ((b'"activity_id":"3.', b'"activity_id":"4.'), (b"call_tool", b"load_agent"), (b"{", b"[")):
        events = await history(run)
        (marker,) = [
            event
            for event in events
            if event.HasField("marker_recorded_event_attributes")
            and b"call_tool" in event.marker_recorded_event_attributes.details["data"].payloads[0].data
        ]
        (data,) = marker.marker_recorded_event_attributes.details["data"].payloads
        assert actual in data.data
        data.data = data.data.replace(actual, forged)
        with pytest.raises(HistoryUnreadable, match=f"event {marker.event_id} "):
            read_events(events)


@asynccontextmanager
async def queried_continuously(run: Handle) -> AsyncIterator[None]:
    """Query a run continuously, which makes the SDK complete workflow tasks sooner."""

    async def ask() -> None:
        while True:
            with suppress(RPCError):
                await run.query("state")

    asking = [asyncio.create_task(ask()) for _ in range(2)]
    try:
        yield
    finally:
        for each in asking:
            each.cancel()
        await asyncio.wait(asking)


@pytest.mark.extended
@pytest.mark.parametrize(
    ("seed", "replies"), [(0, 4), *(pytest.param(seed, 25, marks=pytest.mark.slow) for seed in range(1, 13))]
)
async def test_queries_and_signals_while_calls_read_leave_one_log(client: Client, seed: int, replies: int) -> None:
    """Reads of all lengths, under constant queries, with signals at any time: live, rebuilt and replayed logs agree."""
    chance = random.Random(seed)
    calls_made = [
        calls(*chance.choices(["look", "look", "doubt"], k=chance.randint(1, 3)), first=10 * number)
        for number in range(replies)
    ]
    desk = Desk(*calls_made, says("done"), spec=LOCAL)
    desk.open.set()
    desk.delay = lambda: chance.choice([0, 0, 0.002, 0.01, 0.03])
    async with working(client, desk) as queue, deciding(client, queue, desk):
        run = await begin(client, queue)
        done = asyncio.create_task(run.result())
        async with queried_continuously(run):
            while not done.done():
                await asyncio.sleep(chance.random() / 30)
                with suppress(RPCError):
                    await run.signal(chance.choice(["approve", "what"]), {"request": "99", "by": "x"})
                    for request in (await run.query("state"))["pending"]:
                        settled = {"request": request["request"], "decision": "happened", "by": "x"}
                        await run.signal("reconcile", settled)
            await done
        events = await check(run)
        assert await events_of(run) == await check_thread(client, run) == events
