"""Activities check their orders: who gave them, and for which run. Their answers name the order that they answer."""

from collections import OrderedDict
from datetime import timedelta
from typing import Any

import structlog
from temporalio import activity
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionRequest
from temporalio.exceptions import ApplicationError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from holdfast.run.contracts import LOOP_WORKFLOW, NOT_SEALED, WORKFLOW, ToolRequest
from holdfast.seals.orders import Answer, Order, belongs
from holdfast.tools.effects import effect_key

log = structlog.get_logger(__name__)

WITHIN = timedelta(seconds=10)
"""How long Temporal may take to describe a run; the activity is tried again."""

_OURS = frozenset({WORKFLOW, LOOP_WORKFLOW})


class Chains:
    """Which chain of Temporal runs a run belongs to. Temporal says so; it never changes.

    Args:
        limit: How many runs to remember.
    """

    def __init__(self, *, limit: int = 10_000) -> None:
        self._limit = limit
        self._known: OrderedDict[tuple[str, str], str] = OrderedDict()

    async def first_run_id(self, workflow_id: str, run_id: str) -> str:
        """The first run id of the chain."""
        key = (workflow_id, run_id)
        if key not in self._known:
            self._known[key] = (await _describe(workflow_id, run_id)).first_run_id
            while len(self._known) > self._limit:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        return self._known[key]

    async def current_run_id(self, workflow_id: str) -> str:
        """The run that Temporal has under this id now."""
        return (await _describe(workflow_id)).execution.run_id


async def _describe(workflow_id: str, run_id: str = "") -> WorkflowExecutionInfo:
    """What Temporal says of a run; of the current one without a run id."""
    client = activity.client()
    # Not the SDK's `describe`: in 1.35 it raises for a workflow that somebody has paused in Temporal.
    asked = DescribeWorkflowExecutionRequest(
        namespace=client.namespace, execution=WorkflowExecution(workflow_id=workflow_id, run_id=run_id)
    )
    return (await client.workflow_service.describe_workflow_execution(asked, timeout=WITHIN)).workflow_execution_info


class CheckedOrders(Interceptor):
    """A worker's interceptor: no activity runs for an order that is not sealed, or not given by the calling run.

    Args:
        chains: Which run belongs to which chain.
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
        """Why the activity does not run; empty if it may."""
        if not isinstance(order, Order):
            return str(order) if order is not None else "it takes one order"
        info = activity.info()
        if info.is_local:
            return ""  # it has never left this process, whose workflow code gave it
        if info.workflow_type not in _OURS or not info.workflow_id or not info.workflow_run_id:
            return f"a workflow of type {info.workflow_type!r} gives no orders"
        chain = await self._chains.first_run_id(info.workflow_id, info.workflow_run_id)
        if not belongs(order, workflow_id=info.workflow_id, first_run_id=chain):
            return f"the order {order.order!r} was given by another run than {info.workflow_id} ({chain})"
        if isinstance(order, ToolRequest):
            call, thread = order.call, info.workflow_id
            began = order.first_run_id or chain
            key = effect_key(thread=thread, first_run_id=began, number=order.number, call_digest=call.digest)
            if key != order.key:
                return f"call {order.number} of {thread} has the effect key {key}, and not {order.key}"
        return ""
