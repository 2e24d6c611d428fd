"""Reports the boundaries before and after events are recorded, and those of continue-as-new.

1. An event is recorded once Temporal has accepted the completion of its workflow task. Interceptors do not see that, so
   the SDK's methods that receive activations and send completions are wrapped.
2. A completion that the SDK has accepted may not be recorded. The SDK holds it back while a query waits for its answer,
   and sends both together; Temporal rejects it if its task has timed out, or if it ends the run while a signal arrives.
   So "after" is reported only when the history has the completion, and until then the worker starts nothing else.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from temporalio import workflow
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.bridge.worker import Worker as SDKWorker
from temporalio.client import Client
from temporalio.service import RPCError

from holdfast.core.log.event_log import EventLog
from holdfast.core.log.events import AgentEvent
from holdfast.testing.kill_matrix.plan import Stopper


@dataclass
class _Run:
    """A Temporal run in this worker's cache."""

    thread: str = ""
    task: int = 0
    """The id of the history event that started its workflow task."""
    local: int = 0
    """The number of running local activities: their workflow task is completed only after they have ended."""


@dataclass(frozen=True)
class _Sent:
    """The events that a completion records."""

    thread: str
    task: int
    places: list[tuple[str, str]]
    """Event types, or `continue_as_new`, each with its place."""


class Recording:
    """Wraps the methods of this process that record events.

    Args:
        stopper: Stops the process at the boundaries.
    """

    def __init__(self, stopper: Stopper) -> None:
        self._stopper = stopper
        self.client: Client | None = None
        """The worker's client, to read the history."""
        self._runs: dict[str, _Run] = {}
        self.unsent: dict[str, list[tuple[str, str]]] = {}
        """The events of each Temporal run whose workflow task is under way, with their places."""
        self._held: dict[str, _Sent] = {}
        """Completions that the history did not have when the SDK returned from sending them."""
        self._sending = asyncio.Lock()
        self.complete: Callable[[Any, WorkflowActivationCompletion], Awaitable[None]]
        self.complete = SDKWorker.complete_workflow_activation
        """The SDK's method that sends completions."""

    def instrument(self) -> None:
        """Wrap the methods."""
        append, poll, poll_activity = (
            EventLog.append,
            SDKWorker.poll_workflow_activation,
            SDKWorker.poll_activity_task,
        )

        def append_and_track(log: EventLog, event: AgentEvent, *, at: datetime) -> AgentEvent:
            stamped = append(log, event, at=at)
            if workflow.in_workflow() and not workflow.unsafe.is_replaying():
                info = workflow.info()
                place = f"{info.workflow_id}/{stamped.position}"
                self.unsent.setdefault(info.run_id, []).append((stamped.type, place))
            return stamped

        async def poll_and_track(worker: SDKWorker) -> WorkflowActivation:
            activation = await poll(worker)
            async with self._sending:
                self.track(activation)
                return activation

        async def poll_activity_after_completions(worker: SDKWorker) -> Any:
            task = await poll_activity(worker)
            async with self._sending:
                return task

        async def complete_with_boundaries(worker: SDKWorker, completion: WorkflowActivationCompletion) -> None:
            sent = self.recorded_by(completion)
            for what, place in sent.places:
                self._stopper.reached(f"before {what}", place)
            await self.send(worker, completion, sent)

        # Through setattr, because type checkers reject assignments to methods. This process only serves tests.
        setattr(EventLog, "append", append_and_track)  # noqa: B010
        setattr(SDKWorker, "poll_workflow_activation", poll_and_track)  # noqa: B010
        setattr(SDKWorker, "poll_activity_task", poll_activity_after_completions)  # noqa: B010
        setattr(SDKWorker, "complete_workflow_activation", complete_with_boundaries)  # noqa: B010

    def track(self, activation: WorkflowActivation) -> None:
        """Track the workflow task of an activation, and the ends of local activities."""
        if any(job.HasField("remove_from_cache") for job in activation.jobs):
            self._runs.pop(activation.run_id, None)
            self.unsent.pop(activation.run_id, None)
            self._held.pop(activation.run_id, None)
            return
        run = self._runs.setdefault(activation.run_id, _Run())
        run.task = activation.history_length
        for job in activation.jobs:
            run.thread = job.initialize_workflow.workflow_id or run.thread
            run.local -= job.resolve_activity.is_local

    def recorded_by(self, completion: WorkflowActivationCompletion) -> _Sent:
        """Return the events that a completion records, except those already reported."""
        run_id, commands = completion.run_id, completion.successful.commands
        run = self._runs.get(run_id, _Run())
        nothing = _Sent(run.thread, run.task, [])
        if completion.HasField("failed"):
            self.unsent.pop(run_id, None)
            return nothing
        if commands and all(command.HasField("respond_to_query") for command in commands):
            return nothing
        run.local += sum(command.HasField("schedule_local_activity") for command in commands)
        if run.local:
            return nothing  # the SDK sends it after the local activities have ended
        places = self.unsent.pop(run_id, [])
        if any(command.HasField("continue_as_new_workflow_execution") for command in commands):
            places.append(("continue_as_new", run_id))
        return _Sent(run.thread, run.task, places)

    async def send(self, worker: SDKWorker, completion: WorkflowActivationCompletion, sent: _Sent) -> None:
        """Send a completion; once the history has it, or one that was held back, report the boundaries after it."""
        if not sent.places:
            sent = self._held.pop(completion.run_id, sent)
        if not any(self._stopper.plans(f"after {what}") for what, _ in sent.places):
            await self.complete(worker, completion)
            return
        async with self._sending:
            await self.complete(worker, completion)
            if await self._is_recorded(completion.run_id, sent):
                for what, place in sent.places:
                    self._stopper.reached(f"after {what}", place)
            else:
                self._held[completion.run_id] = sent

    async def _is_recorded(self, run_id: str, sent: _Sent) -> bool:
        """Whether the history has the completion of the workflow task: the event after the one that started it."""
        assert self.client, "the worker has not been built"
        execution = WorkflowExecution(workflow_id=sent.thread, run_id=run_id)
        request = GetWorkflowExecutionHistoryReverseRequest(namespace=self.client.namespace, execution=execution)
        while True:
            try:
                page = await self.client.workflow_service.get_workflow_execution_history_reverse(request)
            except RPCError:
                return False  # the server is unavailable
            for event in page.history.events:
                if event.event_id <= sent.task + 1:
                    return (
                        event.event_id > sent.task and event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
                    )
            if not page.next_page_token:
                return False
            request.next_page_token = page.next_page_token
