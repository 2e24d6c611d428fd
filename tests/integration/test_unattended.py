"""Unattended runs, waits for whole trees, and interventions right after a start, on a real server."""

import asyncio
import logging
from typing import Any

import pytest

from holdfast import (
    Agent,
    AttentionNeeded,
    Catalog,
    Limits,
    Policy,
    RunFailed,
    SettingsError,
    allow,
    ask,
    deny,
    tool,
)
from holdfast.errors import NoWorker
from holdfast.testing import Conversation, Reply, agent, call, fail, hang, raw, say, slow, steps, together
from tests.support.rig import PATIENCE

pytestmark = pytest.mark.usefixtures("session_server")


@tool(effect="read")
def look() -> str:
    """Look."""
    return "all is well"


@tool(effect="unsafe")
def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


@tool(effect="unsafe")
def lose() -> str:
    """Cause an effect whose outcome gets lost."""
    raise ConnectionResetError("the connection was reset")


POLICY = Policy(rules=(ask("pay", reason="money leaves the house"), deny("never"), allow()))
EMPTY: dict[str, Any] = {
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": None}}]
}


def worker(name: str, *subagents: str, **more: Any) -> Agent:
    """Return an agent whose instructions are its name."""
    tools = [look, pay, lose]
    return Agent(name=name, instructions=f"You are {name}.", tools=tools, policy=POLICY, subagents=subagents, **more)


CATALOG = Catalog(
    agents=[
        worker("root", "middle", "payer", "loser"),
        worker("middle", "payer"),
        worker("payer"),
        worker("loser"),
        worker("careful", when_blocked="fail"),
        worker("boss", "careful"),
        worker("short", limits=Limits(max_steps=2)),
        worker("chat", "payer", limits=Limits(idle_limit=3600)),
    ],
)


def who(conversation: Conversation) -> str:
    """Return the name of the agent that calls the LLM."""
    return str(conversation.messages[0]["content"]).split("You are ")[1].split(".")[0]


def family(conversation: Conversation) -> Reply:
    """Play every agent of the catalog: the task is the name of the agent to run, or the call to make."""
    me, task = who(conversation), str(conversation.messages[1]["content"])
    if conversation.results:
        return say(f"{me}: {conversation.results[-1]}")
    match me:
        case "payer" | "careful" | "loser":
            return call("lose") if me == "loser" else call("pay", cents=5)
        case "boss":
            return call("run_agent", agent="careful", task="pay")
        case _:
            first, _, rest = task.partition(" ")
            return call("run_agent", agent=first, task=rest or "pay")


async def test_an_unattended_run_fails_with_the_cause_of_what_would_have_waited() -> None:
    """`RunFailed` has the cause; nothing ran that would have asked."""
    async with agent(CATALOG, family) as run:
        with pytest.raises(RunFailed, match="requires approval") as failed:
            await run.task("go", agent="payer", unattended=True, until="end")
        assert failed.value.cause == "ApprovalRequired"
        assert await run.effects() == []
        run.llm.script = steps([fail(401, "no such key")])
        with pytest.raises(RunFailed, match="no such key") as failed:
            await run.task("go", agent="payer", unattended=True)
        assert failed.value.cause == "LLMRejected"
        run.llm.script = lambda conversation: call("look")
        with pytest.raises(RunFailed, match="2 steps made") as failed:
            await run.task("go", agent="short", unattended=True)
        assert failed.value.cause == "StepLimit"


@pytest.mark.extended
async def test_an_agent_may_always_be_unattended_and_its_parent_reads_why_it_failed() -> None:
    """The parent, which is attended, goes on with the failure of its sub-agent."""
    async with agent(CATALOG, family) as run:
        result = await run.task("go", agent="boss")
        assert result.status == "completed"
        assert "ApprovalRequired" in result.text


@pytest.mark.extended
async def test_a_sub_agent_of_an_unattended_run_fails_and_does_not_ask() -> None:
    """At every level: the run in the middle reads of it, and so does the root."""
    async with agent(CATALOG, family) as run:
        result = await run.task("middle payer", agent="root", unattended=True, until="end")
        assert "ApprovalRequired" in result.text
        tree = await run.thread.tree()
        assert [(each.agent, each.status) for each in tree.walk()] == [
            ("root", "completed"),
            ("middle", "completed"),
            ("payer", "failed"),
        ]


@pytest.mark.extended
async def test_an_unknown_outcome_of_an_unattended_tree_is_kept_for_a_person() -> None:
    """The wait for the root says so, and where; once a person has resolved it, the tree completes."""
    async with agent(CATALOG, family) as run:
        with pytest.raises(AttentionNeeded, match="decision on request 1") as needed:
            await run.task("loser lose", agent="root", unattended=True, until="end")
        root = run.thread.id
        assert (needed.value.thread, needed.value.cause) == (f"{root}.1", "OutcomeUnknown")
        (request,) = await run.thread.pending()
        assert request.path == (root, f"{root}.1")
        await run.thread.decide(request, "happened", result="it arrived")
        assert "it arrived" in (await run.result(until="end")).text


async def test_a_wait_for_attention_sees_requests_and_blocks_of_the_whole_tree() -> None:
    """Two levels down, a call asks: the result has its request and its thread, and the decision goes there. Then the
    same agent is blocked, and `retry` in its thread resumes it.
    """
    async with agent(CATALOG, family) as run:
        result = await run.task("middle payer", agent="root")
        root = run.thread.id
        assert (result.status, [each.thread for each in result.attention]) == ("waiting_approval", [f"{root}.1.1"])
        (request,) = result.pending
        assert request.path == (root, f"{root}.1", f"{root}.1.1")
        assert await run.thread.pending() == result.pending
        run.llm.script = lambda conversation: raw(EMPTY) if who(conversation) == "payer" else family(conversation)
        await run.thread.decide(request, "approve")
        blocked = await run.result()
        assert (blocked.status, blocked.pending) == ("blocked", ())
        assert blocked.blocked is not None
        assert blocked.blocked.cause == "RepliesRejected"
        with pytest.raises(AttentionNeeded, match=r"retry") as needed:
            await run.result(until="end")
        assert (needed.value.thread, needed.value.cause) == (f"{root}.1.1", "RepliesRejected")
        run.llm.script = family
        await run.thread._sibling(f"{root}.1.1").retry()
        assert "paid 5" in (await run.result(until="end")).text


@pytest.mark.extended
async def test_a_wait_for_the_end_warns_of_an_open_request_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    """An attended run may wait for an approval for weeks: the wait lasts, and says what it waits for, once."""
    async with agent(CATALOG, family) as run:
        with caplog.at_level(logging.WARNING, "holdfast.client"):
            waiting = asyncio.ensure_future(run.task("payer pay", agent="root", until="end"))
            async with asyncio.timeout(PATIENCE):
                while not caplog.records:  # noqa: ASYNC110  # the logger signals nothing
                    await asyncio.sleep(0.05)
            (request,) = await run.thread.pending()
            await run.thread.decide(request, "approve")
            assert "paid 5" in (await waiting).text
        (said,) = [record.getMessage() for record in caplog.records]
        assert f"{run.thread.id}.1" in said
        assert "request 1 (pay)" in said


@pytest.mark.extended
async def test_a_chat_goes_on_while_a_sub_agent_in_the_background_waits() -> None:
    """`answer` waits for the chat's reply alone; `attention` also sees the request that is weeks old."""

    def script(conversation: Conversation) -> Reply:
        if who(conversation) == "payer":
            return family(conversation)
        last = str(conversation.messages[-1]["content"])
        if last == "refund me":
            return call("run_agent", agent="payer", task="pay", background=True)
        return slow(say("I have asked" if "background" in last else f"you said {last}"), 0.5)

    async with agent(CATALOG, script) as run:
        assert (await run.task("refund me", agent="chat", until="answer")).text == "I have asked"
        first = await run.result()
        assert (first.status, [each.tool for each in first.pending]) == ("waiting_message", ["pay"])
        await run.thread.say("how are you?")
        assert (await run.result(until="answer")).text == "you said how are you?"
        await run.thread.say("still there?")
        assert [each.thread for each in (await run.result(until="attention")).attention] == [f"{run.thread.id}.1"]
        (request,) = await run.thread.pending()
        await run.thread.decide(request, "approve")
        assert (await run.thread._sibling(request.path[-1]).result()).text == "payer: paid 5"


@pytest.mark.extended
async def test_interventions_right_after_a_start_or_a_fork_wait_until_the_run_can_take_them() -> None:
    """No caller has to send them again in a moment, or to know how long a worker takes to load an agent."""

    def script(conversation: Conversation) -> Reply:
        """Answer the first task; then never: an answered run would be closed."""
        return say("done") if conversation.last_user_message == "first" else hang()

    async with agent(CATALOG, script) as run:
        await run.task("first", agent="payer", until="end")
        first = run.thread
        for verb, arguments in (("pause", ()), ("refine", ("narrow", "less"))):
            thread = await run.client.start("go", agent="payer", workspace=run.workspace, by="alice")
            run.started.append(thread.id)
            assert (await getattr(thread, verb)(*arguments, by="alice")).counts, verb
        more: tuple[tuple[str, tuple[Any, ...]], ...] = (("pause", ()), ("lift", (0,)), ("refine", ("narrow", "less")))
        for verb, given in more:
            fork = await first.fork(say="again")
            run.started.append(fork.id)
            assert (await getattr(fork, verb)(*given, by="tester")).counts, verb


@pytest.mark.extended
async def test_what_a_run_cannot_take_yet_is_not_sent_if_no_worker_loads_the_agent() -> None:
    """A signal would be rejected by the run when a worker begins it: the caller learns that nothing was sent."""
    async with agent(CATALOG, family) as run:
        threads = run._threads
        queue, threads.task_queue = threads.task_queue, "nobody-polls-this"
        threads.runs.answer_within = 0.5
        thread = await run.client.start("go", agent="payer", workspace=run.workspace)
        run.started.append(thread.id)
        with pytest.raises(NoWorker, match="Nothing was sent"):
            await thread.pause(by="alice")
        threads.task_queue = queue


async def test_a_start_that_contradicts_itself_is_refused() -> None:
    """`unattended` and `when_blocked="wait"` cannot both hold."""
    async with agent(CATALOG, family) as run:
        with pytest.raises(SettingsError, match="does not wait"):
            await run.client.start("go", unattended=True, when_blocked="wait")


@pytest.mark.extended
async def test_a_failed_run_leaves_no_request_and_no_call_open() -> None:
    """The allowed call beside the one that would have asked does not run, either."""
    async with agent(CATALOG, lambda conversation: together(call("look"), call("pay", cents=1))) as run:
        with pytest.raises(RunFailed):
            await run.task("go", agent="payer", unattended=True)
        assert (await run.state()).pending == ()
        assert [each.status for each in await run.calls()] == ["cancelled", "denied"]
