"""Gives the log lines of workflows the ids of their runs' traces, as `TraceContext` does for those of activities.

The ids follow from the chain of Temporal runs, or from what a moved run has recorded: a replay computes the same ones,
and nothing reaches the workflow.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.converter import SerializationContext
from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails, WorkflowRunner

from holdfast.config.traced_lines import line_trace
from holdfast.core.base.trace_context import SpanContext
from holdfast.core.run.contracts.commands import KEEP_TRACE
from holdfast.telemetry.traces.spans import run_context


class TracedRuns(WorkflowRunner):
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
        if KEEP_TRACE not in det.extern_functions:  # this worker's runs are not traced
            return self._runner.create_instance(det)
        lines = Lines(det.info.first_execution_run_id)
        functions = {**det.extern_functions, KEEP_TRACE: lines.keep}
        return _TracedRun(self._runner.create_instance(replace(det, extern_functions=functions)), lines)


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


class _TracedRun(WorkflowInstance):
    """One run in the cache."""

    def __init__(self, instance: WorkflowInstance, lines: Lines) -> None:
        self._instance = instance
        self._lines = lines

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        """Implements `WorkflowInstance.activate`."""
        token = line_trace.set(self._lines.span)
        try:
            return self._instance.activate(act)
        finally:
            line_trace.reset(token)  # the thread runs other workflows, too

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
