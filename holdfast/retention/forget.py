"""Forget a thread: remove its content from the database and from Temporal, and keep the digests of its events.

The order matters: once the database has forgotten a thread, nothing can be recorded under its id any more; then
Temporal's histories are removed. Of two calls, or after a kill, the later one completes what the earlier one began.
"""

from contextlib import suppress
from dataclasses import dataclass

from psycopg_pool import AsyncConnectionPool

from holdfast.client.artifacts import references
from holdfast.client.prune import is_open
from holdfast.client.threads import Threads
from holdfast.composition.stores import Stores
from holdfast.config.programs import CLI
from holdfast.core.stores import origin_of
from holdfast.errors import HoldfastError, Refused, SettingsError, ThreadForgotten, ThreadNotFound
from holdfast.retention.histories import Removed, remove_histories
from holdfast.storage.artifacts import PostgresArtifacts
from holdfast.storage.forget import Forgotten
from holdfast.storage.forget import forget as forget_content
from holdfast.storage.threads import PostgresThreads


@dataclass(frozen=True)
class Report:
    """What was forgotten of a thread."""

    content: Forgotten
    histories: Removed
    files: tuple[str, ...]
    """Addresses of artifacts in a store that does not record which threads refer to them: they stay."""
    unrecorded: str
    """Why the last events may have no digest in the record; empty if all have one."""


async def check_forgettable(threads: Threads, thread: str) -> None:
    """Check that a thread can be forgotten; one that was forgotten before can be.

    Raises:
        ThreadNotFound: There is no such thread.
        Refused: A run is open, or the id is that of a log that was set aside.
    """
    if origin := origin_of(thread):
        raise Refused(f"{thread!r} is the log that a reset of {origin!r} has set aside: forget {origin!r}")
    with suppress(ThreadForgotten):
        await threads.reader.find(thread, loops=True)
    if await is_open(threads.runs, thread):
        raise Refused(f"thread {thread!r} has an open run: `{CLI.command('cancel', thread)}`, then forget it")


async def forget_thread(
    threads: Threads, pool: AsyncConnectionPool, stores: Stores, thread: str, *, by: str, reason: str
) -> Report:
    """Remove the content of a closed thread for good.

    Args:
        threads: The namespace's threads.
        pool: Connections to the database.
        stores: Where threads and artifacts are kept.
        thread: The id of a thread or a loop.
        by: Who removes it.
        reason: Why; it is kept.

    Raises:
        ThreadNotFound: There is no such thread.
        Refused: A run is open.
        SettingsError: The catalog keeps threads in a store of its own.
        ServerUnreachable: Temporal does not answer.
    """
    if not isinstance(stores.threads, PostgresThreads):
        raise SettingsError("the catalog keeps threads in a store of its own: remove the thread in that store")
    await check_forgettable(threads, thread)
    unrecorded, files = "", list[str]()
    try:
        if not isinstance(stores.artifacts, PostgresArtifacts):
            files = [each.address async for each in references(threads, thread)]
        await _record_rest(threads, stores.threads, thread)
    except (ThreadForgotten, ThreadNotFound):
        pass  # forgotten before, or a loop, which has recorded all of its events
    except HoldfastError as error:
        unrecorded = str(error)
    content = await forget_content(pool, thread, by=by, reason=reason)
    histories = await remove_histories(threads.runs, thread)
    # A call of a run that was closed from outside may have ended only now, and recorded its outcome.
    await forget_content(pool, thread, by=by, reason=reason)
    return Report(content, histories, tuple(dict.fromkeys(files)), unrecorded)


async def _record_rest(threads: Threads, store: PostgresThreads, thread: str) -> None:
    """Record the last events of a run that was closed from outside, so that their digests remain."""
    position = await store.length(thread)
    found = await threads.reader.find(thread)
    if found is None:
        return
    lines = [line async for line in threads.reader.lines(thread, position, found=found, note=None, use_worker=False)]
    if lines:
        await store.append(thread, position, lines)
