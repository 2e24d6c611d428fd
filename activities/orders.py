"""Verifies the orders of activities: that each is sealed, and given by the run that calls. Stamps each answer with the
order that it answers.
"""

from collections import OrderedDict
from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionRequest
from temporalio.exceptions import ApplicationError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from holdfast.activities.safe_logs import SafeLogger
from holdfast.run.contracts import LOOP_WORKFLOW, NOT_SEALED, WORKFLOW, ToolRequest
from holdfast.seals.orders import Answer, Order, belongs
from holdfast.tools.effects import effect_key

log = SafeLogger(__name__)

DESCRIBE_TIMEOUT = timedelta(seconds=10)
"""How long Temporal may take to describe a run; after that, Temporal retries the activity."""

_WORKFLOW_TYPES = frozenset({WORKFLOW, LOOP_WORKFLOW})


class Chains:
    """Maps Temporal runs to the chain that they belong to: asked of Temporal once, and cached, since it never changes.

    Args:
        limit: The most runs to cache.
    """

    def __init__(self, *, limit: int = 10_000) -> None:
        self._limit = limit
        self._known: OrderedDict[tuple[str, str], str] = OrderedDict()

    async def first_run_id(self, workflow_id: str, run_id: str) -> str:
        """The first run id of the chain that a run belongs to."""
        key = (workflow_id, run_id)
        if key not in self._known:
            self._known[key] = (await _describe(workflow_id, run_id)).first_run_id
            while len(self._known) > self._limit:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        return self._known[key]

    async def current_run_id(self, workflow_id: str) -> str:
        """The id of the newest run under this workflow id."""
        return (await _describe(workflow_id)).execution.run_id


async def _describe(workflow_id: str, run_id: str = "") -> WorkflowExecutionInfo:
    """Temporal's description of a run; of the newest one without a run id."""
    client = activity.client()
    # Not the SDK's `describe`: in 1.35 it raises for a workflow that is paused in Temporal.
    request = DescribeWorkflowExecutionRequest(
        namespace=client.namespace, execution=WorkflowExecution(workflow_id=workflow_id, run_id=run_id)
    )
    described = await client.workflow_service.describe_workflow_execution(request, timeout=DESCRIBE_TIMEOUT)
    return described.workflow_execution_info


class CheckedOrders(Interceptor):
    """A worker interceptor that refuses orders which are not sealed, or not given by the calling run.

    Args:
        chains: Maps a Temporal run to its chain.
    """

    def __init__(self, chains: Chains) -> None:
        self._chains = chains

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Activity(next, self._chains)


class _Activity(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, chains: Chains) -> None:
        super().__init__(next)
        self._chains = chains

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        order = input.args[0] if len(input.args) == 1 else None
        if refused := await self._refusal(order):
            info = activity.info()
            log.warning(
                "order_refused",
                activity=info.activity_type,
                workflow=info.workflow_id,
                run=info.workflow_run_id,
                reason=refused,
            )
            raise ApplicationError(f"{info.activity_type} refuses: {refused}", type=NOT_SEALED, non_retryable=True)
        assert isinstance(order, Order)
        answer = await super().execute_activity(input)
        return answer.model_copy(update={"answers": order.order}) if isinstance(answer, Answer) else answer

    async def _refusal(self, order: Any) -> str:
        """Why the activity must not run; empty if it may."""
        if not isinstance(order, Order):
            return str(order) if order is not None else "it takes one order"
        info = activity.info()
        if info.is_local:
            return ""  # the order comes from this process's own workflow code, and never left it
        if info.workflow_type not in _WORKFLOW_TYPES or not info.workflow_id or not info.workflow_run_id:
            return f"a workflow of type {info.workflow_type!r} may not give orders"
        chain = await self._chains.first_run_id(info.workflow_id, info.workflow_run_id)
        if not belongs(order, workflow_id=info.workflow_id, first_run_id=chain):
            return f"the order {order.order!r} was not given by {info.workflow_id} ({chain})"
        if isinstance(order, ToolRequest):
            call, thread = order.call, info.workflow_id
            first_run_id = order.first_run_id or chain
            key = effect_key(thread=thread, first_run_id=first_run_id, number=order.number, call_digest=call.digest)
            if key != order.key:
                return f"call {order.number} of {thread} has the effect key {key}, not {order.key}"
        return ""
