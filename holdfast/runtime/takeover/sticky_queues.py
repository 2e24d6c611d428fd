"""Which sticky queue a run is bound to, by its history, and how a workflow task is got out of a dead worker's.

1. The worker that has a workflow in its cache takes that workflow's next tasks from a queue of its own. Temporal's SDK
   names it after the worker's identity, so it says for itself whose it is.
2. A task that lies there waits for its worker, and nobody else looks for it. No call moves it: unbinding the run
   (`ResetStickyTaskQueue`) and unloading the queue (`ShutdownWorker`) are for the tasks that come later, and after
   the former this one can be had by nobody.
3. So it is taken from there and given back as failed. The server then unbinds the run, and has a new task for any
   worker. The attempt is not counted, as with a sticky time-out.
4. A poll that is given up may get a task which nobody sees. So it is made only where a task waits, and is seen to its
   end; what it gets is given back until the server has it. A task that is lost in between (its taker is killed, too)
   waits for the workflow task time-out, 10 s.
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
"""How far back in a run's history its last workflow task is looked for: pages of so many events."""

POLL_TIMEOUT = timedelta(seconds=4)
"""A task that lies there comes at once. The server gives an empty poll up a second before this, and after the sticky
time-out there is nothing to wait for (`STICKY_TIMEOUT`, 3 s). It takes no deadline below 2 s."""

POLLS = 3
"""So often a poll is made, at the most: it may get somebody's query, which then goes on as it would have anyway."""

RPC_TIMEOUT = timedelta(seconds=5)

_STICKY_QUEUE = re.compile(r"(?P<owner>.+)-[0-9a-f]{32}", re.ASCII | re.DOTALL)


@dataclass(frozen=True)
class LastTask:
    """What a run's history says of its last workflow task."""

    worker: str = ""
    """The identity of the worker that had it, or in whose queue it lies; empty where none is found."""
    sticky_queue: str = ""
    """That worker's queue, where a task that waits now must lie; empty where it may lie elsewhere."""


def owner_of(sticky_queue: str) -> str:
    """The identity of the worker whose queue it is; empty where the name does not say so."""
    found = _STICKY_QUEUE.fullmatch(sticky_queue)
    return found["owner"] if found else ""


async def last_task(client: Client, execution: Execution) -> LastTask:
    """Read a run's last workflow task from the end of its history.

    Raises:
        RPCError: Temporal is away, or has no such run.
    """
    request = GetWorkflowExecutionHistoryReverseRequest(
        namespace=client.namespace, execution=execution, maximum_page_size=PAGE
    )
    events: list[HistoryEvent] = []
    found = LastTask()
    for _ in range(PAGES):
        page = await client.workflow_service.get_workflow_execution_history_reverse(request, timeout=RPC_TIMEOUT)
        events += page.history.events
        found, final = read_last_task(events)
        if final or not page.next_page_token:
            break
        request.next_page_token = page.next_page_token
    return found


def read_last_task(events: Iterable[HistoryEvent]) -> tuple[LastTask, bool]:
    """The last workflow task of these events, the newest first, and whether older ones could not say more of it."""
    worker, unbound = "", False  # unbound: a task that waits now does not lie in a sticky queue
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
            case "workflow_task_started_event_attributes" if not worker:  # it is under way, or it failed
                return LastTask(event.workflow_task_started_event_attributes.identity), True
            case "workflow_task_completed_event_attributes":
                worker = event.workflow_task_completed_event_attributes.identity
                if unbound:
                    return LastTask(worker), True
    return LastTask(worker), False


async def give_task_back(client: Client, sticky_queue: str, *, task_queue: str, failure: str, me: str) -> bool:
    """Take a workflow task from a dead worker's sticky queue, and give it back to be scheduled for any worker.

    It may be another run's than that of which it was known that it waits there: each of them has to go. Where the
    caller is cancelled in the middle of it, that takes effect once it is done.

    Args:
        client: Connected.
        sticky_queue: The dead worker's.
        task_queue: To which the workflows belong.
        failure: The type of the failure with which it is given back.
        me: The identity of who does it.

    Returns:
        Whether there was one.

    Raises:
        RPCError: Temporal is away, or the answer was lost.
    """
    at_work = asyncio.create_task(_take_and_give_back(client, sticky_queue, task_queue, failure, me))
    try:
        return await asyncio.shield(at_work)
    except asyncio.CancelledError:
        await asyncio.wait([at_work])
        raise


async def _take_and_give_back(client: Client, sticky_queue: str, task_queue: str, failure: str, me: str) -> bool:
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
    try:  # again, where the answer is lost: the token is this very task's, and good for once
        await client.workflow_service.respond_workflow_task_failed(request, retry=True, timeout=RPC_TIMEOUT)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:  # the first of two has arrived, or the run has ended
            raise
    return True
