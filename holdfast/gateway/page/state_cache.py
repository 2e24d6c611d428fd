"""Caches the states of runs for the open pages that follow them: one reading of a run serves all pages that show it.

Pages ask again every few seconds. A run that stays as it is, is read less and less often, down to once in `OLDEST`
seconds; a page that is opened, or that changes the run, reads it at once, and so do all others from then on.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from holdfast.client.threads import JSON

YOUNGEST, OLDEST = 1.0, 10.0
"""Seconds for which a reading of a run that has just changed serves all, and of one that has not for long."""
SLOWER = 6.0
"""A reading serves for this fraction of the time for which the run has not changed."""
MOST, TAILS = 500, 32
"""The most runs whose readings are kept, and the most pages of their events."""


@dataclass
class _Run:
    """The last reading of a run."""

    state: JSON
    read_at: float
    since: float
    """When a reading first found it as it is now."""

    @property
    def serves(self) -> float:
        """Until when the reading serves."""
        return self.read_at + min(OLDEST, max(YOUNGEST, (self.read_at - self.since) / SLOWER))


class StateCache:
    """The readings of one process.

    Args:
        read: Reads the state of a thread.
        now: A clock, in seconds.
    """

    def __init__(self, read: Callable[[str], Awaitable[JSON]], *, now: Callable[[], float] = time.monotonic) -> None:
        self._read = read
        self._now = now
        self._runs: dict[str, _Run] = {}
        """By thread, the longest unread first."""
        self._reading: dict[str, asyncio.Task[JSON]] = {}
        self._tails: dict[tuple[str, int, float], asyncio.Future[list[JSON]]] = {}
        """Thread, position and time of the reading → the events after the position; the oldest first."""

    async def state(self, thread: str, *, within: float = OLDEST) -> JSON:
        """Return the state of a thread, as far as it serves; wait for the reading that is under way, if there is one.

        Args:
            thread: The thread.
            within: The oldest reading that serves the caller, in seconds.

        Raises:
            HoldfastError: It cannot be read. The next caller tries again.
        """
        if (known := self._runs.get(thread)) and self._now() < min(known.serves, known.read_at + within):
            return known.state
        task = self._reading.get(thread)
        if task is None:
            task = self._reading[thread] = asyncio.create_task(self._update(thread))
        return await asyncio.shield(task)  # one who leaves does not end it for the others

    async def events(self, thread: str, after: int, read: Callable[[], Awaitable[list[JSON]]]) -> list[JSON]:
        """Return the events after a position, which pages that are equally far share.

        Args:
            thread: A thread whose state was just read.
            after: The position.
            read: Reads them.
        """
        key = thread, after, known.read_at if (known := self._runs.get(thread)) else self._now()
        tail = self._tails.get(key)
        if tail is None or (tail.done() and (tail.cancelled() or tail.exception())):
            if len(self._tails) >= TAILS:
                del self._tails[next(iter(self._tails))]
            tail = self._tails[key] = asyncio.ensure_future(read())
        return await asyncio.shield(tail)

    def put(self, thread: str, state: JSON) -> None:
        """Keep a state that a page has just read on its own."""
        self._reading.pop(thread, None)  # it began before
        now, known = self._now(), self._runs.pop(thread, None)
        same = known is not None and _mark(known.state) == _mark(state)
        if len(self._runs) >= MOST:
            del self._runs[next(iter(self._runs))]
        self._runs[thread] = _Run(state, now, known.since if known and same else now)

    def forget(self, thread: str) -> None:
        """Have a thread read anew: somebody has just changed it."""
        self._runs.pop(thread, None)
        self._reading.pop(thread, None)

    async def _update(self, thread: str) -> JSON:
        task = asyncio.current_task()
        try:
            state = await self._read(thread)
            if self._reading.get(thread) is task:  # else something has changed it, or a page has read it, meanwhile
                self.put(thread, state)
            return state
        finally:
            if self._reading.get(thread) is task:
                del self._reading[thread]


def _mark(state: JSON) -> object:
    return state.get("events"), state.get("status"), len(state.get("retrying") or ())
