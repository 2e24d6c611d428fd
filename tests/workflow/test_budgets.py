"""Budgets on a real server: reserve, settle, notice, last call, extend, continue; and the view of programs."""

import pytest
from temporalio.client import Client

from holdfast import Agent, Amounts, Budget, Catalog, Limits, NotAccepted, Policy, Thread, allow, tool
from holdfast.audit.judge.audit import Audit
from holdfast.cli.screens.event_lines import event_summary
from holdfast.cli.screens.thread_screens import list_screen, show_screen
from holdfast.client.listing import list_threads
from holdfast.client.threads import Threads
from holdfast.core.log.events import AgentLoaded, BudgetExtended, BudgetReserved, LLMCallLost, LLMReplied
from holdfast.endpoints.prices import cost_of
from holdfast.testing import call, disconnect, fail, raw, say, steps
from tests.replay.scenarios import CATALOG, SCENARIOS, budgeted
from tests.support.rig import StartRig, check_thread, eventually, status_of
from tests.unit.core.temporal.test_history import EXPECTED


@tool(effect="read")
def look(at: str) -> str:
    """Look at something."""
    return f"saw {at}"


SPENDER = Catalog(
    agents=[
        Agent(
            name="spender",
            instructions="Work.",
            policy=Policy(rules=(allow(),)),
            llm="gpt-5-mini",
            llm_options={"max_completion_tokens": 100},
            limits=Limits(tool_result_chars=400),
            budget=Budget(usd="1", steps=3),
            tools=[look],
        )
    ],
)


async def test_a_run_ends_its_budget_is_extended_and_replays(rig: StartRig, client: Client) -> None:
    """The history rebuilds the same events, and the audit computes every reservation again."""
    script, _, begin = SCENARIOS["budgeted"]
    async with rig(CATALOG, script) as r:
        run = await r.start(**begin)
        await budgeted(run, r)
        events = await check_thread(client, run)
        assert [event.type for event in events] == EXPECTED["budgeted"].split()
        audit = Audit(run.id)
        audit.take(events)
        assert audit.fault is None
        assert [event.resumes for event in events if isinstance(event, BudgetExtended)] == [False, True]
        lines = [event_summary(event.model_dump(mode="json")) for event in events]
        assert "4 of 5 steps are used" in lines
        assert "by bob (claimed), steps=3, and the run continues" in lines


@pytest.mark.extended
async def test_only_sent_and_unrejected_attempts_are_charged(rig: StartRig) -> None:
    """A rejection costs nothing, by its status or its message; a broken connection, half a reply, or a gateway's
    time-out may have cost something.
    """
    busy, cut = {"error": {"message": "overloaded"}}, b'{"id": "1", "choices": [{"mess'
    replies = [say("done"), disconnect(), raw(cut), raw(busy), fail(503, "busy"), fail(504, "late")]
    agent = Agent(name="clerk", instructions="Work.", budget=Budget(tokens=100_000))
    async with rig(Catalog(agents=[agent]), lambda _: replies.pop()) as r:
        run = await r.start()
        await run.result()
        events = await check_thread(r.client, run)
        (replied,) = [event for event in events if isinstance(event, LLMReplied)]
        lost = [event for event in events if isinstance(event, LLMCallLost)]
        assert [event.attempts for event in lost] == [1, 1, 1]
        outages = [event.outage for event in lost]
        assert [(each.failed, each.costly) for each in outages if each] == [(1, 1), (3, 1), (1, 1)]
        state = await run.query("state")
        requests = sum(event.request_tokens for event in lost)
        tokens = requests + replied.usage.prompt_tokens + replied.usage.completion_tokens
        assert requests >= 3 * len(r.llm.requests[0].body) // 4
        assert state["budget"]["limits"][0]["spent"] == str(tokens)
        audit = Audit(run.id)
        audit.take(events)
        assert audit.fault is None


async def test_money_is_computed_by_the_worker_and_shown_everywhere(rig: StartRig, client: Client) -> None:
    """Sums balance to the billionth of a dollar; programs, `show` and `list` have the spent, reserved and remaining
    amounts.
    """
    async with rig(SPENDER, steps([call("look", at="a"), call("look", at="b"), say("half"), say("done")])) as r:
        run = await r.start(budget=Budget(usd="5", steps=9), features=1)
        await status_of(run, "blocked")
        threads = Threads(client, task_queue=r.task_queue)
        thread = Thread(run.id, threads=threads, by="alice")
        state = await thread.state()
        assert state.result == "half"
        assert state.budget is not None
        limits = {each.limit: each for each in state.budget.limits}
        assert (limits["steps"].allowed, limits["steps"].left, limits["usd"].allowed) == ("3", "0", "1")
        screen = show_screen(await threads.state(run.id), retrying=[], ui=None).plain
        assert "Budget     steps 3 of 3, 0 reserved, 0 left\n           usd 0.0" in screen
        assert f"extend {run.id} --budget" in screen
        rows = await eventually(
            lambda: list_threads(threads),
            lambda rows: any(row["thread"] == run.id and row["budget"] for row in rows),
        )
        assert "steps=0 usd=0.9" in list_screen(rows).plain
        with pytest.raises(NotAccepted, match="limits"):
            await thread.extend(Amounts(tokens=5))
        assert (await thread.extend(Amounts(steps=5), reason="go on")).outcome == "accepted"
        assert (await thread.result(timeout=120)).text == "done"
        events = await check_thread(client, run)
        (loaded,) = (event for event in events if isinstance(event, AgentLoaded))
        assert loaded.budget == Budget(usd="1", steps=3), "narrowed by the agent's own"
        replies = [event for event in events if isinstance(event, LLMReplied)]
        assert all(event.cost == cost_of("gpt-5-mini", event.usage) for event in replies)
        reserved = [event for event in events if isinstance(event, BudgetReserved)]
        assert len(reserved) == len(replies) == 4
        assert all(held.nano_usd >= (event.cost or 0) > 0 for held, event in zip(reserved, replies, strict=True))
