"""A constraint of a closed thread is lifted by the message that continues it, without an idle limit."""

import pytest

from holdfast import Agent, Cannot, Catalog, NotAccepted, Policy, allow, tool
from holdfast.testing import Conversation, Reply, agent, call, say

pytestmark = pytest.mark.usefixtures("session_server")


@pytest.mark.extended
async def test_the_recipe_of_the_guide_works_for_an_agent_without_an_idle_limit() -> None:
    """The lift waits for the message; then the tool is called again, and the log says who lifted the constraint."""
    locked = [True]

    @tool(effect="idempotent")
    def pay(invoice: int) -> str | Cannot:
        """Pay an invoice."""
        return Cannot("locked by the auditors") if locked[0] else f"paid {invoice}"

    def script(conversation: Conversation) -> Reply:
        if conversation.messages[-1]["role"] == "tool":
            return say(str(conversation.messages[-1]["content"]))
        return call("pay", invoice=7)

    catalog = Catalog(agents=[Agent(name="clerk", instructions="Pay.", policy=Policy(rules=(allow(),)), tools=[pay])])
    async with agent(catalog, script) as run:
        assert "locked" in (await run.task("Pay invoice 7.")).text
        locked[0] = False
        (constraint,) = (await run.thread.state()).constraints
        for number, outcome in ((constraint.constraint, "too_late"), (99, "unknown_request")):
            with pytest.raises(NotAccepted) as refused:
                await run.thread.lift(number, by="alice")
            assert refused.value.outcome == outcome
        lifted = await run.thread.lift(constraint.constraint, say="It is unlocked now.", reason="audited", by="alice")
        assert lifted.outcome == "reopened"
        assert (await run.thread.result()).text == "paid 7"
        assert [event.by for event in await run.events() if event.type == "constraint_lifted"] == ["alice"]
        assert (await run.thread.verify()).verdict != "altered"
