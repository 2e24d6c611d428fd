"""Imports the logs of ended sub-agents: they go into the permanent record, and no run of them is started.

1. They are imported only from a file with a trusted signature, because their trust level rests on the signer.
2. An open sub-agent continues in its original cluster: it and the sub-agents below it stay in the file only.
3. Under each id, this cluster must have nothing, or the same log. A forgotten sub-agent stays forgotten.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from psycopg_pool import AsyncConnectionPool

from holdfast.client.threads import Threads
from holdfast.core.mac.seals import FleetKeys
from holdfast.core.stores import ThreadStore
from holdfast.errors import ImportRefused, ThreadExists, ThreadForgotten, ThreadNotFound
from holdfast.portable.format.members import LOG, child_member
from holdfast.portable.reader import PortableFile
from holdfast.storage.imported_effects import ImportedEffect, conflicting, put_effects


@dataclass(frozen=True)
class SubagentContent:
    """The content of a file about an ended sub-agent."""

    thread: str
    path: str
    """The numbers of the calls below the root thread, as `3.1`."""
    artifacts: Sequence[str]
    """Addresses in its log."""
    effects: Sequence[ImportedEffect]
    """The ledger's rows."""


async def importable_children(
    threads: Threads, file: PortableFile, children: Sequence[SubagentContent], pool: AsyncConnectionPool
) -> list[SubagentContent]:
    """Return the sub-agents whose logs may be recorded here: all except forgotten ones. Nothing is written.

    Raises:
        ThreadExists: Another thread here has the id of one.
        ImportRefused: The ledger here has another outcome of an effect.
    """
    importable = []
    for child in children:
        with suppress(ThreadForgotten):
            await _refuse_another(threads, file, child)
            if effect := await conflicting(pool, child.thread, child.effects):
                raise ImportRefused(f"the ledger here has another outcome of effect {effect}, of {child.thread!r}")
            importable.append(child)
    return importable


async def _refuse_another(threads: Threads, file: PortableFile, child: SubagentContent) -> None:
    """Reject a log whose id belongs to another thread here, or to one of which Temporal has fewer events."""
    with suppress(ThreadNotFound):
        execution = await threads.reader.find(child.thread, loops=True)
        lines, position = await lines_of(file, child), 0
        async for line in threads.reader.lines(child.thread, 0, found=execution, note=None, use_worker=False):
            if position == len(lines) or line != lines[position]:
                break
            position += 1
        else:
            if execution is None:
                return
        if position < len(lines):
            raise ThreadExists(
                f"there is another thread {child.thread!r} here, which is the id of a sub-agent in the file: event "
                f"{position} differs. Nothing was imported."
            )


async def lines_of(file: PortableFile, child: SubagentContent) -> list[bytes]:
    """Return the log of a sub-agent.

    Raises:
        Unsound: The log was altered since the file was checked.
    """
    return await asyncio.to_thread(lambda: list(file.lines(child_member(LOG, child.path))))


async def put_child(
    file: PortableFile, child: SubagentContent, store: ThreadStore, pool: AsyncConnectionPool, *, seals: FleetKeys
) -> None:
    """Store the ledger's rows and then the log of a sub-agent; existing ones are kept."""
    with suppress(ThreadForgotten):  # by a concurrent call
        await put_effects(pool, child.thread, child.effects, seals=seals)
        await store.append(child.thread, 0, await lines_of(file, child))
