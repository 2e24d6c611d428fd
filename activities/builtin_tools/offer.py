"""Assigns the built-in tools to agents; defines the tools whose calls the run itself carries out.

No activity carries out `run_agent` and `agent_result` (`holdfast.core.run.waits.subagents`): these functions never run.
People approve each call of `refine_task`, and then the run carries it out (`holdfast.core.run.inputs.refine`): its
function only checks the call.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from holdfast.activities.builtin_tools.dormancy import dormancy_tools, run_status_tool
from holdfast.activities.builtin_tools.events import event_tools
from holdfast.activities.builtin_tools.read_artifact import read_artifact_tool
from holdfast.activities.builtin_tools.read_skill import read_skill_tool
from holdfast.activities.builtin_tools.remember import semantic_tools
from holdfast.core.agents.agent import Agent
from holdfast.core.agents.catalog import Catalog
from holdfast.core.authority.interventions import RefinementKind, read_refinement
from holdfast.core.memory.semantic import MemoryStore
from holdfast.core.stores import ArtifactStore, ThreadStore
from holdfast.core.tools.decorator import Tool, tool
from holdfast.core.tools.secrets import Secrets
from holdfast.core.tools.triggers import RUN_STATUS
from holdfast.errors import CatalogError
from holdfast.workspace.memory.progress_tool import update_progress
from holdfast.workspace.memory.tools import note_learning


def with_builtin_tools(
    catalog: Catalog, *, artifacts: ArtifactStore, memories: MemoryStore, threads: ThreadStore, secrets: Secrets
) -> Catalog:
    """Return the catalog with its agents' built-in tools: for skills, memory, dormancy, events, sub-agents, refinements
    and artifacts.

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
        (lambda agent: agent.publishes, lambda: event_tools(threads)),
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
    return offering.offering(read_artifact_tool(artifacts, threads))  # last: for every agent that has any tool


def refine_task_tool() -> Tool:
    """Build the tool of an agent with `Agent(refines=True)`."""

    @tool(effect="idempotent", trust="agent")
    def refine_task(kind: RefinementKind, text: str) -> str:
        """Ask people to change your task. Nothing changes unless they approve.

        Use it where the task as given cannot or should not be done as it stands: part of it turned out to be done or
        impossible (narrow), something else is needed instead (rescope), or it states something that is not so
        (correct). Do not use it to report progress, or to ask a question. Once approved, the refinement is part of the
        task from then on.

        Args:
            kind: narrow: less than before; rescope: something else instead; correct: a fact in the task was wrong.
            text: The task as it is from now on, or what is different: complete, in a few sentences.
        """
        read = read_refinement({"kind": kind, "text": text, "by": "agent"})
        return read[1] if isinstance(read, tuple) else "it can be carried out, once people approve"

    return _as_runtime_tool(refine_task)


def subagent_tools() -> list[Tool]:
    """Build the tools of an agent with `Agent(subagents=(…))`."""

    @tool(effect="read", trust="web")
    def run_agent(agent: str, task: str, background: bool = False) -> str:
        """Give a task to another agent, and read its final answer.

        It works in a thread of its own, in the same workspace, and sees nothing of this conversation: write everything
        that it needs into the task. To run several at the same time, call this several times in one reply. People
        decide on what it asks approval for; you cannot.

        Args:
            agent: The name of the agent.
            task: The complete task.
            background: Return as soon as it has started; `agent_result` reads its answer later. Agents that still run
                when you give your own final answer are cancelled.
        """
        raise NotImplementedError("the run carries this out")

    @tool(effect="read", trust="web")
    def agent_result(thread: str) -> str:
        """Wait until an agent that you run in the background has ended, and read its final answer.

        Args:
            thread: The id of its thread, as `run_agent` returned it.
        """
        raise NotImplementedError("the run carries this out")

    return [_as_runtime_tool(each) for each in (run_agent, agent_result)]


def _as_runtime_tool(base: Tool) -> Tool:
    return replace(base, spec=base.spec.model_copy(update={"kind": "runtime"}))
