"""`survey_workspace` and `settle_iteration`: what a loop's files say, and what became of an iteration."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from temporalio import activity
from temporalio.client import WorkflowQueryFailedError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from activities.calling_run import ANSWER_WITHIN
from activities.heartbeats import heartbeats
from activities.resolving import require_folder, resolve_agent
from holdfast.agents.agent import AgentSpec
from holdfast.agents.catalog import Catalog
from holdfast.llm.messages import Usage
from holdfast.loop.state import Settled, SettleRequest, Survey, SurveyRequest
from holdfast.run.contracts import AGENT_UNFIT, NOT_SEALED, View
from holdfast.seals.seals import is_unsealed

NEEDED = ("complete_task", "block_task")
"""Tools by which an iteration says what became of its task."""

Price = Callable[[str, Usage], float | None]
"""The price of so much of an LLM, in US dollars; None where nobody knows."""


class Workbench(Protocol):
    """Works on a loop's files and its repository. Its methods block; each does the same thing once, however often."""

    def survey(self, request: SurveyRequest) -> Survey:
        """See what the files say, and commit what people have changed. Trouble is told in `Survey.problem`."""
        ...

    def settle(self, request: SettleRequest, words: str, at: datetime) -> Settled:
        """Find out what became of the task, and commit what is left; `words` are the agent's last."""
        ...


class Loops:
    """Serves loops.

    Args:
        catalog: What this worker offers.
        default_llm: The LLM of agents that name none.
        workbench: For the files.
        price: For the cost of iterations.
        notify: Whether this worker has somebody to tell of blocks and of ends.
    """

    def __init__(
        self, catalog: Catalog, *, default_llm: str, workbench: Workbench, price: Price, notify: bool = False
    ) -> None:
        self._catalog = catalog
        self._default_llm = default_llm
        self._workbench = workbench
        self._price = price
        self._notify = notify

    @activity.defn
    async def survey_workspace(self, request: SurveyRequest) -> Survey:
        """See `holdfast.run.contracts.survey_workspace`."""
        worker, initializer = self._spec(request.agent), self._spec(request.initializer or request.agent)
        if missing := [name for name in NEEDED if worker.tool(name) is None]:
            raise _unfit(
                f"agent {worker.name!r} cannot work in a loop: it lacks {' and '.join(missing)}; "
                "give the catalog memory_tools() (holdfast.runtime.memory), and the agent those tools"
            )
        if request.priced:
            self._require_prices(worker, initializer)
        await asyncio.to_thread(require_folder, Path(request.workspace), asked_for=request.workspace)
        async with heartbeats():
            found = await asyncio.to_thread(self._workbench.survey, request)
        return found.model_copy(
            update={"agent": worker.name, "llm": worker.llm, "initializer_llm": initializer.llm, "notify": self._notify}
        )

    @activity.defn
    async def settle_iteration(self, request: SettleRequest) -> Settled:
        """See `holdfast.run.contracts.settle_iteration`."""
        async with heartbeats():
            state = await _state_of(request.thread)
            usage = Usage.model_validate(state.get("usage", {}))
            words = str(state.get("result") or "")
            at = activity.info().scheduled_time
            settled = await asyncio.to_thread(self._workbench.settle, request, words, at)
        return settled.model_copy(update={"usage": usage, "cost": self._price(request.llm, usage)})

    def _require_prices(self, *specs: AgentSpec) -> None:
        for spec in specs:
            if self._price(spec.llm, Usage()) is None:
                raise _unfit(
                    f"nobody knows the price of {spec.llm!r}, and the loop has a limit in dollars; leave it out"
                )

    def _spec(self, agent: str | None) -> AgentSpec:
        return resolve_agent(self._catalog, agent, default_llm=self._default_llm)


def _unfit(message: str) -> ApplicationError:
    return ApplicationError(message, type=AGENT_UNFIT, non_retryable=True)


async def _state_of(thread: str) -> dict[str, Any]:
    """The state of an iteration's run, open or closed; nothing where no worker ever had it, or Temporal forgot it."""
    run = activity.client().get_workflow_handle(thread)
    try:
        state = await run.query("state", result_type=View, rpc_timeout=ANSWER_WITHIN)
    except WorkflowQueryFailedError:
        return {}
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND or "before WorkflowTaskStarted" in error.message:
            return {}
        raise
    if is_unsealed(state):
        raise ApplicationError(f"thread {thread}, query state: {state}", type=NOT_SEALED)
    return dict(state)
