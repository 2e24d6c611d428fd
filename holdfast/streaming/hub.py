"""Fans the news of one transport out to all readers in a process: one listener, and one query for all threads.

Readers share the chunks of their thread, and each has its own place in them: a slow reader costs nothing, and finds the
latest attempt when it returns.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

from holdfast.config.logs import EventLogger
from holdfast.core.streams.chunks import Chunk
from holdfast.core.streams.following import Attempts, Following
from holdfast.streaming.transport import EVERYTHING, PAGE, Transport, Wanted

READ_SECONDS = 5.0
RETRY_SECONDS = 2.0

ATTEMPTS = 3
"""The most attempts at one reply that are kept, the latest."""

MOST_CHARS = 2_000_000
"""The most characters of one thread that are kept."""

log = EventLogger("streams")


class Subscription:
    """One reader's view of a thread."""

    def __init__(self, hub: "Hub", channel: "_Channel") -> None:
        self._hub = hub
        self._channel = channel
        self.news = asyncio.Event()
        """Set when there may be new chunks."""
        self.ahead = asyncio.Event()
        """Set when chunks may wait for events that the reader does not have yet."""

    @property
    def attempts(self) -> Attempts:
        """The chunks of the thread's next reply."""
        return self._channel.attempts

    def advance(self, following: Following) -> None:
        """Say how far the reader is in the log."""
        if self._channel.advance(following):
            self._hub.refresh(self._channel)


class _Channel:
    """The chunks of one thread, shared by its readers."""

    def __init__(self, thread: str) -> None:
        self.thread = thread
        self.attempts: dict[int, dict[int, Chunk]] = {}
        self.readers: set[Subscription] = set()
        self._after, self._upto = -1, 0
        self._chars = 0

    @property
    def wanted(self) -> Wanted:
        """What is missing, as far as the readers have come in the log."""
        attempt = max((each for each, chunks in self.attempts.items() if 1 in chunks), default=0)
        chunks = self.attempts.get(attempt, {})
        return Wanted(self.thread, self._after, self._upto, attempt, _last_in_order(chunks))

    def advance(self, following: Following) -> bool:
        """Take the place of the reader that is furthest in the log; return whether more chunks may be visible now."""
        if following.ended > self._after:
            self._after = following.ended
            for attempt in [n for n, chunks in self.attempts.items() if self._is_obsolete(chunks.values())]:
                self._drop(attempt)
        further = following.next > self._upto
        self._upto = max(self._upto, following.next)
        return further

    def add(self, chunk: Chunk) -> bool:
        """Add a chunk; return whether it is new."""
        if not self._after < chunk.position <= self._upto or self._chars > MOST_CHARS:
            return False
        chunks = self.attempts.setdefault(chunk.attempt, {})
        if chunk.chunk in chunks:
            return False
        chunks[chunk.chunk] = chunk
        self._chars += len(chunk.text)
        if len(self.attempts) > ATTEMPTS:
            self._drop(min(self.attempts))
        return True

    def _is_obsolete(self, chunks: Iterable[Chunk]) -> bool:
        return all(each.position <= self._after for each in chunks)

    def _drop(self, attempt: int) -> None:
        self._chars -= sum(len(each.text) for each in self.attempts.pop(attempt).values())


def _last_in_order(chunks: dict[int, Chunk]) -> int:
    # Chunks are numbered from 1, and usually there is no gap.
    last = len(chunks)
    if last in chunks:
        return last
    return next((number for number in range(last) if number + 1 not in chunks), 0)


class Hub:
    """The streams of one process. `listening` opens it.

    Args:
        transport: Carries the chunks.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._channels: dict[str, _Channel] = {}
        self._dirty: dict[_Channel, None] = {}
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._warned: set[str] = set()

    @contextmanager
    def subscribe(self, thread: str) -> Iterator[Subscription]:
        """Read a thread for a block."""
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._read())]
        channel = self._channels.get(thread) or self._channels.setdefault(thread, _Channel(thread))
        reader = Subscription(self, channel)
        channel.readers.add(reader)
        try:
            yield reader
        finally:
            channel.readers.discard(reader)
            if not channel.readers:
                self._channels.pop(thread, None)
                self._dirty.pop(channel, None)

    def refresh(self, channel: _Channel) -> None:
        """Read what is new for a thread."""
        self._dirty[channel] = None
        self._changed.set()

    async def first_position(self, thread: str) -> int | None:
        """Return the lowest position of the thread's stored chunks; None for none, or if they cannot be read."""
        with suppress(Exception):
            async with asyncio.timeout(READ_SECONDS):
                found = await self._transport.read([Wanted(thread, -1, 2**62, 0, 0)])
            return min((chunk.position for _, chunk in found), default=None)
        return None

    async def close(self) -> None:
        """Stop, and close the transport."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with suppress(Exception):
            await self._transport.close()

    async def _listen(self) -> None:
        while True:
            try:
                async for thread in self._transport.news():
                    known = self._channels.get(thread)
                    for channel in self._channels.values() if thread == EVERYTHING else [known] if known else []:
                        self.refresh(channel)
            except Exception as error:
                self._warn("stream_interrupted", error)
            await asyncio.sleep(RETRY_SECONDS)

    def _warn(self, event: str, error: Exception) -> None:
        """Log an error, once until chunks can be read again."""
        if event not in self._warned:
            self._warned.add(event)
            with suppress(Exception):  # a program's own logging may raise anything
                log.warning(event, reason=f"{type(error).__name__}: {error}")

    async def _read(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            dirty, self._dirty = self._dirty, {}
            try:
                async with asyncio.timeout(READ_SECONDS):
                    found = await self._transport.read([channel.wanted for channel in dirty])
            except Exception as error:
                self._warn("stream_unreadable", error)
                await asyncio.sleep(RETRY_SECONDS)
                for channel in dirty:
                    if self._channels.get(channel.thread) is channel:
                        self.refresh(channel)
                continue
            self._warned.clear()
            self._distribute(dirty, found)

    def _distribute(self, dirty: Iterable[_Channel], found: Iterable[tuple[str, Chunk]]) -> None:
        new: dict[str, int] = {}
        for thread, chunk in found:
            if (known := self._channels.get(thread)) and known.add(chunk):
                new[thread] = new.get(thread, 0) + 1
        for thread in [channel.thread for channel in dirty]:
            channel = self._channels.get(thread)  # the thread's readers may have left, and others come, meanwhile
            if channel is None:
                continue
            if new.get(thread, 0) >= PAGE:
                self.refresh(channel)
            for reader in channel.readers:
                (reader.news if thread in new else reader.ahead).set()


@asynccontextmanager
async def listening(transport: Transport) -> AsyncIterator[Hub]:
    """Read streams through a transport for a block, and close it. Nothing is opened before the first reader."""
    hub = Hub(transport)
    try:
        yield hub
    finally:
        await hub.close()
