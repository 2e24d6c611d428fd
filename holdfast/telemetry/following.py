"""Follows the record: delivers what is new in each thread to a receiver, at least once and in order, in any process.

Whoever follows by the same name shares one place in the record: if the process that delivers ends, another continues.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import psycopg

from holdfast.config.logs import EventLogger
from holdfast.core.log.events import AgentEvent
from holdfast.core.log.loop_events import IterationEnded, IterationStarted, LoopStarted, StoredEvent, WorkspaceSurveyed
from holdfast.core.log.upcasters import decode_stored, parse_event
from holdfast.core.stores import ThreadStore
from holdfast.errors import EventUnreadable, RecordUnreadable, ThreadForgotten
from holdfast.storage.feeds import BEGINNING, Feed, Growing, Place, reading_feed

LOOK_SECONDS = 1.0
"""Time between two looks at a record without news."""

RETRY_SECONDS = (1.0, 60.0)
"""The shortest and longest time before a failed delivery is repeated."""

MOST_BYTES = 64_000_000
"""Bytes of a thread's events after which they are delivered before more are read. Any activation fits into them."""

BATCH_BYTES = 4_000_000
"""Bytes of events that are delivered together, from several threads."""

OF_LOOPS = (LoopStarted, WorkspaceSurveyed, IterationStarted, IterationEnded)
"""Events of the logs of loops, which no receiver takes."""

log = EventLogger("telemetry")


@dataclass(frozen=True)
class Taken:
    """What a receiver has taken of a thread."""

    position: int
    """The position after the last event that it needs no more."""
    carried: Any
    """What it needs from the events before, as JSON."""
    again: bool = False
    """The events from `position` on are to be delivered again, although nothing is new."""


class Held(Exception):
    """A receiver did not take the events of some threads, which are delivered again later."""


class Receiver(Protocol):
    """Takes the events of threads."""

    async def deliver(self, threads: Sequence["Part"]) -> Sequence[Taken]:
        """Take new events of some threads; return how far, for each of them.

        If it raises, the same events are delivered again later.
        """
        ...


@dataclass(frozen=True)
class Part:
    """The new events of one thread."""

    thread: str
    events: Sequence[AgentEvent]
    carried: Any
    """What the receiver returned for the thread before; None at its beginning."""


@asynccontextmanager
async def following(
    name: str, receiver: Receiver, *, database_url: str, threads: ThreadStore, past: bool = False
) -> AsyncIterator[None]:
    """Deliver news of the record to a receiver, during a block.

    Args:
        name: Of the feed: it has one place in the record for all processes.
        receiver: Takes the events.
        database_url: The database, migrated.
        threads: The record in that database.
        past: Begin with the threads that are already recorded, if the feed is new.
    """
    with suppress(psycopg.Error):  # otherwise, the feed begins when the database is back
        async with reading_feed(database_url, name, past=past):
            pass  # whatever the block records is delivered
    task = asyncio.create_task(_follow(name, receiver, database_url, threads, past))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _follow(name: str, receiver: Receiver, url: str, threads: ThreadStore, past: bool) -> None:
    shortest, longest = RETRY_SECONDS
    pause = shortest
    while True:
        try:
            async with reading_feed(url, name, past=past) as feed:
                while feed is not None:
                    more = await look(feed, receiver, threads)
                    pause = shortest
                    if not more:
                        await asyncio.sleep(LOOK_SECONDS)
        # The worker continues whatever happens here, and what was not delivered is delivered later.
        except Exception as error:
            log.warning("not_delivered", feed=name, reason=str(error) or type(error).__name__, again_in=pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, longest)
        else:
            await asyncio.sleep(longest / 12)  # another process delivers


async def look(feed: Feed, receiver: Receiver, threads: ThreadStore) -> bool:
    """Deliver one page of news; return whether there may be more at once.

    Raises:
        psycopg.Error: The database is unavailable.
        Held: The receiver did not take everything. The other threads were delivered.
        Exception: The receiver's. What was not delivered is delivered again.
    """
    held: list[str] = []
    news = await feed.news()
    moved: list[tuple[Growing, Place]] = []
    unread, size = False, 0
    waiting: list[tuple[Growing, Part]] = []
    for growing in news.threads:
        new = await _read(threads, growing)
        if new is None:
            continue
        unread = unread or not new.complete
        own = [event for event in new.events if not isinstance(event, OF_LOOPS)]
        if own:
            waiting.append((growing, Part(growing.thread, own, new.place.carried)))
        else:
            moved.append((growing, Place(new.events[-1].position + 1, new.events[-1].digest, None)))
        size += new.size
        if size > BATCH_BYTES:
            moved += await _deliver(receiver, waiting, held)
            waiting, size = [], 0
    moved += await _deliver(receiver, waiting, held)
    if unread or held:
        feed.stay()
    await feed.move(moved)
    if held:
        raise Held(f"{len(held)} threads were not taken, such as {held[0]}")
    return news.more or unread


async def _deliver(
    receiver: Receiver, waiting: Sequence[tuple[Growing, Part]], held: list[str]
) -> list[tuple[Growing, Place]]:
    """Deliver events of threads; return the new place in each that has one. Add those that were not taken to `held`."""
    if not waiting:
        return []
    taken = await receiver.deliver([part for _, part in waiting])
    moved = []
    for (growing, part), each in zip(waiting, taken, strict=True):
        if each.again:
            held.append(part.thread)
        before = [event for event in part.events if event.position < each.position]
        if before:
            moved.append((growing, Place(each.position, before[-1].digest, each.carried)))
    return moved


class _New(NamedTuple):
    place: Place
    """Where the events begin."""
    events: list[StoredEvent]
    size: int
    complete: bool
    """Whether these are all."""


def _decoded(lines: Sequence[bytes]) -> list[StoredEvent]:
    return [decode_stored(line) for line in lines]


async def _read(threads: ThreadStore, growing: Growing) -> _New | None:
    """Read the new events of a thread; None if there are none, or they cannot be read."""
    thread, place = growing.thread, growing.place
    try:
        if place.position:
            before = await threads.read(thread, place.position - 1)
            if not before or parse_event(before[0]).get("digest") != place.head:
                place = BEGINNING  # the run was reset, and its new branch has other events
        events: list[StoredEvent] = []
        size, at = 0, place.position
        while lines := await threads.read(thread, at):
            events += await asyncio.to_thread(_decoded, lines)
            at, size = at + len(lines), size + sum(map(len, lines))
            if size > MOST_BYTES:
                return _New(place, events, size, complete=False)
    except ThreadForgotten:
        return None
    except (EventUnreadable, RecordUnreadable) as error:  # the threads after it must still be delivered
        log.warning("thread_not_delivered", thread=thread, reason=str(error))
        return None
    return _New(place, events, size, complete=True) if events else None
