"""Sub-agents in a user's own test and on the command line."""

import pytest

from holdfast import Agent, Catalog, tool
from holdfast.testing import Conversation, Reply, agent, call, say

pytestmark = pytest.mark.usefixtures("session_server")


@tool(effect="unsafe")
def refund(order: int) -> str:
    """Refund an order."""
    return f"refunded {order}"


CATALOG = Catalog(
    agents=[
        Agent(name="desk", instructions="Delegate.", tools=(), subagents=("clerk",)),
        Agent(name="clerk", instructions="Refund.", tools=("refund",)),
    ],
    tools=[refund],
)


def script(conversation: Conversation) -> Reply:
    """As the desk, have a clerk refund; as the clerk, refund."""
    if conversation.replies:
        return say(conversation.results[0])
    if "run_agent" in conversation.tools:
        return call("run_agent", agent="clerk", task="Refund order 7.")
    return call("refund", order=7)


async def test_a_test_approves_what_a_sub_agent_asks_for() -> None:
    """The run waits for attention while its sub-agent asks; the request names the path; approving it ends both."""
    async with agent(CATALOG, script) as run:
        await run.task("Please refund order 7.")
        (request,) = await run.pending()
        assert request.path == (run.thread.id, f"{run.thread.id}.1")
        result = await run.approve()
        assert result.status == "completed"
        assert "refunded 7" in result.text
        assert [node.status for _, node in (await run.tree()).walk()] == ["completed", "completed"]
        (child,) = (await run.state()).subagents
        assert (child.agent, child.status) == ("clerk", "completed")
