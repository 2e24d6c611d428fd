"""`load_agent`: an agent's name and a folder become what the run records of them."""

import asyncio
from pathlib import Path

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.calling import calling_thread
from activities.heartbeats import heartbeats
from holdfast.catalog import Catalog
from holdfast.contracts import AGENT_NOT_FOUND, WORKSPACE_NOT_FOUND, AgentRequest, LoadedAgent
from holdfast.errors import CatalogError


class Agents:
    """Resolves agents from the worker's catalog.

    Args:
        catalog: What this worker offers.
        default_llm: The LLM of agents that name none.
        workspaces: The folder in which threads without a workspace get one of their own.
        notify: Whether this worker has somebody to tell of requests and endings.
    """

    def __init__(self, catalog: Catalog, *, default_llm: str, workspaces: Path, notify: bool = False) -> None:
        self._catalog = catalog
        self._default_llm = default_llm
        self._workspaces = workspaces
        self._notify = notify

    @activity.defn
    async def load_agent(self, request: AgentRequest) -> LoadedAgent:
        """See `holdfast.contracts.load_agent`."""
        try:
            spec = self._catalog.spec(request.agent, default_llm=self._default_llm)
        except CatalogError as error:
            raise ApplicationError(str(error), type=AGENT_NOT_FOUND, non_retryable=True) from None
        async with heartbeats():
            workspace = await asyncio.to_thread(self._workspace, request.workspace)
        return LoadedAgent(spec=spec, workspace=str(workspace), notify=self._notify)

    def _workspace(self, asked_for: str | None) -> Path:
        if asked_for is None:
            # A thread id may hold anything, a folder's name may not.
            name = "".join(c if c.isalnum() or c in "-_." else "_" for c in calling_thread())
            own = self._workspaces / (name.lstrip(".") or "_")
            own.mkdir(parents=True, exist_ok=True)
            return own.resolve()
        path = Path(asked_for).expanduser()
        if not path.is_absolute() or not path.is_dir():
            message = f"workspace {asked_for!r} is not a folder on this worker; create it, or give another one"
            raise ApplicationError(message, type=WORKSPACE_NOT_FOUND, non_retryable=True)
        return path.resolve()
