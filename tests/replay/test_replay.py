"""I8: old runs keep running. Every recorded history of every release replays through the current code."""

from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner

import holdfast
from holdfast.temporal.converter import data_converter
from holdfast.workflows import WORKFLOWS
from tests.replay.record import HISTORIES, LOOP, SCENARIOS

RECORDED = sorted(HISTORIES.rglob("*.json"))


def replayer() -> Replayer:
    """Return a replayer without the sandbox, as workers run; `tests/integration/test_replaying.py` has the sandbox."""
    return Replayer(
        workflows=WORKFLOWS,
        data_converter=data_converter,
        workflow_runner=UnsandboxedWorkflowRunner(),
        debug_mode=True,
    )


@pytest.mark.parametrize("file", RECORDED, ids=[f"{file.parent.name}/{file.stem}" for file in RECORDED])
async def test_a_recorded_history_replays(file: Path) -> None:
    """The current workflow makes exactly the commands that the history holds."""
    thread = file.stem.partition(".")[0]  # the thread id, which is in the orders of its runs
    history = WorkflowHistory.from_json(thread, file.read_text())
    await replayer().replay_workflow(history)


def test_every_scenario_of_this_release_is_recorded() -> None:
    """`make histories` has been run for this version."""
    recorded = {file.stem.split(".")[0] for file in (HISTORIES / holdfast.__version__).glob("*.json")}
    assert recorded >= {*SCENARIOS, LOOP}


async def test_a_divergent_replay_is_detected() -> None:
    """The check can fail: a history with other commands does not replay."""
    text = next(file for file in RECORDED if file.stem == "plain").read_text()
    history = WorkflowHistory.from_json("plain", text.replace('"call_llm"', '"call_someone_else"'))
    with pytest.raises(Exception, match=r"(?i)nondetermin"):
        await replayer().replay_workflow(history)
