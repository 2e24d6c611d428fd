"""Partial results end to end: what the LLM reads, what the ledger keeps, and what secrets and middleware do to them."""

from typing import Any

import pytest

from holdfast import (
    Agent,
    Catalog,
    Found,
    Middleware,
    Partial,
    Policy,
    ProceedTool,
    ToolCall,
    ToolContext,
    ToolResult,
    allow,
    tool,
)
from holdfast.core.tools.decorator import Labelled
from holdfast.testing import agent, call, say
from tests.support.rig import die

pytestmark = pytest.mark.usefixtures("session_server")

sent: list[str] = []


@pytest.fixture(autouse=True)
def api_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the secret that a tool declares."""
    monkeypatch.setenv("API_KEY", "s3cr3t-of-the-index")


@tool(effect="read")
async def read_pages(numbers: list[int]) -> Any:
    """Read pages of a report."""

    async def text(number: int) -> str:
        return f"text of {number}"

    there = [number for number in numbers if number < 3]
    return Labelled(Partial(text(there[0]), missing=[f"page {n}" for n in numbers if n >= 3]), trust="web")


def find_mails(to: list[str], context: ToolContext) -> Found:
    """Find the mails that were sent."""
    return Found(Partial({"sent": sent}, missing=f"no mail to {to[1]}"))


@tool(effect="verifiable", check=find_mails)
async def send_mails(to: list[str], context: ToolContext) -> Partial:
    """Send one mail to each."""
    sent.append(to[0])
    if context.attempt == 1:
        await die()
    raise AssertionError("the check has found it")


@tool(effect="read", secrets=("API_KEY",))
def search(context: ToolContext) -> Partial:
    """Search two indexes."""
    return Partial("hits", missing="index 2: HTTP 401 for key " + context.secret("API_KEY"))


class Replace(Middleware):
    """Replaces the text of each result, as middleware did that was written before there were partial results."""

    async def around_tool(self, call: ToolCall, proceed: ProceedTool) -> ToolResult:
        return ToolResult(f"checked: {(await proceed()).content}")


def catalog(*middleware: Middleware) -> Catalog:
    """Return a catalog of an agent with these tools."""
    tools = [read_pages, send_mails, search]
    reader = Agent(name="reader", instructions="Read.", tools=tools, policy=Policy(rules=(allow(),)))
    return Catalog(agents=[reader], middleware=list(middleware))


async def test_the_llm_reads_the_part_and_what_is_missing() -> None:
    """An awaitable in a partial result is awaited, a label around it counts, and no missing item is a whole result."""
    script = [call("read_pages", numbers=[1, 3, 4]), call("read_pages", numbers=[1]), say("Done.")]
    async with agent(catalog(), script) as run:
        await run.task("Read.")
        partial, whole = [event for event in await run.events() if event.type == "tool_call_finished"]
        told = [each["content"] for each in run.llm.requests[-1].json()["messages"] if each["role"] == "tool"]
    assert (partial.status, partial.content, partial.missing) == ("ok", "text of 1", "page 3; page 4")
    assert (partial.trust, whole.missing) == ("web", "")
    assert told == ["[This result is partial. Missing: page 3; page 4]\ntext of 1", "text of 1"]


@pytest.mark.extended
async def test_a_check_may_find_that_a_part_of_the_effect_happened() -> None:
    """The worker died after the first mail: the check's partial result is adopted, and nothing is sent again."""
    sent.clear()
    async with agent(catalog(), [call("send_mails", to=["a", "b"]), say("Done.")]) as run:
        await run.task("Send.")
        (finished,) = [event for event in await run.events() if event.type == "tool_call_finished"]
    assert (finished.status, finished.adopted, finished.missing) == ("ok", True, "no mail to b")
    assert sent == ["a"]


async def test_no_secret_is_recorded_as_missing() -> None:
    """The description of the missing part is redacted like a result, before it is shortened."""
    async with agent(catalog(), [call("search"), say("Done.")]) as run:
        await run.task("Search.")
        (finished,) = [event for event in await run.events() if event.type == "tool_call_finished"]
        everything = b"".join(request.body for request in run.llm.requests)
    assert finished.missing.startswith("index 2: HTTP 401 for key ")
    assert "s3cr3t" not in finished.missing
    assert b"s3cr3t" not in everything


@pytest.mark.extended
async def test_middleware_cannot_make_a_partial_result_look_complete_by_accident() -> None:
    """Its own result keeps the fact that a part is missing, but not the tool's text, which it may exist to remove."""
    async with agent(catalog(Replace()), [call("read_pages", numbers=[1, 3]), say("Done.")]) as run:
        await run.task("Read.")
        (finished,) = [event for event in await run.events() if event.type == "tool_call_finished"]
    assert finished.content == "checked: text of 1"
    assert finished.missing == "a part that middleware does not name"
