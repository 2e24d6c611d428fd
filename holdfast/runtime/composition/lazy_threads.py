"""A thread store that is opened when it is first read: most verbs of the command line never read it."""

import asyncio
from collections.abc import Awaitable, Callable

from holdfast.stores import ThreadStore


class LazyThreads:
    """Reads a `ThreadStore`.

    Args:
        open: Opens the store.
    """

    def __init__(self, open: Callable[[], Awaitable[ThreadStore]]) -> None:
        self._open = open
        self._threads: ThreadStore | None = None
        self._opening = asyncio.Lock()

    async def append(self, thread: str, start: int, lines: object) -> None:
        """Refuse: only workers write."""
        raise NotImplementedError

    async def read(self, thread: str, start: int = 0) -> list[bytes]:
        """A page of lines from position `start` on."""
        return await (await self._opened()).read(thread, start)

    async def length(self, thread: str) -> int:
        """How many events are kept."""
        return await (await self._opened()).length(thread)

    async def _opened(self) -> ThreadStore:
        async with self._opening:  # a program reads several threads at once
            if self._threads is None:
                self._threads = await self._open()
        return self._threads
