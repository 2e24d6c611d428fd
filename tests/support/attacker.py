"""An attacker who reaches Temporal's port but has no fleet key: a client, workflows, and polling."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

from temporalio import workflow
from temporalio.api.command.v1 import (
    Command,
    RecordMarkerCommandAttributes,
    UpsertWorkflowSearchAttributesCommandAttributes,
)
from temporalio.api.common.v1 import Payload, Payloads, SearchAttributes
from temporalio.api.enums.v1 import CommandType, TaskQueueKind
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    PollActivityTaskQueueRequest,
    PollActivityTaskQueueResponse,
    PollWorkflowTaskQueueRequest,
    RespondActivityTaskCompletedRequest,
    RespondWorkflowTaskCompletedRequest,
)
from temporalio.client import Client, WorkflowHandle
from temporalio.common import RawValue, RetryPolicy
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from holdfast.config.stack_file import Stack
from holdfast.core.run.contracts.runs import WORKFLOW


async def reach(stack: Stack) -> Client:
    """Connect a stock client with the pydantic converter and without a key."""
    return await Client.connect(
        stack.temporal_address, namespace=stack.namespace, data_converter=pydantic_data_converter
    )


@workflow.defn(name="Attack")
class Attack:
    """Schedules an activity on another task queue, with any input."""

    @workflow.run
    async def run(self, activity: str, order: RawValue, task_queue: str) -> Any:
        """Schedule the activity, and return its result."""
        return await _schedule(activity, order, task_queue)

    @workflow.query
    def log(self, start: int = 0) -> bytes:
        """Answer as a run would."""
        return b'{"type":"run_started"}'


@workflow.defn(name=WORKFLOW)
class Impostor:
    """The same workflow, under the name of Holdfast's own."""

    @workflow.run
    async def run(self, activity: str, order: RawValue, task_queue: str) -> Any:
        """Schedule the activity and return its result; without an activity, wait and answer queries."""
        if not activity:
            await workflow.wait_condition(lambda: False)
        return await _schedule(activity, order, task_queue)

    @workflow.query
    def log(self, start: int = 0) -> bytes:
        """Answer as a run would."""
        return b'{"type":"run_started"}'

    @workflow.query
    def state(self) -> dict[str, Any]:
        """Report a false state."""
        return {"status": "completed", "agent": "clerk", "events": 1}


async def _schedule(activity: str, order: RawValue, task_queue: str) -> Any:
    return await workflow.execute_activity(
        activity,
        order,
        task_queue=task_queue,
        start_to_close_timeout=timedelta(seconds=60),
        retry_policy=RetryPolicy(maximum_attempts=1),
        result_type=None,
    )


@asynccontextmanager
async def attacking(client: Client) -> AsyncIterator[str]:
    """Run the attacker's own worker for a block, and yield its task queue."""
    queue = f"attack-{uuid4().hex[:8]}"
    async with Worker(
        client,
        task_queue=queue,
        workflows=[Attack, Impostor],
        workflow_runner=UnsandboxedWorkflowRunner(),
        debug_mode=True,
    ):
        yield queue


def plain(data: bytes) -> RawValue:
    """Return an unsealed JSON payload."""
    return RawValue(Payload(metadata={"encoding": b"json/plain"}, data=data))


async def payloads_of(run: WorkflowHandle[Any, Any], activity: str) -> list[Payload]:
    """Return the sealed inputs of an activity from a run's history, as an attacker can copy them."""
    events: Sequence[HistoryEvent] = (await run.fetch_history()).events
    return [
        event.activity_task_scheduled_event_attributes.input.payloads[0]
        for event in events
        if event.activity_task_scheduled_event_attributes.activity_type.name == activity
    ]


async def snatch(client: Client, task_queue: str) -> PollActivityTaskQueueResponse:
    """Poll the next activity task of a queue, as a worker would."""
    poll = PollActivityTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=task_queue, kind=TaskQueueKind.TASK_QUEUE_KIND_NORMAL),
        identity="somebody",
    )
    return await client.workflow_service.poll_activity_task_queue(poll, timeout=timedelta(seconds=120))


async def answer(client: Client, task: PollActivityTaskQueueResponse, payload: Payload) -> None:
    """Complete an activity task with any result."""
    await client.workflow_service.respond_activity_task_completed(
        RespondActivityTaskCompletedRequest(
            namespace=client.namespace,
            task_token=task.task_token,
            result=Payloads(payloads=[payload]),
            identity="somebody",
        )
    )


async def forge_local_end(client: Client, task_queue: str, *, activity: str, order: str, result: Payload) -> None:
    """Poll the first workflow task of a run, as a worker would, and report that a local activity has ended."""
    poll = PollWorkflowTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=task_queue, kind=TaskQueueKind.TASK_QUEUE_KIND_NORMAL),
        identity="somebody",
    )
    task = await client.workflow_service.poll_workflow_task_queue(poll, timeout=timedelta(seconds=120))
    marker_details = {"seq": 1, "attempt": 1, "activity_id": order, "activity_type": activity}
    marker_details |= dict.fromkeys(("complete_time", "backoff", "original_schedule_time"))
    details = {
        "data": Payloads(
            payloads=[Payload(metadata={"encoding": b"json/plain"}, data=json.dumps(marker_details).encode())]
        ),
        "result": Payloads(payloads=[result]),
    }
    upsert = UpsertWorkflowSearchAttributesCommandAttributes(
        search_attributes=SearchAttributes(
            indexed_fields={"HoldfastStep": Payload(metadata={"encoding": b"json/plain", "type": b"Int"}, data=b"0")}
        )
    )
    marker = RecordMarkerCommandAttributes(marker_name="core_local_activity", details=details)
    commands = [
        Command(
            command_type=CommandType.COMMAND_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES,
            upsert_workflow_search_attributes_command_attributes=upsert,
        ),
        Command(command_type=CommandType.COMMAND_TYPE_RECORD_MARKER, record_marker_command_attributes=marker),
    ]
    await client.workflow_service.respond_workflow_task_completed(
        RespondWorkflowTaskCompletedRequest(
            namespace=client.namespace,
            task_token=task.task_token,
            commands=commands,
            force_create_new_workflow_task=True,
            identity="somebody",
        )
    )
