"""Async tools that block the worker's event loop on a real server are detected, named and isolated."""

import asyncio
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from holdfast import Agent, Catalog, Limits, Policy, ToolContext, allow, tool
from holdfast.activities.event_loop_watch import ADVICE, loop_watch
from holdfast.client.start_options import issued
from holdfast.core.log.events import ToolCallFinished
from holdfast.core.run.contracts.runs import WORKFLOW, RunInput
from holdfast.core.run.contracts.table import HEARTBEAT_TIMEOUT
from holdfast.core.tools.decorator import Tool
from holdfast.testing import Reply, call, say, steps, together
from tests.support.rig import PATIENCE, StartRig, check_thread


def block_until_found(context: ToolContext) -> None:
    """Block the event loop until the watchdog has detected it."""
    began, watch = time.monotonic(), loop_watch()
    while context.key not in watch.blocked and time.monotonic() < began + PATIENCE:
        time.sleep(0.05)  # here


def catalog(*tools: Tool, local_seconds: float = 0) -> Catalog:
    """Return a catalog with one agent whose policy allows everything."""
    limits = Limits(local_seconds=local_seconds)
    clerk = Agent(name="clerk", instructions="Work.", policy=Policy(rules=(allow(),)), limits=limits, tools=tools)
    return Catalog(agents=[clerk])


async def ends_of(
    rig: StartRig, agents: Catalog, reply: Reply, **options: Any
) -> tuple[list[ToolCallFinished], list[Any]]:
    """Return how each call of a reply ended, in order, and what the watchdog logged."""
    with capture_logs() as logged:
        async with rig(agents, steps([reply, say("done")])) as r:
            order = issued(RunInput(task="do it", workspace=str(r.workspace)))
            run = await r.client.start_workflow(WORKFLOW, order, id=r.task_queue, task_queue=r.task_queue, **options)
            async with asyncio.timeout(2 * PATIENCE):
                await run.result()
            events = await check_thread(r.client, run)
    ends = [each for each in events if isinstance(each, ToolCallFinished)]
    return sorted(ends, key=lambda end: end.number), [each for each in logged if "advice" in each]


def line_of(words: str) -> int:
    """Return the number of the first line of this file that contains this text."""
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if words in line)


async def test_a_read_that_blocks_the_loop_fails_with_advice(rig: StartRig) -> None:
    """The result and the log name the tool and the line, and advise what to do."""

    @tool(effect="read")
    async def look(context: ToolContext) -> str:
        """Block the event loop like a careless tool."""
        block_until_found(context)
        return "seen"

    (end,), (logged,) = await ends_of(rig, catalog(look), call("look"))
    line = line_of("# here")
    assert end.status == "failed"
    assert end.text.startswith("look blocked the worker's event loop for more than 2 s, at test_blocking_tools.py:")
    assert f"test_blocking_tools.py:{line}. " in end.text
    assert end.text.endswith(ADVICE)
    assert (logged["event"], logged["tool"], logged["at"]) == ("tool_blocks_event_loop", "look", f"{__file__}:{line}")


@pytest.mark.slow
async def test_other_calls_outlive_a_blocked_loop(rig: StartRig) -> None:
    """A loop blocked beyond the heartbeat timeouts loses no attempt; each effect has its own result."""
    calls: list[str] = []

    @tool(effect="unsafe")
    async def pay() -> str:
        """Block the event loop like a careless tool."""
        calls.append("pay")
        time.sleep(HEARTBEAT_TIMEOUT.total_seconds() * 2 + 1)  # noqa: ASYNC251  # the point of the test
        return "paid"

    @tool(effect="unsafe")
    async def wait() -> str:
        """Wait without blocking the loop."""
        calls.append("wait")
        await asyncio.sleep(HEARTBEAT_TIMEOUT.total_seconds())
        return "waited"

    ends, logged = await ends_of(rig, catalog(pay, wait), together(call("wait"), call("pay")))
    assert [(end.status, end.content, end.adopted) for end in ends] == [("ok", "waited", False), ("ok", "paid", False)]
    assert sorted(calls) == ["pay", "wait"]
    assert [each["tool"] for each in logged] == ["pay"]


async def test_a_read_that_outlasts_its_workflow_task_is_not_repeated_forever(rig: StartRig) -> None:
    """A local activity that blocks the loop fails its workflow task; the rerun of that task fails the read."""
    calls: list[int] = []

    @tool(effect="read")
    async def look(context: ToolContext) -> str:
        """Block the event loop like a careless tool."""
        calls.append(1)
        block_until_found(context)
        return "seen"

    given = catalog(look, local_seconds=5)
    (end,), _ = await ends_of(rig, given, call("look"), task_timeout=timedelta(seconds=1))
    assert end.status == "failed"
    assert len(calls) == 1


@pytest.mark.slow
async def test_a_task_of_a_tool_that_blocks_the_loop_is_named_by_its_line(rig: StartRig) -> None:
    """A blocking task's tool is unknown, so no call fails; the log names the line and the running tools."""

    @tool(effect="read")
    async def look(context: ToolContext) -> str:
        """Look in a separate task."""

        async def block() -> None:
            time.sleep(5)  # noqa: ASYNC251  # there

        await asyncio.gather(block())
        return "seen"

    (end,), (logged,) = await ends_of(rig, catalog(look), call("look"))
    assert (end.status, end.content) == ("ok", "seen")
    assert (logged["event"], logged["tools"]) == ("event_loop_blocked", ["look"])
    assert logged["at"] == f"{__file__}:{line_of('# there')}"
