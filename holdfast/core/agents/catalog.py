"""The catalog: the agents, tools and skills that a worker offers. One object, no registry."""

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from holdfast.core.agents.agent import Agent, AgentSpec
from holdfast.core.agents.collecting import (
    agent_objects,
    by_name,
    check_named,
    checked_middleware,
    source_locations,
    tool_objects,
    unique_by_name,
)
from holdfast.core.agents.mcp_servers import MCP
from holdfast.core.agents.middleware import Middleware
from holdfast.core.agents.names import id_if_any
from holdfast.core.agents.providers import Provider, by_type, check_provided, name_of, read_provider
from holdfast.core.agents.results import result_tool
from holdfast.core.agents.run_functions import ToolSet, check_function, is_function
from holdfast.core.agents.skills import Skill, limit_excess
from holdfast.core.agents.templates import Template
from holdfast.core.authority.interventions import REFINE_TOOL
from holdfast.core.authority.policy import Policy
from holdfast.core.base.canonical import unportable
from holdfast.core.base.models import Frozen
from holdfast.core.llm.names import BUILT_IN, recorded_llms
from holdfast.core.llm.options import LLMOptions
from holdfast.core.memory.semantic import MemoryStore
from holdfast.core.stores import ArtifactStore, ThreadStore
from holdfast.core.tools.decorator import Tool
from holdfast.core.tools.effects import Effect
from holdfast.core.tools.signatures import with_location
from holdfast.core.tools.spec import FINAL_RESULT
from holdfast.core.tools.subagents import SUBAGENT_TOOLS, offered
from holdfast.core.tools.triggers import RUNTIME_TOOLS
from holdfast.core.tools.typed_context import model_problem, schema_of
from holdfast.errors import CatalogError


class Catalog:
    """The agents, tools and skills that a worker offers, checked for consistency.

    Args:
        agents: The agents; the first is the default of `holdfast start`. The catalog also has the tools and sub-agents
            that they give as objects.
        tools: Further tools, made by `@tool`: those that agents give by name, and those that no agent has any more
            but that earlier runs may still call.
        skills: The skills, read by `holdfast.load_skills`.
        resources: Providers of the resources that tools request with `Resource[…]`: functions decorated with
            `@asynccontextmanager`, or that return the resource.
        middleware: Wraps every LLM call and tool call, the first outermost. A class denotes the resource of that type.
        mcp: MCP servers, whose tools agents have by name (`github_search`) or by pattern (`github_*`).
        threads: Permanent store of threads; None for PostgreSQL.
        artifacts: Store of long results; None for PostgreSQL.
        memories: Store of semantic memory; None for PostgreSQL.

    Raises:
        CatalogError: There is no agent, two objects have one name, an agent names a tool or a skill that is missing, a
            resource is missing, a definition has no canonical JSON, the type of a result has no JSON schema, a tool
            has the name of one that an agent's options add, or a tool or a function wants a context that its agent does
            not have.
    """

    def __init__(
        self,
        *,
        agents: Iterable[Agent],
        tools: Iterable[Tool] = (),
        skills: Iterable[Skill] = (),
        resources: Iterable[Callable[..., Any] | Provider] = (),
        middleware: Iterable[Middleware | type[Middleware]] = (),
        mcp: Iterable[MCP] = (),
        threads: ThreadStore | None = None,
        artifacts: ArtifactStore | None = None,
        memories: MemoryStore | None = None,
    ) -> None:
        self.module = str(sys._getframe(1).f_globals.get("__name__", ""))
        """The module that made it. A program that holds several catalogs keeps their runs apart by that."""
        listed, tool_list, skill_list = list(agents), list(tools), list(skills)
        for candidate in tool_list:
            if not isinstance(candidate, Tool):
                raise CatalogError(
                    with_location(candidate, f"{candidate!r} is not a tool; decorate the function with @tool")
                )
        for each in skill_list:
            if not isinstance(each, Skill):
                raise CatalogError(f"{each!r} is not a skill; read skills with load_skills(FOLDER)")
        servers = list(mcp)
        for declared in servers:
            if not isinstance(declared, MCP):
                raise CatalogError(f"{declared!r} is not an MCP server; write MCP(NAME, url=…)")
        self.threads, self.artifacts, self.memories = threads, artifacts, memories
        unique = unique_by_name("agent", [(agent.name, agent) for agent in listed], objects=agent_objects(listed))
        self.tools = unique_by_name(
            "tool", [(tool.spec.name, tool) for tool in tool_list], objects=tool_objects(unique.values())
        )
        self.agents = {name: by_name(agent) for name, agent in unique.items()}
        self.mcp = unique_by_name("MCP server", [(server.name, server) for server in servers])
        self.resources = by_type(resources)
        """The providers by type, in the order in which they are opened."""
        self.middleware = checked_middleware(middleware, self.resources)
        self.skills = unique_by_name("skill", [(skill.name, skill) for skill in skill_list])
        for each_tool in self.tools.values():
            check_provided(each_tool, self.resources)
        if not self.agents:
            raise CatalogError("a catalog needs at least one agent")
        for agent in self.agents.values():
            check_named(agent, "tools", [name for name in agent.tool_names if not self._is_unpinned(name)], self.tools)
            check_named(agent, "skills", agent.skills, self.skills)
            check_named(agent, "subagents", agent.subagent_names, self.agents)
            if why := limit_excess(self.skills_of(agent.name)):
                raise CatalogError(
                    f"agent {agent.name!r}: {why}; select the skills that it needs with Agent(skills=(…))"
                )
            for name in agent.verifier_names:
                self._check_verifier(agent, name)
            self._check_runtime_names(agent)
            self._check_context(agent)
        self._results = {
            each.name: result_tool(each.name, each.result) for each in self.agents.values() if each.result is not None
        }
        self._check_portable()

    def _check_portable(self) -> None:
        """Reject definitions that no run could record: every run records its agent and the agent's digest."""
        specs: dict[str, Frozen] = {
            with_location(each.function, f"tool {name!r}"): each.spec for name, each in self.tools.items()
        }
        specs |= {f"the type of the result of agent {name!r}": each.spec for name, each in self._results.items()}
        specs |= {f"agent {name!r}": agent for name, agent in self.agents.items()}
        for what, spec in specs.items():
            if why := unportable(spec.model_dump(mode="json")):
                raise CatalogError(f"{what} cannot be recorded: its definition holds {why}")

    def _check_context(self, agent: Agent) -> None:
        """Reject an agent whose tools, functions or template want a context that it does not have."""
        model = agent.context
        if model is not None and (why := model_problem(model)):
            raise CatalogError(f"the context of agent {agent.name!r} {why}")
        if isinstance(agent.instructions, Template):
            try:
                agent.instructions.check(model)
            except CatalogError as error:
                raise CatalogError(f"agent {agent.name!r}: {error}") from None
        for role, function in agent.functions:
            if not is_function(function):
                raise CatalogError(f"agent {agent.name!r}: {role}={function!r} is not a function")
            check_function(function, role=role, agent=agent.name, model=model, resources=self.resources)
        if isinstance(agent.tools, ToolSet):
            return  # checked when the function has returned the names
        for name in self._tool_names(agent):
            if why := self.unfit_context(agent, self.tools[name]):
                raise CatalogError(why)

    def _is_unpinned(self, name: str) -> bool:
        """Whether a name may be one of a tool of an MCP server whose tools are not known yet."""
        return any(name.startswith(server.prefix) for server in self.mcp.values() if not server.pinned)

    def unfit_context(self, agent: Agent, tool: Tool) -> str:
        """Return why an agent cannot have a tool that wants the context of the run; empty if it can."""
        for wanted in tool.contexts:
            if agent.context is None or not issubclass(agent.context, wanted):
                has = "has no context" if agent.context is None else f"has the context {agent.context.__name__}"
                return (
                    f"agent {agent.name!r} {has}, and its tool {tool.spec.name!r} wants {wanted.__name__}: set "
                    f"Agent(context=…), or select other tools with Agent(tools=[…]){source_locations(tool)}"
                )
        return ""

    def _check_verifier(self, agent: Agent, name: str) -> None:
        tool = self.tools.get(name)
        if tool is None or name not in self._tool_names(agent):
            raise CatalogError(f"agent {agent.name!r} verifies with {name!r}, which is not among its tools")
        properties = tool.spec.parameters.get("properties", {})
        if tool.spec.effect is not Effect.READ or properties.keys() != tool.spec.defaults.keys():
            raise CatalogError(
                f"agent {agent.name!r} verifies with {name!r}: it must be a read-only tool without arguments"
                f"{source_locations(tool)}"
            )

    def _check_runtime_names(self, agent: Agent) -> None:
        options = {name: "dormancy" for name in RUNTIME_TOOLS if agent.dormancy}
        options |= {REFINE_TOOL: "refines"} if agent.refines else {}
        options |= dict.fromkeys(SUBAGENT_TOOLS if agent.subagents else (), "subagents")
        options |= {FINAL_RESULT: "result"} if agent.result is not None else {}
        for name, option in options.items():
            tool = self.tools.get(name)
            if tool and tool.spec.kind != "runtime":
                raise CatalogError(
                    f"agent {agent.name!r} has {option}, whose tool {name!r} has the name of another one: rename that, "
                    f"or leave out {option}{source_locations(tool)}"
                )

    def offering(self, tool: Tool, *, to: Callable[[Agent], bool] | None = None) -> "Catalog":
        """Return the catalog with one more tool; an existing tool of the same name takes precedence.

        Args:
            tool: The tool.
            to: Selects the agents that have it; None for all agents that have tools.
        """
        name = tool.spec.name
        if name in self.tools:
            return self
        has = {agent.name: self._tool_names(agent) for agent in self.agents.values()}
        recipients = {agent.name for agent in self.agents.values() if (to(agent) if to else has[agent.name])}
        if not recipients:
            return self
        more = {agent: (name,) if agent in recipients else () for agent in has}
        agents = [
            agent.model_copy(
                update={
                    "tools": agent.tools.add(more[agent.name], known=self.tools)
                    if isinstance(agent.tools, ToolSet)
                    else (*has[agent.name], *more[agent.name])
                }
            )
            for agent in self.agents.values()
        ]
        return self._with(agents=agents, tools=[*self.tools.values(), tool])

    def with_mcp(self, servers: Iterable[MCP], tools: Iterable[Tool], provider: Provider) -> "Catalog":
        """Return the catalog with the tools of its MCP servers, and with agents that name them one by one.

        Args:
            servers: Its servers, as pinned.
            tools: Their tools.
            provider: Connects to the servers.

        Raises:
            CatalogError: A tool has the name of another one, or an agent names tools that no server has.
        """
        offered = list(tools)
        names = [tool.spec.name for tool in offered]

        def expanded(name: str) -> list[str]:
            found = [each for each in names if fnmatchcase(each, name)] if "*" in name else []
            return found or [name]

        agents = [
            agent
            if isinstance(agent.tools, ToolSet)
            else agent.model_copy(update={"tools": tuple(each for name in agent.tool_names for each in expanded(name))})
            for agent in self.agents.values()
        ]
        resources = [*(each for each in self.resources.values() if each.provides != provider.provides), provider]
        return self._with(agents=agents, tools=[*self.tools.values(), *offered], resources=resources, mcp=servers)

    def governed_by(self, policy: Policy) -> "Catalog":
        """Return the catalog with this policy in place of every agent's own."""
        agents = [agent.model_copy(update={"policy": policy}) for agent in self.agents.values()]
        return self._with(agents=agents)

    @property
    def secret_users(self) -> list[Tool | Provider]:
        """The tools and providers of resources, which may declare secrets."""
        return [*self.tools.values(), *self.resources.values()]

    def skills_of(self, name: str | None) -> list[Skill]:
        """Return the skills of an agent (None: of the first one).

        Raises:
            CatalogError: There is no such agent; the message lists the existing ones.
        """
        agent = self._agent(name)
        return [self.skills[skill] for skill in (self.skills if agent.skills is None else agent.skills)]

    def agent(self, name: str | None) -> Agent:
        """Return an agent (None: the first one).

        Raises:
            CatalogError: There is no such agent; the message lists the existing ones.
        """
        return self._agent(name)

    def spec(
        self,
        name: str | None,
        *,
        default_llm: str | Sequence[str],
        endpoints: Collection[str] = BUILT_IN,
        instructions: str | None = None,
        tools: Iterable[str] | None = None,
    ) -> AgentSpec:
        """Return an agent (None: the first one) as a run records it.

        Args:
            name: The agent's name.
            default_llm: The LLM for an agent that does not set one; several are a fallback order.
            endpoints: The names of the worker's LLM endpoints.
            instructions: The instructions that its template or function gave; None for its own text. Without them, a
                template stands for itself, and a function for no text.
            tools: The tools that its function gave; None for its own. Without them, a function stands for all tools.

        Raises:
            CatalogError: There is no such agent; the message lists the existing ones. Or the function named tools that
                the agent cannot have.
        """
        agent = self._agent(name)
        names = self._tool_names(agent) if tools is None else self._given_names(agent, tools)
        own_text = agent.instructions.text if isinstance(agent.instructions, Template) else agent.instructions
        text = instructions if instructions is not None else own_text if isinstance(own_text, str) else ""
        offer = [self.tools[tool].spec for tool in names]
        if agent.subagents:
            subagents = {other: self.agents[other].introduction for other in agent.subagent_names}
            offer = [offered(tool, subagents) for tool in offer]
        own = [self._results[agent.name].spec] if agent.name in self._results else []
        llm, llms = recorded_llms(agent.llm or default_llm, endpoints)
        options = agent.llm_options
        return AgentSpec(
            name=agent.name,
            instructions=text,
            tools=(*offer, *own),
            skills=tuple(skill.spec for skill in self.skills_of(agent.name)),
            memory=agent.memory,
            verify=agent.verifier_names,
            policy=agent.policy,
            llm=llm,
            llm_options={} if isinstance(options, LLMOptions) else options,
            limits=agent.limits,
            subagents=agent.subagent_names,
            budget=agent.budget,
            context=schema_of(agent.context) if agent.context else None,
            when_blocked=agent.when_blocked,
            nodes=tuple(agent.nodes),
            llms=llms,
            options=options if isinstance(options, LLMOptions) else LLMOptions(),
        )

    def readers(self, agent: str) -> Mapping[str, Tool]:
        """Return the tools that parse the arguments of an agent's calls, by name."""
        own = self._results.get(agent)
        return {**self.tools, FINAL_RESULT: own} if own else self.tools

    def _agent(self, name: str | None) -> Agent:
        if name is None:
            return next(iter(self.agents.values()))
        found = self.agents.get(id_if_any(name))
        if found is None:
            raise CatalogError(f"no agent named {name!r}; this worker's catalog has: {', '.join(self.agents)}")
        return found

    def _tool_names(self, agent: Agent) -> tuple[str, ...]:
        """Return the names of the tools that an agent has; none of an MCP server whose tools are not known yet."""
        if isinstance(agent.tools, ToolSet):
            return tuple(self.tools)
        return tuple(name for name in agent.tool_names if not self._is_unpinned(name))

    def _given_names(self, agent: Agent, names: Iterable[str]) -> tuple[str, ...]:
        """Return the tools that a function of the agent has named, with those that its options add."""
        chosen = tuple(dict.fromkeys(names))
        if isinstance(agent.tools, ToolSet):
            known = self.tools if agent.tools.known is None else agent.tools.known
            check_named(agent, "tools", chosen, [*known, *agent.tools.added])
            chosen = tuple(dict.fromkeys((*chosen, *agent.tools.added)))
        if missing := [name for name in agent.verifier_names if name not in chosen]:
            raise CatalogError(f"agent {agent.name!r} verifies with {missing[0]!r}, which its function left out")
        for name in chosen:
            if why := self.unfit_context(agent, self.tools[name]):
                raise CatalogError(why)
        return chosen

    def with_resources(self, *providers: Callable[..., Any] | Provider) -> "Catalog":
        """Return the catalog with these providers in place of its own for the same types, for example in a test.

        Raises:
            CatalogError: One is not a valid provider, or the catalog has none for its type.
        """
        own = dict(self.resources)
        for each in map(read_provider, providers):
            if each.provides not in own:
                raise CatalogError(f"{each.where} provides {name_of(each.provides)}, which this catalog does not have")
            own[each.provides] = each
        return self._with(resources=own.values())

    def with_stores(self, *, threads: ThreadStore, artifacts: ArtifactStore, memories: MemoryStore) -> "Catalog":
        """Return the catalog with these stores in place of its own."""
        return self._with(threads=threads, artifacts=artifacts, memories=memories)

    def _with(self, **changes: Any) -> "Catalog":
        """Return the catalog with some arguments of `Catalog` replaced."""
        given = {
            "agents": self.agents.values(),
            "tools": self.tools.values(),
            "skills": self.skills.values(),
            "resources": self.resources.values(),
            "middleware": self.middleware,
            "mcp": self.mcp.values(),
            "threads": self.threads,
            "artifacts": self.artifacts,
            "memories": self.memories,
        }
        changed = Catalog(**{**given, **changes})
        changed.module = self.module
        return changed
