"""Prune the permanent record: delete threads that ended long ago and have no open run."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from holdfast.client.reading.record import EndedThread, OpenRecord
from holdfast.client.reading.runs import ENDED, Runs
from holdfast.core.base.retention import Retention
from holdfast.core.log.node_seals import SignRecord, unsealed
from holdfast.core.stores import ThreadStore
from holdfast.core.tools.subagents import parent_thread
from holdfast.errors import RecordUnreadable, ThreadNotFound


async def list_prunable(
    runs: Runs, record: OpenRecord, *, older_than: timedelta | None = None, retention: Retention | None = None
) -> list[EndedThread]:
    """List the threads to prune, oldest first: those that ended long enough ago and have no open run.

    A sub-agent is kept while a run that may still read its result is open.

    Args:
        runs: The namespace's runs.
        record: The permanent record.
        older_than: Minimum age of the last event.
        retention: Rules by outcome of the last run, in place of `older_than`.

    Raises:
        ServerUnreachable: Temporal does not answer, so it is unknown which runs are open.
    """
    rules = retention or Retention((("finished", older_than or timedelta()),))
    now = datetime.now(UTC)
    found = [each for each in await record.prunable(rules.least) if rules.is_due(each.outcome, now - each.last_at)]
    return [ended for ended in found if not await is_needed(runs, ended.thread)]


async def prune(
    runs: Runs, record: OpenRecord, threads: Sequence[EndedThread], *, seal: SignRecord = unsealed
) -> AsyncIterator[tuple[EndedThread, bool]]:
    """Delete threads, and yield each with whether it was deleted; one that has grown or was re-opened since is kept.

    Args:
        runs: The namespace's runs.
        record: The permanent record.
        threads: As `list_prunable` listed them.
        seal: Seals that the threads are pruned; otherwise their earlier seals only show that they are missing.

    Raises:
        ServerUnreachable: Temporal no longer answers; the remaining threads are kept.
    """
    for ended in threads:
        deleted = not await is_needed(runs, ended.thread)
        if deleted:
            await seal_pruned(record.threads, ended, seal)
            deleted = await record.prune(ended.thread, last_position=ended.last_position)
        yield ended, deleted


async def seal_pruned(store: ThreadStore, ended: EndedThread, seal: SignRecord) -> None:
    """Seal that a thread is about to be pruned, unless its last event cannot be read because it was altered."""
    if seal is unsealed:
        return
    with suppress(ValueError, LookupError, TypeError, RecordUnreadable):
        last = await store.read(ended.thread, ended.last_position)
        await seal(ended.thread, ended.events, str(json.loads(last[0])["digest"]), gone="pruned")


async def is_needed(runs: Runs, thread: str) -> bool:
    """Return whether a run of the thread is open, or of any thread above it that may have started it as a sub-agent."""
    if await is_open(runs, thread):
        return True
    parent = parent_thread(thread)
    return bool(parent) and await is_needed(runs, parent)


async def is_open(runs: Runs, thread: str) -> bool:
    """Return whether a run of the thread, or the loop of that id, is open."""
    try:
        found = await runs.describe(thread, loops=True)
    except ThreadNotFound:
        return False
    return found.status not in ENDED
