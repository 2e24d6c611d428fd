"""Detect whether a sub-agent's log may have been imported from a file: then no run continues it here.

Decisions made on another cluster do not count here, and only the log of the thread at the top of a sub-agent's tree
records the import. Clients check before they start a run. The run checks again, because an import may have happened in
between, and clients of older releases do not check.
"""

import contextlib
import json

from holdfast.client.reading.reader import Reader
from holdfast.core.tools.subagents import parent_thread
from holdfast.errors import ThreadForgotten, ThreadNotFound


async def may_be_imported(reader: Reader, thread: str, first: bytes) -> bool:
    """Return whether a log is a sub-agent's whose tree did not begin here or was imported from a file.

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
    """Whether a thread exists here and no part of its log was imported from a file."""
    ended = ""
    with contextlib.suppress(ThreadNotFound, ThreadForgotten):
        found = await reader.find(thread)
        if found and (await reader.history(found)).run_input.imported:
            return False  # an import that no worker has picked up yet
        async for line in reader.lines(thread, 0, found=found, note=None, use_worker=False):
            event = json.loads(line)
            if event["type"] == "run_imported":
                return False
            ended = event.get("outcome") or event["type"]
        # An interrupted import leaves a log that ends as moved, and no run.
        return bool(found) or ended != "moved"
    return False
