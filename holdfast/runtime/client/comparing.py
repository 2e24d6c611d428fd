"""Read two threads, or one thread up to two of its events, and compare them (`holdfast.run.comparing`)."""

import re

from holdfast.errors import PositionInvalid
from holdfast.log.events import AgentEvent
from holdfast.run.comparing import Comparison, compare
from holdfast.runtime.client.threads import Threads
from holdfast.runtime.reading.reader import Note
from holdfast.runtime.reading.states import decode_lines

_AT = re.compile(r"(.+)@(\d{1,9})", re.ASCII | re.DOTALL)


def parse_place(text: str) -> tuple[str, int | None]:
    """Return the thread and the position that `THREAD@N` names; None where it names no position."""
    match = _AT.fullmatch(text)
    return (match[1], int(match[2])) if match else (text, None)


async def events_up_to(threads: Threads, thread: str, at: int | None, *, note: Note | None = None) -> list[AgentEvent]:
    """Return a thread's events up to a position, with that one; all of them for None.

    Raises:
        PositionInvalid: There is no such event.
        ThreadNotFound: There is no such thread.
        EventsMissing: Some of them can no longer be read.
    """
    events: list[AgentEvent] = []
    async for event in decode_lines(threads.reader.lines(thread, 0, found=None, note=note)):
        events.append(event)
        if event.position == at:
            return events
    if at is not None:
        raise PositionInvalid(
            f"thread {thread!r} has no event {at}: its events are at positions 0 to {len(events) - 1}"
        )
    return events


async def compare_threads(
    threads: Threads, first: tuple[str, int | None], second: tuple[str, int | None], *, note: Note | None = None
) -> Comparison:
    """Compare two threads, each up to a position or as a whole.

    Raises:
        PositionInvalid: A thread has no such event.
        ThreadNotFound: There is no such thread.
        EventsMissing: Some of the events can no longer be read.
    """
    one = await events_up_to(threads, *first, note=note)
    return compare(one, await events_up_to(threads, *second, note=note))
