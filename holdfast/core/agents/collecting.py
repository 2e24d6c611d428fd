"""The tools and sub-agents that the agents of a catalog bring into it as objects."""

from collections.abc import Iterable, Iterator

from holdfast.core.agents.agent import Agent
from holdfast.core.agents.run_functions import ToolSet
from holdfast.core.tools.decorator import Tool


def brought_tools(agents: Iterable[Agent]) -> Iterator[Tool]:
    """Yield the tools that agents give as objects, in their order."""
    for agent in agents:
        yield from (each for each in (*agent.listed_tools, *agent.verify) if isinstance(each, Tool))


def brought_agents(agents: Iterable[Agent]) -> Iterator[Agent]:
    """Yield the sub-agents that agents give as objects, and theirs, each object once."""
    seen: set[int] = set()
    level = list(agents)
    while level:
        found = {id(each): each for agent in level for each in agent.subagents if isinstance(each, Agent)}
        level = [each for key, each in found.items() if key not in seen]
        seen |= found.keys()
        yield from level


def by_name(agent: Agent) -> Agent:
    """Return the agent with names in place of objects, which the catalog has."""
    names = {"verify": agent.verifier_names, "subagents": agent.subagent_names}
    if not isinstance(agent.tools, ToolSet):
        names["tools"] = agent.tool_names
    changes = {field: named for field, named in names.items() if named != getattr(agent, field)}
    return agent.model_copy(update=changes) if changes else agent
