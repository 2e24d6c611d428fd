"""A reclassification on a server: another agent continues an open run."""

import pytest

from holdfast import Agent, Catalog, Limits, Policy, allow, ask, tool
from holdfast.testing import Conversation, Reply, agent, call, say

pytestmark = pytest.mark.usefixtures("session_server")


@tool(effect="unsafe")
def mail(text: str) -> str:
    """Send a mail."""
    return f"sent {text}"


async def test_another_agent_continues_with_its_own_prompt_under_both_policies() -> None:
    """Its instructions and tools replace those before, and the earlier policy still asks about its calls."""
    prompts: list[tuple[str, str]] = []

    def script(conversation: Conversation) -> Reply:
        prompts.append((str(conversation.messages[0]), str(conversation.messages[-1])))
        if "You are now the agent bold" not in str(conversation.messages):
            return say("I only read.")
        return call("mail", text="hi") if conversation.replies == 1 else say("Mailed.")

    catalog = Catalog(
        agents=[
            Agent(name="careful", instructions="Read.", policy=Policy(rules=(ask(),)), limits=Limits(idle_limit=3_600)),
            Agent(name="bold", instructions="Write mails.", policy=Policy(rules=(allow(),)), tools=[mail]),
        ]
    )
    async with agent(catalog, script) as run:
        await run.task("Tell them.")
        answer = await run.thread.result(until="attention")
        assert answer.text == "I only read."
        sent = await run.thread.reclassify(agent="bold", reason="it may write", by="alice")
        assert sent.outcome == "accepted"
        (request,) = (await run.thread.result(until="attention")).pending
        await run.thread.decide(request, "approve", by="alice")
        answer = await run.thread.result(until="answer")
        assert answer.text == "Mailed."
        assert (await run.thread.state()).agent == "bold"
        assert (await run.thread.verify()).verdict != "altered"
    assert "Write mails." in prompts[-1][0]
    assert "Read." in prompts[0][0]
