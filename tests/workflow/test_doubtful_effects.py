"""Effects that raise, or arrive late, through a whole run: the questions, the screens and the LLM's messages."""

import asyncio

import pytest

from holdfast import Absent, Agent, Catalog, Found, NotDone, Policy, Tool, ToolContext, Unknown, allow, tool
from holdfast.client.reading.runs import retrying
from holdfast.core.tools.not_done import NotSent
from holdfast.testing import Conversation, Reply, agent, call, say, steps, together
from tests.support.rig import eventually

pytestmark = pytest.mark.usefixtures("session_server")

ALLOW = Policy(rules=(allow(),))


def catalog_of(*tools: Tool) -> Catalog:
    """Return a catalog of one agent that may do everything."""
    return Catalog(agents=[Agent(name="clerk", instructions="", policy=ALLOW, tools=list(tools))])


def insistent(conversation: Conversation) -> Reply:
    """Repeat the call until its result is a receipt."""
    if not conversation.results or ("receipt" not in conversation.results[-1] and conversation.replies < 3):
        return call("pay", to="bob")
    return say("finished")


async def test_a_wait_for_a_late_request_is_shown() -> None:
    """The run gives the end and the reason of the wait; an effect that arrives meanwhile is found."""
    arrived: list[str] = []
    connection_failed = asyncio.Event()

    def find(context: ToolContext) -> Found | Absent:
        return Found("receipt 1") if arrived else Absent()

    @tool(effect="verifiable", check=find, settles_within=3_600)
    def pay(to: str) -> str:
        """Pay."""
        connection_failed.set()
        raise TimeoutError("no answer")

    async with agent(catalog_of(pay), insistent) as run:
        paying = asyncio.create_task(run.task("Pay bob."))
        await connection_failed.wait()
        found = await eventually(lambda: run._threads.runs.describe(run.thread.id), lambda found: bool(retrying(found)))
        assert "because a request of a lost attempt of pay may still arrive" in retrying(found)[0].reason
        arrived.append("late")
        assert (await paying).status == "completed"
        assert [(each.status, each.text) for each in await run.effects()] == [("ok", "receipt 1")]


@pytest.mark.extended
async def test_the_llm_decides_about_an_effect_that_never_arrived() -> None:
    """The LLM reads the exception, once nothing can arrive any more."""

    @tool(effect="verifiable", check=lambda: Absent(), settles_within=0)
    def pay(to: str) -> str:
        """Pay."""
        raise ConnectionError("refused")

    async with agent(catalog_of(pay), [call("pay", to="bob"), say("It failed.")]) as run:
        assert (await run.task("Pay bob.")).status == "completed"
        assert [(each.status, each.text) for each in await run.effects()] == [("failed", "ConnectionError: refused")]


@pytest.mark.parametrize("ends", ["raises", pytest.param("returns", marks=pytest.mark.extended)])
async def test_a_person_reports_the_outcome_of_an_unsafe_effect(ends: str) -> None:
    """People read why the outcome is unknown; an effect that they report as absent runs again."""
    done: list[str] = []

    @tool(effect="unsafe", settles_within=0)
    def pay(to: str) -> str | Unknown:
        """Pay."""
        done.append(to)
        if len(done) == 1 and ends == "raises":
            raise TimeoutError("no answer")
        return Unknown("no answer") if len(done) == 1 else "receipt 2"

    async with agent(catalog_of(pay), insistent) as run:
        assert (await run.task("Pay bob.")).status == "waiting_approval"
        (request,) = await run.pending()
        assert request.kind == "reconcile"
        assert "no answer" in request.why
        assert (await run.decide("absent")).status == "completed"
        assert len(done) == 2


@pytest.mark.extended
async def test_a_tool_reports_that_nothing_happened() -> None:
    """The LLM reads the report, and calls again with other arguments."""

    @tool(effect="unsafe")
    def pay(cents: int) -> str:
        """Pay."""
        if cents > 5:
            raise NotDone("at most 5 cents")
        return "receipt 3"

    async with agent(catalog_of(pay), [call("pay", cents=6), call("pay", cents=5), say("Done.")]) as run:
        await run.task("Pay.")
        assert [(each.status, each.text) for each in await run.effects()] == [
            ("failed", "NotDone: at most 5 cents"),
            ("ok", "receipt 3"),
        ]


async def test_the_same_unsafe_call_twice_in_a_reply() -> None:
    """The effect happens once, and the LLM reads why."""
    done: list[str] = []

    @tool(effect="unsafe")
    def pay(to: str) -> str:
        """Pay."""
        done.append(to)
        return "receipt 4"

    twice = together(call("pay", to="bob"), call("pay", to="bob"))
    async with agent(catalog_of(pay), steps([twice, say("Done.")])) as run:
        await run.task("Pay bob.")
        assert [each.status for each in await run.calls()] == ["ok", "invalid"]
        assert done == ["bob"]


@pytest.mark.extended
@pytest.mark.parametrize(("arrives_again", "ends"), [(True, "ok"), (False, "unknown")])
async def test_an_attempt_that_sends_nothing_says_nothing_about_the_one_before(arrives_again: bool, ends: str) -> None:
    """The request of an idempotent call got lost, and the next attempt finds no connection: the call has not failed.
    It is made again with the same key, and in the end people are asked.
    """
    keys: list[str] = []

    @tool(effect="idempotent")
    def pay(to: str, context: ToolContext) -> str:
        """Pay."""
        keys.append(context.key)
        if len(keys) == 1:
            raise ConnectionError("lost after sending")
        if len(keys) == 2 or not arrives_again:
            raise NotSent("no connection")
        return "receipt 1"

    async with agent(catalog_of(pay), [call("pay", to="bob"), say("Done.")]) as run:
        result = await run.task("Pay bob.")
        assert len(keys) == 3
        assert len(set(keys)) == 1
        if ends == "ok":
            assert [each.status for each in await run.effects()] == ["ok"]
        else:
            assert result.status == "waiting_approval"
