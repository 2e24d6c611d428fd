"""A worker of the kill matrix stops after an event only when the history has it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import History, HistoryEvent
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseResponse
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.bridge.worker import Worker as SDKWorker
from temporalio.client import Client

from holdfast.testing.kill_matrix.plan import Plan, Stopper, write_plan
from holdfast.testing.kill_matrix.recording import Recording

STARTED, DONE = EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED, EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED


class BoundaryRecorder(Stopper):
    """Records the boundaries instead of stopping."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.passed: list[str] = []

    def reached(self, boundary: str, place: str) -> None:
        """Record the boundary."""
        self.passed.append(boundary)


@pytest.mark.parametrize("verdict", [DONE, EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED])
async def test_a_completion_that_is_held_back_for_a_query_is_not_recorded(tmp_path: Path, verdict: Any) -> None:
    """The SDK sends it with the query's answer: only then is it after the event, and never if Temporal rejects it."""
    history = [HistoryEvent(event_id=3, event_type=STARTED)]

    async def read(_: Any) -> GetWorkflowExecutionHistoryReverseResponse:
        return GetWorkflowExecutionHistoryReverseResponse(history=History(events=history[::-1]))

    async def complete(*_: Any) -> None:
        """Return, as the SDK does whether or not it has sent anything."""

    write_plan(tmp_path, Plan(boundaries=("after run_paused",)))
    stopper = BoundaryRecorder(tmp_path)
    recording = Recording(stopper)
    service = SimpleNamespace(get_workflow_execution_history_reverse=read)
    recording.client = cast(Client, SimpleNamespace(namespace="default", workflow_service=service))
    recording.complete = complete
    activation = WorkflowActivation(run_id="r", history_length=3)
    activation.jobs.add().initialize_workflow.workflow_id = "t"
    recording.track(activation)
    worker = cast(SDKWorker, None)

    commands, answer = WorkflowActivationCompletion(run_id="r"), WorkflowActivationCompletion(run_id="r")
    commands.successful.commands.add().start_timer.seq = 1
    answer.successful.commands.add().respond_to_query.query_id = "q"
    recording.unsent["r"] = [("run_paused", "t/3")]
    await recording.send(worker, commands, recording.recorded_by(commands))
    assert stopper.passed == []
    history += [HistoryEvent(event_id=4, event_type=verdict), HistoryEvent(event_id=5)]
    await recording.send(worker, answer, recording.recorded_by(answer))
    assert stopper.passed == (["after run_paused"] if verdict == DONE else [])
