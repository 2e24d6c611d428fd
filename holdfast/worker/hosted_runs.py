"""Holdfast's runs on a program's worker: under Holdfast's data converter, beside workflows that stay as they were.

The worker has one workflow runner, one data converter and one list of exceptions that fail a workflow. `HostedRuns`
gives the runs of Holdfast their own: a runner without the sandbox (they run no code of the program), Holdfast's
encoding, and no exception that fails a run instead of its workflow task.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from temporalio.converter import (
    DataConverter,
    SerializationContext,
    WorkflowSerializationContext,
)
from temporalio.worker import (
    UnsandboxedWorkflowRunner,
    Worker,
    WorkflowInstance,
    WorkflowInstanceDetails,
    WorkflowRunner,
)
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner
from typing_extensions import TypeIs

from holdfast.core.run.contracts.runs import WORKFLOW_TYPES
from holdfast.core.temporal.composed import OwnContext
from holdfast.worker.workflow_runners import EarlyEventsGuard, GuardedInstance, TracedRuns

PASSED_THROUGH = "holdfast"
"""The package that sandboxed workflows import as it is: it is deterministic, and its types have one identity."""


class HostedRuns(EarlyEventsGuard):
    """Runs Holdfast's workflows on a program's worker.

    Args:
        own: Holdfast's data converter.
    """

    def __init__(self, own: DataConverter) -> None:
        super().__init__(TracedRuns(UnsandboxedWorkflowRunner()))
        self._own = own

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """Implements `WorkflowRunner.create_instance`."""
        return super().create_instance(
            replace(
                det,
                payload_converter_factory=self._own._new_payload_converter,
                failure_converter_class=self._own.failure_converter_class,
                worker_level_failure_exception_types=(),
            )
        )

    def guarded(self, instance: WorkflowInstance, *, drop: Callable[[int], None]) -> GuardedInstance:
        """Wrap a run, so that the codec learns whose payloads it encodes."""
        return _HostedRun(instance, drop=drop)


class _HostedRun(GuardedInstance):
    def get_serialization_context(self, command_info: Any) -> SerializationContext | None:
        """Implements `WorkflowInstance.get_serialization_context`."""
        context = super().get_serialization_context(command_info)
        if isinstance(context, WorkflowSerializationContext):
            return OwnContext(namespace=context.namespace, workflow_id=context.workflow_id)
        return context  # an activity's names the type of the workflow


def host(theirs: WorkflowRunner, own: DataConverter) -> "HostingRunner | SandboxedHostingRunner":
    """Return a runner that runs Holdfast's workflows beside those of a program's runner.

    Args:
        theirs: The program's runner. If it is the sandbox, its workflows may import `holdfast`.
        own: Holdfast's data converter.
    """
    runs = HostedRuns(own)
    if type(theirs) is not SandboxedWorkflowRunner:
        return HostingRunner(theirs, runs)
    # Of the sandbox's type, so that the SDK's debug mode and other plugins still find the sandbox.
    restrictions = theirs.restrictions.with_passthrough_modules(PASSED_THROUGH)
    return SandboxedHostingRunner(restrictions=restrictions, runner_class=theirs.runner_class, runs=runs)


def is_hosting(runner: WorkflowRunner) -> "TypeIs[HostingRunner | SandboxedHostingRunner]":
    """Return whether a runner comes from `host`."""
    return isinstance(runner, HostingRunner | SandboxedHostingRunner)


def hosted_runs(worker: Worker) -> HostedRuns | None:
    """Return the runs of Holdfast's that a worker hosts; None if its runner does not come from `host`."""
    runner = worker.config(active_config=True)["workflow_runner"]
    return runner.runs if is_hosting(runner) else None


class HostingRunner(WorkflowRunner):
    """Passes each workflow to its runner."""

    def __init__(self, theirs: WorkflowRunner, runs: HostedRuns) -> None:
        self._theirs = theirs
        self.runs = runs

    def prepare_workflow(self, defn: Any) -> None:
        """Implements `WorkflowRunner.prepare_workflow`."""
        if defn.name not in WORKFLOW_TYPES:
            self._theirs.prepare_workflow(defn)

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """Implements `WorkflowRunner.create_instance`."""
        return (self.runs if det.defn.name in WORKFLOW_TYPES else self._theirs).create_instance(det)

    def set_worker_level_failure_exception_types(self, types: Sequence[type[BaseException]]) -> None:
        """Implements `WorkflowRunner.set_worker_level_failure_exception_types`."""
        self._theirs.set_worker_level_failure_exception_types(types)


@dataclass(frozen=True)
class SandboxedHostingRunner(SandboxedWorkflowRunner):
    """The sandbox of a program, which passes Holdfast's workflows to their own runner."""

    runs: HostedRuns = None  # type: ignore[assignment]  # the fields before it have defaults

    def prepare_workflow(self, defn: Any) -> None:
        """Implements `WorkflowRunner.prepare_workflow`."""
        if defn.name not in WORKFLOW_TYPES:
            super().prepare_workflow(defn)

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """Implements `WorkflowRunner.create_instance`."""
        if det.defn.name in WORKFLOW_TYPES:
            return self.runs.create_instance(det)
        return super().create_instance(det)
