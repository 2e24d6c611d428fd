"""A pause by a person, on a real server."""

import asyncio
from datetime import timedelta

import pytest
from temporalio.client import Client

from holdfast import Agent, Catalog, Policy, allow, tool
from holdfast.api.thread import Thread
from holdfast.client.threads import Threads
from holdfast.core.log.events import RunPaused, RunResumed, ToolCallFinished
from holdfast.errors import NotAccepted
from holdfast.testing import Conversation, Reply, call, say
from tests.replay.scenarios import CATALOG, SCENARIOS, paused
from tests.support.rig import PATIENCE, Rig, StartRig, check_thread, events_of, eventually, status_of


def thread_of(rig: Rig, thread: str) -> Thread:
    """Return a thread as a program holds it, in the name of alice."""
    return Thread(thread, threads=Threads(rig.client, task_queue=rig.task_queue), by="alice")


async def test_a_paused_run_resumes_by_person_and_by_time_and_replays(rig: StartRig, client: Client) -> None:
    """The log has who paused and resumed it and why; the history rebuilds the same events."""
    script, _, begin = SCENARIOS["paused"]
    async with rig(CATALOG, script) as r:
        run = await r.start(**begin)
        await paused(run, r)
        events = await check_thread(client, run)
        pauses = [event.reason for event in events if isinstance(event, RunPaused)]
        assert pauses == ["let me look", "let me look again", "", ""]
        assert [event.by for event in events if isinstance(event, RunResumed)] == ["bob", "bob", ""]
        kinds = [event.type for event in events]
        started = kinds.index("tool_call_started", kinds.index("run_paused"))
        assert kinds.index("decision_received") < kinds.index("run_resumed") < started
        assert kinds.index("user_message_received", started) < kinds.index("message_taken")


@pytest.mark.extended
async def test_a_tool_in_progress_ends_and_the_llm_is_called_after_the_resume(rig: StartRig) -> None:
    """Client and visibility show `paused`, by whom and until when; a message with `resume` is read first."""
    begun, go = asyncio.Event(), asyncio.Event()

    @tool(effect="read")
    async def look() -> str:
        """Look."""
        begun.set()
        await go.wait()
        return "as before"

    def script(conversation: Conversation) -> Reply:
        return call("look") if not conversation.replies else say(f"done: {conversation.last_user_message}")

    agent = Agent(name="a", instructions="Work.", tools=("look",), policy=Policy(rules=(allow("look"),)))
    async with rig(Catalog(agents=[agent], tools=[look]), script) as r:
        run = await r.start()
        thread = thread_of(r, run.id)
        await begun.wait()
        assert (await thread.pause(reason="wait", until=timedelta(hours=1))).outcome == "accepted"
        go.set()
        await eventually(lambda: events_of(run), lambda events: isinstance(events[-1], ToolCallFinished))
        result = await thread.result(until="attention", timeout=PATIENCE)
        assert result.paused
        assert (result.status, result.paused.by) == ("paused", "alice")
        with pytest.raises(NotAccepted, match="paused already") as same:
            await thread.pause(reason="wait", until=result.paused.until)
        assert same.value.outcome == "duplicate"
        await eventually(run.describe, lambda found: found.search_attributes["HoldfastStatus"] == ["paused"])
        assert (await thread.resume(say="go on")).outcome == "accepted"
        assert (await thread.result(timeout=PATIENCE)).text == "done: go on"
        with pytest.raises(NotAccepted) as late:
            await thread.resume()
        assert late.value.outcome == "too_late"
        with pytest.raises(NotAccepted, match="the message was not sent"):
            await thread.resume(say="and on")


@pytest.mark.extended
async def test_a_paused_run_can_be_cancelled_and_retried(rig: StartRig) -> None:
    """`retry` on a blocked run that is paused unblocks it and starts nothing; `cancel` ends it."""
    script = SCENARIOS["retried"][0]
    async with rig(CATALOG, script) as r:
        run = await r.start()
        thread = thread_of(r, run.id)
        await status_of(run, "blocked")
        await thread.pause()
        assert (await thread.state()).blocked
        assert (await thread.retry()).outcome == "accepted"
        state = await eventually(thread.state, lambda state: not state.blocked)
        assert state.status == "paused"
        await thread.cancel()
        await status_of(run, "cancelled")
