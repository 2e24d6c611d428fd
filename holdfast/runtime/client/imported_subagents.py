"""Whether the log of a sub-agent may have come in a file: people's decisions in such a log do not count here.

Such a log is in the record alone, and the thread at the top of its tree was imported. If that thread is gone, or absent
because the import was killed, nothing shows where the sub-agent ran.
"""

import json

from holdfast.errors import HistoryUnreadable, Refused, ThreadForgotten, ThreadNotFound
from holdfast.runtime.programs import CLI
from holdfast.runtime.reading.reader import Reader
from holdfast.tools.subagents import parent_thread


async def refuse_imported_subagent(reader: Reader, thread: str) -> None:
    """Refuse to continue the log of a sub-agent that may have come in a file.

    Raises:
        Refused: It did, or nothing shows that it did not.
        RecordUnavailable: The record does not answer: no worker finds this out.
    """
    if not (record := reader.record) or not parent_thread(thread) or not await record.length(thread):
        return
    if await may_be_imported(reader, thread):
        raise Refused(
            f"nothing here shows that sub-agent {thread!r} ran here; if its log came with a file, its run ended "
            f"elsewhere: `{CLI.command('fork', thread)}` continues it as a fork"
        )


async def may_be_imported(reader: Reader, thread: str) -> bool:
    """Whether the log is a sub-agent's whose tree is not here, or came in a file."""
    if not parent_thread(thread):
        return False
    first = json.loads(await anext(aiter(reader.lines(thread, 0, found=None, note=None, use_worker=False))))
    lineage = first.get("lineage")
    return lineage is not None and not await _began_here(reader, lineage["path"][0])


async def _began_here(reader: Reader, thread: str) -> bool:
    """Whether a thread is here, and no part of its log came in a file."""
    try:
        found = await reader.find(thread)
        if found and (await reader.history(found)).given.imported:
            return False  # no worker has picked it up yet
        async for line in reader.lines(thread, 0, found=found, note=None, use_worker=False):
            if json.loads(line)["type"] == "run_imported":
                return False
    except (ThreadNotFound, ThreadForgotten, HistoryUnreadable):
        return False
    return True
