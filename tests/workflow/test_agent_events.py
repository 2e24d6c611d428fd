"""Agents that send events to other runs: judged like any call, to peers only, once, and never in an endless circle."""

from typing import Any

import pytest

from holdfast import Agent, Catalog, Limits, Policy, allow, deny
from holdfast.core.log.events import ToolCallFinished, WakeReceived
from holdfast.core.run.waits.dormancy import MAX_HOPS
from holdfast.testing import Conversation, Reply, call, say, steps
from tests.support.rig import StartRig, answer_of, check_thread, events_of, eventually, status_of

LIMITS = Limits(repeats_slowed=0, repeats_warned=0, repeats_asked=0, max_steps=200)


def catalog(*rules: Any) -> Catalog:
    """Return an agent that sleeps and sends events."""
    policy = Policy(rules=rules or (allow(),))
    return Catalog(
        agents=[
            Agent(
                name="peer", instructions="Work.", tools=(), policy=policy, dormancy=True, publishes=True, limits=LIMITS
            )
        ]
    )


def script(conversation: Conversation) -> Reply:
    """Make the call that the task names, and answer with its result; `ball THREAD` sends every event back."""
    verb, _, rest = conversation.messages[1]["content"].partition(" ")
    last = conversation.results[-1] if conversation.results else ""
    if verb == "ball":
        if last.startswith("Sent to") or not last:
            return call("wait_for_event", name="ball")
        return call("wake_run", thread=rest, event="ball") if last.startswith("Event ball") else say(last)
    if conversation.replies:
        return say(last)
    match verb:
        case "sleep":
            return call("wait_for_event", name=rest)
        case "publish":
            return call("publish_event", name=rest, data={"n": 1})
        case _:
            thread, _, event = rest.partition(" ")
            return call("wake_run", thread=thread, event=event)


async def ends(run: Any) -> list[ToolCallFinished]:
    """Return the results of a run's calls."""
    return [event for event in await events_of(run) if isinstance(event, ToolCallFinished)]


async def wakes(run: Any) -> list[WakeReceived]:
    """Return the events that a run has received."""
    return [event for event in await events_of(run) if isinstance(event, WakeReceived)]


async def test_an_agent_wakes_the_runs_of_its_own_starter_and_no_others(rig: StartRig) -> None:
    """A published event reaches all that wait for it, with the sender's name and the number of agents before it."""
    async with rig(catalog(), script) as r:
        one, two = [await r.start("sleep built", by="dana") for _ in range(2)]
        foreign, unproven = await r.start("sleep built", by="mallory"), await r.start("sleep built", by="")
        for run in (one, two, foreign, unproven):
            await status_of(run, "dormant")
        sender = await r.start("publish built", by="dana")
        result = (await sender.result())["result"]
        assert result == f"Sent to 2 runs that wait for built: {', '.join(sorted((one.id, two.id)))}."
        assert (await one.result())["result"].startswith("Event built arrived")
        await two.result()
        (wake,) = await wakes(one)
        assert (wake.hops, wake.data, wake.by) == (1, '{"n":1}', f"agent peer in thread {sender.id}")
        for run in (foreign, unproven):
            assert await wakes(run) == []
            await run.cancel()
        await check_thread(r.client, one)
        await check_thread(r.client, sender)


@pytest.mark.extended
async def test_a_peer_keeps_an_event_that_comes_early_and_takes_it_once(rig: StartRig) -> None:
    """The event's id is the key of the call, so a second attempt cannot wake the run twice."""
    async with rig(catalog(), script) as r:
        peer = await r.start("sleep other", by="dana")
        await status_of(peer, "dormant")
        sender = await r.start(f"wake {peer.id} built", by="dana")
        assert (await sender.result())["result"].startswith(f"Sent to {peer.id}.")

        async def received() -> int:
            return len(await wakes(peer))

        await eventually(received, lambda count: count == 1)
        (wake,) = await wakes(peer)
        assert wake.outcome == "buffered"
        assert len(wake.id) == 40
        again = {"event": wake.event, "id": wake.id}
        assert (await answer_of(peer.execute_update("wake", again)))["outcome"] == "duplicate"
        await peer.cancel()


async def test_other_threads_are_as_if_there_were_none(rig: StartRig) -> None:
    """Another person's thread, a missing one and an odd id have the same answer, and nothing is sent."""
    async with rig(catalog(), script) as r:
        foreign = await r.start("sleep built", by="mallory")
        await status_of(foreign, "dormant")
        answers = []
        for thread in (foreign.id, "no-such-thread"):
            run = await r.start(f"wake {thread} built", by="dana")
            answers.append((await run.result())["result"].replace(repr(thread), "THREAD"))
        assert len(set(answers)) == 1
        assert "there is no thread THREAD" in answers[0]
        assert await wakes(foreign) == []
        await foreign.cancel()


@pytest.mark.extended
async def test_the_policy_judges_the_tools(rig: StartRig) -> None:
    """They have an effect, so without a rule they ask; a denied one sends nothing."""
    async with rig(catalog(deny("publish_event"), allow("wait_for_event")), script) as r:
        denied = await r.start("publish built", by="dana")
        assert "Denied by policy" in (await denied.result())["result"]
        asking = await r.start("wake other built", by="dana")
        assert (await status_of(asking, "waiting_approval"))["pending"][0]["tool"] == "wake_run"
        await asking.cancel()


@pytest.mark.extended
async def test_agents_cannot_wake_each_other_forever(rig: StartRig) -> None:
    """Two agents that send every event back stop after `MAX_HOPS`; a person's message would begin anew."""
    async with rig(catalog(), script) as r:
        one = await r.start("ball circle-two", by="dana", thread="circle-one")
        two = await r.start("ball circle-one", by="dana", thread="circle-two")
        for run in (one, two):
            await status_of(run, "dormant")
        await one.execute_update("wake", {"event": "ball", "by": "dana"})
        assert f"{MAX_HOPS} agents in a row have led to this call" in (await one.result())["result"]
        hops = sorted(wake.hops for wake in [*await wakes(one), *await wakes(two)])
        assert hops == [0, *range(1, MAX_HOPS + 1)]
        await two.cancel()


@pytest.mark.extended
async def test_an_agent_counts_events_on_a_real_server(rig: StartRig) -> None:
    """Two of three green builds wake it; the first one counts, and its history replays."""
    wait = call("wait_for_event", name="build", match={"state": "green"}, count=2, of=3)
    async with rig(catalog(), steps([wait, say("done")])) as r:
        run = await r.start()
        await status_of(run, "dormant")
        outcomes = []
        for state in ("green", "red", "green"):
            payload = {"event": "build", "data": {"state": state}}
            outcomes.append((await answer_of(run.execute_update("wake", payload)))["outcome"])
        assert outcomes == ["counted", "counted", "delivered"]
        await run.result()
        events = await check_thread(r.client, run)
        (end,) = [event for event in events if isinstance(event, ToolCallFinished)]
        assert (end.text.startswith("2 events build that match"), end.trust) == (True, "web")
