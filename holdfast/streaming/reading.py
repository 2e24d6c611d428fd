"""Reads a thread as it happens: its events, and the chunks of the reply that is being written, in one order.

Without streams, or while they fail, there are events alone.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Protocol

from holdfast.client.follow import follow
from holdfast.client.threads import JSON, Threads
from holdfast.core.streams.chunks import Chunk, Cursor
from holdfast.core.streams.following import Following
from holdfast.streaming.hub import Hub, Subscription

AHEAD = 64
"""The most events that are read ahead of the reader."""

LOOK_BACK = 50
"""The most events before the cursor that are read again, to find out whether stored chunks are obsolete."""


class EventSource(Protocol):
    """Follows threads for several readers: `holdfast.streaming.followers.Followers`, for one."""

    def follow(self, thread: str, *, after: int, subscription: Subscription | None = None) -> AsyncIterator[JSON]:
        """Yield the events after a position until the run has ended. If chunks wait for events, the subscription's
        `ahead` is set.
        """


async def read_stream(
    threads: Threads,
    hub: Hub | None,
    thread: str,
    cursor: Cursor = Cursor(),  # noqa: B008  # immutable
    *,
    patient: bool = False,
    note: Callable[[str], None] = lambda line: None,
    pulse: Callable[[], None] = lambda: None,
    followers: EventSource | None = None,
) -> AsyncIterator[JSON | Chunk]:
    """Yield the events after a cursor and the chunks of replies, until the latest run of the thread has ended.

    Args:
        threads: The namespace's threads.
        hub: The streams of this process; None to yield events alone.
        thread: The thread id.
        cursor: The last id that the reader has.
        patient: See `follow`.
        note: See `follow`.
        pulse: See `follow`.
        followers: Follows for several readers, with patience and without notes; None to follow alone.

    Raises:
        HoldfastError: See `follow`.
    """

    def followed(after: int, reader: Subscription | None) -> AsyncIterator[JSON]:
        if followers:
            return followers.follow(thread, after=after, subscription=reader)
        ahead = reader.ahead if reader else None
        return follow(threads, thread, after=after, patient=patient, note=note, pulse=pulse, ahead=ahead)

    if hub is None:
        async for event in followed(cursor.after, None):
            yield event
        return
    following = Following(cursor)
    after = cursor.after
    if cursor.position >= 0 and (first := await hub.first_position(thread)) is not None:
        after = max(min(after, first - 1), after - LOOK_BACK, -1)
    behind = after < cursor.after
    # Events that the reader has are read again first: they say which chunks are obsolete.
    events: asyncio.Queue[JSON] = asyncio.Queue(AHEAD)
    async with AsyncExitStack() as stack:
        reader = stack.enter_context(hub.subscribe(thread))

        async def read_events() -> None:
            try:
                async for event in followed(after, reader):
                    await events.put(event)
                    reader.news.set()
            finally:
                reader.news.set()

        log = asyncio.create_task(read_events())
        stack.push_async_callback(_stop, log)
        while True:
            while not events.empty():
                if following.event(event := events.get_nowait()):
                    yield event
                behind = behind and event["position"] < cursor.after
            if log.done() and events.empty():
                log.result()
                return
            if not behind:
                reader.advance(following)
                for chunk in following.chunks(reader.attempts):
                    yield chunk
            if events.empty() and not log.done():
                await reader.news.wait()
                reader.news.clear()


async def _stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
