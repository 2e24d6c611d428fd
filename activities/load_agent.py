"""`load_agent`: an agent's name and a folder become what the run records of them: the agent, with its skills and what
it has learnt, and what it recalls of its memory.
"""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.calling_run import calling_thread
from activities.heartbeats import heartbeats
from activities.orders import Chains
from activities.resolving import require_folder, resolve_agent
from holdfast.agents.agent import AgentSpec, SkillSpec
from holdfast.agents.catalog import Catalog
from holdfast.agents.skills import Skill, add_workspace_skills
from holdfast.llm.tokens import BYTES_PER_TOKEN, tokens_of
from holdfast.log.events import RunStarted
from holdfast.log.upcasters import decode_event
from holdfast.memory.recalled import RecalledTier
from holdfast.memory.semantic import GLOBAL, MemoryStore, standing_text
from holdfast.run.contracts import START_REFUSED, THREAD_EXISTS, AgentRequest, LoadedAgent
from holdfast.runtime.stores.ledger import Ledger
from holdfast.stores import ArtifactStore, ThreadStore


class WorkspaceReader(Protocol):
    """Reads what a workspace holds for the agents that work in it; `holdfast.runtime.memory.recall` does."""

    def skills(self, workspace: Path) -> Iterable[Skill | SkillSpec]:
        """The workspace's own skills; those that cannot be used say why."""
        ...

    def strategies(self, workspace: Path, tokens: int) -> str:
        """What was learnt, within the budget."""
        ...

    def files(self, workspace: Path, tokens: int) -> RecalledTier | None:
        """The workspace's files, within the budget; None where there are none."""
        ...


class Agents:
    """Resolves agents from the worker's catalog.

    Args:
        catalog: What this worker offers.
        default_llm: The LLM of agents that name none.
        workspaces: The folder in which threads without a workspace get one of their own.
        artifacts: Where the files of skills are put, as the run is to find them.
        reader: Reads workspaces, for agents whose memory is there.
        memories: Has the standing memories, for agents that are shown them; None for none.
        notify: Whether this worker has somebody to tell of requests and endings.
        threads: The permanent record: a run that takes its thread to be new must find nothing there.
        ledger: What a thread has done already whose log does not have it: its run was reset.
        chains: Which run belongs to which chain.
        plain_starts: Whether runs are taken that were started without a fleet key.
    """

    def __init__(
        self,
        catalog: Catalog,
        *,
        default_llm: str,
        workspaces: Path,
        artifacts: ArtifactStore,
        reader: WorkspaceReader,
        threads: ThreadStore,
        ledger: Ledger,
        chains: Chains,
        memories: MemoryStore | None = None,
        notify: bool = False,
        plain_starts: bool = True,
    ) -> None:
        self._catalog = catalog
        self._default_llm = default_llm
        self._workspaces = workspaces
        self._artifacts = artifacts
        self._reader = reader
        self._memories = memories
        self._notify = notify
        self._threads = threads
        self._ledger = ledger
        self._chains = chains
        self._plain_starts = plain_starts

    @activity.defn
    async def load_agent(self, request: AgentRequest) -> LoadedAgent:
        """See `holdfast.run.contracts.load_agent`."""
        if request.plain and not self._plain_starts:
            message = "this start has no seal, and HOLDFAST_PLAIN_STARTS is false; start with a fleet key"
            raise ApplicationError(message, type=START_REFUSED, non_retryable=True)
        spec = resolve_agent(self._catalog, request.agent, default_llm=self._default_llm)
        async with heartbeats():
            if request.fresh:
                await self._require_new_thread()
            workspace = await asyncio.to_thread(self._workspace, request.workspace)
            spec = await self._with_procedures(spec, workspace)
            recalled = await self._recalled(spec, request.user, workspace)
            past = await self._ledger.made(calling_thread(), after=request.after)
        return LoadedAgent(
            spec=spec,
            workspace=str(workspace),
            notify=self._notify,
            recalled=recalled,
            past=past if past.effects else None,
        )

    async def _require_new_thread(self) -> None:
        """Refuse a thread that the record has from another run: its past would be neither known nor continued."""
        thread = calling_thread()
        if not (lines := await self._threads.read(thread, 0)):
            return
        begun = decode_event(lines[0])
        chain = await self._chains.first_run_id(thread, activity.info().workflow_run_id or "")
        if isinstance(begun, RunStarted) and begun.first_run_id == chain:
            return  # its own: the run was reset
        message = f"thread {thread} has a past; continue it with `starter.py start --thread {thread}` and a fleet key"
        raise ApplicationError(message, type=THREAD_EXISTS, non_retryable=True)

    async def _with_procedures(self, spec: AgentSpec, workspace: Path) -> AgentSpec:
        """The agent with what its workspace adds to it, and its skills where `read_skill` finds them."""
        own = self._catalog.skills_of(spec.name)
        found = self._reader.skills(workspace) if spec.memory.workspace_skills else ()
        skills, left_out = await asyncio.to_thread(add_workspace_skills, own, found)
        for content in {content for skill in skills for content in skill.files.values()}:
            await self._artifacts.put(content, thread=calling_thread())
        strategies = ""
        if spec.memory.strategies:
            strategies = await asyncio.to_thread(self._reader.strategies, workspace, spec.memory.strategies)
        procedures = {"skills": (*(skill.spec for skill in skills), *left_out), "strategies": strategies}
        return spec.model_copy(update=procedures)

    async def _recalled(self, spec: AgentSpec, user: str, workspace: Path) -> tuple[RecalledTier, ...]:
        """What the agent is shown of its memory from the start."""
        budget = spec.memory
        standing = await self._standing(spec, user) if budget.standing else None
        files = await asyncio.to_thread(self._reader.files, workspace, budget.files) if budget.files else None
        return tuple(tier for tier in (standing, files) if tier)

    async def _standing(self, spec: AgentSpec, user: str) -> RecalledTier | None:
        """The standing memories of the agent, of the thread, of whoever gave the task, and the global ones."""
        if self._memories is None:
            return None
        scopes = [f"agent:{spec.name}", f"thread:{calling_thread()}", *([f"user:{user}"] if user else []), GLOBAL]
        items = await self._memories.standing(scopes, spec.memory.standing * BYTES_PER_TOKEN)
        whole = text = standing_text(items)
        while items and tokens_of(text) > spec.memory.standing:  # the store counts characters
            items = items[:-1]
            text = standing_text(items)
        return RecalledTier(tier="standing", text=text, left_out=len(whole) - len(text)) if text else None

    def _workspace(self, asked_for: str | None) -> Path:
        if asked_for is None:
            # A thread id may hold anything, a folder's name may not.
            name = "".join(c if c.isalnum() or c in "-_." else "_" for c in calling_thread())
            own = self._workspaces / (name.lstrip(".") or "_")
            own.mkdir(parents=True, exist_ok=True)
            return own.resolve()
        path = Path(asked_for).expanduser()
        require_folder(path, asked_for=asked_for)
        return path.resolve()
