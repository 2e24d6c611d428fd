"""The loop guard on a real server: an LLM that repeats itself is slowed down and notified, and finally people are
asked.
"""

import asyncio

import pytest
from temporalio.client import Client

from holdfast import Absent, Agent, Catalog, Limits, Policy, allow, tool
from holdfast.cli.screens.event_lines import event_summary
from holdfast.cli.screens.thread_screens import show_screen
from holdfast.core.log.events import RunBlocked, ToolCallFinished, VerdictGiven
from holdfast.core.run.rules.loop_guard import RULE
from holdfast.testing import Conversation, Reply, call, say
from tests.replay.scenarios import CATALOG, SCENARIOS, repeated
from tests.support.rig import StartRig, check_thread, events_of, eventually, status_of
from tests.unit.core.temporal.test_history import EXPECTED


@pytest.mark.slow
async def test_a_looping_llm_is_put_to_a_person_and_replays(rig: StartRig, client: Client) -> None:
    """After four results a question comes; approved, four more follow; denied, no further question comes, and the run
    is blocked.
    """
    script, _, begin = SCENARIOS["repeated"]
    async with rig(CATALOG, script) as r:
        run = await r.start(**begin)
        await repeated(run, r)
        events = await check_thread(client, run)
        assert [event.type for event in events] == EXPECTED["repeated"].split()
        verdicts = [event for event in events if isinstance(event, VerdictGiven)]
        assert [event.delay for event in verdicts if event.delay] == [2, 2]
        assert [event.verdict for event in verdicts if event.rule == RULE][:3] == ["ask", "ask", "deny"]
        finished = [event for event in events if isinstance(event, ToolCallFinished) and event.repeats]
        assert finished[0].repeats == 3
        assert "this call has now had the same result 3 times" in str(r.llm.requests[3])
        (blocked,) = (event for event in events if isinstance(event, RunBlocked))
        assert blocked.cause == "RefusedAgain"
        lines = [event_summary(event.model_dump(mode="json")) for event in events]
        assert any(line.endswith("starts 2 s later: the same result 3 times") for line in lines)
        assert any("like this 3 times in a row" in line for line in lines)


@pytest.mark.extended
async def test_a_message_wakes_a_run_that_waits_for_a_repeated_call(rig: StartRig) -> None:
    """`show` gives the length and the reason of the delay; a message ends even a long one."""

    @tool(effect="read")
    def look() -> str:
        """Look."""
        return "as before"

    def script(conversation: Conversation) -> Reply:
        return say("told") if conversation.last_user_message == "enough" else call("look")

    limits = Limits(repeats_slowed=1, repeats_warned=0, repeats_asked=0)
    agent = Agent(name="looper", instructions="Look.", policy=Policy(rules=(allow(),)), limits=limits, tools=[look])
    async with rig(Catalog(agents=[agent]), script) as r:
        run = await r.start()
        state = await eventually(lambda: run.query("state"), lambda state: bool(state["delayed"]))
        assert state["status"] == "running"
        screen = show_screen(state, retrying=[], ui=None).plain
        assert f"call {state['delayed'][0]['call']} of look waits " in screen
        assert "s: the same call has had the same result " in screen
        await run.execute_update("say", {"message": "enough", "by": "alice"})
        await status_of(run, "completed")
        assert (await run.result())["result"] == "told"


async def test_why_a_call_failed_and_which_attempts_did_is_recorded(rig: StartRig, client: Client) -> None:
    """A time-out differs from other errors; failed attempts travel with the outcome, in one event."""
    tries: list[int] = []

    @tool(effect="read", timeout=0.2)
    async def stall() -> str:
        """Never return."""
        await asyncio.sleep(60)
        return "never"

    @tool(effect="read")
    def refuse() -> str:
        """Fail to connect."""
        raise ConnectionRefusedError("nobody listens")

    def check() -> Absent:
        tries.append(1)
        if len(tries) <= 2:
            raise ConnectionResetError(f"cut {len(tries)}")
        return Absent()

    @tool(effect="verifiable", check=check, timeout=5)
    async def stop() -> str:
        """Take too long; its check fails twice before it can report that nothing happened."""
        await asyncio.sleep(60)
        return "never"

    replies = [call("stall"), call("refuse"), call("stop"), say("done")]
    agent = Agent(
        name="a",
        instructions="Try.",
        policy=Policy(rules=(allow(),)),
        limits=Limits(local_seconds=0),
        tools=[stall, refuse, stop],
    )
    catalog = Catalog(agents=[agent])
    async with rig(catalog, lambda conversation: replies[conversation.replies]) as r:
        run = await r.start()
        await run.result()
        ends = [event for event in await events_of(run) if isinstance(event, ToolCallFinished)]
        assert [(event.status, event.cause) for event in ends] == [
            ("failed", "timeout"),
            ("failed", "connection"),
            ("failed", "timeout"),
        ]
        assert [event.failures for event in ends[:2]] == [None, None]
        failures = ends[2].failures
        assert failures is not None
        assert (failures.count, [each.kind for each in failures.last]) == (2, ["connection", "connection"])
        assert "ConnectionResetError: cut 2" in failures.last[1].message
        line = event_summary(ends[2].model_dump(mode="json"))
        assert "failed (timeout)" in line
        assert "after 2 failed attempts (connection: " in line
        await check_thread(client, run)
