"""Wrappers of the SDK's workflow runners: each forwards everything to the runner inside, and adds one thing to it."""

from collections.abc import Sequence
from typing import Any

from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.converter import SerializationContext
from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails, WorkflowRunner


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
