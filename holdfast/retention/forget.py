"""Forget a thread: remove its content from the database and from Temporal, and keep the digests of its events.

The order matters: once the database has forgotten a thread, nothing can be recorded under its id any more; then
Temporal's histories are removed. After a kill, or if two calls overlap, the later call completes the earlier one.
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
from holdfast.retention.histories import RemovedHistories, remove_histories
from holdfast.storage.artifacts import PostgresArtifacts
from holdfast.storage.forget import ForgetResult
from holdfast.storage.forget import forget as forget_content
from holdfast.storage.threads import PostgresThreads


@dataclass(frozen=True)
class Report:
    """The content, histories and files of a forgotten thread."""

    content: ForgetResult
    histories: RemovedHistories
    files: tuple[str, ...]
    """Addresses of artifacts that stay, because their store does not record which threads refer to them."""
    unrecorded: str
    """The reason why the last events may have no digest in the record; empty if all have one."""


async def check_forgettable(threads: Threads, thread: str) -> None:
    """Check that a thread can be forgotten; a forgotten thread can be forgotten again.

    Raises:
        ThreadNotFound: There is no such thread.
        Refused: A run is open, or the id is that of an archived branch (a log replaced by a reset).
    """
    if origin := origin_of(thread):
        raise Refused(f"{thread!r} is an archived branch of {origin!r}, which a reset abandoned: forget {origin!r}")
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
        stores: The stores of threads and artifacts.
        thread: The id of a thread or a loop.
        by: The person who removes it.
        reason: The reason; it is kept.

    Raises:
        ThreadNotFound: There is no such thread.
        Refused: A run is open.
        SettingsError: The catalog has its own thread store.
        ServerUnreachable: Temporal is unreachable.
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
        pass  # already forgotten, or a loop, which has recorded all of its events
    except HoldfastError as error:
        unrecorded = str(error)
    content = await forget_content(pool, thread, by=by, reason=reason)
    histories = await remove_histories(threads.runs, thread)
    # A call of a run that was terminated may have ended and recorded its outcome since the first removal.
    await forget_content(pool, thread, by=by, reason=reason)
    return Report(content, histories, tuple(dict.fromkeys(files)), unrecorded)


async def _record_rest(threads: Threads, store: PostgresThreads, thread: str) -> None:
    """Record the last events of a terminated run, so that their digests remain."""
    position = await store.length(thread)
    execution = await threads.reader.find(thread)
    if execution is None:
        return
    lines = [
        line async for line in threads.reader.lines(thread, position, found=execution, note=None, use_worker=False)
    ]
    if lines:
        await store.append(thread, position, lines)
