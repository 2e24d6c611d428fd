"""Read a loop's log: from the permanent record, the loop's worker and Temporal's histories.

1. Events that the record lacks come from a query to the loop's worker; if none answers, from Temporal's histories,
   which have every event that was sent to the record, but not the last ones.
2. A closed loop has written all its events, so its record needs no worker.
"""

import json
from collections.abc import AsyncIterator, Sequence

from temporalio.client import WorkflowExecutionDescription

from holdfast.client.reading.continuity import Continuity, position_of
from holdfast.client.reading.histories import converter_for, runs_back
from holdfast.client.reading.reader import Note, Reader
from holdfast.client.reading.runs import ENDED, NeverRan
from holdfast.core.log.event_log import has_ended
from holdfast.core.temporal.loop_history import lines_in
from holdfast.errors import EventsMissing, NoWorker, RecordUnavailable


async def loop_lines(
    reader: Reader, loop: str, start: int, *, found: WorkflowExecutionDescription | None, note: Note | None
) -> AsyncIterator[bytes]:
    """Yield the events of a loop recorded so far from position `start` on, each as its line in the log.

    Args:
        reader: Reads the namespace's threads.
        loop: The loop's id.
        start: The first position.
        found: The latest run's description; None if only the permanent record has the loop.
        note: Called with a message when no worker answers; None to raise instead.

    Raises:
        EventsMissing: Some earlier events are lost.
        LogBroken: The readable events do not follow one another.
        NoWorker: No worker answers, and `note` is None.
    """
    continuity = Continuity(loop, start)
    later: Sequence[bytes] = ()
    unavailable = ""
    if found and not await _is_complete(reader, found):
        later = await _later(reader, found, start, note)
    stop = position_of(later[0]) if later else None
    try:
        if reader.record:
            async for page in reader.record.pages(loop, start, stop):
                for line in continuity.join(page):
                    yield line
    except RecordUnavailable as error:
        unavailable = str(error)
    if later and continuity.position < (stop or 0):
        words = unavailable or "set DATABASE_URL as the workers have it"
        raise EventsMissing(
            f"events {continuity.position} to {(stop or 0) - 1} of loop {loop!r} are in the permanent record only: "
            f"{words}. `--after {(stop or 0) - 1}` skips them.",
            stop=stop,
        )
    for line in continuity.join(later) if later else ():
        yield line


async def _is_complete(reader: Reader, found: WorkflowExecutionDescription) -> bool:
    """Whether the loop is closed and the record contains its end."""
    if found.status not in ENDED or reader.record is None:
        return False
    try:
        length = await reader.record.length(found.id)
        last = await reader.record.store.read(found.id, max(0, length - 1)) if length else []
    except RecordUnavailable:
        return False
    return has_ended(str(json.loads(line).get("type")) for line in reversed(last))


async def _later(reader: Reader, found: WorkflowExecutionDescription, start: int, note: Note | None) -> Sequence[bytes]:
    """Return the events from `start` on that the record may lack, without gaps; the first may come later."""
    lines: list[bytes] = []
    closed = found.run_id if found.status in ENDED else None
    try:
        while page := await reader.runs.query(
            found.id, "log", position_of(lines[-1]) + 1 if lines else start, run_id=closed
        ):
            lines += page.split(b"\n")
    except NeverRan:
        return []
    except NoWorker as silence:
        if found.status not in ENDED:
            if note is None:
                raise
            note(str(silence))
        past = [line for position, line in (await history_lines(reader, found)).items() if position >= start]
        return past
    return lines


async def history_lines(reader: Reader, found: WorkflowExecutionDescription) -> dict[int, bytes]:
    """Return the events in Temporal's histories of a loop, by position, in order."""
    lines: dict[int, bytes] = {}
    async for run in runs_back(reader.runs, found.id, found.run_id, by=converter_for(reader.runs.client, found.id)):
        lines = lines_in(run.events, by=run.by) | lines
    return dict(sorted(lines.items()))
