"""Measures activities from outside: requests, results and times, never what they say."""

import time
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any

from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from holdfast.core.agents.catalog import Catalog
from holdfast.core.base.tenants import tenant_of
from holdfast.core.llm.names import split_reference
from holdfast.core.run.contracts.error_types import Waits
from holdfast.core.run.contracts.llm_calls import LLMReply, LLMRequest
from holdfast.core.run.contracts.record import Archived
from holdfast.core.run.contracts.table import ACTIVITIES, CALL_LLM, CALL_TOOL
from holdfast.core.run.contracts.tool_calls import ToolOutcome, ToolRequest
from holdfast.endpoints.prices import cost_of
from holdfast.telemetry.metrics import names
from holdfast.telemetry.metrics.instruments import Instruments, Names


class Measuring(Interceptor):
    """Counts what activities did.

    Args:
        instruments: Of the process.
        catalog: Its agents, tools and LLMs are the values of labels.
        llms: Further LLMs that its agents use.
        tenants: The prefix of each tenant's threads.
    """

    def __init__(
        self, instruments: Instruments, catalog: Catalog, llms: Collection[str], tenants: Sequence[str] = ()
    ) -> None:
        self._tenants = tenants
        self._instruments = instruments
        own = [name for agent in catalog.agents.values() for name in _listed(agent.llm)]
        self._llms = Names(split_reference(name)[1] if "/" in name else name for name in [*own, *llms])
        self._agents = Names(catalog.agents)
        self._tools = Names(catalog.tools)
        self._begin(catalog)

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """Wrap an activity."""
        return _Measured(next, self)

    def _begin(self, catalog: Catalog) -> None:
        """Export the counters that alerts read, before the first failure: an increase needs a value before it."""
        begin = self._instruments.begin
        begin(names.TAKEOVERS)
        for activity_type in (CALL_LLM.name, CALL_TOOL.name):
            begin(names.WORKER_DEATHS, activity=activity_type)
        for each in ACTIVITIES.values():
            begin(names.FAILED_ATTEMPTS, activity=each.name)
        for tool in catalog.tools:
            for status in ("ok", "failed", "unknown"):
                begin(names.TOOL_CALLS, tool=tool, status=status)

    def failed(self) -> None:
        """Count an attempt that raised."""
        self._instruments.add(names.FAILED_ATTEMPTS, activity=activity.info().activity_type)

    def ended(self, request: Any, result: Any, seconds: float) -> None:
        """Count what an attempt returned."""
        if isinstance(result, LLMReply) and isinstance(request, LLMRequest):
            self._replied(request, result)
        elif isinstance(result, ToolOutcome) and isinstance(request, ToolRequest):
            self._called(request, result, seconds)
        elif isinstance(result, Archived):
            asked = activity.info().scheduled_time
            self._instruments.record(names.ARCHIVE_SECONDS, (datetime.now(UTC) - asked).total_seconds())

    def streamed(self, seconds: float) -> None:
        """Record how long the pieces of a reply waited until readers could get them."""
        self._instruments.record(names.STREAM_SECONDS, seconds)

    def _replied(self, request: LLMRequest, reply: LLMReply) -> None:
        llm = self._llms.beginning(reply.llm)
        own = {"agent": self._agents.of(request.nodes.agent if request.nodes else ""), "llm": llm}
        count, usage = self._instruments, reply.usage
        count.add(names.STEPS, **own)
        count.add(names.TOKENS, usage.prompt_tokens, **own, type="input")
        count.add(names.TOKENS, usage.completion_tokens, **own, type="output")
        count.add(names.TOKENS, usage.cached_tokens, **own, type="cache_read")
        count.add(names.TOKENS, usage.cache_write_tokens, **own, type="cache_write")
        cost = reply.cost if reply.cost is not None else cost_of(reply.llm, usage)
        if cost:
            tenant = tenant_of(activity.info().workflow_id or "", self._tenants) or names.OTHER
            count.add(names.COST, cost // 1_000, **own, tenant=tenant)
        count.record(names.LLM_SECONDS, reply.duration_ms / 1_000, llm=llm)
        recorded = reply.outage.failed if reply.outage else 0
        self._died(reply.attempt - 1 - recorded)

    def _called(self, request: ToolRequest, outcome: ToolOutcome, seconds: float) -> None:
        tool = self._tools.of(request.call.name)
        self._instruments.add(names.TOOL_CALLS, tool=tool, status=outcome.status)
        self._instruments.record(names.TOOL_SECONDS, seconds, tool=tool)
        if outcome.failures:
            self._died(sum(each.kind == "no_response" for each in outcome.failures.last))

    def _died(self, times: int) -> None:
        if times > 0:
            self._instruments.add(names.WORKER_DEATHS, times, activity=activity.info().activity_type)


class _Measured(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, measuring: Measuring) -> None:
        super().__init__(next)
        self._measuring = measuring

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        began = time.monotonic()
        try:
            result = await super().execute_activity(input)
        except Waits:
            raise
        except Exception:
            self._measuring.failed()
            raise
        self._measuring.ended(input.args[0] if input.args else None, result, time.monotonic() - began)
        return result


def _listed(llm: Any) -> tuple[str, ...]:
    return () if llm is None else (llm,) if isinstance(llm, str) else tuple(llm)
