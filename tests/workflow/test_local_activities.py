"""Calls that read, as local activities: what is recorded does not hang on when the SDK says that they have ended."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from temporalio.client import Client
from temporalio.service import RPCError

from holdfast.agent import Limits
from tests.rig import check_thread
from tests.unit.runs import calls, says
from tests.workflow.test_history import SPEC, Desk, Handle, begin, check, deciding, working

LOCAL = SPEC.model_copy(update={"limits": Limits(max_steps=200)})


@asynccontextmanager
async def asked_all_the_time(run: Handle) -> AsyncIterator[None]:
    """Have a run answer query after query: each makes the SDK complete a workflow task sooner."""

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


@pytest.mark.parametrize("seed", range(3))
async def test_queries_and_signals_while_calls_read_leave_one_log(client: Client, seed: int) -> None:
    """Reads of all lengths, under queries without end, with signals at any moment: live, rebuilt and replayed alike."""
    chance = random.Random(seed)
    replies = [
        calls(*chance.choices(["look", "look", "doubt"], k=chance.randint(1, 3)), first=10 * n) for n in range(25)
    ]
    desk = Desk(*replies, says("done"), spec=LOCAL)
    desk.open.set()
    desk.delay = lambda: chance.choice([0, 0, 0.002, 0.01, 0.03])
    async with working(client, desk) as queue, deciding(client, queue, desk):
        run = await begin(client, queue)
        done = asyncio.create_task(run.result())

        async def throw() -> None:
            while not done.done():
                await asyncio.sleep(chance.random() / 30)
                with suppress(RPCError):
                    await run.signal(chance.choice(["approve", "what"]), {"request": "99", "by": "x"})
                    state = await run.query("state")
                    for request in state["pending"]:
                        await run.signal(
                            "reconcile", {"request": request["request"], "decision": "happened", "by": "x"}
                        )

        async with asked_all_the_time(run):
            await throw()
            await done
        events = await check(run)
        assert await check_thread(client, run) == events
