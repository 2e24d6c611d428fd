"""The programs in `examples/programs`: each on a real server, with its own script."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from types import ModuleType

import pytest

from holdfast import PendingRequest
from holdfast.examples.programs import nightly_report, plan_and_execute, refunds_and_chat, tree_that_asks
from holdfast.testing import Conversation, Reply, ScriptedRun, agent, fail
from tests.support.rig import PATIENCE

pytestmark = pytest.mark.usefixtures("session_server")


@asynccontextmanager
async def playing(example: ModuleType) -> AsyncIterator[ScriptedRun]:
    """Run a worker with the example's catalog and script."""
    async with agent(example.catalog, example.script, patience=PATIENCE) as run:
        yield run


@pytest.mark.extended
async def test_a_nightly_report_is_written_or_fails_with_the_cause() -> None:
    """No till is restarted at night; a repeated start finds the same report; a wrong key is a cause, too."""
    async with playing(nightly_report) as run:
        run.started += ["report-2019-11-24", "report-2019-11-25", "report-2019-11-26"]
        written, text = await nightly_report.report(run.client, "2019-11-24")
        assert (written, text) == (True, "The report of 2019-11-24 is written.")
        assert (True, text) == await nightly_report.report(run.client, "2019-11-24")
        written, text = await nightly_report.report(run.client, "2019-11-25")
        assert not written
        assert text.startswith("ApprovalRequired: ")
        assert "restart_till" in text
        run.llm.script = lambda conversation: fail(401, "no such key")
        written, text = await nightly_report.report(run.client, "2019-11-26")
        assert (written, text.startswith("LLMRejected: ")) == (False, True)


@pytest.mark.extended
async def test_a_refund_waits_for_a_week_while_the_chat_goes_on() -> None:
    """Each message gets its answer; after a week, the desk approves, and the customer reads of it."""
    async with playing(refunds_and_chat) as run:
        run.started.append("customer-7")
        thread = run.client.thread("customer-7")

        async def answer(message: str) -> str:
            return await refunds_and_chat.answer(run.client, "customer-7", message, by="customer-7")

        assert "I have asked for your refund" in await answer("Please refund order 7")
        assert await answer("When do you open?") == "We open at nine."
        run.started.append("customer-7.1")
        await run.skip(timedelta(days=7))  # for the clerk, who waits
        assert await answer("And on Sunday?") == "We open at nine."
        assert [request.tool for request in await thread.pending()] == ["refund"]
        done = await refunds_and_chat.approve_refunds(thread, run.client, by="desk")
        assert done == ["order 7 is refunded: 500 cents"]
        assert "Good news" in (await thread.result(until="answer")).text
        assert await thread.pending() == ()


@pytest.mark.extended
async def test_plans_are_executed_until_the_planner_answers() -> None:
    """Three plans, three steps, one answer; a second program with the same name starts nothing again."""
    async with playing(plan_and_execute) as run:
        run.started += [f"trip-1-{kind}-{number}" for kind in ("plan", "step") for number in range(4)]
        answer = await plan_and_execute.reach(run.client, "trip-1", "Plan a trip")
        assert answer == "All is settled. 3 steps were done."
        requests = len(run.llm.requests)
        assert answer == await plan_and_execute.reach(run.client, "trip-1", "Plan a trip")
        assert len(run.llm.requests) == requests


@pytest.mark.extended
async def test_a_program_sees_a_tree_through_whose_sub_agent_asks() -> None:
    """The request comes from two levels down; the program decides it there, and gets the answer of the top."""
    asked: list[PendingRequest] = []

    async def decide(request: PendingRequest) -> bool:
        asked.append(request)
        return True

    async with playing(tree_that_asks) as run:
        thread = await run.client.start("Publish issue 12", agent="editor", thread="issue-12", workspace=run.workspace)
        run.started.append(thread.id)
        assert "published" in await tree_that_asks.see_through(thread, decide, by="editor")
        assert [request.path for request in asked] == [("issue-12", "issue-12.1", "issue-12.1.1")]
        assert [each.status for each in (await thread.tree()).walk()] == ["completed"] * 3


@pytest.mark.extended
async def test_a_program_learns_that_a_tree_is_blocked_below() -> None:
    """It says which run is blocked, and why, instead of waiting."""

    def script(conversation: Conversation) -> Reply:
        first: Mapping[str, object] = conversation.messages[0]
        return fail(401, "no such key") if first["content"] == "You print." else tree_that_asks.script(conversation)

    async def never(request: PendingRequest) -> bool:
        raise AssertionError(request)

    async with agent(tree_that_asks.catalog, script, patience=PATIENCE) as run:
        thread = await run.client.start("Publish", agent="editor", thread="issue-13", workspace=run.workspace)
        run.started.append(thread.id)
        assert await tree_that_asks.see_through(thread, never, by="editor") == ("issue-13.1.1 is blocked (LLMRejected)")
