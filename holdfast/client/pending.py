"""Lists the open requests of all threads, and the threads that have some.

Temporal's visibility store finds the threads, and their runs are asked for the requests.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from temporalio.client import WorkflowExecution

from holdfast.client.listing import LATEST, PENDING, STEP, of_prefixes, read_each
from holdfast.client.reading.reader import Note
from holdfast.client.reading.runs import status_of
from holdfast.client.searching import search
from holdfast.client.threads import JSON, Threads
from holdfast.errors import HoldfastError, NoWorker

PENDING_AT_ONCE = 50
"""Queries in flight. A run that never answers holds a slot for `Runs.answer_within`."""

PENDING_SECONDS = 25.0
"""Time limit for all queries, in seconds: less than the gateway waits for any response. Anybody with access to Temporal
can start runs that claim to have open requests and never answer."""


@dataclass(frozen=True)
class UnreachableThread:
    """A thread that could not be queried while listing, and why."""

    thread: str
    error: HoldfastError


async def list_pending(
    threads: Threads,
    *,
    limit: int = 1_000,
    prefixes: Sequence[str] = (),
    note: Note | None = None,
    within: float = PENDING_SECONDS,
) -> tuple[list[JSON], list[UnreachableThread]]:
    """List the open requests of all threads, and the threads that have some but could not be read.

    Threads on this client's task queue are read first. Threads that are not read in time count as unread.

    Args:
        threads: The namespace's threads.
        limit: Maximum number of threads.
        prefixes: Only threads whose id begins with one of these; none for all.
        note: Called once with a message when no worker answers and requests are read from Temporal's histories; None to
            count such threads as unread.
        within: Time limit for all of them, in seconds.
    """
    first = await _waiting(threads, limit=limit, prefixes=prefixes)
    silent: list[str] = []

    async def pending(thread: str) -> list[JSON]:
        # Each unanswered query costs seconds: after the first one, histories are read immediately.
        keep = silent.append if note else None
        return await threads.pending(thread, note=keep, use_worker=not silent)

    answers = await read_each([run.id for run in first], pending, within=within, at_once=PENDING_AT_ONCE)
    late = f"it was not read within the {within:g} s for all open requests: read it alone"
    answers |= {run.id: NoWorker(f"thread {run.id!r}: {late}") for run in first if run.id not in answers}
    if silent and note:
        note(f"{silent[0]} These requests are from Temporal's histories.")
    unanswered = [UnreachableThread(*each) for each in answers.items() if isinstance(each[1], HoldfastError)]
    return [request for each in answers.values() if isinstance(each, list) for request in each], unanswered


class RowVersion(NamedTuple):
    """What Temporal's visibility store has about a run that waits. It changes with the run, though not always: a
    request that replaces another at once leaves it as it was.
    """

    run_id: str
    status: str
    step: int
    pending: int


async def list_waiting(threads: Threads, *, limit: int = 1_000) -> dict[str, RowVersion]:
    """Return the threads that have open requests by Temporal's visibility store, which lags, and which anybody with
    access to Temporal can write: those on this client's task queue first.

    Args:
        threads: The namespace's threads.
        limit: Maximum number of threads.
    """
    rows: dict[str, RowVersion] = {}
    for run in await _waiting(threads, limit=limit):
        known = run.typed_search_attributes
        row = RowVersion(run.run_id, status_of(run), known.get(STEP) or 0, known.get(PENDING) or 0)
        rows.setdefault(run.id, row)
    return rows


async def _waiting(threads: Threads, *, limit: int, prefixes: Sequence[str] = ()) -> list[WorkflowExecution]:
    """Return the runs with open requests, those on this client's task queue first."""
    # Not by ExecutionStatus: paused runs have a separate one, which older servers reject in a query.
    query = f"{LATEST} AND HoldfastPending > 0 AND CloseTime IS NULL{of_prefixes(prefixes)}"
    found = await search(threads, query, limit=limit)
    return sorted(found, key=lambda run: run.task_queue != threads.task_queue)
