"""Which built-in tools an agent gets."""

from collections.abc import Callable, Sequence

from holdfast.activities.builtin_tools.dormancy import dormancy_tools
from holdfast.activities.builtin_tools.read_artifact import read_artifact_tool
from holdfast.activities.builtin_tools.read_skill import read_skill_tool
from holdfast.activities.builtin_tools.refine_task import refine_task_tool
from holdfast.activities.builtin_tools.remember import semantic_tools
from holdfast.activities.builtin_tools.run_agent import subagent_tools
from holdfast.activities.builtin_tools.run_status import run_status_tool
from holdfast.agents.agent import Agent
from holdfast.agents.catalog import Catalog
from holdfast.errors import CatalogError
from holdfast.memory.semantic import MemoryStore
from holdfast.runtime.memory.progress_tool import update_progress
from holdfast.runtime.memory.tools import note_learning
from holdfast.stores import ArtifactStore, ThreadStore
from holdfast.tools.decorator import Tool
from holdfast.tools.secrets import Secrets
from holdfast.tools.triggers import RUN_STATUS


def with_builtin_tools(
    catalog: Catalog, *, artifacts: ArtifactStore, memories: MemoryStore, threads: ThreadStore, secrets: Secrets
) -> Catalog:
    """The catalog, with the tools that use a store or a memory file or put an agent to sleep, for the agents that have
    them.

    Raises:
        CatalogError: A tool has the name of one that an agent with dormancy needs.
    """
    if RUN_STATUS in catalog.tools and any(agent.dormancy for agent in catalog.agents.values()):
        raise CatalogError(f"an agent has dormancy, which polls a tool {RUN_STATUS!r} of its own: rename yours")

    def has_skills(agent: Agent) -> bool:
        return agent.memory.workspace_skills or bool(catalog.skills_of(agent.name))

    offers: list[tuple[Callable[[Agent], bool], Callable[[], Sequence[Tool]]]] = [
        (has_skills, lambda: [read_skill_tool(artifacts, catalog.skills.values())]),
        (lambda agent: agent.memory.semantic, lambda: semantic_tools(memories, secrets)),
        (lambda agent: agent.dormancy, lambda: [*dormancy_tools(), run_status_tool(threads)]),
        (lambda agent: agent.refines, lambda: [refine_task_tool()]),
        (lambda agent: bool(agent.subagents), subagent_tools),
        (lambda agent: agent.memory.progress, lambda: [update_progress]),
        (lambda agent: agent.memory.learn, lambda: [note_learning]),
    ]
    offering = catalog
    for has, tools in offers:
        if any(map(has, catalog.agents.values())):  # to build a tool takes milliseconds
            for each in tools():
                offering = offering.offering(each, to=has)
    return offering.offering(read_artifact_tool(artifacts, threads))  # last: for every agent that has a tool by now
