"""I8: old runs keep running. Every recorded history of every release replays through the current code."""

import json
from pathlib import Path

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner

from holdfast.core.log.stored_lines import read_lines
from holdfast.core.log.upcasters import CURRENT as EVENT_TYPES
from holdfast.core.mac.seals import launched
from holdfast.core.run.contracts.runs import WORKFLOW
from holdfast.core.run.inputs.interventions import SIGNALS, UPDATES
from holdfast.core.temporal.converter import data_converter
from holdfast.core.temporal.history import local_end
from holdfast.core.temporal.history_reader import read_events
from holdfast.core.temporal.loop_history import lines_in
from holdfast.workflows import WORKFLOWS
from tests.replay.formats import CALLS
from tests.replay.record import HISTORIES, folder_of
from tests.replay.releases import CURRENT
from tests.replay.scenarios import LAUNCHERS, LOOP_BUDGETED, LOOPS, SCENARIOS

RECORDED = sorted(HISTORIES.rglob("*.json"))

COMMANDS = {
    EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED,
    EventType.EVENT_TYPE_ACTIVITY_TASK_CANCEL_REQUESTED,
    EventType.EVENT_TYPE_MARKER_RECORDED,
    EventType.EVENT_TYPE_TIMER_STARTED,
    EventType.EVENT_TYPE_TIMER_CANCELED,
    EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES,
    EventType.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED,
    EventType.EVENT_TYPE_REQUEST_CANCEL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_COMPLETED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW,
}
"""The traces of our workflows' commands in Temporal's history."""


def replayer() -> Replayer:
    """Return a replayer without the sandbox, as workers run; `tests/integration/test_replaying.py` has the sandbox."""
    return Replayer(
        workflows=WORKFLOWS,
        data_converter=data_converter,
        workflow_runner=UnsandboxedWorkflowRunner(),
        debug_mode=True,
    )


def history_in(file: Path) -> WorkflowHistory:
    """Return a recorded history."""
    history = WorkflowHistory.from_json(file.stem.partition(".")[0], file.read_text())
    # The workflow id is in a run's activity requests, and a launcher reads its time from it.
    own = history.events[0].workflow_execution_started_event_attributes.workflow_id
    return WorkflowHistory(own or history.workflow_id, history.events)


def is_run(history: WorkflowHistory) -> bool:
    """Return whether the history is one of an agent run, and not of a loop."""
    return history.events[0].workflow_execution_started_event_attributes.workflow_type.name == WORKFLOW


@pytest.mark.parametrize("file", RECORDED, ids=[f"{file.parent.name}/{file.stem}" for file in RECORDED])
async def test_a_recorded_history_replays(file: Path) -> None:
    """The current workflow makes exactly the commands of the history, with the same events and digests."""
    history = history_in(file)
    await replayer().replay_workflow(history)
    if is_run(history):
        read_events(history.events)  # compares values that Temporal ignores: digests, requests, the next run's input
    else:
        lines = lines_in(history.events)
        assert not lines or read_lines(history.workflow_id, min(lines), list(lines.values()))


async def test_a_divergent_replay_is_detected() -> None:
    """As a control, a history with other commands does not replay."""
    text = next(file for file in RECORDED if file.stem == "plain").read_text()
    history = WorkflowHistory.from_json("plain", text.replace('"call_llm"', '"call_someone_else"'))
    with pytest.raises(Exception, match=r"(?i)nondetermin"):
        await replayer().replay_workflow(history)


# Coverage of this release's histories.


@pytest.fixture(scope="module")
def recorded() -> list[WorkflowHistory]:
    """Return the histories of this release."""
    return [history_in(file) for file in sorted((HISTORIES / CURRENT).glob("*.json"))]


def test_every_scenario_of_this_release_is_recorded(recorded: list[WorkflowHistory]) -> None:
    """`make histories` has been run for this version."""
    assert {history.workflow_id for history in recorded} >= {*SCENARIOS, *LOOPS}
    launches = [launched(history.workflow_id) for history in recorded]
    assert [each[0] for each in launches if each] == [*LAUNCHERS]


def test_the_histories_of_this_release_have_every_event_type(recorded: list[WorkflowHistory]) -> None:
    """Each type of event that runs and loops record is in some log, so that a later release proves to read and repeat
    it.
    """
    types: set[str] = {event.type for history in recorded if is_run(history) for event in read_events(history.events)}
    loops = [history for history in recorded if not is_run(history)]
    types |= {json.loads(line)["type"] for history in loops for line in lines_in(history.events).values()}
    assert set(EVENT_TYPES) - types == {"events_lost"}  # which is written into the record alone


def test_the_histories_of_this_release_have_a_loop_that_reaches_its_limit_of_tokens(
    recorded: list[WorkflowHistory],
) -> None:
    """In some history a limit ends an iteration and blocks a loop with an account, and an extension follows."""
    (lines,) = [
        [json.loads(line) for line in lines_in(history.events).values()]
        for history in recorded
        if history.workflow_id == LOOP_BUDGETED
    ]
    assert lines[0]["limits"]["tokens"] == 60_000
    assert [line["spent"].get("short", "") for line in lines if line["type"] == "iteration_ended"] == ["", "tokens", ""]
    assert [line["cause"] for line in lines if line["type"] == "run_blocked"] == ["TokenLimit"]
    assert (lines[-1]["type"], lines[-1]["outcome"]) == ("run_finished", "completed")


def test_the_histories_of_this_release_have_every_kind_of_command(recorded: list[WorkflowHistory]) -> None:
    """Each kind of command is in some history, and each activity, as a local one or an ordinary one."""
    events = [event for history in recorded for event in history.events]
    missing = COMMANDS - {event.event_type for event in events}
    assert [EventType.Name(kind) for kind in missing] == []
    scheduled = {event.activity_task_scheduled_event_attributes.activity_type.name for event in events}
    local = {local_end(event).activity_type for event in events if event.HasField("marker_recorded_event_attributes")}
    assert {call.name for call in CALLS} - scheduled - local == set()


def test_the_histories_of_this_release_have_every_signal_and_update(recorded: list[WorkflowHistory]) -> None:
    """Each signal and update of a run is in some history, and so is a signal of an unknown name."""
    sent = [event for history in recorded if is_run(history) for event in history.events]
    signals = {event.workflow_execution_signaled_event_attributes.signal_name for event in sent}
    assert set(SIGNALS) - signals == set()
    assert signals - set(SIGNALS) - {""}
    updates = {event.workflow_execution_update_accepted_event_attributes.accepted_request.input.name for event in sent}
    assert set(UPDATES) - updates == set()


def test_the_histories_of_a_release_that_is_out_are_not_recorded_again() -> None:
    """The recorder writes to the folder of a release without a date, and to no other."""
    assert folder_of("0.2.0", "## [Unreleased]\n").name == "0.2.0"
    with pytest.raises(SystemExit, match=r"0\.2\.0 is released"):
        folder_of("0.2.0", "## [0.2.0] - 2026-05-01\n")
