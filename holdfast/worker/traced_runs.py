"""Gives the log lines of workflows the ids of their runs' traces, as `TraceContext` does for those of activities.

The ids follow from the chain of Temporal runs, or from what a moved run has recorded: a replay computes the same ones,
and nothing reaches the workflow.
"""

from dataclasses import replace
from functools import cached_property

from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails

from holdfast.config.traced_lines import line_trace
from holdfast.core.base.trace_context import SpanContext
from holdfast.core.run.contracts.commands import KEEP_TRACE
from holdfast.telemetry.traces.spans import run_context
from holdfast.worker.workflow_runners import WrappedInstance, WrappedRunner


class TracedRuns(WrappedRunner):
    """Traces the lines of the runs of another runner, if this worker's runs are traced."""

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
