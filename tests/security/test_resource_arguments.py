"""Nobody who writes arguments, neither the LLM nor an approver, supplies a resource."""

from dataclasses import dataclass

import pytest

from holdfast import Agent, Catalog, NotAccepted, Policy, Resource, allow, ask, tool
from holdfast.testing import agent, call, say

pytestmark = pytest.mark.usefixtures("session_server")


@dataclass
class Session:
    """A resource that would be easy to write as JSON."""

    admin: bool = False


def session() -> Session:
    """Return the worker's session."""
    return Session()


@tool(effect="unsafe")
def delete(name: str, session: Resource[Session]) -> str:
    """Delete something."""
    return f"{name} as {session}"


CATALOG = Catalog(
    agents=[Agent(name="clerk", instructions="", policy=Policy(rules=(ask("delete"), allow())), tools=[delete])],
    resources=[session],
)
FORGED = {"name": "x", "session": {"admin": True}}


async def test_a_resource_in_the_arguments_is_rejected() -> None:
    """A call of the LLM that names it is invalid, an approver's edit is rejected, and the worker's own is used."""
    async with agent(CATALOG, [call("delete", **FORGED), call("delete", name="x"), say("Done.")]) as run:
        await run.task("Go.")
        with pytest.raises(NotAccepted, match="session"):
            await run.approve(arguments=FORGED)
        await run.approve()
        assert [(each.status, each.arguments) for each in await run.calls()] == [
            ("invalid", FORGED),
            ("ok", {"name": "x"}),
        ]
        assert (await run.effects())[0].text == "x as Session(admin=False)"
