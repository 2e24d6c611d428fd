"""Follows the record: delivers what is new in each thread to a receiver, at least once and in order, in any process.

Whoever follows by the same name shares one place in the record: if the process that delivers ends, another continues.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

from holdfast.config.logs import EventLogger
from holdfast.core.log.events import AgentEvent
from holdfast.core.stores import ThreadStore
from holdfast.storage.feeds import Feed, Growing, Place, reading_feed
from holdfast.telemetry.news import Ahead, New, read_news

LOOK_SECONDS = 1.0
"""Time between two looks at a record without news."""

LAST_SECONDS = 3.0
"""Time to deliver what is new at the end of a block. Another process delivers the rest, or the next one."""

RETRY_SECONDS = (1.0, 60.0)
"""The shortest and longest time before a failed delivery is repeated."""

BATCH_BYTES = 4_000_000
"""Bytes of events that are delivered together, from several threads."""

AHEAD_BYTES = 32_000_000
"""Bytes of events that receivers may have read beyond their places in the record, in all threads. Beyond this, the
threads that have not grown for the longest time are read again from their places."""

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
    state: Any = None
    """What has come of the events from `position` on, in memory: with it, only later ones have to be delivered. Without
    it, and after a failure, those from `position` on are delivered again together with what is new."""


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
    state: Any = None
    """What the receiver returned as `Taken.state`: the events are those after it. None if they begin at its place."""


@asynccontextmanager
async def following(
    name: str,
    receiver: Receiver,
    *,
    database_url: str,
    threads: ThreadStore,
    past: bool = False,
    every: float = LOOK_SECONDS,
) -> AsyncIterator[None]:
    """Deliver news of the record to a receiver, during a block and at its end.

    Args:
        name: Of the feed: it has one place in the record for all processes.
        receiver: Takes the events.
        database_url: The database, migrated.
        threads: The record in that database.
        past: Begin with the threads that are already recorded, if the feed is new.
        every: Seconds between two looks at a record without news.
    """
    begun, ending = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(_follow(name, receiver, database_url, threads, past, every, begun, ending))
    try:
        await begun.wait()  # all that the block records is delivered
        yield
        ending.set()
        await asyncio.wait([task], timeout=LAST_SECONDS)
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _follow(
    name: str,
    receiver: Receiver,
    url: str,
    threads: ThreadStore,
    past: bool,
    every: float,
    begun: asyncio.Event,
    ending: asyncio.Event,
) -> None:
    """Deliver until the block ends, and then what is new, once.

    `begun` is set once the feed has a place in the record; without a database, it begins when that is back.
    """
    shortest, longest = RETRY_SECONDS
    pause = shortest
    ended = False
    while not ended:
        try:
            async with reading_feed(url, name, past=past) as feed:
                begun.set()
                ahead: dict[int, Ahead] = {}
                while feed is not None and not ended:
                    last = ending.is_set()
                    more = await look(feed, receiver, threads, ahead)
                    pause = shortest
                    if not more:
                        ended = last
                        await _is_set(ending, within=every)
        # The worker continues whatever happens here, and what was not delivered is delivered later.
        except Exception as error:
            begun.set()
            log.warning("not_delivered", feed=name, reason=str(error) or type(error).__name__, again_in=pause)
            ended = await _is_set(ending, within=pause)
            pause = min(2 * pause, longest)
        else:
            ended = await _is_set(ending, within=longest / 12)  # another process delivers


async def _is_set(event: asyncio.Event, *, within: float) -> bool:
    """Wait for an event for some seconds; return whether it is set."""
    with suppress(TimeoutError):
        async with asyncio.timeout(within):
            await event.wait()
    return event.is_set()


async def look(feed: Feed, receiver: Receiver, threads: ThreadStore, ahead: dict[int, Ahead] | None = None) -> bool:
    """Deliver one page of news; return whether there may be more at once.

    Args:
        feed: The feed.
        receiver: Takes the events.
        threads: The record.
        ahead: The threads that this feed and receiver have read ahead. It is updated, and invalid after an error.

    Raises:
        psycopg.Error: The database is unavailable.
        Held: The receiver did not take everything. The other threads were delivered.
        Exception: The receiver's. What was not delivered is delivered again.
    """
    ahead = {} if ahead is None else ahead
    held: list[str] = []
    news = await feed.news()
    moved: list[tuple[Growing, Place]] = []
    unread, size = False, 0
    waiting: list[tuple[Growing, New]] = []
    for growing in news.threads:
        new = await read_news(threads, growing, ahead.pop(growing.number, None))
        if new is None:
            continue
        unread = unread or not new.complete
        if new.own:
            waiting.append((growing, new))
        else:
            moved.append((growing, new.end._replace(carried=None)))
        size += new.size
        if size > BATCH_BYTES:
            moved += await _deliver(receiver, waiting, held, ahead)
            waiting, size = [], 0
    moved += await _deliver(receiver, waiting, held, ahead)
    if unread or held:
        feed.stay()
    await feed.move(moved)
    if held:
        raise Held(f"{len(held)} threads were not taken, such as {held[0]}")
    return news.more or unread


async def _deliver(
    receiver: Receiver, waiting: Sequence[tuple[Growing, New]], held: list[str], ahead: dict[int, Ahead]
) -> list[tuple[Growing, Place]]:
    """Deliver events of threads; return the new place in each that has one.

    Add those that were not taken to `held`, and those that the receiver has read ahead to `ahead`.
    """
    if not waiting:
        return []
    parts = [Part(growing.thread, new.own, new.begin.place.carried, new.begin.state) for growing, new in waiting]
    moved = []
    for (growing, new), each in zip(waiting, await receiver.deliver(parts), strict=True):
        begin, size = new.begin, new.size
        if each.again:
            held.append(growing.thread)
        if each.position > begin.delivered:
            before = [event.digest for event in new.own if event.position < each.position]
            moved.append((growing, Place(each.position, [begin.place.head, *before][-1], each.carried)))
        else:
            size += begin.size
        if each.state is not None:
            place = new.end._replace(carried=each.carried)
            ahead[growing.number] = Ahead(place, each.position, each.state, size)
    most = sum(each.size for each in ahead.values()) - AHEAD_BYTES
    while most > 0:
        most -= ahead.pop(next(iter(ahead))).size
    return moved
