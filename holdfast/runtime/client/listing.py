"""List threads, and the approval requests that are open across them.

Temporal's visibility store finds the threads but lags a little, so running threads are also queried.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, get_args

from temporalio.client import WorkflowExecution
from temporalio.common import SearchAttributeKey
from temporalio.service import RPCError, RPCStatusCode

from holdfast.base.text import one_line
from holdfast.errors import HoldfastError, StatusInvalid
from holdfast.run import contracts
from holdfast.run.state import Status
from holdfast.runtime.client.threads import JSON, Threads
from holdfast.runtime.reading.executions import list_runs
from holdfast.runtime.reading.runs import ENDED, status_of
from holdfast.runtime.reading.states import CLOSED

STATUSES: tuple[str, ...] = get_args(Status)

_AGENT = SearchAttributeKey.for_keyword("HoldfastAgent")
_STEP = SearchAttributeKey.for_int("HoldfastStep")
# Only the last Temporal run of an agent run: earlier ones were continued as new.
_RUNS = f"WorkflowType = '{contracts.WORKFLOW}' AND ExecutionStatus != 'ContinuedAsNew'"
_LATEST = (
    f"WorkflowType IN ('{contracts.WORKFLOW}', '{contracts.LOOP_WORKFLOW}') AND ExecutionStatus != 'ContinuedAsNew'"
)
_MAX_CONCURRENT = 10
"""Queries in flight while listing."""


@dataclass(frozen=True)
class Unanswered:
    """A thread that could not be queried while listing, and why."""

    thread: str
    error: HoldfastError


async def list_pending(threads: Threads, *, limit: int = 1_000) -> tuple[list[JSON], list[Unanswered]]:
    """List the open requests of all threads, and the threads that have some but could not be queried."""
    # Not by ExecutionStatus: paused runs have one of their own, which older servers reject in a query.
    found = await _search(threads, f"{_LATEST} AND HoldfastPending > 0 AND CloseTime IS NULL", limit)
    answers = await _query_all([run.id for run in found], threads.pending)
    unanswered = [Unanswered(*each) for each in answers.items() if isinstance(each[1], HoldfastError)]
    return [request for each in answers.values() if isinstance(each, list) for request in each], unanswered


async def list_threads(
    threads: Threads, *, status: str | None = None, limit: int = 100, loops: bool = True
) -> list[JSON]:
    """List threads, newest first: `{"thread", "agent", "status", "step", "started_at"}`; with `loops`, loops as well.

    Visibility lags a little, and has the step as of the last change of status: running threads are queried.

    Raises:
        StatusInvalid: There is no such status.
    """
    query = _LATEST if loops else _RUNS
    found = await _latest_runs(threads, await _search(threads, query + _status_filter(status), limit), status)
    rows = {run.id: _row(run) for run in found}
    # With a short limit: if no worker answers, the rows keep what visibility has.
    running = [thread for thread, row in rows.items() if row["status"] == "running"]
    answers = await _query_all(running, lambda name: threads.runs.query(name, "state", within=2), within=2)
    for thread, state in answers.items():
        if isinstance(state, dict):
            rows[thread] |= {name: state[name] for name in ("agent", "status", "step")}
    return [row for row in rows.values() if status in (None, row["status"])]


async def _latest_runs(threads: Threads, found: list[WorkflowExecution], status: str | None) -> list[WorkflowExecution]:
    """Keep the latest run of each thread, newest first: a closed thread that was re-opened has several runs."""
    newest: dict[str, WorkflowExecution] = {}
    for run in sorted(found, key=lambda run: run.start_time, reverse=True):
        newest.setdefault(run.id, run)
    if status in CLOSED:  # later runs, with another status, are not among those found
        answers = await _query_all(list(newest), lambda name: threads.runs.describe(name, loops=True))
        later = {name for name, run in answers.items() if _run_id(run) not in ("", newest[name].run_id)}
        newest = {name: run for name, run in newest.items() if name not in later}
    return list(newest.values())


def _run_id(described: Any) -> str:
    return "" if isinstance(described, HoldfastError) else str(described.run_id)


async def _search(threads: Threads, query: str, limit: int) -> list[WorkflowExecution]:
    try:
        return [row async for row in list_runs(threads.runs.client, query, limit=limit, within=timedelta(seconds=10))]
    except RPCError as error:
        if error.status is RPCStatusCode.INVALID_ARGUMENT and "Holdfast" in error.message:
            raise HoldfastError(
                f"namespace {threads.runs.client.namespace!r} lacks Holdfast's search attributes "
                f"({one_line(error.message)}). A worker registers them when it starts."
            ) from error
        raise threads.runs.translate_error(error) from error


async def _query_all(names: Sequence[str], query: Any, *, within: float | None = None) -> dict[str, Any]:
    """Return each thread's answer or HoldfastError, without the threads that gave neither within the limit."""
    slots = asyncio.Semaphore(_MAX_CONCURRENT)

    async def one(thread: str) -> Any:
        async with slots:
            try:
                return await query(thread)
            except HoldfastError as error:
                return error

    tasks = {thread: asyncio.create_task(one(thread)) for thread in names}
    if tasks:
        _, late = await asyncio.wait(tasks.values(), timeout=within)
        for task in late:
            task.cancel()
    return {thread: task.result() for thread, task in tasks.items() if task.done() and not task.cancelled()}


def _status_filter(status: str | None) -> str:
    """Return the part of a visibility query that finds runs of that status."""
    if status is None:
        return ""
    if status not in STATUSES:
        raise StatusInvalid(f"there is no status {status!r}; there are: {', '.join(STATUSES)}")
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


def _row(run: WorkflowExecution) -> JSON:
    known = run.typed_search_attributes
    return {
        "thread": run.id,
        "agent": known.get(_AGENT),
        "status": status_of(run),
        "step": known.get(_STEP) or 0,
        "started_at": run.start_time.isoformat(),
    }
