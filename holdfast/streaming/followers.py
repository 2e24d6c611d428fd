"""Follows each thread once in a process, for all who read it: a hundred readers poll its worker as often as one.

A reader first catches up on its own, at its own pace. Then it joins the follower of the thread, which keeps the last
events. One that falls behind these catches up again, so a slow reader costs the others nothing.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from holdfast.client.follow import follow
from holdfast.client.threads import JSON, Threads
from holdfast.streaming.hub import Subscription

TAIL = 64
"""The most events of a thread that are kept."""


class _Follower:
    """Follows one thread from a position on."""

    def __init__(self, threads: Threads, thread: str, after: int) -> None:
        self.floor = after
        """Events up to this position are not kept."""
        self.ahead = asyncio.Event()
        """Set if there is reason to poll at once."""
        self.readers: set[asyncio.Event] = set()
        """Each is set when there may be more."""
        self._tail: deque[JSON] = deque()
        self.task = asyncio.create_task(self._follow(threads, thread, after))

    async def _follow(self, threads: Threads, thread: str, after: int) -> None:
        try:
            async for event in follow(threads, thread, after=after, patient=True, ahead=self.ahead):
                self._tail.append(event)
                if len(self._tail) > TAIL:
                    self.floor = self._tail.popleft()["position"]
                self._tell()
        finally:
            self._tell()

    def _tell(self) -> None:
        for reader in self.readers:
            reader.set()

    def after(self, position: int) -> list[JSON]:
        """Return the events after a position that is not below the floor."""
        return [event for event in self._tail if event["position"] > position]


class Followers:
    """The threads that a process follows.

    Args:
        threads: The namespace's threads.
    """

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._followers: dict[str, _Follower] = {}

    async def follow(self, thread: str, *, after: int, subscription: Subscription | None = None) -> AsyncIterator[JSON]:
        """Yield the events after a position as `holdfast.client.follow.follow` does, with patience. Readers share the
        events, and must not change them.

        Args:
            thread: The thread id.
            after: The last position that the reader has.
            subscription: The reader's, of the replies that are being written; None for none.

        Raises:
            HoldfastError: See `follow`.
        """
        position = after
        while True:
            known = self._followers.get(thread)
            gone = known.floor if known else position  # what was there before, and cannot be read now, is skipped
            async for event in follow(self._threads, thread, after=position, patient=True, until_quiet=True):
                position = event["position"]
                yield event
            position = max(position, gone)
            with self._join(thread, position) as (follower, news):
                if subscription:
                    subscription.ahead = follower.ahead
                while position >= follower.floor:
                    news.clear()
                    is_over = follower.task.done()
                    for event in follower.after(position):
                        position = event["position"]
                        yield event
                        if position < follower.floor:
                            break
                    else:
                        if is_over:
                            follower.task.result()
                            return
                        await news.wait()

    @contextmanager
    def _join(self, thread: str, position: int) -> Iterator[tuple[_Follower, asyncio.Event]]:
        """Read with a thread's follower for a block; the last reader stops it."""
        follower, news = self._followers.get(thread), asyncio.Event()
        if follower is None or follower.task.done():
            follower = self._followers[thread] = _Follower(self._threads, thread, position)
        follower.readers.add(news)
        try:
            yield follower, news
        finally:
            follower.readers.discard(news)
            if not follower.readers:
                follower.task.cancel()
                if self._followers.get(thread) is follower:
                    del self._followers[thread]
