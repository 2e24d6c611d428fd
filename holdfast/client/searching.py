"""Find runs in Temporal's visibility store, which lags a little: the newest ones first."""

import heapq
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256

from temporalio.client import WorkflowExecution
from temporalio.service import RPCError, RPCStatusCode

from holdfast.client.reading.executions import list_runs, page_of_runs
from holdfast.client.threads import Threads
from holdfast.core.base.text import one_line
from holdfast.core.run.contracts.runs import WORKFLOW
from holdfast.errors import CursorInvalid, HoldfastError

_WITHIN = timedelta(seconds=10)


async def search(threads: Threads, query: str, *, limit: int | None = None) -> list[WorkflowExecution]:
    """Return the runs that a visibility query finds, in the server's order.

    Raises:
        HoldfastError: The namespace lacks Holdfast's search attributes.
        ServerUnreachable: The server does not answer.
    """
    return [run async for run in _runs(threads, query, limit)]


async def open_threads(threads: Threads) -> list[str]:
    """Return the ids of the threads with open runs, according to Temporal's visibility store.

    Raises:
        ServerUnreachable: The server does not answer.
    """
    # Not by ExecutionStatus: paused runs have a separate one, which older servers reject in a query.
    found = await search(threads, f"WorkflowType = '{WORKFLOW}' AND CloseTime IS NULL")
    return list(dict.fromkeys(run.id for run in found))


async def newest(threads: Threads, query: str, *, limit: int) -> list[WorkflowExecution]:
    """Return the latest runs of the `limit` threads that were started last, newest first.

    The server cannot sort by start: it lists open runs by their start, then closed runs by their end. A run that ended
    before the oldest found run started is older than all of them, and so is each later run in the list.

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


async def search_page(threads: Threads, query: str, *, size: int, cursor: str) -> tuple[list[WorkflowExecution], str]:
    """Return a page of the runs that a visibility query finds, in the server's order, and the next page's cursor.

    Args:
        threads: The namespace's threads.
        query: The visibility query.
        size: Maximum number of runs.
        cursor: The cursor of the page; empty for the first, and after the last one.

    Raises:
        CursorInvalid: The cursor does not come from an earlier page.
        HoldfastError: The namespace lacks Holdfast's search attributes.
        ServerUnreachable: The server does not answer.
    """
    token = token_of(cursor)
    try:
        runs, following = await page_of_runs(threads.runs.client, query, size=size, cursor=token, within=_WITHIN)
    except RPCError as error:
        if cursor and error.status is RPCStatusCode.INVALID_ARGUMENT:
            raise cursor_invalid() from error
        raise _translate_error(threads, error) from error
    return runs, cursor_of(following)


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
        raise _translate_error(threads, error) from error


def _translate_error(threads: Threads, error: RPCError) -> HoldfastError:
    """Return the HoldfastError for an error of a search."""
    if error.status is RPCStatusCode.INVALID_ARGUMENT and "Holdfast" in error.message:
        return HoldfastError(
            f"namespace {threads.runs.client.namespace!r} lacks Holdfast's search attributes "
            f"({one_line(error.message)}). A worker registers them when it starts."
        )
    return threads.runs.translate_error(error)


_CHECKSUM_BYTES = 6


def cursor_of(token: bytes) -> str:
    """Return the cursor for a token of the server; empty for none."""
    if not token:
        return ""
    return urlsafe_b64encode(sha256(token).digest()[:_CHECKSUM_BYTES] + token).decode().rstrip("=")


def token_of(cursor: str) -> bytes:
    """Return the server's token in a cursor.

    Raises:
        CursorInvalid: It was not created by `cursor_of`.
    """
    try:
        token = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))[_CHECKSUM_BYTES:]
    except ValueError:
        raise cursor_invalid() from None
    if cursor_of(token) != cursor:
        raise cursor_invalid()
    return token


def cursor_invalid() -> CursorInvalid:
    """Return the error for a cursor that does not come from an earlier page."""
    return CursorInvalid("this is no cursor of a page of threads; leave it out to begin with the first page")
