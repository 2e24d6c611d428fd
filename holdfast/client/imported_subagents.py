"""Refuse to continue a sub-agent's log that may have been imported: people's decisions in it do not count here.

Such a log is only in the record, and the thread at the top of its tree was imported. If that thread is gone, or absent
because the import was killed, there is no evidence of where the sub-agent ran.
"""

from holdfast.client.reading import imported
from holdfast.client.reading.reader import Reader
from holdfast.config.programs import CLI
from holdfast.core.tools.subagents import parent_thread
from holdfast.errors import HistoryUnreadable, Refused


async def refuse_imported_subagent(reader: Reader, thread: str) -> None:
    """Reject a sub-agent's log that may have been imported from a file.

    Raises:
        Refused: It was imported, or there is no evidence that it was not.
        RecordUnavailable: The record does not answer, so the log's origin is unknown.
    """
    if not (record := reader.record) or not parent_thread(thread) or not await record.length(thread):
        return
    if await may_be_imported(reader, thread):
        raise Refused(
            f"nothing here shows that sub-agent {thread!r} ran here; if its log came with a file, its run ended "
            f"elsewhere: `{CLI.command('fork', thread)}` continues it as a fork"
        )


async def may_be_imported(reader: Reader, thread: str) -> bool:
    """Whether the log is a sub-agent's whose tree is not here or was imported; also True if that cannot be read."""
    if not parent_thread(thread):
        return False
    first = await anext(aiter(reader.lines(thread, 0, found=None, note=None, use_worker=False)))
    try:
        return await imported.may_be_imported(reader, thread, first)
    except HistoryUnreadable:
        return True
