"""A decision that arrived after its worker died waits in a sticky queue that no worker polls.

Raw calls of Temporal's API simulate the worker that dies: it completes a workflow task, polls its sticky queue, and
then never again. `test_takeover` kills a real one.
"""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, cast
from uuid import uuid4

import pytest
from temporalio.api.enums.v1 import TaskQueueKind, TaskQueueType, WorkflowTaskFailedCause
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.taskqueue.v1 import StickyExecutionAttributes, TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeTaskQueueRequest,
    PollWorkflowTaskQueueRequest,
    PollWorkflowTaskQueueResponse,
    RespondWorkflowTaskCompletedRequest,
    RespondWorkflowTaskFailedRequest,
)
from temporalio.client import Client, WorkflowHandle, WorkflowUpdateStage

from holdfast.core.run.contracts.runs import WORKFLOW
from holdfast.worker.takeover.sticky_queues import release_task
from holdfast.worker.takeover.takeover import WORKER_DIED, sweep
from holdfast.worker.takeover.worker_identity import WorkerIdentity
from tests.support.rig import eventually

DEAD = "holdfast:elsewhere:0123456789abcdef:4711:1"
ME = WorkerIdentity("here", "fedcba9876543210", 1, 1)


class DyingWorker:
    """A worker of one run that dies without notice."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.normal = TaskQueue(name=f"dying-{uuid4().hex[:8]}", kind=TaskQueueKind.TASK_QUEUE_KIND_NORMAL)
        self.sticky = TaskQueue(
            name=f"{DEAD}-{uuid4().hex}",
            kind=TaskQueueKind.TASK_QUEUE_KIND_STICKY,
            normal_name=self.normal.name,
        )

    async def work(self) -> WorkflowHandle[Any, Any]:
        """Process a run's first two workflow tasks, the second from the sticky queue, and die."""
        run = await self.client.start_workflow(WORKFLOW, id=f"run-{uuid4().hex[:8]}", task_queue=self.normal.name)
        await self.complete(await self.poll(self.normal))
        polling = asyncio.create_task(self.poll(self.sticky))
        await eventually(self.pollers, bool)  # the server skips a sticky queue without pollers
        await run.signal("approve", {})
        await self.complete(await polling)
        return run

    async def pollers(self) -> int:
        """Return how many pollers the server has seen at the sticky queue."""
        asked = DescribeTaskQueueRequest(
            namespace=self.client.namespace,
            task_queue=self.sticky,
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
        )
        return len((await self.client.workflow_service.describe_task_queue(asked)).pollers)

    async def poll(self, queue: TaskQueue) -> PollWorkflowTaskQueueResponse:
        """Poll for a task."""
        poll = PollWorkflowTaskQueueRequest(namespace=self.client.namespace, task_queue=queue, identity=DEAD)
        task = await self.client.workflow_service.poll_workflow_task_queue(poll, timeout=timedelta(seconds=30))
        assert task.task_token
        return task

    async def complete(self, task: PollWorkflowTaskQueueResponse) -> None:
        """Complete the task without commands, and request the next one on the sticky queue."""
        sticky = StickyExecutionAttributes(worker_task_queue=self.sticky)
        sticky.schedule_to_start_timeout.FromTimedelta(timedelta(minutes=1))  # only a takeover ends it sooner
        await self.client.workflow_service.respond_workflow_task_completed(
            RespondWorkflowTaskCompletedRequest(
                namespace=self.client.namespace, task_token=task.task_token, sticky_attributes=sticky, identity=DEAD
            )
        )


@pytest.fixture
async def dying(client: Client) -> DyingWorker:
    """Return a worker that is about to die."""
    return DyingWorker(client)


@pytest.fixture
async def dead(dying: DyingWorker) -> AsyncIterator[WorkflowHandle[Any, Any]]:
    """Return a run whose worker is dead."""
    run = await dying.work()
    yield run
    await run.terminate()


async def waits_for(run: WorkflowHandle[Any, Any]) -> list[HistoryEvent]:
    """Return the events since the run's last completed task."""
    events = list((await run.fetch_history()).events)
    last = max(n for n, event in enumerate(events) if event.HasField("workflow_task_completed_event_attributes"))
    return events[last + 1 :]


def is_freed(events: list[HistoryEvent]) -> bool:
    """Return whether the task was removed from the dead worker's queue, and waits in the workflow's own queue."""
    failed = [each for each in events if each.HasField("workflow_task_failed_event_attributes")]
    if len(failed) != 1:
        return False
    why = failed[0].workflow_task_failed_event_attributes
    queue = events[-1].workflow_task_scheduled_event_attributes.task_queue
    return (
        why.cause == WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_STICKY_TASK_QUEUE
        and why.failure.application_failure_info.type == WORKER_DIED
        and queue.kind == TaskQueueKind.TASK_QUEUE_KIND_NORMAL
    )


async def test_a_decision_in_a_dead_workers_queue_goes_to_any_worker(
    dying: DyingWorker, dead: WorkflowHandle[Any, Any]
) -> None:
    """The task is failed with the reason and then waits in the workflow's own queue; no other task is ended."""
    await dead.signal("approve", {})
    (_, scheduled) = await waits_for(dead)
    assert scheduled.workflow_task_scheduled_event_attributes.task_queue == dying.sticky
    wanted = {"activities": 0, "workflows": 1}
    queue = dying.normal.name
    await eventually(
        lambda: sweep(dying.client, queue, gone=lambda who: who == DEAD, me=ME), lambda found: found == wanted
    )
    assert is_freed(await waits_for(dead))
    # A second sweep finds nothing more: the run's latest worker is alive.
    assert await sweep(dying.client, queue, gone=lambda who: who == DEAD, me=ME) == {"activities": 0, "workflows": 0}
    assert is_freed(await waits_for(dead))
    assert (await dying.poll(dying.normal)).attempt == 1


@pytest.mark.extended
async def test_an_update_in_a_dead_workers_queue_goes_to_any_worker(
    dying: DyingWorker, dead: WorkflowHandle[Any, Any]
) -> None:
    """An update's task is not in history before it starts: the server reports it, the previous task its queue."""
    accepted = WorkflowUpdateStage.ACCEPTED
    update = asyncio.create_task(dead.start_update("approve", {}, wait_for_stage=accepted))
    await eventually(dead.describe, lambda found: found.raw_description.HasField("pending_workflow_task"))
    await eventually(
        lambda: sweep(dying.client, dying.normal.name, gone=lambda who: who == DEAD, me=ME),
        lambda found: found["workflows"] == 1,
    )
    assert is_freed(await waits_for(dead))
    assert len((await dying.poll(dying.normal)).messages) == 1
    update.cancel()
    await asyncio.wait([update])


@pytest.mark.extended
async def test_a_live_worker_keeps_its_decision(dying: DyingWorker, dead: WorkflowHandle[Any, Any]) -> None:
    """Without proof of death, a worker's queue is not polled, however long a task waits there."""
    await dead.signal("approve", {})
    before = await waits_for(dead)
    await eventually(
        lambda: sweep(dying.client, dying.normal.name, gone=lambda _: False, me=ME),
        lambda found: found == {"activities": 0, "workflows": 0},
    )
    assert await waits_for(dead) == before
    assert (await dying.poll(dying.sticky)).workflow_execution.workflow_id == dead.id


@pytest.mark.extended
async def test_a_polled_task_is_failed_even_if_the_sweep_is_cancelled(
    dying: DyingWorker, dead: WorkflowHandle[Any, Any]
) -> None:
    """Polling and failing the task complete before the cancellation takes effect."""
    await dead.signal("approve", {})
    queues = {"sticky_queue": dying.sticky.name, "task_queue": dying.normal.name}
    taking = asyncio.create_task(release_task(dying.client, **queues, failure=WORKER_DIED, me=str(ME)))
    await asyncio.sleep(0)
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    assert is_freed(await waits_for(dead))


class Lossy:
    """A client that loses the first response to a failed task, so that the SDK sends it again."""

    def __init__(self, client: Client) -> None:
        self.namespace = client.namespace
        self.workflow_service = self
        self.poll_workflow_task_queue = client.workflow_service.poll_workflow_task_queue
        self._respond = client.workflow_service.respond_workflow_task_failed

    async def respond_workflow_task_failed(self, request: RespondWorkflowTaskFailedRequest, **options: Any) -> Any:
        """Send the request twice, as the server sees it."""
        await self._respond(request, **options)
        return await self._respond(request, **options)


@pytest.mark.extended
async def test_a_task_whose_response_is_lost_is_failed_once(dying: DyingWorker, dead: WorkflowHandle[Any, Any]) -> None:
    """The task's token is valid once: repeating it ends no other task, and the server's rejection is no failure."""
    await dead.signal("approve", {})
    queues = {"sticky_queue": dying.sticky.name, "task_queue": dying.normal.name}
    lossy = cast(Client, Lossy(dying.client))
    assert await release_task(lossy, **queues, failure=WORKER_DIED, me=str(ME))
    assert is_freed(await waits_for(dead))
