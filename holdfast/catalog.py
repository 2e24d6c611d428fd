"""A catalog: the agents and tools that a worker offers. One object, no registry."""

from collections.abc import Iterable
from typing import TypeVar

from holdfast.agent import Agent, AgentSpec
from holdfast.effects import Effect
from holdfast.errors import CatalogError
from holdfast.policy import Policy
from holdfast.stores import ArtifactStore, ThreadStore
from holdfast.tools import Tool

_T = TypeVar("_T")


class Catalog:
    """Agents and tools, checked against each other.

    Args:
        agents: The first is the default of `starter.py start`.
        tools: What `@tool` made.
        threads: Where threads are kept for good; None for PostgreSQL.
        artifacts: Where long results are kept; None for PostgreSQL.

    Raises:
        CatalogError: No agent, a name twice, or an agent that names a tool which is not there.
    """

    def __init__(
        self,
        *,
        agents: Iterable[Agent],
        tools: Iterable[Tool] = (),
        threads: ThreadStore | None = None,
        artifacts: ArtifactStore | None = None,
    ) -> None:
        agent_list, tool_list = list(agents), list(tools)
        for thing in tool_list:
            if not isinstance(thing, Tool):
                raise CatalogError(f"{thing!r} is not a tool; decorate the function with @tool")
        self.threads, self.artifacts = threads, artifacts
        self.agents = _by_name("agent", [(agent.name, agent) for agent in agent_list])
        self.tools = _by_name("tool", [(tool.spec.name, tool) for tool in tool_list])
        if not self.agents:
            raise CatalogError("a catalog needs at least one agent")
        for agent in agent_list:
            missing = [name for name in agent.tools or () if name not in self.tools]
            if missing:
                known = ", ".join(self.tools) or "none"
                raise CatalogError(f"agent {agent.name!r} names tools that are not in the catalog: {missing} ({known})")
            for name in agent.verify:
                self._check_verifier(agent, name)

    def _check_verifier(self, agent: Agent, name: str) -> None:
        tool = self.tools.get(name)
        if tool is None or (agent.tools is not None and name not in agent.tools):
            raise CatalogError(f"agent {agent.name!r} verifies with {name!r}, which is not among its tools")
        if tool.spec.effect is not Effect.READ or tool.spec.parameters.get("required"):
            raise CatalogError(f"agent {agent.name!r} verifies with {name!r}: it has to be a read without arguments")

    def offering(self, tool: Tool) -> "Catalog":
        """The same catalog with one more tool, for every agent that has tools; what has its name already stays."""
        name = tool.spec.name
        if not self.tools or name in self.tools:
            return self
        agents = [
            agent.model_copy(update={"tools": (*agent.tools, name)}) if agent.tools else agent
            for agent in self.agents.values()
        ]
        tools = [*self.tools.values(), tool]
        return Catalog(agents=agents, tools=tools, threads=self.threads, artifacts=self.artifacts)

    def governed_by(self, policy: Policy) -> "Catalog":
        """The same catalog, with this policy in place of every agent's own."""
        agents = [agent.model_copy(update={"policy": policy}) for agent in self.agents.values()]
        return Catalog(agents=agents, tools=self.tools.values(), threads=self.threads, artifacts=self.artifacts)

    def spec(self, name: str | None, *, default_llm: str) -> AgentSpec:
        """The agent of that name (None: the first one) as a run records it.

        Raises:
            CatalogError: No such agent; the message lists those there are.
        """
        if name is None:
            agent = next(iter(self.agents.values()))
        elif name in self.agents:
            agent = self.agents[name]
        else:
            raise CatalogError(f"no agent named {name!r}; this worker's catalog has: {', '.join(self.agents)}")
        tools = self.tools if agent.tools is None else agent.tools
        return AgentSpec(
            name=agent.name,
            instructions=agent.instructions,
            tools=tuple(self.tools[tool].spec for tool in tools),
            verify=agent.verify,
            policy=agent.policy,
            llm=agent.llm or default_llm,
            llm_options=agent.llm_options,
            limits=agent.limits,
        )


def _by_name(kind: str, named: list[tuple[str, _T]]) -> dict[str, _T]:
    found: dict[str, _T] = {}
    for name, thing in named:
        if name in found:
            raise CatalogError(f"two {kind}s are named {name!r}")
        found[name] = thing
    return found
