"""Temporal's executions of workflows: the client for activities that read them, their descriptions, and lists of them.

1. The client of a program's worker encodes as the program does (`holdfast.core.temporal.composed`). What activities
   send to runs is read by any worker of the fleet, so they use the same connection with Holdfast's own encoding
   (`own_client`).
2. Workflows that are paused in Temporal (`temporal workflow pause`) are described and listed, too. SDK 1.35 lacks that
   status: its own `describe` and `list_workflows` raise ValueError for a paused run. A paused run is open, so it is
   read as running; `is_paused` distinguishes the two.
"""

from collections.abc import AsyncIterator
from datetime import timedelta
from weakref import WeakKeyDictionary

from temporalio import activity
from temporalio.api.common.v1 import WorkflowExecution as ExecutionId
from temporalio.api.enums.v1 import WorkflowExecutionStatus as RawStatus
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionRequest, ListWorkflowExecutionsRequest
from temporalio.client import Client, WorkflowExecution, WorkflowExecutionDescription

from holdfast.core.temporal.composed import ComposedDataConverter

PAUSED = RawStatus.WORKFLOW_EXECUTION_STATUS_PAUSED
RUNNING = RawStatus.WORKFLOW_EXECUTION_STATUS_RUNNING

PAGE = 1_000
"""Runs per page of the server's answer."""

_own: WeakKeyDictionary[Client, Client] = WeakKeyDictionary()


def own_client() -> Client:
    """Return the client of the worker that runs this activity, with Holdfast's data converter."""
    return with_own_converter(activity.client())


def with_own_converter(client: Client) -> Client:
    """Return a client on the same connection that encodes as Holdfast does; the client itself if it already does."""
    converter = client.data_converter
    if not isinstance(converter, ComposedDataConverter):
        return client
    if client not in _own:
        # The plugins have already been applied to this configuration.
        config = client.config(active_config=True)
        config["data_converter"], config["plugins"] = converter.own, []
        _own[client] = Client(**config)
    return _own[client]


async def describe(client: Client, thread: str, *, run_id: str = "", within: timedelta) -> WorkflowExecutionDescription:
    """Return Temporal's description of a run of a workflow id; without `run_id`, of the latest one.

    Raises:
        RPCError: The server has no such workflow, or does not answer.
    """
    execution = ExecutionId(workflow_id=thread, run_id=run_id)
    request = DescribeWorkflowExecutionRequest(namespace=client.namespace, execution=execution)
    raw = await client.workflow_service.describe_workflow_execution(request, retry=True, timeout=within)
    info = raw.workflow_execution_info
    status = _readable(info)
    namespace, converter = client.namespace, client.data_converter
    found = WorkflowExecutionDescription._from_raw_info(info, namespace, converter, raw_description=raw)
    info.status = status
    return found


async def list_runs(
    client: Client, query: str, *, limit: int | None = None, within: timedelta
) -> AsyncIterator[WorkflowExecution]:
    """Yield the runs that a visibility query finds, in the server's order.

    Raises:
        RPCError: The server rejects the query, or does not answer.
    """
    cursor, count = b"", 0
    while True:
        size = PAGE if limit is None else min(PAGE, limit - count)
        runs, cursor = await page_of_runs(client, query, size=size, cursor=cursor, within=within)
        for run in runs:
            yield run
        count += len(runs)
        if not cursor or (limit is not None and count >= limit):
            return


async def page_of_runs(
    client: Client, query: str, *, size: int, cursor: bytes, within: timedelta
) -> tuple[list[WorkflowExecution], bytes]:
    """Return a page of the runs that a visibility query finds, and the server's cursor of the next page.

    The cursor is empty for the first page, and after the last one.

    Raises:
        RPCError: The server rejects the query or the cursor, or does not answer.
    """
    request = ListWorkflowExecutionsRequest(
        namespace=client.namespace, query=query, page_size=size, next_page_token=cursor
    )
    answer = await client.workflow_service.list_workflow_executions(request, retry=True, timeout=within)
    runs = []
    for raw in answer.executions:
        status = _readable(raw)
        runs.append(WorkflowExecution._from_raw_info(raw, client.namespace, client.data_converter))
        raw.status = status
    return runs, answer.next_page_token


def is_paused(run: WorkflowExecution) -> bool:
    """Return whether the run is paused in Temporal."""
    return run.raw_info.status == PAUSED


def _readable(info: WorkflowExecutionInfo) -> RawStatus.ValueType:
    """Replace a status that the SDK cannot read, and return the original."""
    status = info.status
    if status == PAUSED:
        info.status = RUNNING
    return status
