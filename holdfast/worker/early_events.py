"""Drops a run from the worker's cache when a query has shown it events too early.

A query may reach a worker that does not have the run in its cache. The SDK then replays the whole history, including
what has arrived since the last workflow task: a signal, say. That belongs to the next workflow task and its time, but
the run sees it now, at the time of the last one. When the next task comes, the SDK takes the signal for delivered, and
completes the task with the commands that the run made early. A replay delivers the signal at its own time, so digests
and timers differ, and with an update the order of commands, too: the history can be neither replayed nor read.

So such a run answers the query and is dropped, and its next workflow task replays it. There are two signs that it may
have seen events early:

1. It got events at the same time as those before.
2. It was replayed, and has since got events that were not part of the replay.

Then Temporal's history says whether a workflow task brought them; if one did, the run stays in the cache.

The guard also withholds updates that are too large to be answered. The server takes an update of up to 4 MB, but the
answer to it repeats all of it, and may have 2 MB (`limit.blobSize.error`): the SDK fails the workflow task instead, and
each of its retries. Without an answer, the server itself refuses such an update when the workflow task is completed.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from threading import get_ident
from typing import Any

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
from temporalio.bridge.proto.workflow_activation import WorkflowActivation, WorkflowActivationJob
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.client import Client
from temporalio.converter import SerializationContext
from temporalio.worker import Worker, WorkflowInstance, WorkflowInstanceDetails, WorkflowRunner

from holdfast.core.authority.statements import CLAIM_BYTES

_ALONE = "legacy_query"
"""The SDK's id of a query that comes without a workflow task."""

_PATIENCE = 1.0
"""Seconds to wait for Temporal's answer. Without one, the run is dropped; the SDK fails a task after two seconds."""

_PAGE = 20
"""Events to look back."""


class EarlyEventsGuard(WorkflowRunner):
    """Runs workflows with another runner, and watches what the SDK passes to them.

    Args:
        runner: Runs them.
    """

    def __init__(self, runner: WorkflowRunner) -> None:
        self._runner = runner
        self._worker: Worker | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0

    def guard(self, worker: Worker) -> None:
        """Drop runs from the cache of that worker, which has this runner and runs in the caller's event loop."""
        self._worker, self._loop, self._thread = worker, asyncio.get_running_loop(), get_ident()

    def prepare_workflow(self, defn: Any) -> None:
        """Implements `WorkflowRunner.prepare_workflow`."""
        self._runner.prepare_workflow(defn)

    def set_worker_level_failure_exception_types(self, types: Sequence[type[BaseException]]) -> None:
        """Implements `WorkflowRunner.set_worker_level_failure_exception_types`."""
        self._runner.set_worker_level_failure_exception_types(types)

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """Implements `WorkflowRunner.create_instance`."""
        run = WorkflowExecution(workflow_id=det.info.workflow_id, run_id=det.info.run_id)
        return self.guarded(self._runner.create_instance(det), drop=partial(self._drop_early, run))

    def guarded(self, instance: WorkflowInstance, *, drop: Callable[[int], None]) -> "GuardedInstance":
        """Wrap one run.

        Args:
            instance: The run.
            drop: Drops it, unless a completed workflow task brought the history of that length.
        """
        return GuardedInstance(instance, drop=drop)

    def _drop_early(self, run: WorkflowExecution, length: int) -> None:
        """Drop a run, unless a completed workflow task brought the history of that length. Called in any thread."""
        if self._worker is None or self._loop is None:
            return
        if get_ident() != self._thread:  # in the SDK's debug mode, it is the loop's own
            asked = asyncio.run_coroutine_threadsafe(_brought(self._worker.client, run, length), self._loop)
            # An activation must not raise. Without an answer, for whatever reason, the run is dropped.
            with suppress(Exception):
                if asked.result(_PATIENCE):
                    return
            asked.cancel()
        # The SDK has no public way. It drops the run when the activation under way is completed, before its next task.
        ref = self._worker._bridge_worker._ref
        if ref is not None:
            ref.request_workflow_eviction(run.run_id)


class GuardedInstance(WorkflowInstance):
    """One run in the cache."""

    def __init__(self, instance: WorkflowInstance, *, drop: Callable[[int], None]) -> None:
        self._instance = instance
        self._drop = drop
        self._replayed: bool | None = None
        """Whether the run was replayed to get here; None before its first activation."""
        self._at = 0
        """The time of the last activation that was no query."""
        self._length = 0
        """The length of history then."""
        self._first_at: int | None = None
        """The time of the first one that was not part of a replay."""
        self._early = False
        """Whether it got events at the time of those before."""

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        """Implements `WorkflowInstance.activate`."""
        queries = [job.query_workflow.query_id for job in act.jobs if job.HasField("query_workflow")]
        at = act.timestamp.ToNanoseconds()
        if queries:
            if _ALONE in queries and (self._early or (self._replayed and at == self._first_at)):
                self._drop(self._length)
                self._early, self._first_at = False, 0  # it is dropped, or has seen nothing early
        elif at:  # zero where the run is dropped
            if self._replayed is None:
                self._replayed = act.is_replaying
            if not act.is_replaying:
                self._early |= at == self._at and act.history_length > self._length
                self._first_at = at if self._first_at is None else self._first_at
            self._at, self._length = at, act.history_length
        return self._instance.activate(without_large_updates(act))

    def get_serialization_context(self, command_info: Any) -> SerializationContext | None:
        """Implements `WorkflowInstance.get_serialization_context`."""
        return self._instance.get_serialization_context(command_info)

    def get_external_store_context(self, command_info: Any) -> Any:
        """Implements `WorkflowInstance.get_external_store_context`."""
        return self._instance.get_external_store_context(command_info)

    def get_info(self) -> Any:
        """Implements `WorkflowInstance.get_info`."""
        return self._instance.get_info()

    def get_thread_id(self) -> int | None:
        """Implements `WorkflowInstance.get_thread_id`."""
        return self._instance.get_thread_id()


async def _brought(client: Client, run: WorkflowExecution, length: int) -> bool:
    """Whether the event of that number began a workflow task that was completed."""
    request = GetWorkflowExecutionHistoryReverseRequest(
        namespace=client.namespace, execution=run, maximum_page_size=_PAGE
    )
    page = await client.workflow_service.get_workflow_execution_history_reverse(request)
    kinds = {event.event_id: event.event_type for event in page.history.events}
    return (kinds.get(length), kinds.get(length + 1)) == (
        EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED,
        EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED,
    )


def without_large_updates(activation: WorkflowActivation) -> WorkflowActivation:
    """Remove the updates that are too large from what is passed to a workflow. In a replay there are none."""
    large = [at for at, job in enumerate(activation.jobs) if _is_large(job)]
    for at in reversed(large):
        del activation.jobs[at]
    return activation


def _is_large(job: WorkflowActivationJob) -> bool:
    return job.HasField("do_update") and job.do_update.run_validator and job.do_update.ByteSize() > CLAIM_BYTES
