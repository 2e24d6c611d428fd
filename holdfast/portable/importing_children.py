"""Imports the logs of sub-agents that have ended: they go into the permanent record, and no run of them is started.

1. Only a file for which somebody vouches brings them: nothing else says how far their content is trusted here.
2. One that was open goes on where it runs, and stays in the file with those below it.
3. Under the id of each, this place has nothing, or the same log. One that was forgotten here stays forgotten.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from psycopg_pool import AsyncConnectionPool

from holdfast.client.threads import Threads
from holdfast.core.mac.seals import Seals
from holdfast.core.stores import ThreadStore
from holdfast.errors import ImportRefused, ThreadExists, ThreadForgotten, ThreadNotFound
from holdfast.portable.format.members import LOG, child_member
from holdfast.portable.reader import PortableFile
from holdfast.storage.imported_effects import ImportedEffect, conflicting, put_effects


@dataclass(frozen=True)
class ChildContent:
    """What a file holds of a sub-agent that has ended."""

    thread: str
    path: str
    """Its place below the thread at the top."""
    artifacts: Sequence[str]
    """Addresses that its log refers to."""
    effects: Sequence[ImportedEffect]
    """The ledger's rows."""


async def fitting(
    threads: Threads, file: PortableFile, children: Sequence[ChildContent], pool: AsyncConnectionPool
) -> list[ChildContent]:
    """Return the sub-agents whose logs may be recorded here: all but those that were forgotten. Nothing is written.

    Raises:
        ThreadExists: Another thread has the id of one here.
        ImportRefused: The ledger here has another outcome of an effect.
    """
    found = []
    for child in children:
        with suppress(ThreadForgotten):
            await _refuse_another(threads, file, child)
            if which := await conflicting(pool, child.thread, child.effects):
                raise ImportRefused(f"the ledger here has another outcome of effect {which}, of {child.thread!r}")
            found.append(child)
    return found


async def _refuse_another(threads: Threads, file: PortableFile, child: ChildContent) -> None:
    """Refuse a log under the id of another thread, or of one that Temporal has here with fewer events."""
    with suppress(ThreadNotFound):
        found = await threads.reader.find(child.thread, loops=True)
        lines, position = await lines_of(file, child), 0
        async for line in threads.reader.lines(child.thread, 0, found=found, note=None, use_worker=False):
            if position == len(lines) or line != lines[position]:
                break
            position += 1
        else:
            if found is None:
                return
        if position < len(lines):
            raise ThreadExists(
                f"there is another thread {child.thread!r} here, which is the id of a sub-agent in the file: event "
                f"{position} differs. Nothing was imported."
            )


async def lines_of(file: PortableFile, child: ChildContent) -> list[bytes]:
    """Return the log of a sub-agent.

    Raises:
        Unsound: It was altered since the file was checked.
    """
    return await asyncio.to_thread(lambda: list(file.lines(child_member(LOG, child.path))))


async def put_child(
    file: PortableFile, child: ChildContent, store: ThreadStore, pool: AsyncConnectionPool, *, seals: Seals
) -> None:
    """Put the ledger's rows, and then the log, of a sub-agent; what is there already is found again."""
    with suppress(ThreadForgotten):  # meanwhile
        await put_effects(pool, child.thread, child.effects, seals=seals)
        await store.append(child.thread, 0, await lines_of(file, child))
