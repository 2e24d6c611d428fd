"""Migrate a thread: end its run here as `moved`, and write it to a file that another cluster imports.

Before the run is ended, a trial export is written and dropped: a thread that cannot be exported stays here. A killed
move is repeated with the same command: a thread that has already ended as moved is only exported, and an existing file
with the same bytes is left as it is.
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
    note: Note = lambda message: None,
) -> Exported:
    """Move a thread to a new file. Waits until tools under way have ended.

    Args:
        threads: The namespace's threads.
        thread: The thread id.
        path: The file.
        by: The person who moves it.
        reason: The reason, for the log.
        to: The id of the only namespace that may import it (`holdfast.portable.destination`); empty for any.
        evidence: Ledger and artifacts, which must be in the file.
        private: The key to sign the move and the file with; None to sign nothing.
        note: Called with a message about the wait.

    Raises:
        NotAccepted: The run cannot be moved: it is a sub-agent's or a loop's, or has open sub-agents.
        ThreadNotFound: There is no such thread.
        ExportFailed: The file exists, or the thread cannot be exported with all that it needs.
        ServerUnreachable: The server or the worker is unreachable. Move the thread again.
    """
    execution = await threads.reader.find(thread)
    ended = not execution or execution.status in ENDED
    if ended:
        await _check_destination(threads, thread, to)
    if ended and _is_file(path):
        return await _earlier_export(threads, thread, path, evidence=evidence, private=private)
    with new_file(path) as file:
        if execution and execution.status not in ENDED:
            if execution.parent_id:
                reason = f"{execution.parent_id!r} waits for it here"
                raise NotAccepted(f"thread {thread!r} cannot be moved: {reason}", outcome="not_movable")
            _check_complete(await export_thread(threads, thread, file, evidence=evidence, private=private))
            await _end(threads, thread, by=by, reason=reason, to=to, private=private, note=note)
            await _check_destination(threads, thread, to)
            file.seek(0)
            file.truncate()
        exported = await export_thread(threads, thread, file, evidence=evidence, private=private)
        _check_complete(exported)
        return exported


async def _check_destination(threads: Threads, thread: str, to: str) -> None:
    """Check that the log of a moved thread has the requested destination, if one is requested.

    Raises:
        ExportFailed: The log has another destination.
    """
    if not to:
        return
    events = await threads.recorded_events(thread)
    recorded = next((event.to for event in reversed(events) if isinstance(event, MoveRequested)), to)
    if recorded != to:
        where = f"to the place {recorded}" if recorded else "without a destination"
        raise ExportFailed(f"thread {thread!r} was moved {where} before, and that stays in its log")


async def _earlier_export(
    threads: Threads, thread: str, path: Path, *, evidence: Evidence | None, private: str | None
) -> Exported:
    """Accept the file of an earlier, killed move, if a new export has the same bytes.

    Raises:
        ExportFailed: The file differs.
    """
    with tempfile.TemporaryFile(dir=path.parent) as again:
        exported = await export_thread(threads, thread, again, evidence=evidence, private=private)
        _check_complete(exported)
        again.seek(0)
        if not await asyncio.to_thread(_is_same, path, again):
            raise ExportFailed(f"{path} exists already, and is not the file of thread {thread!r} as it has ended")
        return exported


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _is_same(path: Path, other: BinaryIO) -> bool:
    with suppress(PermissionError), path.open("rb") as file:
        while part := file.read(PART_BYTES):
            if part != other.read(PART_BYTES):
                return False
        return not other.read(1)
    return False


def _missing_parts(exported: Exported) -> list[LeftOut]:
    """Return the missing parts that a thread needs to continue. Missing sub-agents have ended, or are forgotten."""
    return [each for each in exported.left_out if each != "subagents"]


def _check_complete(exported: Exported) -> None:
    if missing := _missing_parts(exported):
        raise ExportFailed(
            f"the file of thread {exported.thread!r} would have no {' and no '.join(missing)}, without which it cannot "
            "continue elsewhere: set DATABASE_URL, and HOLDFAST_ARTIFACTS where the workers have it"
        )


async def _end(
    threads: Threads, thread: str, *, by: str, reason: str, to: str, private: str | None, note: Note
) -> None:
    """End the run as `moved`, and wait until it has ended.

    Raises:
        NotAccepted: The thread cannot be moved, and stays here.
        NoWorker: No worker is running; the next one will end the run.
    """
    payload = {"by": by, "reason": reason} | ({"to": to} if to else {})
    answer = await intervene(threads, thread, "move", payload, private=private)
    if answer.outcome == SENT:
        raise NoWorker(f"thread {thread!r} ends when a worker runs: repeat the move then ({answer.explanation})")
    if answer.outcome not in ("accepted", "duplicate", "too_late"):
        raise NotAccepted(f"thread {thread!r} was not moved: {answer.explanation}", outcome=answer.outcome)
    note(answer.explanation)
    while (await threads.runs.describe(thread)).status not in ENDED:  # noqa: ASYNC110  # the server has no event to wait for
        await asyncio.sleep(_LOOK_SECONDS)
