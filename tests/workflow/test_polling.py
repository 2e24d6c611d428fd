"""An agent that polls one of its tools while it sleeps, on a real server."""

import asyncio
from typing import Any

import pytest
from temporalio.client import Client

from holdfast import Agent, Catalog, Limits, Policy, allow, tool
from holdfast.core.log.events import ToolCallFinished, WaitPolled
from holdfast.testing import call, say, steps
from tests.replay.scenarios import CATALOG, SCENARIOS, polled
from tests.support.rig import StartRig, check_thread, events_of, eventually, reset, status_of, tasks_of
from tests.workflow.test_dormancy import activities, thread_of

POLLING = Policy(rules=(allow(),))


def poller(*tools: Any, **limits: Any) -> Catalog:
    """Return a catalog with an agent that polls within fractions of a second."""
    short = Limits(**{"poll_seconds": 0.1, "poll_ceiling": 0.2, **limits})
    agent = Agent(name="a", instructions="Work.", policy=POLLING, limits=short, dormancy=True, tools=list(tools))
    return Catalog(agents=[agent])


def counting(until: int) -> tuple[Any, list[int]]:
    """Return a tool that is done after this many calls, and the list of its calls."""
    calls: list[int] = []

    @tool(effect="read")
    def build(id: int = 7) -> dict[str, Any]:
        """Look at a build."""
        calls.append(id)
        return {"state": "done" if len(calls) >= until else "running"}

    return build, calls


def check(**more: Any) -> Any:
    """Return a call that waits for the build."""
    arguments = {"tool": "build", "condition": {"equals": {"state": "done"}}, **more}
    return call("check_back", **arguments)


async def polls_of(run: Any) -> list[WaitPolled]:
    """Return the polls recorded by a run."""
    return [event for event in await events_of(run) if isinstance(event, WaitPolled)]


@pytest.mark.slow
async def test_polls_pauses_and_ends_of_waits_replay(rig: StartRig, client: Client) -> None:
    """Each poll has its result, a forbidden poll gives the reason, and each history rebuilds the same events."""
    script, _, begin = SCENARIOS["polled"]
    async with rig(CATALOG, script) as r:
        run = await r.start(**begin)
        await polled(run, r)
        events = await check_thread(client, run)
        ends = [event for event in events if isinstance(event, ToolCallFinished)]
        heads = [
            "Not called: tool: wipe is not",
            "Your condition was met",
            "Your condition was not met within 2s, in 2",
        ]
        heads += ["invoice 12 is locked", "You were woken after"]
        assert [end.text[: len(head)] for end, head in zip(ends, heads, strict=True)] == heads
        assert [end.status for end in ends] == ["invalid", "ok", "ok", "cannot", "ok"]
        history = await run.fetch_history()
        assert activities(history).count("call_tool") == 5


async def test_a_run_polls_until_its_condition_is_met_and_calls_the_llm_once(rig: StartRig, client: Client) -> None:
    """The run continues as new between polls, the tool gets the judged arguments, and the LLM reads one result."""
    build, calls = counting(16)
    async with rig(poller(build, history_events=60), steps([check(), say("done")])) as r:
        run = await r.start()
        await eventually(lambda: asyncio.sleep(0, len(calls)), lambda made: made >= 16)
        again = client.get_workflow_handle(run.id)
        await again.result()
        events = await check_thread(client, run)
        polls = [event for event in events if isinstance(event, WaitPolled)]
        assert ([event.poll for event in polls], set(calls)) == ([*range(1, len(calls) + 1)], {7})
        assert (await again.describe()).run_id != run.first_execution_run_id
        (end,) = [event for event in events if isinstance(event, ToolCallFinished)]
        assert end.text.endswith('{"state": "done"}')
        assert len(r.llm.requests) == 2


@pytest.mark.extended
async def test_a_message_ends_a_wait_with_a_hanging_poll(rig: StartRig, client: Client) -> None:
    """The LLM is called at once; the poll is stopped, and its end is not recorded."""

    @tool(effect="read", timeout=60)
    async def build() -> str:
        """Never answer."""
        await asyncio.sleep(600)
        return "done"

    async with rig(poller(build), steps([check(condition={"contains": "done"}), say("done")])) as r:
        run = await r.start()
        await status_of(run, "dormant")
        assert (await run.execute_update("say", {"message": "and?", "by": "alice"}))["outcome"] == "accepted"
        await run.result()
        events = await check_thread(client, run)
        assert not [event for event in events if isinstance(event, WaitPolled)]


@pytest.mark.extended
async def test_a_cancelled_run_stops_its_poll(rig: StartRig, client: Client) -> None:
    """The polled tool is cancelled and awaited like any tool."""
    stopped: list[bool] = []

    @tool(effect="read", timeout=60)
    async def build() -> str:
        """Record that it was stopped."""
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            stopped.append(True)
            raise
        return "done"

    async with rig(poller(build), steps([check(condition={"contains": "done"})])) as r:
        run = await r.start()
        await status_of(run, "dormant")
        await run.cancel()
        await eventually(run.describe, lambda found: found.status is not None and found.status.name == "CANCELED")
        await eventually(lambda: asyncio.sleep(0, stopped), bool)
        await check_thread(client, run)


@pytest.mark.extended
async def test_a_reset_into_a_wait_repeats_the_polls(rig: StartRig, client: Client) -> None:
    """Polls leave nothing in the ledger: they are repeated, and the wait ends as before."""
    build, calls = counting(3)
    async with rig(poller(build), steps([check(), say("done")])) as r:
        run = await r.start()
        await run.result()
        asleep = (await tasks_of(run))[-4]
        again = await reset(r, run, to=asleep)
        await again.result()
        assert len(calls) > 3
        (end,) = [event for event in await events_of(again) if isinstance(event, ToolCallFinished)]
        assert end.text.startswith("Your condition was met")


@pytest.mark.extended
async def test_the_state_gives_the_next_poll(rig: StartRig) -> None:
    """The state has the number of polls, and the last result."""
    build, _ = counting(1_000)
    async with rig(poller(build, poll_seconds=60), steps([check(until="20d"), say("done")])) as r:
        run = await r.start()
        await eventually(lambda: polls_of(run), bool)
        (wait,) = (await run.query("state"))["dormancy"]["waits"]
        assert (wait["kind"], wait["tool"], wait["arguments"]) == ("poll", "build", '{"id":7}')
        assert (wait["polls"]["count"], wait["polls"]["result"]) == (1, "news")
        state = await thread_of(r, run.id).state()
        assert state.dormancy is not None
        assert state.dormancy.waits[0].polls is not None
        await run.signal("wake", {"by": "alice"})
        await run.result()
