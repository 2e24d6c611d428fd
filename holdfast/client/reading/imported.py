"""Whether a sub-agent's log may have come in a file: then no run continues it here.

Decisions that people made elsewhere do not count here, and nothing in a sub-agent's log says that it was imported: the
log of the thread at the top of its tree does. Clients ask before they start a run. The run asks again: an import may
have come in between, and a client of an older release does not ask.
"""

import contextlib
import json

from holdfast.client.reading.reader import Reader
from holdfast.core.tools.subagents import parent_thread
from holdfast.errors import ThreadForgotten, ThreadNotFound


async def may_be_imported(reader: Reader, thread: str, first: bytes) -> bool:
    """Return whether a log is a sub-agent's whose tree did not begin here, or has come with a file.

    Args:
        reader: Reads the thread at the top.
        thread: The thread id.
        first: The first line of its log.

    Raises:
        HistoryUnreadable: This release cannot read the start of the thread at the top.
    """
    lineage = json.loads(first).get("lineage") if parent_thread(thread) else None
    return lineage is not None and not await _began_here(reader, lineage["path"][0])


async def _began_here(reader: Reader, thread: str) -> bool:
    """Whether a thread is here, and no file has brought any of its log."""
    ended = ""
    with contextlib.suppress(ThreadNotFound, ThreadForgotten):
        found = await reader.find(thread)
        if found and (await reader.history(found)).given.imported:
            return False  # no worker has picked it up yet
        async for line in reader.lines(thread, 0, found=found, note=None, use_worker=False):
            event = json.loads(line)
            if event["type"] == "run_imported":
                return False
            ended = event.get("outcome") or event["type"]
        # An import that was interrupted leaves a log that ends as moved, and no run.
        return bool(found) or ended != "moved"
    return False
