"""Reads the events of threads that are new for a receiver, beyond what it has already read in memory."""

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

from holdfast.config.logs import EventLogger
from holdfast.core.log.events import AgentEvent
from holdfast.core.log.loop_events import IterationEnded, IterationStarted, LoopStarted, StoredEvent, WorkspaceSurveyed
from holdfast.core.log.upcasters import decode_stored, parse_event
from holdfast.core.stores import ThreadStore
from holdfast.errors import EventUnreadable, RecordUnreadable, ThreadForgotten
from holdfast.storage.feeds import BEGINNING, Growing, Place

MOST_BYTES = 64_000_000
"""Bytes of a thread's events after which they are delivered before more are read. Any activation fits into them."""

OF_LOOPS = (LoopStarted, WorkspaceSurveyed, IterationStarted, IterationEnded)
"""Events of the logs of loops, which no receiver takes."""

log = EventLogger("telemetry")


class Ahead(NamedTuple):
    """A thread that was read beyond its place in the record."""

    place: Place
    """After the last event that was read."""
    delivered: int
    """The position of its place in the record."""
    state: Any
    size: int
    """Bytes of the events between the two."""


class New(NamedTuple):
    """The new events of one thread."""

    begin: Ahead
    """Where the events begin."""
    events: list[StoredEvent]
    size: int
    complete: bool
    """Whether these are all."""

    @property
    def own(self) -> list[AgentEvent]:
        """Without those of loops."""
        return [event for event in self.events if not isinstance(event, OF_LOOPS)]

    @property
    def end(self) -> Place:
        """The place after the events."""
        return Place(self.events[-1].position + 1, self.events[-1].digest, self.begin.place.carried)


def _decoded(lines: Sequence[bytes]) -> list[StoredEvent]:
    return [decode_stored(line) for line in lines]


async def read_news(threads: ThreadStore, growing: Growing, ahead: Ahead | None) -> New | None:
    """Read the new events of a thread; None if there are none, or they cannot be read.

    Args:
        threads: The record.
        growing: The thread.
        ahead: How far it was read before, beyond its place in the record.
    """
    thread = growing.thread
    try:
        begin, lines = await _begin(threads, growing, ahead)
        events: list[StoredEvent] = []
        size, at = 0, begin.place.position
        while lines:
            events += await asyncio.to_thread(_decoded, lines)
            at, size = at + len(lines), size + sum(map(len, lines))
            if size > MOST_BYTES:
                return New(begin, events, size, complete=False)
            lines = await threads.read(thread, at)
    except ThreadForgotten:
        return None
    except (EventUnreadable, RecordUnreadable) as error:  # the threads after it must still be delivered
        log.warning("thread_not_delivered", thread=thread, reason=str(error))
        return None
    return New(begin, events, size, complete=True) if events else None


async def _begin(threads: ThreadStore, growing: Growing, ahead: Ahead | None) -> tuple[Ahead, list[bytes]]:
    """Return where to begin, and the first lines from there on."""
    recorded = Ahead(growing.place, growing.place.position, None, 0)
    for begin in (ahead, recorded) if ahead else (recorded,):
        if not begin.place.position:
            continue
        lines = await threads.read(growing.thread, begin.place.position - 1)
        if lines and parse_event(lines[0]).get("digest") == begin.place.head:
            return begin, lines[1:] or await threads.read(growing.thread, begin.place.position)
        # The run was reset, and its new branch has other events.
    return Ahead(BEGINNING, 0, None, 0), await threads.read(growing.thread, 0)
