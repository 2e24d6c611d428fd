"""The replay check: can the current workflow code continue recorded runs? Histories come from Temporal or from files.

A history passes if the current code produces exactly its commands and, for an agent run, if
`holdfast.core.temporal.history_reader` can read it.
"""

import json
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowExecution, WorkflowHistory
from temporalio.runtime import Runtime
from temporalio.service import RPCError
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from holdfast.client.reading.executions import list_runs
from holdfast.client.reading.histories import RecordedRun as RecordedRun
from holdfast.client.reading.histories import fetch, runs_back
from holdfast.client.threads import Threads
from holdfast.core.base.text import one_line
from holdfast.core.run.contracts.runs import LOOP_WORKFLOW, SCHEDULED_WORKFLOW, WORKFLOW
from holdfast.core.temporal.converter import data_converter
from holdfast.core.temporal.history import completed_tasks, run_id_of
from holdfast.core.temporal.history_reader import read_events
from holdfast.errors import HistoryFileInvalid, HistoryFileNotFound, HistoryUnreadable

_WINDOWS = (timedelta(hours=1), timedelta(days=1), timedelta(days=30), None)
"""How far to look back for the latest runs: visibility sorts by the time a run closed, not by the time it started."""
_LIMIT = timedelta(seconds=30)

_EVENT_ID = re.compile(r"(?:HistoryEvent\(id|\bevent[ _]id): (\d+)")
_UNREAD = re.compile(r"event (\d+) of the history")
_OTHER_ACTIVITY = re.compile(r"Activity type of scheduled event '(.*?)' does not match .* activity command '(.*?)'")
# The SDK's errors are Rust debug output, in which each cause has its own message.
_MESSAGE = re.compile(r'message: "((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(.)")


@dataclass(frozen=True)
class ReplayResult:
    """The result of replaying one run."""

    thread: str
    run_id: str
    ok: bool
    event_id: int | None = None
    """The history event at which the replay diverged; None if unknown."""
    reason: str = ""
    """The reason for a divergence; empty if there was none."""


async def replay(
    run: RecordedRun, workflows: Sequence[type], *, strict: bool = False, runtime: Runtime | None = None
) -> ReplayResult:
    """Replay one run through `workflows`, and read its history.

    Args:
        run: The run.
        workflows: The current workflow classes.
        strict: Run them in Temporal's sandbox, which also detects clocks and randomness.
        runtime: The SDK's runtime, which configures its logs; None for the default.
    """
    unread = ""
    try:
        if _type_of(run.events) not in (LOOP_WORKFLOW, SCHEDULED_WORKFLOW):
            read_events(run.events)
    except HistoryUnreadable as error:
        unread = str(error)
    if failure := await _failure(run, workflows, strict=strict, runtime=runtime):
        match = _EVENT_ID.search(failure) or _UNREAD.match(unread)
        return ReplayResult(run.thread, run.run_id, False, int(match[1]) if match else None, explain(failure))
    if unread:
        match = _UNREAD.match(unread)
        reason = f"replays, but cannot be read without a worker: {unread}"
        return ReplayResult(run.thread, run.run_id, False, int(match[1]) if match else None, reason)
    return ReplayResult(run.thread, run.run_id, True)


def _type_of(events: Sequence[HistoryEvent]) -> str:
    return events[0].workflow_execution_started_event_attributes.workflow_type.name if events else ""


async def _failure(run: RecordedRun, workflows: Sequence[type], *, strict: bool, runtime: Runtime | None) -> str:
    """Return the SDK's error if the replay diverged; empty otherwise."""
    try:
        if not completed_tasks(run.events):
            return ""  # no code has run yet; the SDK would wait forever
    except HistoryUnreadable:
        pass  # `replay` reports it
    replayer = Replayer(
        workflows=workflows,
        data_converter=data_converter,
        workflow_runner=SandboxedWorkflowRunner() if strict else UnsandboxedWorkflowRunner(),
        runtime=runtime,
        debug_mode=True,  # otherwise the SDK reports a pause of two seconds on a busy machine as a deadlock
    )
    history = WorkflowHistory(run.thread, run.events)
    result = await replayer.replay_workflow(history, raise_on_replay_failure=False)
    return str(result.replay_failure or "")


def explain(failure: str) -> str:
    """Turn the SDK's error text into a sentence for people."""
    messages = [_ESCAPE.sub(lambda found: {"n": "\n"}.get(found[1], found[1]), m) for m in _MESSAGE.findall(failure)]
    message = one_line(": ".join(messages) or failure, 400)
    if other := _OTHER_ACTIVITY.search(message):
        return f"the history has activity {other[1]!r} where the current code schedules {other[2]!r}"
    _, nondeterminism, detail = message.partition("Nondeterminism error: ")
    if nondeterminism:
        return f"the current code diverges from the history: {detail}"
    return f"the current code cannot continue this history: {message}"


def recorded_in(file: Path) -> RecordedRun:
    """Read a history from a JSON file, as written by Temporal's Web UI and CLI.

    Raises:
        HistoryFileNotFound: There is no such file.
        HistoryFileInvalid: The file is not the history of an agent run or loop.
    """
    try:
        text = file.read_text()
    except (FileNotFoundError, NotADirectoryError):
        raise HistoryFileNotFound(f"there is no file {str(file)!r}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise HistoryFileInvalid(f"file {str(file)!r} cannot be read: {error}") from None
    try:
        events = WorkflowHistory.from_json("", json.loads(text)).events
        begin = events[0].workflow_execution_started_event_attributes
        thread, run_id = begin.workflow_id or file.stem, run_id_of(events)
    # A file can be invalid in many ways, and Temporal's parsers raise a different exception for each.
    except Exception as error:
        detail = one_line(f"{type(error).__name__}: {error}", 200)
        raise HistoryFileInvalid(
            f"file {str(file)!r} does not hold the history of a run ({detail}). Write one with `temporal workflow show "
            "--workflow-id THREAD --output json`, or download it from the Web UI without decoding."
        ) from error
    if begin.workflow_type.name not in (WORKFLOW, LOOP_WORKFLOW, SCHEDULED_WORKFLOW) or not run_id:
        kind = f"a workflow of type {begin.workflow_type.name!r}" if run_id else "a workflow without its first event"
        raise HistoryFileInvalid(
            f"file {str(file)!r} holds the history of {kind}, not of an agent run ({WORKFLOW}), a loop "
            f"({LOOP_WORKFLOW}) or the launcher of a scheduled run ({SCHEDULED_WORKFLOW})"
        )
    return RecordedRun(thread, run_id, events)


async def runs_of(threads: Threads, thread: str) -> AsyncIterator[RecordedRun]:
    """Yield the latest run of a thread, then each earlier one that Temporal still has.

    Raises:
        ThreadNotFound: There is no such thread.
        ServerUnreachable: The server is unreachable.
    """
    run_id = (await threads.runs.describe(thread)).run_id
    async for run in runs_back(threads.runs, thread, run_id):
        yield run


async def latest_runs(threads: Threads, count: int) -> AsyncIterator[RecordedRun]:
    """Yield the most recently started agent runs, loops and launchers that Temporal still has, latest first.

    Raises:
        ServerUnreachable: The server is unreachable.
    """
    runs: list[WorkflowExecution] = []
    for window in _WINDOWS:
        query = f"WorkflowType IN ('{WORKFLOW}', '{LOOP_WORKFLOW}', '{SCHEDULED_WORKFLOW}')"
        if window:
            query += f" AND StartTime > '{(datetime.now(UTC) - window).isoformat()}'"
        try:
            runs = [run async for run in list_runs(threads.runs.client, query, within=_LIMIT)]
        except RPCError as error:
            raise threads.runs.translate_error(error) from error
        if len(runs) >= count:
            break
    for each in sorted(runs, key=lambda run: run.start_time, reverse=True)[:count]:
        if run := await fetch(threads.runs, each.id, each.run_id):
            yield run
