"""Weeks of waiting on a real server, in a second each: the server skips the time in which no work is in progress.

Each test ends with `check_thread`: the histories replay, with the skipped time in them.
"""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle

from holdfast import Agent, Approver, Cannot, Catalog, Escalation, Limits, Policy, Terms, allow, ask, tool
from holdfast.client import time_skipping
from holdfast.client.threads import Threads
from holdfast.client.time_skipping import skip_time
from holdfast.core.log.events import AgentEvent, RunResumed, StateVerified, ToolCallFinished, ToolCallStarted
from holdfast.core.run.contracts.runs import WORKFLOW, RunInput
from holdfast.errors import Refused
from holdfast.testing import Conversation, Reply, call, fail, hang, say, steps
from tests.support.rig import Rig, StartRig, answer_of, check_thread, events_of, eventually, runs_of, skip, status_of

DAY = 86_400.0
WEEKS = timedelta(days=21)
PEOPLE = (Approver(name="alice", roles=("finance",)), Approver(name="bob"))


@tool(effect="read")
def look() -> str:
    """Look."""
    return "as ever"


@tool(effect="read")
def knock() -> Cannot:
    """Knock at a door."""
    return Cannot("closed for a fortnight", scope="everywhere", until=timedelta(days=14))


@tool(effect="unsafe")
def pay() -> str:
    """Pay."""
    return "paid"


def catalog(terms: Terms | None = None, **limits: float) -> Catalog:
    """Return a clerk who must ask to pay, under these requirements."""
    rules = (ask("pay", terms=terms or Terms()), allow())
    clerk = Agent(
        name="clerk",
        instructions="Work.",
        policy=Policy(rules=rules, approvers=PEOPLE if terms else ()),
        verify=("look",),
        limits=Limits(max_steps=1_000, **limits),  # type: ignore[arg-type]
        tools=[look, knock, pay],
    )
    return Catalog(agents=[clerk])


def counting(conversation: Conversation) -> Reply:
    """Answer with the number of the answer."""
    return say(f"answer {conversation.replies + 1}")


def threads(rig: Rig) -> Threads:
    """Return the threads of the rig."""
    return Threads(rig.client, task_queue=rig.task_queue, record=rig.threads)


async def wait_for_step(run: WorkflowHandle[Any, Any], step: int) -> None:
    """Wait until the run has made that many LLM calls."""
    await eventually(lambda: run.query("state"), lambda state: state["step"] == step)


def kinds(events: list[AgentEvent], prefix: str) -> list[str]:
    """Return the types of the events that begin with this prefix, without it."""
    return [event.type.removeprefix(prefix) for event in events if event.type.startswith(prefix)]


async def test_an_unanswered_request_reminds_escalates_and_expires(rig: StartRig, client: Client) -> None:
    """After three weeks without an answer, the log has each step at its time, the call is denied, and nothing ran."""
    terms = Terms(by=("finance",), remind_every=7 * DAY, escalate=(Escalation(after=10 * DAY, by=("bob",)),))
    terms = terms.model_copy(update={"expires_after": 20 * DAY})
    async with rig(catalog(terms), steps([call("pay"), say("I was not allowed to")])) as r:
        run = await r.start()
        await status_of(run, "waiting_approval")
        await skip(client, run, days=21)
        assert (await run.result())["result"] == "I was not allowed to"
        events = await check_thread(client, run)
        assert kinds(events, "approval_") == ["requested", "reminded", "escalated", "reminded", "expired"]
        asked, *later = (event.at for event in events if event.type.startswith("approval_"))
        assert [round((at - asked) / timedelta(days=1)) for at in later] == [7, 10, 14, 20]
        assert not [event for event in events if isinstance(event, ToolCallStarted)]


@pytest.mark.extended
async def test_a_run_waits_a_month_for_a_message(rig: StartRig, client: Client) -> None:
    """A message after three weeks is answered, a month later the run closes, and the clock returns to today."""
    async with rig(catalog(), counting) as r:
        run = await r.start(idle_limit=30 * DAY)
        assert (await status_of(run, "waiting_message"))["result"] == "answer 1"
        await skip(client, run, days=21)
        assert (await status_of(run, "waiting_message"))["result"] == "answer 1"
        await run.signal("say", "and then?")
        await eventually(lambda: run.query("state"), lambda state: state["result"] == "answer 2")
        await skip(client, run, days=31)
        assert (await run.result())["result"] == "answer 2"
        events = await check_thread(client, run)
        first, second = (event.at for event in events if event.type == "message_awaited")
        assert second - first >= WEEKS
        assert events[-1].at - second >= timedelta(days=30)
        assert await r.threads.length(run.id) == len(events)
        with pytest.raises(Refused, match="is completed, and time passes only for an open run"):
            await skip(client, run, days=1)


@pytest.mark.extended
async def test_a_paused_run_resumes_when_its_time_has_come(rig: StartRig, client: Client) -> None:
    """A pause for a fortnight ends by itself, and the approved call runs then and not before."""
    async with rig(catalog(), steps([call("pay"), say("done")])) as r:
        run = await r.start()
        began = (await status_of(run, "waiting_approval"))["pending"][0]["request"]
        end = (await events_of(run))[0].at + timedelta(days=14)
        paused = await answer_of(run.execute_update("pause", {"by": "bob", "until": end.isoformat()}))
        assert paused["outcome"] == "accepted"
        assert (await answer_of(run.execute_update("decide", {"request": began, "decision": "approve"})))["outcome"]
        await skip(client, run, days=13)
        assert (await status_of(run, "paused"))["paused"]["by"] == "bob"
        await skip(client, run, days=2)
        assert (await run.result())["result"] == "done"
        events = await check_thread(client, run)
        (resumed,) = [event for event in events if isinstance(event, RunResumed)]
        assert (resumed.by, resumed.at >= end) == ("", True)
        (started,) = [event for event in events if isinstance(event, ToolCallStarted)]
        assert started.at >= resumed.at


@pytest.mark.extended
async def test_after_weeks_the_world_is_verified_again(rig: StartRig, client: Client) -> None:
    """The verify tools run before the LLM reads a message after three weeks, but not after an hour."""
    async with rig(catalog(), counting) as r:
        run = await r.start(idle_limit=60 * DAY)
        for time in ({"hours": 1}, {"days": 21}):
            await status_of(run, "waiting_message")
            await skip(client, run, **time)
            await run.signal("say", "go on")
            await eventually(lambda: run.query("state"), lambda state: state["status"] == "waiting_message")
        await eventually(lambda: run.query("state"), lambda state: state["result"] == "answer 3")
        events = await check_thread(client, run)
        (verified,) = [event for event in events if isinstance(event, StateVerified)]
        assert verified.paused_seconds >= WEEKS.total_seconds()
        await run.cancel()


@pytest.mark.extended
async def test_a_rejection_for_a_fortnight_ends(rig: StartRig, client: Client) -> None:
    """A call that a tool cannot do for a fortnight is rejected until then, and tried again after that."""
    async with rig(catalog(), lambda said: call("knock") if said.replies % 2 == 0 else say("so it is")) as r:
        run = await r.start(idle_limit=60 * DAY)
        for days in (7, 14):
            await status_of(run, "waiting_message")
            step = (await run.query("state"))["step"]
            await skip(client, run, days=days)
            await run.signal("say", "and now?")
            await wait_for_step(run, step + 2)
        await status_of(run, "waiting_message")
        events = await check_thread(client, run)
        ends = [event for event in events if isinstance(event, ToolCallFinished)]
        assert [bool(event.scope) for event in ends] == [True, False, True]
        await run.cancel()


@pytest.mark.extended
async def test_time_is_skipped_across_continue_as_new(rig: StartRig, client: Client) -> None:
    """Daily reminders over three weeks take several Temporal runs with one log, which has a reminder on each day."""
    async with rig(catalog(Terms(remind_every=DAY), history_events=30), steps([call("pay"), say("done")])) as r:
        run = await r.start()
        await status_of(run, "waiting_approval")
        await skip(client, run, days=21.5)
        assert len(await runs_of(client, run)) > 2
        await status_of(client.get_workflow_handle(run.id), "waiting_approval")
        events = await check_thread(client, run)
        asked, *reminded = (event.at for event in events if event.type.startswith("approval_"))
        assert [round((at - asked) / timedelta(days=1), 3) for at in reminded] == list(range(1, 22))
        await client.get_workflow_handle(run.id).cancel()


@pytest.mark.extended
async def test_no_time_is_skipped_after_a_rejection(rig: StartRig, client: Client) -> None:
    """Time is not skipped during a call: the error names the call, and no time is skipped after it has ended."""
    go = asyncio.Event()

    @tool(effect="read")
    async def slow() -> str:
        """Take long."""
        await go.wait()
        return "at last"

    slowly = Catalog(agents=[Agent(name="a", instructions="", limits=Limits(local_seconds=0), tools=[slow])])
    async with rig(slowly, steps([call("slow"), say("done")])) as r:
        run = await r.start(idle_limit=DAY)
        await eventually(lambda: events_of(run), lambda events: isinstance(events[-1], ToolCallStarted))
        with pytest.raises(Refused, match=r"call_tool is under way\. Skip again after that"):
            await skip_time(threads(r).runs, run.id, WEEKS, within=0.3)
        go.set()
        await status_of(run, "waiting_message")
        events = await check_thread(client, run)
        assert events[-1].at - events[0].at < timedelta(hours=1)
        await run.cancel()


@pytest.mark.extended
async def test_retries_during_an_outage_are_bounded(
    rig: StartRig, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Skipping the pauses between retries ends after a number of them."""
    monkeypatch.setattr(time_skipping, "MAX_TIMERS", 5)
    async with rig(catalog(), lambda _: fail(503, "overloaded")) as r:
        run = await r.start()
        await eventually(lambda: asyncio.sleep(0, len(r.llm.requests)), bool)
        with pytest.raises(Refused, match=r"5 timers and retries were due\. Skip again for more"):
            await skip(client, run, days=21)
        assert len(r.llm.requests) < 20
        await run.terminate()


@pytest.mark.extended
async def test_a_hanging_llm_and_a_missing_worker_are_named(rig: StartRig, client: Client) -> None:
    """The error names what prevents skipping, and how to start a worker."""
    async with rig(catalog(), lambda _: hang()) as r:
        run = await r.start()
        await eventually(lambda: asyncio.sleep(0, len(r.llm.requests)), bool)
        with pytest.raises(Refused, match=r"only until .* UTC: call_llm is under way"):
            await skip_time(threads(r).runs, run.id, WEEKS, within=0.3)
        await run.terminate()
    unserved = await client.start_workflow(WORKFLOW, RunInput(task="wait"), id=f"{run.id}-2", task_queue=run.id)
    runs = threads(r).runs
    with pytest.raises(Refused, match=r"a worker has to process what is due: start one with .* --dev --skip-time"):
        await skip_time(runs, unserved.id, WEEKS, within=0.3)
    await unserved.terminate()


@pytest.mark.parametrize("duration", [timedelta(), timedelta(days=-1), timedelta(days=3_661)])
async def test_only_a_sensible_time_is_skipped(rig: StartRig, duration: timedelta) -> None:
    """Time does not go back or stand still, and at most ten years are skipped at once."""
    async with rig(catalog(), counting) as r:
        with pytest.raises(Refused, match="cannot be skipped"):
            await skip_time(threads(r).runs, "anything", duration, within=1)
