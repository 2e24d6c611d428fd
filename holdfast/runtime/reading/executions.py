"""Descriptions and lists of workflows, also of those that somebody has paused in Temporal (`temporal workflow pause`).

The SDK's 1.35 knows no such status: its own `describe` and `list_workflows` raise ValueError for one. A paused run is
open, so it is read as a running one; `is_paused` says what it is.
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
"""Runs in one answer of the server."""


async def describe(client: Client, thread: str, *, within: timedelta) -> WorkflowExecutionDescription:
    """What Temporal has of the latest run of a workflow id.

    Raises:
        RPCError: The server does not have it, or does not answer.
    """
    asked = DescribeWorkflowExecutionRequest(namespace=client.namespace, execution=ExecutionId(workflow_id=thread))
    raw = await client.workflow_service.describe_workflow_execution(asked, retry=True, timeout=within)
    info = raw.workflow_execution_info
    status = _readable(info)
    namespace, converter = client.namespace, client.data_converter
    found = WorkflowExecutionDescription._from_raw_info(info, namespace, converter, raw_description=raw)
    info.status = status
    return found


async def list_runs(
    client: Client, query: str, *, limit: int | None = None, within: timedelta
) -> AsyncIterator[WorkflowExecution]:
    """The runs that a visibility query finds, in the server's order.

    Raises:
        RPCError: The server does not understand the query, or does not answer.
    """
    page, count = b"", 0
    while True:
        size = PAGE if limit is None else min(PAGE, limit - count)
        asked = ListWorkflowExecutionsRequest(
            namespace=client.namespace, query=query, page_size=size, next_page_token=page
        )
        answer = await client.workflow_service.list_workflow_executions(asked, retry=True, timeout=within)
        for info in answer.executions:
            status = _readable(info)
            found = WorkflowExecution._from_raw_info(info, client.namespace, client.data_converter)
            info.status = status
            yield found
            count += 1
        page = answer.next_page_token
        if not page or (limit is not None and count >= limit):
            return


def is_paused(run: WorkflowExecution) -> bool:
    """Whether somebody has paused it in Temporal."""
    return run.raw_info.status == PAUSED


def _readable(info: WorkflowExecutionInfo) -> RawStatus.ValueType:
    """Give a run a status that the SDK can read; returns its own."""
    status = info.status
    if status == PAUSED:
        info.status = RUNNING
    return status
