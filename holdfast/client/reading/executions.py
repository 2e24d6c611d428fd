"""Describe and list workflows, including those paused in Temporal (`temporal workflow pause`).

SDK 1.35 lacks that status: its own `describe` and `list_workflows` raise ValueError for a paused run. A paused run is
open, so it is read as running; `is_paused` distinguishes the two.
"""

from collections.abc import AsyncIterator
from datetime import timedelta

from temporalio.api.common.v1 import WorkflowExecution as ExecutionId
from temporalio.api.enums.v1 import WorkflowExecutionStatus as RawStatus
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionRequest, ListWorkflowExecutionsRequest
from temporalio.client import Client, WorkflowExecution, WorkflowExecutionDescription

PAUSED = RawStatus.WORKFLOW_EXECUTION_STATUS_PAUSED
RUNNING = RawStatus.WORKFLOW_EXECUTION_STATUS_RUNNING

PAGE = 1_000
"""Runs per page of the server's answer."""


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
