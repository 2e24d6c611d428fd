"""The worker's wrappers of the SDK's workflow runners. Each forwards everything to the runner inside, and adds to it.

`EarlyEventsGuard` drops a run from the worker's cache when a query has exposed events to it too early.

A query may reach a worker that does not have the run in its cache. The SDK then replays the whole history, including
events that arrived since the last workflow task, such as a signal. The signal belongs to the next workflow task and its
time, but the run sees it now, at the time of the last one. When the next task comes, the SDK treats the signal as
delivered, and completes the task with the commands that the run made early. A replay delivers the signal
at its own time, so digests and timers differ, and with an update, the order of commands, too: the history can be
neither replayed nor read.

So such a run answers the query and is dropped, and its next workflow task replays it. Two signs show that it may have
seen events early:

1. It got events at the same time as those before.
2. It was replayed, and has since got events that were not part of the replay.

Temporal's history then shows whether a workflow task delivered them; if one did, the run stays in the cache.

The guard also withholds updates that are too large to be answered. The server accepts an update of up to 4 MB, but the
response repeats it and is limited to 2 MB (`limit.blobSize.error`): the SDK then fails the workflow task and each of
its retries. Without a response, the server itself rejects such an update when the workflow task is completed.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
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

from holdfast.config.traced_lines import line_trace
from holdfast.core.authority.statements import CLAIM_BYTES
from holdfast.core.base.trace_context import SpanContext
from holdfast.core.run.contracts.commands import KEEP_TRACE
from holdfast.telemetry.traces.spans import run_context

_ALONE = "legacy_query"
"""The SDK's id of a query that arrives without a workflow task."""

_PATIENCE = 1.0
"""Seconds to wait for Temporal's answer. Without one, the run is dropped; the SDK fails a task after two seconds."""

_PAGE = 20
"""The number of latest events to fetch."""


class WrappedRunner(WorkflowRunner):
    """Wraps another runner.

    Args:
        runner: Runs the workflows.
    """

    def __init__(self, runner: WorkflowRunner) -> None:
        self._runner = runner

    def prepare_workflow(self, defn: Any) -> None:
        """Implements `WorkflowRunner.prepare_workflow`."""
        self._runner.prepare_workflow(defn)

    def set_worker_level_failure_exception_types(self, types: Sequence[type[BaseException]]) -> None:
        """Implements `WorkflowRunner.set_worker_level_failure_exception_types`."""
        self._runner.set_worker_level_failure_exception_types(types)

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """Implements `WorkflowRunner.create_instance`."""
        return self._runner.create_instance(det)


class WrappedInstance(WorkflowInstance):
    """Wraps one run in the cache.

    Args:
        instance: The run.
    """

    def __init__(self, instance: WorkflowInstance) -> None:
        self._instance = instance

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        """Implements `WorkflowInstance.activate`."""
        return self._instance.activate(act)

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


class EarlyEventsGuard(WrappedRunner):
    """Wraps another runner, and watches the activations that the SDK passes to workflows.

    Args:
        runner: Runs the workflows.
    """

    def __init__(self, runner: WorkflowRunner) -> None:
        super().__init__(runner)
        self._worker: Worker | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0

    def guard(self, worker: Worker) -> None:
        """Drop runs from the cache of `worker`, which has this runner and runs in the caller's event loop."""
        self._worker, self._loop, self._thread = worker, asyncio.get_running_loop(), get_ident()

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """Implements `WorkflowRunner.create_instance`."""
        run = WorkflowExecution(workflow_id=det.info.workflow_id, run_id=det.info.run_id)
        return self.guarded(super().create_instance(det), drop=partial(self._drop_early, run))

    def guarded(self, instance: WorkflowInstance, *, drop: Callable[[int], None]) -> "GuardedInstance":
        """Wrap one run.

        Args:
            instance: The run.
            drop: Drops it, unless a completed workflow task brought the history of that length.
        """
        return GuardedInstance(instance, drop=drop)

    def _drop_early(self, run: WorkflowExecution, length: int) -> None:
        """Drop a run unless a completed workflow task delivered its history of that length. Called in any thread."""
        if self._worker is None or self._loop is None:
            return
        if get_ident() != self._thread:  # in the SDK's debug mode, it is the loop's own
            delivered = asyncio.run_coroutine_threadsafe(_was_delivered(self._worker.client, run, length), self._loop)
            # An activation must not raise: on any error or time-out, the run is dropped.
            with suppress(Exception):
                if delivered.result(_PATIENCE):
                    return
            delivered.cancel()
        # The SDK has no public call for this. It drops the run after the current activation, before its next task.
        ref = self._worker._bridge_worker._ref
        if ref is not None:
            ref.request_workflow_eviction(run.run_id)


class GuardedInstance(WrappedInstance):
    """One run in the cache."""

    def __init__(self, instance: WorkflowInstance, *, drop: Callable[[int], None]) -> None:
        super().__init__(instance)
        self._drop = drop
        self._replayed: bool | None = None
        """Whether the first activation was a replay; None before it."""
        self._at = 0
        """The time of the last activation other than a query."""
        self._length = 0
        """The length of history at that time."""
        self._first_at: int | None = None
        """The time of the first activation that was not part of a replay."""
        self._early = False
        """Whether new events carried the time of earlier ones."""

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        """Implements `WorkflowInstance.activate`."""
        queries = [job.query_workflow.query_id for job in act.jobs if job.HasField("query_workflow")]
        at = act.timestamp.ToNanoseconds()
        if queries:
            if _ALONE in queries and (self._early or (self._replayed and at == self._first_at)):
                self._drop(self._length)
                self._early, self._first_at = False, 0  # it is dropped, or has seen nothing early
        elif at:  # zero if the run is being dropped
            if self._replayed is None:
                self._replayed = act.is_replaying
            if not act.is_replaying:
                self._early |= at == self._at and act.history_length > self._length
                self._first_at = at if self._first_at is None else self._first_at
            self._at, self._length = at, act.history_length
        return super().activate(without_large_updates(act))


async def _was_delivered(client: Client, run: WorkflowExecution, length: int) -> bool:
    """Whether event `length` started a workflow task that was completed."""
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
    """Remove too large updates from an activation of a workflow. A replay has none."""
    large = [at for at, job in enumerate(activation.jobs) if _is_large(job)]
    for at in reversed(large):
        del activation.jobs[at]
    return activation


def _is_large(job: WorkflowActivationJob) -> bool:
    return job.HasField("do_update") and job.do_update.run_validator and job.do_update.ByteSize() > CLAIM_BYTES


# Traces.


class TracedRuns(WrappedRunner):
    """Gives the log lines of workflows the ids of their runs' traces, if the runs of this worker are traced.

    `TraceContext` does so for the lines of activities. The ids follow from the chain of Temporal runs, or from what a
    moved run has recorded: a replay computes the same ones, and nothing reaches the workflow.
    """

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """Implements `WorkflowRunner.create_instance`."""
        if KEEP_TRACE not in det.extern_functions:  # this worker's runs are not traced
            return super().create_instance(det)
        lines = Lines(det.info.first_execution_run_id)
        functions = {**det.extern_functions, KEEP_TRACE: lines.keep}
        return _TracedRun(super().create_instance(replace(det, extern_functions=functions)), lines)


class Lines:
    """The trace of the lines of one run.

    Args:
        chain: The first run id of its chain of Temporal runs.
    """

    def __init__(self, chain: str) -> None:
        self._run = chain

    def keep(self, run: str) -> None:
        """Use the trace of another chain, which the run has kept over a move."""
        if run != self._run:
            self._run = run
            vars(self).pop("_span", None)

    def span(self) -> SpanContext:
        """Return the span that sums up the run."""
        return self._span

    @cached_property
    def _span(self) -> SpanContext:
        return run_context(self._run)


class _TracedRun(WrappedInstance):
    def __init__(self, instance: WorkflowInstance, lines: Lines) -> None:
        super().__init__(instance)
        self._lines = lines

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        """Implements `WorkflowInstance.activate`."""
        token = line_trace.set(self._lines.span)
        try:
            return super().activate(act)
        finally:
            line_trace.reset(token)  # the thread runs other workflows, too
