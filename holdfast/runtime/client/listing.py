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
from holdfast.runtime.client.cursors import cursor_invalid, cursor_of, token_of
from holdfast.runtime.client.threads import JSON, Threads
from holdfast.runtime.reading.executions import list_runs, page_of_runs
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
_SEARCH_TIME = timedelta(seconds=10)


@dataclass(frozen=True)
class Unanswered:
    """A thread that could not be queried while listing, and why."""

    thread: str
    error: HoldfastError


async def list_pending(
    threads: Threads, *, limit: int = 1_000, prefixes: Sequence[str] = ()
) -> tuple[list[JSON], list[Unanswered]]:
    """List the open requests of all threads, and the threads that have some but could not be queried.

    Args:
        threads: The namespace's threads.
        limit: The most threads.
        prefixes: Only threads whose id begins with one of these; none for all.
    """
    # Not by ExecutionStatus: paused runs have one of their own, which older servers reject in a query.
    found = await _search(
        threads, f"{_LATEST} AND HoldfastPending > 0 AND CloseTime IS NULL{_of_prefixes(prefixes)}", limit
    )
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
    return await _rows(threads, found, status)


async def list_page(
    threads: Threads,
    *,
    status: str | None = None,
    agent: str = "",
    prefixes: Sequence[str] = (),
    limit: int = 100,
    cursor: str = "",
) -> tuple[list[JSON], str]:
    """List a page of threads, as `list_threads` does, without loops; return it with the cursor of the next page.

    Open threads come first, the newest first; then closed ones, the last closed first. A page may have fewer rows than
    `limit`; the cursor is empty at the end. Threads that change meanwhile may be missed, or come twice.

    Args:
        threads: The namespace's threads.
        status: Only those with this status.
        agent: Only those of this agent, whose name has the form of `Agent.name`; empty for all.
        prefixes: Only threads whose id begins with one of these; none for all.
        limit: The most rows.
        cursor: Where the page begins; empty for the first.

    Raises:
        StatusInvalid: There is no such status.
        CursorInvalid: No page has given this cursor.
    """
    query = _RUNS + _status_filter(status) + _of_prefixes(prefixes)
    if agent:
        query += f" AND {_AGENT.name} = '{agent}'"
    try:
        runs, following = await page_of_runs(
            threads.runs.client, query, size=limit, cursor=token_of(cursor), within=_SEARCH_TIME
        )
    except RPCError as error:
        if cursor and error.status is RPCStatusCode.INVALID_ARGUMENT:
            raise cursor_invalid() from error
        raise _translated(threads, error) from error
    earlier = await _earlier_runs(threads, [run for run in runs if run.status in ENDED])
    latest = [run for run in runs if run.run_id not in earlier and run.id.startswith(tuple(prefixes) or "")]
    return await _rows(threads, latest, status), cursor_of(following)


async def _rows(threads: Threads, found: Sequence[WorkflowExecution], status: str | None) -> list[JSON]:
    """The rows of threads, in the same order; of running ones as their workers see them."""
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
        earlier = await _earlier_runs(threads, list(newest.values()))
        newest = {name: run for name, run in newest.items() if run.run_id not in earlier}
    return list(newest.values())


async def _earlier_runs(threads: Threads, closed: Sequence[WorkflowExecution]) -> set[str]:
    """The Temporal ids of those runs that are not the latest of their threads."""
    answers = await _query_all(list({run.id for run in closed}), lambda name: threads.runs.describe(name, loops=True))
    return {run.run_id for run in closed if _run_id(answers.get(run.id)) not in ("", run.run_id)}


def _run_id(described: Any) -> str:
    return str(getattr(described, "run_id", ""))  # an error has none


async def _search(threads: Threads, query: str, limit: int) -> list[WorkflowExecution]:
    try:
        return [row async for row in list_runs(threads.runs.client, query, limit=limit, within=_SEARCH_TIME)]
    except RPCError as error:
        raise _translated(threads, error) from error


def _translated(threads: Threads, error: RPCError) -> HoldfastError:
    """The HoldfastError for an error of a search."""
    if error.status is RPCStatusCode.INVALID_ARGUMENT and "Holdfast" in error.message:
        return HoldfastError(
            f"namespace {threads.runs.client.namespace!r} lacks Holdfast's search attributes "
            f"({one_line(error.message)}). A worker registers them when it starts."
        )
    return threads.runs.translate_error(error)


def _of_prefixes(prefixes: Sequence[str]) -> str:
    """Return the part of a visibility query that finds the threads whose id begins with one of these."""
    each = (f"WorkflowId STARTS_WITH '{prefix}'" for prefix in prefixes)
    return f" AND ({' OR '.join(each)})" if prefixes else ""


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
