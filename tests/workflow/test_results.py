"""Structured results on a real server: the LLM gives them by a call, and programs read them with their type."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field
from temporalio.api.enums.v1 import PendingActivityState
from temporalio.client import Client

from holdfast import Agent, Budget, Catalog, Limits, Policy, ResultNotStructured, Thread, allow, deny, tool
from holdfast.audit.judge.audit import Audit
from holdfast.client.threads import Threads
from holdfast.core.log.events import (
    BudgetSpent,
    LLMReplied,
    MessageAwaited,
    ReplyRejected,
    RunFinished,
    SubagentEnded,
    ToolCallFinished,
    UserMessageReceived,
)
from holdfast.core.run.fold.evolve import evolve
from holdfast.core.run.state.state import RunState
from holdfast.core.run.views.web_ui import current_details
from holdfast.testing import Conversation, Reply, call, hang, say, steps, together
from holdfast.workspace.memory.tools import memory_tools
from tests.support.rig import Rig, StartRig, check_thread, events_of, eventually, lose_attempt, status_of


class Finding(BaseModel):
    """A single finding."""

    model_config = ConfigDict(extra="forbid")

    where: str
    weight: float = 1.0


class Report(BaseModel):
    """A clerk's report."""

    title: str = Field(max_length=100)
    findings: list[Finding] = []


@tool(effect="read")
def look(at: str) -> str:
    """Look at something."""
    return f"saw {at}"


def clerk(**more: Any) -> Agent:
    """Return an agent whose result is a report."""
    fields = {"policy": Policy(rules=(allow("look"), deny("*"))), "limits": Limits(tool_result_chars=400), **more}
    return Agent(name="clerk", instructions="Work.", result=Report, **fields)


def result_call(**report: Any) -> Reply:
    """Return the call that gives this report."""
    return call("final_result", result=report)


def script(*replies: Reply) -> Callable[[Conversation], Reply]:
    """Return a script that gives these replies in turn."""
    return lambda conversation: replies[conversation.replies]


async def result_of(r: Rig, thread: str) -> Any:
    """Return the result as the Python client reads it."""
    return await Thread(thread, threads=Threads(r.client, task_queue=r.task_queue), by="dana").result(timeout=120)


async def audited_events(client: Client, run: Any) -> list[Any]:
    """Return the events of a thread that replays, and whose audit finds no fault."""
    events = await check_thread(client, run)
    audit = Audit(run.id)
    audit.take(events)
    assert audit.fault is None
    return events


async def requests(r: Rig) -> int:
    """Return the number of requests that the LLM has received."""
    return len(r.llm.requests)


async def calls_under_way(run: Any) -> list[str]:
    """Return the ids of the activities that have sent a request to the LLM, or are about to."""
    pending = (await run.describe()).raw_description.pending_activities
    started = PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
    return [each.activity_id for each in pending if each.activity_type.name == "call_llm" and each.state == started]


def of_kind(events: list[Any], kind: Any) -> list[Any]:
    """Return the events of a kind."""
    return [event for event in events if isinstance(event, kind)]


async def test_a_result_is_given_by_a_call_and_read_with_its_type(rig: StartRig, client: Client) -> None:
    """The policy cannot deny that call; the result is canonical JSON, with the values parsed by the type."""
    replies = steps([call("look", at="a"), result_call(findings=[{"where": "a", "weight": 2}], title="Two")])
    async with rig(Catalog(agents=[clerk(tools=[look])]), replies) as r:
        run = await r.start()
        result = await run.result()
        assert result["result"] == '{"findings":[{"weight":2,"where":"a"}],"title":"Two"}'
        assert result["structured"] is True
        result = await result_of(r, run.id)
        assert result.structured
        assert result.parse(Report) == Report(title="Two", findings=[Finding(where="a", weight=2)])
        with pytest.raises(ResultNotStructured, match="does not fit"):
            result.parse(Finding)
        (finished,) = of_kind(await audited_events(client, run), RunFinished)
        assert finished.structured


async def test_a_wrong_value_goes_back_to_the_llm_and_is_bounded(rig: StartRig, client: Client) -> None:
    """It reads the mismatch; at the limit of unusable replies, the run is blocked."""
    wrong = result_call(findings=[{"where": "a", "colour": "red"}], title="One")
    async with rig(
        Catalog(agents=[clerk()]), steps([wrong, result_call(title="x" * 101), result_call(title="One")])
    ) as r:
        run = await r.start()
        await run.result()
        events = await audited_events(client, run)
        first, second, last = [event.text for event in of_kind(events, ToolCallFinished)]
        assert "colour" in first
        assert "title" in second
        assert last == "This is the result."
        assert len(of_kind(events, ReplyRejected)) == 2
        r.llm.script = lambda _: wrong
        state = await status_of(await r.start(), "blocked")
        assert state["blocked"]["cause"] == "RepliesRejected"


@pytest.mark.extended
async def test_a_reply_without_the_call_is_no_result(rig: StartRig, client: Client) -> None:
    """The LLM is asked for the call; repeated text blocks the run in the end."""
    async with rig(Catalog(agents=[clerk()]), steps([say("done"), result_call(title="One")])) as r:
        run = await r.start()
        assert (await run.result())["result"] == '{"findings":[],"title":"One"}'
        (rejected,) = of_kind(await audited_events(client, run), ReplyRejected)
        assert "final_result" in rejected.notice
        assert "final_result" in r.llm.requests[-1].body.decode()
        r.llm.script = lambda _: say("done")
        state = await status_of(await r.start(), "blocked")
        assert state["blocked"]["cause"] == "RepliesRejected"
        assert state["result"] is None


@pytest.mark.extended
async def test_a_result_beside_other_calls_is_not_taken(rig: StartRig, client: Client) -> None:
    """The others run, and the LLM reads that it has to give the result alone."""
    both = together(call("look", at="a"), result_call(title="early"))
    async with rig(Catalog(agents=[clerk(tools=[look])]), steps([both, result_call(title="late")])) as r:
        run = await r.start()
        assert '"late"' in (await run.result())["result"]
        rejected = of_kind(await audited_events(client, run), ToolCallFinished)
        assert [event.status for event in rejected] == ["invalid", "ok", "ok"]


@pytest.mark.extended
async def test_each_answer_of_an_open_run_is_a_result(rig: StartRig, client: Client) -> None:
    """A message after the first result asks for another."""
    async with rig(Catalog(agents=[clerk()]), script(result_call(title="one"), result_call(title="two"))) as r:
        run = await r.start(idle_limit=3_600.0)
        state = await status_of(run, "waiting_message")
        assert (state["structured"], state["result"]) == (True, '{"findings":[],"title":"one"}')
        await run.signal("say", {"message": "another", "by": "alice"})
        while len(of_kind(events := await check_thread(client, run), MessageAwaited)) < 2:
            await status_of(run, "waiting_message")
        assert [event.structured for event in of_kind(events, MessageAwaited)] == [True, True]
        await run.terminate()


@pytest.mark.extended
async def test_a_sub_agents_result_enters_the_transcript_as_json(rig: StartRig, client: Client) -> None:
    """Its trust level is that of any text from a sub-agent."""
    boss = Agent(name="boss", instructions="Rule.", subagents=("clerk",), policy=Policy(rules=(allow(),)))

    def both(conversation: Conversation) -> Reply:
        if "boss" in str(conversation.messages[1]["content"]):
            return [call("run_agent", agent="clerk", task="count"), say("done")][conversation.replies]
        return result_call(title="One", findings=[{"where": "a"}])

    async with rig(Catalog(agents=[boss, clerk()]), both) as r:
        run = await r.start("boss")
        await run.result()
        events = await audited_events(client, run)
        (read,) = of_kind(events, ToolCallFinished)
        assert read.text.endswith('\n{"findings":[{"weight":1,"where":"a"}],"title":"One"}')
        assert of_kind(events, SubagentEnded)[0].status == "completed"


@pytest.mark.parametrize("gives_it", [True, pytest.param(False, marks=pytest.mark.extended)])
async def test_at_the_end_of_a_budget_the_result_may_be_text(rig: StartRig, client: Client, gives_it: bool) -> None:
    """With its last call the LLM gives the result, and the run ends; or it returns text, which is not structured."""

    def closing(conversation: Conversation) -> Reply:
        if "The budget of this run has ended" in str(conversation.messages[-1]["content"]):
            return result_call(title="half") if gives_it else say("half of it")
        return call("look", at=str(conversation.replies))

    async with rig(Catalog(agents=[clerk(budget=Budget(steps=3), tools=[look])]), closing) as r:
        run = await r.start()
        if gives_it:
            assert (await run.result())["result"] == '{"findings":[],"title":"half"}'
        else:
            state = await status_of(run, "blocked")
            assert (state["result"], state["structured"]) == ("half of it", False)
            await run.cancel()
            await status_of(run, "cancelled")
        assert len(of_kind(await audited_events(client, run), LLMReplied)) == 3


@pytest.mark.extended
async def test_the_last_call_may_give_the_result_beside_others(rig: StartRig, client: Client) -> None:
    """No other tool runs any more; the LLM is asked for the result, and the given one counts."""

    def closing(conversation: Conversation) -> Reply:
        if "with a call of `final_result`" in str(conversation.messages[-1]["content"]):
            return together(call("look", at="b"), result_call(title="half"))
        return call("look", at="a")

    async with rig(Catalog(agents=[clerk(budget=Budget(steps=2), tools=[look])]), closing) as r:
        run = await r.start()
        assert (await run.result())["result"] == '{"findings":[],"title":"half"}'
        ends = of_kind(await audited_events(client, run), ToolCallFinished)
        assert [event.status for event in ends] == ["ok", "invalid", "ok"]


@pytest.mark.extended
async def test_a_message_before_the_end_of_a_budget_loses_no_result(rig: StartRig, client: Client) -> None:
    """The run is blocked with the result of the last call; after an extension, it answers the message."""
    replies = iter([call("look", at="a"), hang(), result_call(title="half"), result_call(title="whole")])
    async with rig(Catalog(agents=[clerk(budget=Budget(steps=2), tools=[look])]), lambda _: next(replies)) as r:
        run = await r.start()
        await eventually(lambda: events_of(run), lambda events: bool(of_kind(events, BudgetSpent)))
        await run.signal("say", {"message": "and the other half", "by": "alice"})
        await eventually(lambda: events_of(run), lambda events: len(of_kind(events, UserMessageReceived)) == 2)
        await eventually(partial(requests, r), lambda count: count == 2)
        (activity,) = await eventually(partial(calls_under_way, run), bool)
        await lose_attempt(client, run, activity)
        state = await status_of(run, "blocked")
        assert (state["result"], state["structured"]) == ('{"findings":[],"title":"half"}', True)
        assert (await run.execute_update("extend", {"steps": 3, "by": "dana", "id": "e1"}))["outcome"] == "accepted"
        assert (await run.result())["result"] == '{"findings":[],"title":"whole"}'
        assert "and the other half" in r.llm.requests[-1].body.decode()
        await audited_events(client, run)


@pytest.mark.extended
async def test_a_result_may_be_of_any_type_with_a_schema(rig: StartRig, client: Client) -> None:
    """A list is one example."""
    agent = Agent(name="lister", instructions="List.", result=list[int])
    async with rig(Catalog(agents=[agent]), steps([call("final_result", result=[3, 1])])) as r:
        run = await r.start()
        assert (await run.result())["result"] == "[3,1]"
        assert (await result_of(r, run.id)).parse(list[int]) == [3, 1]


@pytest.mark.extended
async def test_a_sub_agent_in_the_background_and_a_continued_thread_give_results(rig: StartRig, client: Client) -> None:
    """`agent_result` reads the value as canonical JSON; a second task of the thread has a result of its own."""
    free = Policy(rules=(allow(),))
    boss = Agent(name="boss", instructions="Rule.", subagents=("clerk",), result=list[int], policy=free)
    replies = [
        call("run_agent", agent="clerk", task="count", background=True),
        call("agent_result", thread="results-tree.1"),
        call("final_result", result=[1]),
        call("final_result", result=[2]),
    ]

    def both(conversation: Conversation) -> Reply:
        if "boss" in str(conversation.messages[1]["content"]):
            return replies[conversation.replies]
        return result_call(title="One")

    async with rig(Catalog(agents=[boss, clerk()]), both) as r:
        run = await r.start("boss", thread="results-tree", agent="boss")
        assert (await run.result())["result"] == "[1]"
        read = of_kind(await audited_events(client, run), ToolCallFinished)
        assert read[1].text.endswith('\n{"findings":[],"title":"One"}')
        threads = Threads(r.client, task_queue=r.task_queue, record=r.threads)
        assert (await threads.start("again", thread=run.id)).continued
        again = r.client.get_workflow_handle(run.id)
        assert (await again.result())["result"] == "[2]"
        assert "### Structured result" in current_details(await _state_of(again))
        result = await result_of(r, run.id)
        assert (result.structured, result.parse(list[int])) == (True, [2])


async def _state_of(run: Any) -> RunState:
    state = RunState(thread=run.id)
    for event in await events_of(run):
        state = evolve(state, event)
    return state


@pytest.mark.extended
async def test_an_agent_of_a_loop_gives_a_result_for_each_task(rig: StartRig, client: Client) -> None:
    """The loop reads files, as usual; each iteration's thread has a structured result."""
    builder = Agent(
        name="builder", instructions="Build.", result=Report, policy=Policy(rules=(allow(),)), tools=memory_tools()
    )
    replies = [call("complete_task", title="one", what="did it"), result_call(title="One")]
    async with rig(Catalog(agents=[builder]), script(*replies)) as r:
        (r.workspace / "TASKS.md").write_text("- [ ] one\n")
        loop = await r.start_loop()
        assert (await loop.result()).tasks == 1
        result = await result_of(r, f"{loop.id}-0")
        assert result.parse(Report) == Report(title="One")
        await check_thread(client, r.client.get_workflow_handle(f"{loop.id}-0"))
