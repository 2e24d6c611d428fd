"""`survey_workspace` and `settle_iteration`: read a loop's files, and record the outcome of an iteration."""

import asyncio
from collections.abc import Collection, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from temporalio import activity
from temporalio.client import WorkflowQueryFailedError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from holdfast.activities.calling_run import QUERY_TIMEOUT
from holdfast.activities.heartbeats import heartbeats
from holdfast.activities.load_agent import require_folder, resolve_agent
from holdfast.activities.record.loop_record import LoopRecord
from holdfast.client.reading.executions import own_client
from holdfast.core.agents.agent import AgentSpec, llms_of
from holdfast.core.agents.catalog import Catalog
from holdfast.core.budget.budget import amount_text
from holdfast.core.budget.tree import TreeCost
from holdfast.core.llm.messages import Usage
from holdfast.core.llm.names import BUILT_IN
from holdfast.core.loop.state import Settled, SettleRequest, Survey, SurveyRequest
from holdfast.core.mac.seals import is_unsealed
from holdfast.core.run.contracts.error_types import AGENT_UNFIT, NOT_SEALED
from holdfast.core.run.contracts.runs import View
from holdfast.core.run.state import features
from holdfast.endpoints.prices import price
from holdfast.workspace.memory.loop_files import LoopFiles

REQUIRED_TOOLS = ("complete_task", "block_task")
"""The tools with which an iteration records the outcome of its task."""


class Loops:
    """The activities of loops.

    Args:
        catalog: The agents and tools of this worker.
        record: Writes the logs of loops.
        default_llm: The LLM of agents that name none; several are a fallback order.
        endpoints: The names of the LLM endpoints.
        notify: Whether this worker sends notices of blocked and finished loops.
    """

    def __init__(
        self,
        catalog: Catalog,
        record: LoopRecord,
        *,
        default_llm: str | Sequence[str],
        endpoints: Collection[str] = BUILT_IN,
        notify: bool = False,
    ) -> None:
        self._catalog = catalog
        self._record = record
        self._default_llm = default_llm
        self._endpoints = endpoints
        self._notify = notify
        self._files = LoopFiles()

    @activity.defn
    async def survey_workspace(self, request: SurveyRequest) -> Survey:
        """See `holdfast.core.loop.activities.SURVEY`."""
        async with heartbeats():
            logged = await self._record.write(request.log) if request.log else None
            survey = await self._survey(request)
        return survey.model_copy(update={"logged": logged})

    async def _survey(self, request: SurveyRequest) -> Survey:
        worker, initializer = self._spec(request.agent), self._spec(request.initializer or request.agent)
        if missing := [name for name in REQUIRED_TOOLS if worker.tool(name) is None]:
            raise _unfit(
                f"agent {worker.name!r} cannot work in a loop: it lacks {' and '.join(missing)}; "
                "give the catalog memory_tools() (holdfast.workspace.memory), and the agent those tools"
            )
        if request.priced:
            _require_prices(worker, initializer)
        await asyncio.to_thread(require_folder, Path(request.workspace), asked_for=request.workspace)
        survey = await asyncio.to_thread(self._files.survey, request)
        llms = {"llm": worker.llm, "initializer_llm": initializer.llm}
        own = {"agent": worker.name, "notify": self._notify, "features": features.FEATURES}
        return survey.model_copy(update={**llms, **own})

    @activity.defn
    async def settle_iteration(self, request: SettleRequest) -> Settled:
        """See `holdfast.core.loop.activities.SETTLE`."""
        async with heartbeats():
            state = await _state_of(request.thread)
            events, head = await self._record.end_of(request.thread) if request.log_head else (0, "")
            spent = await self._cost(request) if request.budget else None
            if spent and spent.short and not request.explanation:
                request = request.model_copy(update={"explanation": f"its budget has ended: {spent.short}"})
            usage = Usage.model_validate(state.get("usage", {}))
            last_message = str(state.get("result") or "")
            at = activity.info().scheduled_time
            if state.get("trust") == "web":  # the loop's notes quote it
                await asyncio.to_thread(self._files.mark_errors, request)
            settled = await asyncio.to_thread(self._files.settle, request, last_message, at)
        costs = {"usage": usage, "cost": price(request.llm, usage), "spent": _charged_to_loop(spent, request, state)}
        return settled.model_copy(update={**costs, "log_events": events, "log_head": head})

    async def _cost(self, request: SettleRequest) -> TreeCost | None:
        """Return the cost of the iteration and of all runs below it; None if that is unknown."""
        return await self._record.spent_by(request.thread, request.run_id) if request.run_id else TreeCost()

    def _spec(self, agent: str | None) -> AgentSpec:
        return self._catalog.spec(
            resolve_agent(self._catalog, agent).name, default_llm=self._default_llm, endpoints=self._endpoints
        )


def _charged_to_loop(spent: TreeCost | None, request: SettleRequest, state: dict[str, Any]) -> TreeCost | None:
    """Return the cost of an iteration, without its exhausted limit if that was narrower than the loop's share."""
    if spent is None or request.budget is None or not spent.short:
        return spent
    share = request.budget.units.get(spent.short)
    limits = (state.get("budget") or {}).get("limits", ())
    allowed = next((Decimal(each["allowed"]) for each in limits if each["limit"] == spent.short), None)
    own = share is None or (allowed is not None and allowed < Decimal(amount_text(spent.short, share)))
    return spent.model_copy(update={"short": ""}) if own else spent


def _require_prices(*specs: AgentSpec) -> None:
    for llm in (llm for spec in specs for llm in llms_of(spec)):
        if price(llm, Usage()) is None:
            raise _unfit(f"the price of {llm!r} is unknown, and the loop has a limit in dollars; remove the limit")


def _unfit(message: str) -> ApplicationError:
    return ApplicationError(message, type=AGENT_UNFIT, non_retryable=True)


async def _state_of(thread: str) -> dict[str, Any]:
    """Return the state of an iteration's run, open or closed; empty if no worker ran it, or Temporal lacks it."""
    run = own_client().get_workflow_handle(thread)
    try:
        state = await run.query("state", result_type=View, rpc_timeout=QUERY_TIMEOUT)
    except WorkflowQueryFailedError:
        return {}
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND or "before WorkflowTaskStarted" in error.message:
            return {}
        raise
    if is_unsealed(state):
        raise ApplicationError(f"thread {thread}, query state: {state}", type=NOT_SEALED)
    return dict(state)
