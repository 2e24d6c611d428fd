"""A transport of streams within one process."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence

from holdfast.core.streams.batches import Piece
from holdfast.core.streams.chunks import Chunk
from holdfast.streaming.transport import EVERYTHING, PAGE, Attempt, Wanted


class InMemoryStreams:
    """See `Transport`. All its users run in one event loop.

    Args:
        limit: The most threads whose chunks are kept.
    """

    def __init__(self, *, limit: int = 1_000) -> None:
        self._limit = limit
        self._chunks: OrderedDict[str, dict[tuple[int, int], Chunk]] = OrderedDict()
        self._claimed: dict[str, tuple[int, int]] = {}
        """By thread: the position and the number of the last attempt."""
        self._readers: set[asyncio.Queue[str]] = set()

    async def claim(self, wanted: Attempt) -> Attempt:
        """See `Transport`."""
        position, number = self._claimed.get(wanted.thread, (-1, 0))
        number = max(wanted.number, number + 1) if position > wanted.since else wanted.number
        self._claimed[wanted.thread] = wanted.position, number
        chunks = self._chunks.pop(wanted.thread, {})
        self._chunks[wanted.thread] = {key: each for key, each in chunks.items() if each.position > wanted.since}
        while len(self._chunks) > self._limit:
            self._claimed.pop(self._chunks.popitem(last=False)[0], None)
        return wanted._replace(number=number)

    async def append(self, batches: Sequence[tuple[Attempt, Sequence[Piece]]]) -> None:
        """See `Transport`."""
        for attempt, pieces in batches:
            chunks = self._chunks.setdefault(attempt.thread, {})
            for piece in pieces:
                chunk = Chunk(position=attempt.position, attempt=attempt.number, **piece._asdict())
                chunks.setdefault((attempt.number, piece.chunk), chunk)
            for reader in self._readers:
                if not reader.full():
                    reader.put_nowait(attempt.thread)

    async def read(self, wanted: Sequence[Wanted]) -> Sequence[tuple[str, Chunk]]:
        """See `Transport`."""
        found: list[tuple[str, Chunk]] = []
        for each in wanted:
            chunks = self._chunks.get(each.thread, {})
            keys = sorted(
                key
                for key, chunk in chunks.items()
                if key > (each.attempt, each.chunk) and each.after < chunk.position <= each.upto
            )
            found += [(each.thread, chunks[key]) for key in keys[:PAGE]]
        return found

    async def news(self) -> AsyncIterator[str]:
        """See `Transport`."""
        queue: asyncio.Queue[str] = asyncio.Queue(10_000)
        self._readers.add(queue)
        try:
            yield EVERYTHING
            while True:
                yield await queue.get()
        finally:
            self._readers.discard(queue)

    async def close(self) -> None:
        """See `Transport`."""
