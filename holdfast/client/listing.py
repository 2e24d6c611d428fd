"""Lists threads.

Temporal's visibility store finds the threads but lags a little, so running threads are also queried.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, get_args

from temporalio.client import (
    WorkflowExecution,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowFailureError,
)
from temporalio.common import SearchAttributeKey
from temporalio.converter import WorkflowSerializationContext
from temporalio.service import RPCError

from holdfast.client.reading.runs import ENDED, MOVED, UNAUTHENTICATED, answer_forged, status_of
from holdfast.client.reading.states import CLOSED
from holdfast.client.searching import newest, search_page
from holdfast.client.threads import JSON, Threads
from holdfast.core.authority.summaries import TASK
from holdfast.core.base.text import one_line
from holdfast.core.mac.seals import SealKeyUnknown
from holdfast.core.run.contracts.runs import LOOP_WORKFLOW, WORKFLOW, RunResult
from holdfast.core.run.state.state import Status
from holdfast.core.temporal.converter import DecryptionFailed
from holdfast.errors import AnswerForged, HoldfastError, QueryRefused, StatusInvalid

STATUSES: tuple[str, ...] = get_args(Status)

_AGENT = SearchAttributeKey.for_keyword("HoldfastAgent")
PENDING = SearchAttributeKey.for_int("HoldfastPending")
STEP = SearchAttributeKey.for_int("HoldfastStep")
_ROOT = SearchAttributeKey.for_keyword("HoldfastRoot")
_WAKE_AT = SearchAttributeKey.for_datetime("HoldfastWakeAt")
# Only the last Temporal run of an agent run: earlier ones were continued as new.
_RUNS = f"WorkflowType = '{WORKFLOW}' AND ExecutionStatus != 'ContinuedAsNew'"
LATEST = f"WorkflowType IN ('{WORKFLOW}', '{LOOP_WORKFLOW}') AND ExecutionStatus != 'ContinuedAsNew'"
_MAX_CONCURRENT = 20
"""Queries in flight while listing."""

VALUES_SECONDS = 0.7
"""Seconds that `list_threads` waits for details that only the runs themselves have."""
OWN_SECONDS = 5.0
"""Seconds that it takes to check whether runs that did not answer are their threads' own."""

_NOTHING: JSON = dict.fromkeys(("agent", "task", "refinements", "usage", "llm", "budget", "wakes_at")) | {
    "step": 0,
    "pending": 0,
    "unanswered": False,
}
"""The row of a run whose answers do not come from a worker of this fleet."""


async def list_threads(
    threads: Threads, *, status: str | None = None, limit: int = 100, loops: bool = True
) -> list[JSON]:
    """List threads, newest first; with `loops`, loops as well.

    Each row has `thread`, `agent`, `status`, `step`, `started_at` (of its latest Temporal run), `pending` (the number
    of open requests), `wakes_at` (when a dormant run wakes automatically), `task` (in one line), `refinements` (the
    number of refinements of the task), `usage`, `llm` and `budget`. Unknown values are None: the task of a run that
    another program started, and values that were not reported within a second. `unanswered` is whether no worker
    answered for an open run in that time, so that its row is Temporal's index alone.

    Visibility lags a little and has the step as of the last change of status, so open threads are queried.

    Args:
        threads: The namespace's threads.
        status: Only threads with this status.
        limit: Maximum number of threads.
        loops: Whether to list loops as well.

    Raises:
        StatusInvalid: There is no such status.
    """
    query = LATEST if loops else _RUNS
    found = await newest(threads, query + _status_filter(status), limit=limit)
    if status in CLOSED:
        found = await _without_reopened(threads, found)
    return await _rows(threads, found, status)


async def list_page(
    threads: Threads,
    *,
    status: str | None = None,
    agent: str = "",
    prefixes: Sequence[str] = (),
    limit: int = 100,
    cursor: str = "",
    asked: bool = True,
) -> tuple[list[JSON], str]:
    """List a page of threads, as `list_threads` does, without loops; return it with the cursor of the next page.

    Open threads come first, the newest first; then closed ones, the last closed first. A page may have fewer rows than
    `limit`; the cursor is empty at the end. Threads that change meanwhile may be missed, or come twice.

    Args:
        threads: The namespace's threads.
        status: Only threads with this status.
        agent: Only threads of this agent, whose name has the form of `Agent.name`; empty for all.
        prefixes: Only threads whose id begins with one of these; none for all.
        limit: Maximum number of rows.
        cursor: The cursor of the page; empty for the first.
        asked: Whether to ask the runs themselves. Else the rows are what Temporal's visibility store has, which lags,
            and which anybody with access to Temporal can write: hints, within milliseconds.

    Raises:
        StatusInvalid: There is no such status.
        CursorInvalid: The cursor does not come from an earlier page.
    """
    query = _RUNS + _status_filter(status) + of_prefixes(prefixes)
    if agent:
        query += f" AND {_AGENT.name} = '{agent}'"
    found, following = await search_page(threads, query, size=limit, cursor=cursor)
    latest = await _without_reopened(threads, found) if asked else found
    own = [run for run in latest if run.id.startswith(tuple(prefixes) or "")]
    return await _rows(threads, own, status) if asked else [await _row(threads, run) for run in own], following


async def list_loops(threads: Threads, *, prefixes: Sequence[str] = (), limit: int = 100) -> list[JSON]:
    """List loops, those started last first, each in a row as `list_threads` returns it.

    Args:
        threads: The namespace's threads.
        prefixes: Only loops whose id begins with one of these; none for all.
        limit: Maximum number of loops.
    """
    query = f"WorkflowType = '{LOOP_WORKFLOW}' AND ExecutionStatus != 'ContinuedAsNew'{of_prefixes(prefixes)}"
    return await _rows(threads, await newest(threads, query, limit=limit), None)


async def _rows(threads: Threads, found: Sequence[WorkflowExecution], status: str | None) -> list[JSON]:
    """Return the rows of threads, in the same order, completed with values from the runs themselves."""
    rows = {run.id: await _row(threads, run) for run in found}
    # With a short limit: if no worker answers, the rows keep visibility's values. Running threads, whose values change
    # most, come first.
    first = sorted(found, key=lambda run: rows[run.id]["status"] != "running")
    runs = {run.id: run for run in first if run.workflow_type == WORKFLOW}
    answers = await read_each(list(runs), lambda name: _reported(threads, runs[name]), within=VALUES_SECONDS)
    for thread, reported in answers.items():
        if isinstance(reported, dict):
            rows[thread] |= reported
        elif isinstance(reported, AnswerForged):
            rows[thread] |= _NOTHING | {"status": UNAUTHENTICATED}
    for thread, run in runs.items():
        silent = not isinstance(answers.get(thread), (dict, AnswerForged))
        rows[thread]["unanswered"] = silent and run.status not in ENDED
    # A sealed answer comes from a worker of this fleet, which only runs threads' own runs.
    others = [run for run in found if not isinstance(answers.get(run.id), dict)]
    owned = await read_each([run.id for run in others], lambda name: _own_row(threads, name), within=OWN_SECONDS)
    for run in others:
        if isinstance(row := owned.get(run.id), dict) and row["run_id"] != run.run_id:
            rows[run.id] = {name: row[name] for name in rows[run.id]}
    return [row for row in rows.values() if status in (None, row["status"])]


async def _own_row(threads: Threads, thread: str) -> JSON:
    """Return the row of a thread's own latest run, with its `run_id`, which is empty if only the record has one."""
    found = await threads.reader.find(thread, loops=True)
    if found is None:
        view = await threads.state(thread)
        known = {name: view.get(name) for name in ("thread", "agent", "status", "step", "usage", "llm", "budget")}
        row = _NOTHING | {"root": None} | known
        return row | {"run_id": "", "started_at": view["updated_at"], "task": one_line(view["task"], 100)}
    row = await _row(threads, found)
    if found.workflow_type == WORKFLOW:
        try:
            row |= await _reported(threads, found)
        except AnswerForged:
            row |= _NOTHING | {"status": UNAUTHENTICATED}
        except HoldfastError:
            row["unanswered"] = found.status not in ENDED
    return {**row, "run_id": found.run_id}


async def _reported(threads: Threads, run: WorkflowExecution) -> JSON:
    """Return a run's own values: an open run's from a query, a completed run's from its result.

    Raises:
        AnswerForged: It does not come from a worker of this fleet.
    """
    if run.status not in ENDED:
        state = await threads.runs.query(run.id, "state", within=VALUES_SECONDS)
        known = {name: state[name] for name in ("agent", "status", "step", "usage")}
        return {
            **known,
            "llm": state.get("llm"),
            "pending": len(state["pending"]),
            "wakes_at": (state.get("dormancy") or {}).get("until") if state["status"] == "dormant" else None,
            "refinements": len(state.get("refinements", ())),
            "budget": state.get("budget"),
        }
    if run.status is not WorkflowExecutionStatus.COMPLETED:
        raise QueryRefused(f"the run of thread {run.id!r} has no result")
    closed = threads.runs.client.get_workflow_handle(run.id, run_id=run.run_id, result_type=RunResult)
    try:
        result = await closed.result(follow_runs=False, rpc_timeout=timedelta(seconds=VALUES_SECONDS))
    except SealKeyUnknown as error:
        raise answer_forged(run.id, "result", str(error)) from error
    except DecryptionFailed as error:
        if threads.sealed:
            raise answer_forged(run.id, "result", str(error)) from error
        raise
    except (RPCError, WorkflowFailureError) as error:  # removed meanwhile
        raise QueryRefused(f"the result of thread {run.id!r} cannot be read") from error
    except Exception as error:  # anybody may complete their own run with any bytes
        raise answer_forged(run.id, "result", f"it does not decode: {type(error).__name__}") from error
    if not isinstance(result, RunResult):
        raise answer_forged(run.id, "result", str(result))
    await _check_own(threads, run, result)
    known = {"step": result.steps, "usage": result.usage.model_dump(), "llm": result.llm or None}
    return {**known, "refinements": result.refinements}


async def _check_own(threads: Threads, run: WorkflowExecution, result: RunResult) -> None:
    """Check that a sealed result is that of this run, and not a copy of an earlier one's.

    Raises:
        AnswerForged: It is a copy.
        QueryRefused: The run is not the thread's own.
    """
    chain = result.first_run_id
    if chain == run.run_id:
        return
    found = await threads.reader.find(run.id)
    if found is None or found.run_id != run.run_id:
        raise QueryRefused(f"run {run.run_id} is not the own one of thread {run.id!r}")
    if chain not in ("", found.raw_info.first_run_id):
        raise answer_forged(run.id, "result", "it is a copy of the result of another run")


async def _without_reopened(threads: Threads, found: list[WorkflowExecution]) -> list[WorkflowExecution]:
    """Leave out closed runs that are not the latest of their threads: a status filter may exclude the latest one."""
    closed = {run.id: run for run in found if run.status in ENDED}

    async def own(name: str) -> WorkflowExecutionDescription | None:
        newest = await threads.runs.newest(name)
        return newest if newest.run_id == closed[name].run_id else await threads.reader.ownership.own(newest)

    answers = await read_each(sorted(closed), own)
    return [run for run in found if _run_id(answers.get(run.id)) in ("", run.run_id)]


def _run_id(described: Any) -> str:
    return "" if described is None or isinstance(described, HoldfastError) else str(described.run_id)


def of_prefixes(prefixes: Sequence[str]) -> str:
    """Return the part of a visibility query that selects threads whose id begins with one of these."""
    each = (f"WorkflowId STARTS_WITH '{prefix}'" for prefix in prefixes)
    return f" AND ({' OR '.join(each)})" if prefixes else ""


async def read_each(
    names: Sequence[str],
    query: Callable[[str], Awaitable[Any]],
    *,
    within: float | None = None,
    at_once: int = _MAX_CONCURRENT,
) -> dict[str, Any]:
    """Return each thread's answer or HoldfastError, without the threads that returned neither within the limit.

    Args:
        names: The threads.
        query: Reads one of them.
        within: Time limit for all of them, in seconds; None for none.
        at_once: The most that are read at once.
    """
    slots = asyncio.Semaphore(at_once)

    async def one(thread: str) -> Any:
        async with slots:
            try:
                return await query(thread)
            except HoldfastError as error:
                return error
            except Exception as error:  # somebody else's run may return any value
                why = one_line(f"{type(error).__name__}: {error}", 300)
                return HoldfastError(f"thread {thread!r} cannot be read: {why}")

    tasks = {thread: asyncio.create_task(one(thread)) for thread in names}
    if tasks:
        _, late = await asyncio.wait(tasks.values(), timeout=within)
        for task in late:
            task.cancel()
    return {thread: task.result() for thread, task in tasks.items() if task.done() and not task.cancelled()}


def _status_filter(status: str | None) -> str:
    """Return the part of a visibility query that selects runs of that status."""
    if status is None:
        return ""
    if status not in STATUSES:
        raise StatusInvalid(f"there is no status {status!r}; there are: {', '.join(STATUSES)}")
    if status == MOVED:
        return f" AND ExecutionStatus = 'Completed' AND HoldfastStatus = '{MOVED}'"
    if status in CLOSED:
        kinds = ", ".join(f"'{_EXECUTION_STATUSES[kind.name]}'" for kind, word in ENDED.items() if word == status)
        return f" AND ExecutionStatus IN ({kinds})"
    running = " AND ExecutionStatus = 'Running'"
    if status == "running":  # a run that no worker has processed yet has no HoldfastStatus
        return f"{running} AND (HoldfastStatus = 'running' OR HoldfastStatus IS NULL)"
    return f"{running} AND HoldfastStatus = '{status}'"


_EXECUTION_STATUSES = {
    "COMPLETED": "Completed",
    "FAILED": "Failed",
    "CANCELED": "Canceled",
    "TERMINATED": "Terminated",
    "TIMED_OUT": "TimedOut",
}


async def _row(threads: Threads, run: WorkflowExecution) -> JSON:
    known, status = run.typed_search_attributes, status_of(run)
    if run.status not in ENDED and status in CLOSED:  # anybody can start a run with any search attributes
        status = "running"
    wakes_at = known.get(_WAKE_AT)
    return {
        "thread": run.id,
        "agent": known.get(_AGENT),
        "status": status,
        "step": known.get(STEP) or 0,
        "started_at": run.start_time.isoformat(),
        "pending": 0 if run.status in ENDED else known.get(PENDING) or 0,
        "wakes_at": wakes_at.isoformat() if wakes_at and run.status not in ENDED else None,
        "task": await _task(threads, run),
        "refinements": None,
        "usage": None,
        "llm": None,
        "root": known.get(_ROOT),
        "budget": None,
        "unanswered": False,
    }


async def _task(threads: Threads, run: WorkflowExecution) -> str | None:
    """Return the task in one line; None if the run was started without it, or if it cannot be decrypted here."""
    memo = run.raw_info.memo.fields.get(TASK)
    if memo is None:
        return None
    place = WorkflowSerializationContext(namespace=threads.runs.client.namespace, workflow_id=run.id)
    with contextlib.suppress(Exception):  # anybody may write a memo with any payload
        (task,) = await threads.runs.client.data_converter.with_context(place).decode([memo], [str])
        return one_line(task, 100)
    return None
