"""Finds the sticky queue of a run in its history, and releases a workflow task from a dead worker's sticky queue.

1. A worker that has a workflow cached receives that workflow's next tasks from its own sticky queue. Temporal's SDK
   names the queue after the worker's identity.
2. A task in it waits for that worker alone. No API call moves it: `ResetStickyTaskQueue`, which unbinds the run, and
   `ShutdownWorker`, which unloads the queue, affect only later tasks, and after the former,
   no worker can receive this one.
3. So we poll the task and report it as failed. The server then unbinds the run and schedules a new task for any
   worker. As with a sticky time-out, the attempt is not counted.
4. A poll that is abandoned may receive a task that is then lost. So we poll only if a task is waiting, never abandon a
   poll, and repeat the report until the server has it. If we are killed in between, the task waits for the workflow
   task time-out, 10 s.
"""

import asyncio
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from temporalio.api.common.v1 import WorkflowExecution as Execution
from temporalio.api.enums.v1 import TaskQueueKind, WorkflowTaskFailedCause
from temporalio.api.failure.v1 import ApplicationFailureInfo, Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    GetWorkflowExecutionHistoryReverseRequest,
    PollWorkflowTaskQueueRequest,
    RespondWorkflowTaskFailedRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

PAGE, PAGES = 20, 10
"""How far back to search a run's history for its last workflow task: events per page, and pages."""

POLL_TIMEOUT = timedelta(seconds=4)
"""A waiting task is returned at once. The server ends an empty poll a second before this, and after the sticky time-out
(`STICKY_TIMEOUT`, 3 s) there is nothing to wait for. The server accepts no deadline below 2 s."""

POLLS = 3
"""The most polls per task: a poll may receive a query instead, which it does not affect."""

RPC_TIMEOUT = timedelta(seconds=5)

_STICKY_QUEUE = re.compile(r"(?P<owner>.+)-[0-9a-f]{32}", re.ASCII | re.DOTALL)


@dataclass(frozen=True)
class LastTask:
    """The last workflow task in a run's history."""

    worker: str = ""
    """The identity of the worker that had the task, or owns the queue in which it waits; empty if none is found."""
    sticky_queue: str = ""
    """That worker's queue, in which a task that waits now must be; empty if it may be elsewhere."""


def owner_of(sticky_queue: str) -> str:
    """Return the identity of the worker that owns a queue; empty if the name contains none."""
    match = _STICKY_QUEUE.fullmatch(sticky_queue)
    return match["owner"] if match else ""


async def last_task(client: Client, execution: Execution) -> LastTask:
    """Read a run's last workflow task from the end of its history.

    Raises:
        RPCError: Temporal is unavailable, or has no such run.
    """
    request = GetWorkflowExecutionHistoryReverseRequest(
        namespace=client.namespace, execution=execution, maximum_page_size=PAGE
    )
    events: list[HistoryEvent] = []
    task = LastTask()
    for _ in range(PAGES):
        page = await client.workflow_service.get_workflow_execution_history_reverse(request, timeout=RPC_TIMEOUT)
        events += page.history.events
        task, final = read_last_task(events)
        if final or not page.next_page_token:
            break
        request.next_page_token = page.next_page_token
    return task


def read_last_task(events: Iterable[HistoryEvent]) -> tuple[LastTask, bool]:
    """Return the last workflow task of events, newest first, and whether the answer is final without older events."""
    worker, unbound = "", False  # unbound: a task that waits now is not in a sticky queue
    for event in events:
        match event.WhichOneof("attributes"):
            case "workflow_task_scheduled_event_attributes":
                queue = event.workflow_task_scheduled_event_attributes.task_queue
                owner = owner_of(queue.name) if queue.kind == TaskQueueKind.TASK_QUEUE_KIND_STICKY else ""
                if owner and not unbound and worker in ("", owner):
                    return LastTask(owner, queue.name), True
                if worker:
                    return LastTask(worker), True
                unbound = True
            case "workflow_task_failed_event_attributes" | "workflow_task_timed_out_event_attributes":
                unbound = True
            case "workflow_task_started_event_attributes" if not worker:  # the task is running, or has failed
                return LastTask(event.workflow_task_started_event_attributes.identity), True
            case "workflow_task_completed_event_attributes":
                worker = event.workflow_task_completed_event_attributes.identity
                if unbound:
                    return LastTask(worker), True
    return LastTask(worker), False


async def release_task(client: Client, sticky_queue: str, *, task_queue: str, failure: str, me: str) -> bool:
    """Take a workflow task from a dead worker's sticky queue, and have the server schedule it for any worker.

    The task may belong to another run than expected; all tasks in the queue have to be released anyway. If the caller
    is cancelled, this takes effect after the task has been released.

    Args:
        client: A connected client.
        sticky_queue: The dead worker's queue.
        task_queue: The task queue of the workflows.
        failure: The type of the failure to report.
        me: The identity of the caller.

    Returns:
        Whether there was a task.

    Raises:
        RPCError: Temporal is unavailable, or its response was lost.
    """
    releasing = asyncio.create_task(_poll_and_fail(client, sticky_queue, task_queue, failure, me))
    try:
        return await asyncio.shield(releasing)
    except asyncio.CancelledError:
        await asyncio.wait([releasing])
        raise


async def _poll_and_fail(client: Client, sticky_queue: str, task_queue: str, failure: str, me: str) -> bool:
    queue = TaskQueue(name=sticky_queue, kind=TaskQueueKind.TASK_QUEUE_KIND_STICKY, normal_name=task_queue)
    poll = PollWorkflowTaskQueueRequest(namespace=client.namespace, task_queue=queue, identity=me)
    for _ in range(POLLS):
        task = await client.workflow_service.poll_workflow_task_queue(poll, timeout=POLL_TIMEOUT, retry=False)
        if not task.task_token:
            return False
        if not task.HasField("query"):
            break
    else:
        return False
    message = f"the worker of this task has been killed: {owner_of(sticky_queue)} is gone, found by {me}"
    request = RespondWorkflowTaskFailedRequest(
        namespace=client.namespace,
        task_token=task.task_token,
        cause=WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_STICKY_TASK_QUEUE,
        failure=Failure(
            message=message, source="holdfast", application_failure_info=ApplicationFailureInfo(type=failure)
        ),
        identity=me,
    )
    try:  # safe to retry: the token is valid for this task only, and once
        await client.workflow_service.respond_workflow_task_failed(request, retry=True, timeout=RPC_TIMEOUT)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:  # an earlier attempt arrived, or the run has ended
            raise
    return True
