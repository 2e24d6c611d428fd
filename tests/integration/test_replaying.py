"""The replay check for users: runs recorded on a server or in files pass, or their divergence is reported."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from holdfast import Agent, Catalog, tool
from holdfast.audit.evidence.replay import RecordedRun, ReplayResult, latest_runs, recorded_in, replay, runs_of
from holdfast.client.threads import Threads
from holdfast.config.stack_file import Stack
from holdfast.core.mac.seals import launched
from holdfast.core.run.contracts.runs import WORKFLOW, RunInput
from holdfast.errors import HistoryFileInvalid, HistoryFileNotFound, ThreadNotFound
from holdfast.testing import call, say, steps
from holdfast.testing.scripted_worker import LEAVE
from holdfast.worker.construction import running
from holdfast.workflows import WORKFLOWS
from tests.integration.test_cli import Ran, Shell
from tests.replay.record import HISTORIES
from tests.support.rig import StartRig, environ_of, eventually, status_of

RELEASED = HISTORIES / "0.1.0"
RECORDED = sorted(HISTORIES.rglob("*.json"))
KINDS = ("plain", "continued.2", "loop", "launcher")
OF_EACH_KIND = [file for file in RECORDED if file.stem in KINDS]

Events = list[dict[str, Any]]


@tool(effect="unsafe")
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


CATALOG = Catalog(agents=[Agent(name="clerk", instructions="Work.", tools=[pay])])


@workflow.defn(name=WORKFLOW)
class Continued:
    """A thread of three Temporal runs."""

    @workflow.run
    async def run(self, run: RunInput) -> str:
        """Continue as new, twice."""
        task = str(run.task)
        if len(task) < 3:
            workflow.continue_as_new(RunInput(task=f"{task}x"))
        return task


def altered(name: str, change: Callable[[Events], Any], folder: Path) -> Path:
    """Return a file with a recorded history whose events were changed."""
    history = json.loads((RELEASED / f"{name}.json").read_text())
    change(history["events"])
    file = folder / f"{name}.json"
    file.write_text(json.dumps(history))
    return file


def first(events: Events, kind: str) -> dict[str, Any]:
    """Return the first event of a type."""
    return next(event for event in events if event["eventType"] == f"EVENT_TYPE_{kind}")


def renamed(events: Events) -> None:
    """Rename the activity that called the LLM."""
    scheduled = first(events, "ACTIVITY_TASK_SCHEDULED")
    scheduled["activityTaskScheduledEventAttributes"]["activityType"]["name"] = "other"


def dropped(events: Events) -> None:
    """Remove an event with its number."""
    events.remove(first(events, "UPSERT_WORKFLOW_SEARCH_ATTRIBUTES"))


def left_out(events: Events) -> None:
    """Remove the upsert of search attributes, as a release without it would."""
    dropped(events)
    for number, event in enumerate(events, start=1):
        event["eventId"] = str(number)


def ended_otherwise(events: Events) -> None:
    """Make the run fail at the point where the current code completes it."""
    del events[-1]["workflowExecutionCompletedEventAttributes"]
    events[-1] |= {
        "eventType": "EVENT_TYPE_WORKFLOW_EXECUTION_FAILED",
        "workflowExecutionFailedEventAttributes": {"failure": {"message": "it failed"}},
    }


def undecodable(events: Events) -> None:
    """Give a local activity's result a shape that the current code cannot decode."""
    details = first(events, "MARKER_RECORDED")["markerRecordedEventAttributes"]["details"]
    details["result"]["payloads"][0]["data"] = "e30="


def with_another_transcript(events: Events) -> None:
    """Change the input of an activity, which the SDK does not compare."""
    scheduled = [event for event in events if event["eventType"] == "EVENT_TYPE_ACTIVITY_TASK_SCHEDULED"][1]
    earlier = first(events, "ACTIVITY_TASK_SCHEDULED")["activityTaskScheduledEventAttributes"]["input"]
    scheduled["activityTaskScheduledEventAttributes"]["input"] = earlier


@pytest.mark.extended
@pytest.mark.parametrize("file", OF_EACH_KIND, ids=[f"{file.parent.name}/{file.stem}" for file in OF_EACH_KIND])
async def test_a_recorded_history_passes(file: Path) -> None:
    """A history of each kind passes, and the result names its thread and run; `tests/replay` replays every history."""
    await passes(file, strict=False)


@pytest.mark.slow
@pytest.mark.parametrize("file", RECORDED, ids=[f"{file.parent.name}/{file.stem}" for file in RECORDED])
async def test_every_recorded_history_passes_in_the_sandbox(file: Path) -> None:
    """The code that replays a history of any release reads no clock and draws no random number."""
    await passes(file, strict=True)


async def passes(file: Path, *, strict: bool) -> None:
    """Check that a recorded history passes."""
    run = recorded_in(file)
    thread, _, _ = file.stem.partition(".")  # a thread of several Temporal runs has several files
    name, _ = launched(run.thread) or (run.thread, "")
    assert (name, len(run.run_id)) == (thread, 36)
    assert await replay(run, WORKFLOWS, strict=strict) == ReplayResult(run.thread, run.run_id, True)


@pytest.mark.parametrize(
    ("change", "event_id", "reason"),
    [
        (renamed, 7, "the history has activity 'other' where the current code schedules 'call_llm'"),
        (dropped, 6, "the current code cannot continue this history: Fatal error in workflow machines: History is out"),
        (left_out, 6, "the current code diverges from the history: "),
        (ended_otherwise, 35, "the current code diverges from the history: Complete workflow machine"),
        (
            undecodable,
            6,
            "the current code cannot continue this history: Failed decoding arguments: 2 validation errors",
        ),
        (with_another_transcript, 16, "replays, but cannot be read without a worker: event 16 of the history"),
    ],
)
async def test_a_divergence_is_reported(
    change: Callable[[Events], None], event_id: int, reason: str, tmp_path: Path
) -> None:
    """The result names the first event that differs, and the reason."""
    result = await replay(recorded_in(altered("plain", change, tmp_path)), WORKFLOWS)
    assert (result.thread, result.ok, result.event_id) == ("plain", False, event_id)
    assert result.reason.startswith(reason)
    assert "Failure {" not in result.reason


async def test_an_open_run_passes() -> None:
    """An open run passes up to its latest event; one that no worker has processed does not block the check."""
    run = recorded_in(RELEASED / "plain.json")
    for length in (1, 2, 3, 9, 20):
        begun = RecordedRun(run.thread, run.run_id, run.events[:length])
        assert (await asyncio.wait_for(replay(begun, WORKFLOWS), 120)).ok, length


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "does not hold the history of a run (JSONDecodeError"),
        ("[]", "does not hold the history of a run"),
        ('{"events": []}', "does not hold the history of a run"),
        ('{"events": [{"eventId": "5"}]}', "a workflow without its first event, not of an agent run"),
        ('{"events": [{"eventId": "one"}]}', "does not hold the history of a run (ParseError"),
    ],
)
def test_a_file_without_an_agent_run_is_rejected(text: str, message: str, tmp_path: Path) -> None:
    """The error names the file, and is not reported as a divergence."""
    file = tmp_path / "history.json"
    file.write_text(text)
    with pytest.raises(HistoryFileInvalid, match=r"history\.json") as raised:
        recorded_in(file)
    assert message in str(raised.value)
    with pytest.raises(HistoryFileNotFound):
        recorded_in(tmp_path / "none.json")


def test_a_history_of_another_workflow_is_rejected(tmp_path: Path) -> None:
    """The error names the workflow type."""

    def change(events: Events) -> None:
        events[0]["workflowExecutionStartedEventAttributes"]["workflowType"]["name"] = "Payroll"

    with pytest.raises(HistoryFileInvalid, match="a workflow of type 'Payroll', not of an agent run"):
        recorded_in(altered("plain", change, tmp_path))


async def test_all_runs_of_a_thread_are_fetched(client: Client) -> None:
    """A re-opened thread is replayed completely, latest run first; an unknown one is reported as such."""
    unsandboxed = UnsandboxedWorkflowRunner()
    worker = Worker(client, task_queue="continued", workflows=[Continued], workflow_runner=unsandboxed)
    async with running(worker, within=LEAVE):
        run = await client.start_workflow(WORKFLOW, RunInput(task="x"), id="continued", task_queue="continued")
        assert await run.result() == "xxx"
    runs = [each async for each in runs_of(Threads(client), "continued")]
    begins = [each.events[0].workflow_execution_started_event_attributes for each in runs]
    assert [begin.continued_execution_run_id for begin in begins] == [runs[1].run_id, runs[2].run_id, ""]
    assert runs[2].run_id == run.first_execution_run_id
    results = [await replay(each, [Continued]) for each in runs]
    assert [each.run_id for each in results] == [each.run_id for each in runs]
    assert all(each.reason.startswith("replays, but cannot be read") for each in results)
    with pytest.raises(ThreadNotFound, match="no-such-thread"):
        await anext(runs_of(Threads(client), "no-such-thread"))


@pytest.mark.slow
async def test_the_command_line_replays_histories_of_a_server(
    rig: StartRig, client: Client, stack: Stack, tmp_path: Path
) -> None:
    """Open and closed runs pass by thread and by age; a history in a file passes, or its divergence is reported."""
    shell = Shell({"HOLDFAST_HOME": str(tmp_path), **environ_of(stack)})

    async def starter(*words: str) -> Ran:
        return await asyncio.to_thread(shell, "replay", *words)

    async with rig(CATALOG, steps([call("pay", amount=1), say("done")])) as running:
        closed, waiting = await running.start(), await running.start()
        await status_of(closed, "waiting_approval")
        await closed.signal("approve", {"request": "1", "by": "ann"})
        await closed.result()
        await status_of(waiting, "waiting_approval")
        threads = Threads(client)

        async def latest() -> list[str]:
            return [run.thread async for run in latest_runs(threads, 2)]

        # Visibility lags.
        await eventually(latest, lambda found: found == [waiting.id, closed.id])
        by_age, by_thread = await starter("--last", "2", "--json"), await starter(closed.id)
        file = tmp_path / "history.json"
        file.write_text((await closed.fetch_history()).to_json())
        await waiting.cancel()
        await status_of(waiting, "cancelled")
    assert (by_age.code, by_age.err) == (0, "")
    assert [line["thread"] for line in by_age.lines] == [waiting.id, closed.id]
    assert by_age.lines[1] == {
        "thread": closed.id,
        "run_id": closed.first_execution_run_id,
        "ok": True,
        "event_id": None,
        "reason": "",
    }
    assert by_thread.code == 0
    assert by_thread.out.splitlines() == [
        f"ok        {closed.id}  {closed.first_execution_run_id}",
        "1 run, and today's code can resume it.",
    ]
    bad = tmp_path / "bad.json"
    bad.write_text(file.read_text().replace('"call_tool"', '"call_somebody"'))
    both = await starter("--file", str(file), "--file", str(bad), "--json")
    assert (both.code, [line["ok"] for line in both.lines], both.err) == (1, [True, False], "")
    assert "'call_somebody'" in both.lines[1]["reason"]
    people = await starter("--file", str(bad))
    assert (people.code, people.err) == (1, "")
    assert f"diverged  {closed.id}" in people.out
    assert "1 of 1 run diverges" in people.out
    unknown = await starter("no-such-thread")
    assert (unknown.code, unknown.out) == (3, "")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ((), 2, "say one of THREAD, --file and --last"),
        (("x", "--last", "1"), 2, "say one of THREAD, --file and --last"),
        (("--file", "x", "--last", "1"), 2, "say one of THREAD, --file and --last"),
        (("--last", "0"), 2, "--last"),
        (("--file", "no-such-file.json"), 3, "there is no file 'no-such-file.json'"),
        (("--file", "pyproject.toml"), 2, "file 'pyproject.toml' does not hold the history of a run"),
    ],
)
def test_replay_usage_errors_have_their_own_exit_codes(
    tmp_path: Path, words: tuple[str, ...], code: int, message: str
) -> None:
    """Bad usage exits with 2 and a missing file with 3; neither needs a server."""
    ran = Shell({"HOLDFAST_HOME": str(tmp_path), "TEMPORAL_ADDRESS": "127.0.0.1:1"})("replay", *words)
    assert (ran.code, ran.out) == (code, "")
    assert message in ran.err
