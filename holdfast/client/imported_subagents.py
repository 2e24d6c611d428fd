"""Whether the log of a sub-agent may have come in a file: people's decisions in such a log do not count here.

Such a log is in the record alone, and the thread at the top of its tree was imported. If that thread is gone, or absent
because the import was killed, nothing shows where the sub-agent ran.
"""

from holdfast.client.reading import imported
from holdfast.client.reading.reader import Reader
from holdfast.config.programs import CLI
from holdfast.core.tools.subagents import parent_thread
from holdfast.errors import HistoryUnreadable, Refused


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
    """Whether the log is a sub-agent's whose tree is not here, or came in a file; also if that cannot be read."""
    if not parent_thread(thread):
        return False
    first = await anext(aiter(reader.lines(thread, 0, found=None, note=None, use_worker=False)))
    try:
        return await imported.may_be_imported(reader, thread, first)
    except HistoryUnreadable:
        return True
