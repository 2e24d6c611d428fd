"""`wait_for_run` and `run_status`: an agent waits for another run, on a real server."""

from typing import Any

import pytest

from holdfast import Agent, Catalog, CatalogError, Limits, Policy, allow, deny, tool
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.log.events import ToolCallFinished, WaitPolled
from holdfast.core.tools.triggers import polled_call, read_trigger
from holdfast.testing import Conversation, Reply, call, say
from tests.support.rig import StartRig, check_thread, events_of, eventually, status_of
from tests.support.runs import NOW

QUICK = Limits(poll_seconds=0.1, poll_ceiling=0.5)


def sleepers(policy: Policy | None = None) -> Catalog:
    """Return an agent that waits for runs, and one that asks for nothing."""
    policy = policy or Policy(rules=(allow(),))
    waiter = Agent(name="waiter", instructions="Wait.", tools=(), policy=policy, dormancy=True, limits=QUICK)
    return Catalog(agents=[waiter, Agent(name="worker", instructions="Work.", tools=())])


def script(conversation: Conversation) -> Reply:
    """Wait for the thread that the task names; the other agent answers."""
    task = conversation.messages[1]["content"]
    if "wait_for_run" not in conversation.tools:
        return say(f"the answer to {task}")
    if conversation.replies:
        return say(conversation.results[0])
    verb, _, thread = task.partition(" ")
    return call(verb, thread=thread)


async def test_an_agent_waits_until_another_run_has_ended(rig: StartRig) -> None:
    """It sleeps while the other run is open, is not called meanwhile, and reads status and result at the end."""
    async with rig(sleepers(), script) as r:
        other = await r.start("41 + 1", agent="worker", by="dana", idle_limit=600.0)
        await status_of(other, "waiting_message")
        run = await r.start(f"wait_for_run {other.id}", agent="waiter", by="dana")

        async def polls() -> int:
            return sum(isinstance(event, WaitPolled) for event in await events_of(run))

        await eventually(polls, lambda count: count >= 3)
        assert (await run.query("state"))["status"] == "dormant"
        await other.cancel()
        result = (await run.result())["result"]
        assert '"ended": true, "status": "cancelled"' in result
        events = await check_thread(r.client, run)
        (end,) = [event for event in events if isinstance(event, ToolCallFinished)]
        assert (end.status, end.trust) == ("ok", "web")


@pytest.mark.extended
async def test_the_result_of_a_run_that_has_ended_is_there_at_once(rig: StartRig) -> None:
    """The result includes the run's final text."""
    async with rig(sleepers(), script) as r:
        other = await r.start("41 + 1", agent="worker", by="dana")
        await other.result()
        run = await r.start(f"wait_for_run {other.id}", agent="waiter", by="dana")
        assert '"status": "completed", "result": "the answer to 41 + 1"' in (await run.result())["result"]


@pytest.mark.parametrize("by", ["mallory", pytest.param("", marks=pytest.mark.extended)])
async def test_runs_of_others_are_as_if_there_were_none(rig: StartRig, by: str) -> None:
    """Another person's run, a run of an unknown starter, a missing run and an odd id all have the same answer."""
    async with rig(sleepers(), script) as r:
        other = await r.start("secret", agent="worker", by="dana")
        await other.result()
        answers = []
        for thread in (other.id, "no-such-thread", "odd\nid"):
            run = await r.start(f"run_status {thread}", agent="waiter", by=by)
            answers.append((await run.result())["result"].replace(repr(thread), "THREAD"))
        assert len(set(answers)) == 1
        assert "there is no thread THREAD" in answers[0]
        assert "secret" not in answers[0]


@pytest.mark.extended
async def test_a_run_does_not_wait_for_itself(rig: StartRig) -> None:
    """The run would wait for ever."""
    async with rig(sleepers(), script) as r:
        run = await r.start("run_status own-thread", agent="waiter", by="dana", thread="own-thread")
        assert "the thread that you run in" in (await run.result())["result"]


@pytest.mark.extended
async def test_a_policy_that_denies_run_status_denies_the_wait(rig: StartRig) -> None:
    """The policy judges the call that runs."""
    policy = Policy(rules=(deny("run_status"), allow()))
    async with rig(sleepers(policy), script) as r:
        run = await r.start("wait_for_run other", agent="waiter", by="dana")
        assert "Denied by policy" in (await run.result())["result"]


@pytest.mark.parametrize("thread", [None, "", 7, "x" * 201, "a\ud800"])
def test_an_invalid_thread_id_is_reported_to_the_llm(thread: Any) -> None:
    """Bad arguments give a sentence, and nothing is polled."""
    assert isinstance(read_trigger("wait_for_run", {"thread": thread}, at=NOW), str)


def test_the_polled_call_is_the_one_that_is_judged() -> None:
    """The polled thread is that of the call, and no other argument reaches it."""
    tool_call = ToolCall(id="1", name="wait_for_run", arguments='{"thread": "other", "tool": "pay", "until": "3h"}')
    polled = polled_call(tool_call)
    assert polled is not None
    assert (polled.name, polled.arguments) == ("run_status", '{"thread":"other"}')


async def test_a_tool_of_that_name_is_rejected(rig: StartRig) -> None:
    """A user's own `run_status` would be polled in its place."""

    @tool(effect="read")
    def run_status(thread: str) -> str:
        """Look."""
        return thread

    agent = Agent(name="a", instructions="", dormancy=True, tools=[run_status])
    with pytest.raises(CatalogError, match="run_status"):
        async with rig(Catalog(agents=[agent]), script):
            pass
