"""Prune the permanent record: threads that ended long ago, and of which no run is open."""

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

from holdfast.errors import ThreadNotFound
from holdfast.runtime.reading.record import Ended, OpenRecord
from holdfast.runtime.reading.runs import ENDED, Runs


async def candidates(runs: Runs, record: OpenRecord, *, older_than: timedelta) -> list[Ended]:
    """The threads to prune, the oldest first: all that ended before that, and of which no run is open.

    Raises:
        ServerUnreachable: Temporal cannot say which runs are open.
    """
    return [one for one in await record.prunable(older_than) if not await is_open(runs, one.thread)]


async def prune(runs: Runs, record: OpenRecord, threads: Sequence[Ended]) -> AsyncIterator[tuple[Ended, bool]]:
    """Remove threads, and tell of each whether it was removed: not one that has grown or was reopened since.

    Raises:
        ServerUnreachable: Temporal cannot say any more which runs are open; those that are left stay.
    """
    for one in threads:
        gone = not await is_open(runs, one.thread) and await record.prune(one.thread, last_position=one.last_position)
        yield one, gone


async def is_open(runs: Runs, thread: str) -> bool:
    """Whether a run of the thread is open."""
    try:
        found = await runs.describe(thread)
    except ThreadNotFound:
        return False
    return found.status not in ENDED
