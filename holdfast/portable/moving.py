"""Move a thread: end its run here as `moved`, and write it to a file that another place imports.

Before the run is ended, the file is written once, and dropped: a thread that cannot be exported stays where it is. A
killed move is repeated with the same command: a thread that has ended as moved is only exported, and the file
that it was exported to before is left as it is, if that has the same bytes.
"""

import asyncio
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from holdfast.client.interventions import intervene
from holdfast.client.reading.reader import Note
from holdfast.client.reading.record import Evidence
from holdfast.client.reading.runs import ENDED
from holdfast.client.sending import SENT
from holdfast.client.threads import Threads
from holdfast.core.log.events import MoveRequested
from holdfast.errors import ExportFailed, NotAccepted, NoWorker
from holdfast.portable.export import PART_BYTES, export_thread
from holdfast.portable.format.manifest import Exported, LeftOut
from holdfast.portable.writer import new_file

_LOOK_SECONDS = 0.1


async def move_thread(
    threads: Threads,
    thread: str,
    path: Path,
    *,
    by: str,
    reason: str = "",
    to: str = "",
    evidence: Evidence | None,
    private: str | None,
    note: Note = lambda words: None,
) -> Exported:
    """Move a thread to a new file. Tools under way end first, and this waits for them.

    Args:
        threads: The namespace's threads.
        thread: The thread id.
        path: The file.
        by: Who moves it.
        reason: Why; it is in the log.
        to: The id of the only place that may import it (`holdfast.portable.destination`); empty for any.
        evidence: Ledger and artifacts, which have to be in the file.
        private: The key to sign the move and the file with; None to sign nothing.
        note: Called with a message about what is waited for.

    Raises:
        NotAccepted: The run cannot be moved: it is a sub-agent's or a loop's, or has sub-agents that are open.
        ThreadNotFound: There is no such thread.
        ExportFailed: The file exists, or the thread cannot be exported with all that it needs.
        ServerUnreachable: No server or no worker answers. Move it again.
    """
    found = await threads.reader.find(thread)
    ended = not found or found.status in ENDED
    if ended:
        await _check_destination(threads, thread, to)
    if ended and _is_file(path):
        return await _made_before(threads, thread, path, evidence=evidence, private=private)
    with new_file(path) as file:
        if found and found.status not in ENDED:
            if found.parent_id:
                why = f"{found.parent_id!r} waits for it here"
                raise NotAccepted(f"thread {thread!r} cannot be moved: {why}", outcome="not_movable")
            _check_complete(await export_thread(threads, thread, file, evidence=evidence, private=private))
            await _end(threads, thread, by=by, reason=reason, to=to, private=private, note=note)
            await _check_destination(threads, thread, to)
            file.seek(0)
            file.truncate()
        made = await export_thread(threads, thread, file, evidence=evidence, private=private)
        _check_complete(made)
        return made


async def _check_destination(threads: Threads, thread: str, to: str) -> None:
    """Check that a thread that was moved is for the place that is named, if one is: its log says for which.

    Raises:
        ExportFailed: It is for another one.
    """
    if not to:
        return
    events = await threads.recorded_events(thread)
    named = next((event.to for event in reversed(events) if isinstance(event, MoveRequested)), to)
    if named != to:
        where = f"to the place {named}" if named else "without a destination"
        raise ExportFailed(f"thread {thread!r} was moved {where} before, and that stays in its log")


async def _made_before(
    threads: Threads, thread: str, path: Path, *, evidence: Evidence | None, private: str | None
) -> Exported:
    """Return what a move that was killed after its last step has left: the file that it would write now.

    Raises:
        ExportFailed: The file is another one.
    """
    with tempfile.TemporaryFile(dir=path.parent) as again:
        made = await export_thread(threads, thread, again, evidence=evidence, private=private)
        _check_complete(made)
        again.seek(0)
        if not await asyncio.to_thread(_is_same, path, again):
            raise ExportFailed(f"{path} exists already, and is not the file of thread {thread!r} as it has ended")
        return made


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _is_same(path: Path, other: BinaryIO) -> bool:
    with suppress(PermissionError), path.open("rb") as file:
        while part := file.read(PART_BYTES):
            if part != other.read(PART_BYTES):
                return False
        return not other.read(1)
    return False


def _lacks(made: Exported) -> list[LeftOut]:
    """What a thread cannot continue elsewhere without. Sub-agents that it lacks have ended, or are forgotten."""
    return [each for each in made.left_out if each != "subagents"]


def _check_complete(made: Exported) -> None:
    if lacks := _lacks(made):
        raise ExportFailed(
            f"the file of thread {made.thread!r} would have no {' and no '.join(lacks)}, without which it cannot "
            "continue elsewhere: set DATABASE_URL, and HOLDFAST_ARTIFACTS where the workers have it"
        )


async def _end(
    threads: Threads, thread: str, *, by: str, reason: str, to: str, private: str | None, note: Note
) -> None:
    """End the run as `moved`, and wait until it has ended.

    Raises:
        NotAccepted: It stays here.
        NoWorker: No worker answers: the next one will end it.
    """
    asked = {"by": by, "reason": reason} | ({"to": to} if to else {})
    answer = await intervene(threads, thread, "move", asked, private=private)
    if answer.outcome == SENT:
        raise NoWorker(f"thread {thread!r} ends when a worker runs: repeat the move then ({answer.explanation})")
    if answer.outcome not in ("accepted", "duplicate", "too_late"):
        raise NotAccepted(f"thread {thread!r} was not moved: {answer.explanation}", outcome=answer.outcome)
    note(answer.explanation)
    while (await threads.runs.describe(thread)).status not in ENDED:  # noqa: ASYNC110  # the server's
        await asyncio.sleep(_LOOK_SECONDS)
