"""Find runs in Temporal's visibility store, which lags a little: the newest ones first."""

import heapq
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

from temporalio.client import WorkflowExecution
from temporalio.service import RPCError, RPCStatusCode

from holdfast.base.text import one_line
from holdfast.errors import HoldfastError
from holdfast.runtime.client.threads import Threads
from holdfast.runtime.reading.executions import list_runs

_WITHIN = timedelta(seconds=10)


async def search(threads: Threads, query: str, *, limit: int | None = None) -> list[WorkflowExecution]:
    """Return the runs that a visibility query finds, in the server's order.

    Raises:
        HoldfastError: The namespace lacks Holdfast's search attributes.
        ServerUnreachable: The server does not answer.
    """
    return [run async for run in _runs(threads, query, limit)]


async def newest(threads: Threads, query: str, *, limit: int) -> list[WorkflowExecution]:
    """Return the latest runs of the `limit` threads that were started last, newest first.

    The server cannot sort by start: it lists open runs by their start, then closed runs by their end. Whatever ended
    before the last of the newest had started, and all that follows it, is older than that.

    Raises:
        HoldfastError: The namespace lacks Holdfast's search attributes.
        ServerUnreachable: The server does not answer.
    """
    found: dict[str, WorkflowExecution] = {}
    for run in await search(threads, f"{query} AND CloseTime IS NULL", limit=limit):
        _keep(found, run)
    starts = [run.start_time for run in found.values()]
    heapq.heapify(starts)
    async for run in _runs(threads, f"{query} AND CloseTime IS NOT NULL", None):
        if len(starts) >= limit and (run.close_time or datetime.now(UTC)) < starts[0]:
            break
        if run.id not in found:
            heapq.heappush(starts, run.start_time)
            if len(starts) > limit:
                heapq.heappop(starts)
        _keep(found, run)
    return sorted(found.values(), key=lambda run: run.start_time, reverse=True)[:limit]


def _keep(found: dict[str, WorkflowExecution], run: WorkflowExecution) -> None:
    """Keep the latest run of each thread: a closed thread that was re-opened has several."""
    known = found.get(run.id)
    if known is None or run.start_time > known.start_time:
        found[run.id] = run


async def _runs(threads: Threads, query: str, limit: int | None) -> AsyncIterator[WorkflowExecution]:
    try:
        async for run in list_runs(threads.runs.client, query, limit=limit, within=_WITHIN):
            yield run
    except RPCError as error:
        if error.status is RPCStatusCode.INVALID_ARGUMENT and "Holdfast" in error.message:
            raise HoldfastError(
                f"namespace {threads.runs.client.namespace!r} lacks Holdfast's search attributes "
                f"({one_line(error.message)}). A worker registers them when it starts."
            ) from error
        raise threads.runs.translate_error(error) from error
