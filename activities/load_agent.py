"""`load_agent`: resolves an agent name and a workspace into the agent's spec, with its skills and strategies, and the
memory that it recalls. The run records them.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from holdfast.activities.agent_functions import AgentFunctions, FunctionFailed
from holdfast.activities.calling_run import Chains, calling_thread
from holdfast.activities.heartbeats import heartbeats
from holdfast.activities.node_gate import NodeDeclines
from holdfast.activities.record.moved_threads import MovedThreads
from holdfast.activities.time_zones import ZoneUnknown, zone_offsets
from holdfast.core.agents.agent import Agent, AgentSpec, llms_of
from holdfast.core.agents.catalog import Catalog
from holdfast.core.agents.run_functions import RunContext
from holdfast.core.agents.skills import add_workspace_skills
from holdfast.core.base.page_paths import linkable
from holdfast.core.llm.names import BUILT_IN, recorded_llms
from holdfast.core.llm.tokens import BYTES_PER_TOKEN, tokens_of
from holdfast.core.log.events import AgentLoaded, RunStarted
from holdfast.core.log.upcasters import decode_event
from holdfast.core.memory.recalled import RecalledTier
from holdfast.core.memory.semantic import GLOBAL, MemoryStore, standing_text
from holdfast.core.nodes import NO_NODE, Node
from holdfast.core.run.contracts.error_types import AGENT_NOT_FOUND, START_REFUSED, THREAD_EXISTS, WORKSPACE_NOT_FOUND
from holdfast.core.run.contracts.ledger import EffectLedger
from holdfast.core.run.contracts.loading import AgentRequest, ForkedFolder, LoadedAgent, PastEffects
from holdfast.core.run.contracts.snapshot import RunSnapshot
from holdfast.core.run.state import features
from holdfast.core.stores import ArtifactStore, ThreadStore, origin_of
from holdfast.core.tools.decorator import NO_RESOURCES
from holdfast.core.tools.secrets import NO_SECRETS, Secrets
from holdfast.endpoints.prices import dearest_price
from holdfast.errors import CatalogError, RecordUnreadable, ThreadForgotten
from holdfast.workspace.folders import digested_name, earlier_folder, folder_name
from holdfast.workspace.git.git import GitFailed
from holdfast.workspace.git.worktree import make_forked_folder
from holdfast.workspace.memory.recall import WorkspaceMemory
from holdfast.workspace.tainted_files import TaintedFiles


def resolve_agent(catalog: Catalog, name: str | None) -> Agent:
    """Return the agent of that name; None selects the first one.

    Raises:
        ApplicationError: AGENT_NOT_FOUND.
    """
    try:
        return catalog.agent(name)
    except CatalogError as error:
        raise ApplicationError(str(error), type=AGENT_NOT_FOUND, non_retryable=True) from None


def require_folder(path: Path, *, asked_for: str) -> None:
    """Reject a path that is not a folder on this worker. Blocks on the file system.

    Args:
        path: The path to check.
        asked_for: The path as the caller gave it, for the error message.

    Raises:
        ApplicationError: WORKSPACE_NOT_FOUND.
    """
    if not path.is_absolute() or not path.is_dir():
        message = f"workspace {asked_for!r} is not a folder on this worker; create it, or give another one"
        raise ApplicationError(message, type=WORKSPACE_NOT_FOUND, non_retryable=True)


class Agents:
    """Resolves agents from the worker's catalog.

    Args:
        catalog: The agents and tools of this worker.
        default_llm: The LLM of agents that name none; several are a fallback order.
        endpoints: The names of the LLM endpoints.
        workspaces: The folder for the workspaces of threads that were started without one.
        artifacts: Stores the files of skills, so that the run keeps reading the same version.
        memories: Stores the standing memories; None for none.
        notify: Whether this worker sends notices of requests and endings.
        threads: The permanent record: a run that starts a new thread must find no events there.
        ledger: The effects of past calls, including those that are missing in the log of a reset run.
        chains: Maps a Temporal run to its chain.
        plain_starts: Whether to accept runs that were started without a fleet key.
        resources: The catalog's resources by type, for the functions of agents.
        secrets: Redacted from what those functions return.
        node: This node, which loads only agents whose runs it may execute.
        page: The address of the gateway with the page, for links to it; None for none.
    """

    def __init__(
        self,
        catalog: Catalog,
        *,
        default_llm: str | Sequence[str],
        endpoints: Collection[str] = BUILT_IN,
        workspaces: Path,
        artifacts: ArtifactStore,
        threads: ThreadStore,
        ledger: EffectLedger,
        chains: Chains,
        memories: MemoryStore | None = None,
        notify: bool = False,
        plain_starts: bool = True,
        resources: Mapping[Any, Any] = NO_RESOURCES,
        secrets: Secrets = NO_SECRETS,
        node: Node = NO_NODE,
        page: str | None = None,
    ) -> None:
        self._catalog = catalog
        self._default_llm = default_llm
        self._endpoints = endpoints
        self._workspaces = workspaces
        self._artifacts = artifacts
        self._workspace_memory = WorkspaceMemory()
        self._memories = memories
        self._notify = notify
        self._threads = threads
        self._ledger = ledger
        self._chains = chains
        self._moved_threads = MovedThreads(threads, chains)
        self._plain_starts = plain_starts
        self._node = node
        self._page = linkable(page)
        self._functions = AgentFunctions(catalog, resources, secrets, endpoints)

    @activity.defn
    async def load_agent(self, request: AgentRequest) -> LoadedAgent:
        """See `holdfast.core.run.contracts.table.LOAD_AGENT`."""
        if request.plain and not self._plain_starts:
            message = "this start has no seal, and HOLDFAST_PLAIN_STARTS is false; start with a fleet key"
            raise ApplicationError(message, type=START_REFUSED, non_retryable=True)
        if origin := origin_of(calling_thread()):  # `archive` would reject it, but only after its effects
            message = f"this id is reserved for what resets leave behind of {origin}; start under another id"
            raise ApplicationError(message, type=START_REFUSED, non_retryable=True)
        agent = resolve_agent(self._catalog, request.agent)
        if agent.nodes and (outside := self._node.missing((tuple(agent.nodes),))):
            raise NodeDeclines("scope", f"it is not {outside}, where the agent {agent.name} runs")
        if request.policy:
            return self._policy(agent, request)
        context = self._functions.context(agent, request)
        async with heartbeats():
            try:
                spec = await self._spec(agent, request, context)
            except FunctionFailed as error:
                return self._blocked(agent, str(error))
            if request.fresh:
                await self._require_new_thread()
            moved = await self._state_if_moved(request.position)
            workspace = await self._workspace(request.workspace, request.forked)
            spec = await self._with_procedures(spec, workspace)
            recalled = await self._recall(spec, request.user, workspace)
            past = await self._ledger.past_effects(calling_thread(), after=request.after)
        try:
            zones = zone_offsets(names) if (names := (*request.zones, *spec.policy.zones)) else ()
        except ZoneUnknown as error:
            return self._blocked(agent, f"the policy has hours in {error}")
        budget = spec.budget.narrowed(request.budget) if spec.budget else request.budget
        return LoadedAgent(
            spec=spec,
            workspace=str(workspace),
            notify=self._notify,
            recalled=recalled,
            past=PastEffects(moved=moved) if moved else past if past.effects else None,
            features=features.FEATURES,
            price=dearest_price(llms_of(spec)) if budget and budget.usd is not None else None,
            context=context if context != request.context else None,
            zones=zones,
            page=self._page,
        )

    async def _spec(self, agent: Agent, request: AgentRequest, context: dict[str, Any] | None) -> AgentSpec:
        """The agent as this run records it."""
        at = activity.info().scheduled_time
        run = RunContext(thread=calling_thread(), agent=agent.name, person=request.user, at=at)
        values = request.context if context is None else context
        spec = await self._functions.spec(agent, values, run, default_llm=self._default_llm)
        if not request.llm:
            return spec
        llm, llms = recorded_llms(request.llm, self._endpoints)
        return spec.model_copy(update={"llm": llm, "llms": llms})

    def _policy(self, agent: Agent, request: AgentRequest) -> LoadedAgent:
        """The answer to a request for the agent's policy alone.

        Raises:
            NodeDeclines: The agent has another policy here.
        """
        if agent.policy.hash != request.policy:
            why = f"its policy for the agent {agent.name} is {agent.policy.hash[:16]}…, not {request.policy[:16]}…"
            raise NodeDeclines("policy", why)
        try:
            zones = zone_offsets((*request.zones, *agent.policy.zones))
        except ZoneUnknown as error:
            return self._blocked(agent, f"the policy has hours in {error}")
        return self._blocked(agent, "").model_copy(update={"zones": zones})

    def _blocked(self, agent: Agent, problem: str) -> LoadedAgent:
        """The answer if a function of the agent fails. An older worker that would use its spec lacks its level."""
        spec = self._catalog.spec(agent.name, default_llm=self._default_llm, endpoints=self._endpoints, instructions="")
        spec = spec.model_copy(update={"tools": (), "verify": ()})
        return LoadedAgent(spec=spec, workspace="", features=features.FEATURES, problem=problem)

    async def _require_new_thread(self) -> None:
        """Reject a thread that another run recorded: this run would neither load its past nor continue it."""
        thread = calling_thread()
        try:
            lines = await self._threads.read(thread, 0)
        except ThreadForgotten as error:
            raise ApplicationError(str(error), type=THREAD_EXISTS, non_retryable=True) from None
        if not lines:
            return
        first = decode_event(lines[0])
        chain = await self._chains.first_run_id(thread, activity.info().workflow_run_id or "")
        if isinstance(first, RunStarted) and first.first_run_id == chain:
            return  # the thread is this run's own: the run was reset
        message = f"thread {thread} exists already; continue it with `holdfast start --thread {thread}` and a fleet key"
        raise ApplicationError(message, type=THREAD_EXISTS, non_retryable=True)

    async def _state_if_moved(self, position: int | None) -> RunSnapshot | None:
        """Return the state of the thread, if it was moved after that many events: then the run was reset.

        Raises:
            ApplicationError: THREAD_EXISTS: it was forgotten, or its record cannot be read. RECORD_CONFLICT: only
                Temporal shows that it was moved.
        """
        try:
            return None if position is None else await self._moved_threads.since(calling_thread(), position)
        except RecordUnreadable as error:
            raise ApplicationError(str(error), type=THREAD_EXISTS, non_retryable=True) from None

    async def _with_procedures(self, spec: AgentSpec, workspace: Path) -> AgentSpec:
        """Add the workspace's skills and strategies to the agent; store the files of all skills for `read_skill`."""
        own = self._catalog.skills_of(spec.name)
        if not (own or spec.memory.workspace_skills or spec.memory.strategies):
            return spec
        workspace_skills = self._workspace_memory.skills(workspace) if spec.memory.workspace_skills else ()
        skills, left_out = await asyncio.to_thread(add_workspace_skills, own, workspace_skills)
        for content in {content for skill in skills for content in skill.files.values()}:
            await self._artifacts.put(content, thread=calling_thread())
        strategies = ""
        if spec.memory.strategies:
            strategies = await asyncio.to_thread(self._workspace_memory.strategies, workspace, spec.memory.strategies)
        procedures = {"skills": (*(skill.spec for skill in skills), *left_out), "strategies": strategies}
        return spec.model_copy(update=procedures)

    async def _recall(self, spec: AgentSpec, user: str, workspace: Path) -> tuple[RecalledTier, ...]:
        """Return the memory that the agent's prompt shows from the start."""
        budget = spec.memory
        standing = await self._standing_memories(spec, user) if budget.standing else None
        files = None
        if budget.file_tokens:
            read = self._workspace_memory.files
            files = await asyncio.to_thread(read, workspace, budget.file_tokens, progress=budget.progress_file)
        return tuple(tier for tier in (standing, files) if tier)

    async def _standing_memories(self, spec: AgentSpec, user: str) -> RecalledTier | None:
        """Return the standing memories of the agent, the thread, the user who gave the task, and the global scope."""
        if self._memories is None:
            return None
        scopes = [f"agent:{spec.name}", f"thread:{calling_thread()}", *([f"user:{user}"] if user else []), GLOBAL]
        items = await self._memories.standing(scopes, spec.memory.standing * BYTES_PER_TOKEN)
        whole = text = standing_text(items)
        while items and tokens_of(text) > spec.memory.standing:  # the store limits characters, not tokens
            items = items[:-1]
            text = standing_text(items)
        return RecalledTier(tier="standing", text=text, left_out=len(whole) - len(text)) if text else None

    async def _workspace(self, asked_for: str | None, forked: ForkedFolder | None) -> Path:
        if asked_for is not None:
            return await asyncio.to_thread(_existing_folder, asked_for)
        if forked:
            return await asyncio.to_thread(self._forked_folder, forked)
        thread = calling_thread()
        earlier = await asyncio.to_thread(earlier_folder, self._workspaces, thread)
        if earlier and await self._recorded_workspace(thread) == str(earlier):
            return earlier
        return await asyncio.to_thread(_create_folder, self._workspaces / folder_name(thread))

    def _forked_folder(self, forked: ForkedFolder) -> Path:
        self._workspaces.mkdir(parents=True, exist_ok=True)
        folder = self._workspaces / digested_name(calling_thread())
        marks, source = TaintedFiles(), Path(forked.workspace)
        if marks.have(source):  # even if the commit is older: the repository is the same
            marks.mark(folder)
        try:
            return make_forked_folder(source, folder, at=forked.at)
        except GitFailed as error:
            message = f"the fork gets no folder at that time of {forked.workspace!r}: {error}"
            raise ApplicationError(message, type=WORKSPACE_NOT_FOUND, non_retryable=True) from None

    async def _recorded_workspace(self, thread: str) -> str | None:
        """Return the workspace of a thread before it was reset, from its record."""
        try:
            lines = await self._threads.read(thread, 0)
        except ThreadForgotten:
            return None
        return next((event.workspace for line in lines if isinstance(event := decode_event(line), AgentLoaded)), None)


def _existing_folder(asked_for: str) -> Path:
    path = Path(asked_for).expanduser()
    require_folder(path, asked_for=asked_for)
    return path.resolve()


def _create_folder(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()
