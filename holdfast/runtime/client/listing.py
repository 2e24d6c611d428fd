"""Look across threads: which there are, and what waits for a decision. Temporal's visibility finds them, and lags a
little behind; the runs themselves know best.
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
# Of the Temporal runs of one agent run, the last stands for it.
_LATEST = (
    f"WorkflowType IN ('{contracts.WORKFLOW}', '{contracts.LOOP_WORKFLOW}') AND ExecutionStatus != 'ContinuedAsNew'"
)
_AT_ONCE = 10
"""Queries in flight while listing."""


@dataclass(frozen=True)
class Unanswered:
    """A thread that could not be asked while listing, and why."""

    thread: str
    error: HoldfastError


async def all_pending(threads: Threads, *, limit: int = 1_000) -> tuple[list[JSON], list[Unanswered]]:
    """The open requests of all threads, and the threads that have some but could not be asked."""
    # Not by its status: Temporal has another word for a run that is paused, which older servers do not take.
    found = await _find(threads, f"{_LATEST} AND HoldfastPending > 0 AND CloseTime IS NULL", limit)
    answers = await _ask_all([run.id for run in found], threads.pending)
    unanswered = [Unanswered(*each) for each in answers.items() if isinstance(each[1], HoldfastError)]
    return [request for each in answers.values() if isinstance(each, list) for request in each], unanswered


async def overview(threads: Threads, *, status: str | None = None, limit: int = 100) -> list[JSON]:
    """Threads, newest first: `{"thread", "agent", "status", "step", "started_at"}`.

    Visibility lags a little behind, and knows the step as of the last change of status: runs under way are asked.

    Raises:
        StatusInvalid: There is no such status.
    """
    found = await _latest(threads, await _find(threads, _LATEST + _having(status), limit), status)
    rows = {run.id: _row(run) for run in found}
    # Only a short while: without a worker, what Temporal knows has to do.
    running = [thread for thread, row in rows.items() if row["status"] == "running"]
    answers = await _ask_all(running, lambda name: threads.runs.query(name, "state", within=2), within=2)
    for thread, state in answers.items():
        if isinstance(state, dict):
            rows[thread] |= {name: state[name] for name in ("agent", "status", "step")}
    return [row for row in rows.values() if status in (None, row["status"])]


async def _latest(threads: Threads, found: list[WorkflowExecution], status: str | None) -> list[WorkflowExecution]:
    """One run a thread, newest first: a closed thread that was continued has several, and the last one counts."""
    newest: dict[str, WorkflowExecution] = {}
    for run in sorted(found, key=lambda run: run.start_time, reverse=True):
        newest.setdefault(run.id, run)
    if status in CLOSED:  # later runs, with another status, are not among those found
        answers = await _ask_all(list(newest), lambda name: threads.runs.describe(name, loops=True))
        later = {name for name, run in answers.items() if _run_id(run) not in ("", newest[name].run_id)}
        newest = {name: run for name, run in newest.items() if name not in later}
    return list(newest.values())


def _run_id(described: Any) -> str:
    return "" if isinstance(described, HoldfastError) else str(described.run_id)


async def _find(threads: Threads, query: str, limit: int) -> list[WorkflowExecution]:
    try:
        return [row async for row in list_runs(threads.runs.client, query, limit=limit, within=timedelta(seconds=10))]
    except RPCError as error:
        if error.status is RPCStatusCode.INVALID_ARGUMENT and "Holdfast" in error.message:
            raise HoldfastError(
                f"namespace {threads.runs.client.namespace!r} has no search attributes of Holdfast's yet "
                f"({one_line(error.message)}). A worker registers them when it starts."
            ) from error
        raise threads.runs.in_words(error) from error


async def _ask_all(names: Sequence[str], ask: Any, *, within: float | None = None) -> dict[str, Any]:
    """Each thread's answer or its HoldfastError; those without either when time is up are left out."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(thread: str) -> Any:
        async with gate:
            try:
                return await ask(thread)
            except HoldfastError as error:
                return error

    tasks = {thread: asyncio.create_task(one(thread)) for thread in names}
    if tasks:
        _, late = await asyncio.wait(tasks.values(), timeout=within)
        for task in late:
            task.cancel()
    return {thread: task.result() for thread, task in tasks.items() if task.done() and not task.cancelled()}


def _having(status: str | None) -> str:
    """The part of a visibility query that finds runs of that status."""
    if status is None:
        return ""
    if status not in STATUSES:
        raise StatusInvalid(f"there is no status {status!r}; there are: {', '.join(STATUSES)}")
    if status in CLOSED:
        kinds = ", ".join(f"'{_CAPITALS[kind.name]}'" for kind, word in ENDED.items() if word == status)
        return f" AND ExecutionStatus IN ({kinds})"
    running = " AND ExecutionStatus = 'Running'"
    if status == "running":  # a run that no worker has had yet has no status of ours
        return f"{running} AND (HoldfastStatus = 'running' OR HoldfastStatus IS NULL)"
    return f"{running} AND HoldfastStatus = '{status}'"


_CAPITALS = {
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
