"""Prune the permanent record: delete threads that ended long ago and have no open run."""

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

from holdfast.errors import ThreadNotFound
from holdfast.runtime.reading.record import EndedThread, OpenRecord
from holdfast.runtime.reading.runs import ENDED, Runs


async def list_prunable(runs: Runs, record: OpenRecord, *, older_than: timedelta) -> list[EndedThread]:
    """List the threads to prune, oldest first: those that ended longer ago than that and have no open run.

    Raises:
        ServerUnreachable: Temporal does not answer, so it is unknown which runs are open.
    """
    return [ended for ended in await record.prunable(older_than) if not await is_open(runs, ended.thread)]


async def prune(
    runs: Runs, record: OpenRecord, threads: Sequence[EndedThread]
) -> AsyncIterator[tuple[EndedThread, bool]]:
    """Delete threads, and yield each with whether it was deleted; one that has grown or was re-opened since stays.

    Raises:
        ServerUnreachable: Temporal no longer answers; the remaining threads stay.
    """
    for ended in threads:
        deleted = not await is_open(runs, ended.thread) and await record.prune(
            ended.thread, last_position=ended.last_position
        )
        yield ended, deleted


async def is_open(runs: Runs, thread: str) -> bool:
    """Return whether a run of the thread, or the loop of that id, is open."""
    try:
        found = await runs.describe(thread, loops=True)
    except ThreadNotFound:
        return False
    return found.status not in ENDED
