"""Follows the events of a run through the readings that all open pages share: pages that stream ask a run no more often
than pages that refresh.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

from holdfast.client.reading.states import CLOSED
from holdfast.client.threads import JSON
from holdfast.errors import EventsMissing, QueryRefused, ServerUnreachable
from holdfast.gateway.page.state_cache import OLDEST, StateCache
from holdfast.streaming.hub import Subscription

QUIET_SECONDS = 3.0
"""Seconds between two readings while no reply is being written, as pages refresh; the cache makes them rarer."""
LIVE_SECONDS = 1.0
"""The same while one is being written, until its event is there."""
NEWS_SECONDS = 0.05
"""The age of a reading that is too old if there is reason to read at once."""


class CachedLog:
    """The events of the runs that pages show. See `holdfast.streaming.reading.EventSource`.

    Args:
        cache: The readings.
        read: Reads some events of a thread after a position.
    """

    def __init__(self, cache: StateCache, read: Callable[[str, int], Awaitable[list[JSON]]]) -> None:
        self._cache = cache
        self._read = read

    async def follow(self, thread: str, *, after: int, subscription: Subscription | None = None) -> AsyncIterator[JSON]:
        """Yield the events after a position until the run has ended; wait while nothing answers.

        Args:
            thread: The thread id.
            after: The position.
            subscription: The reader's, of the reply that is being written; None for none.

        Raises:
            HoldfastError: There is no such thread, or it cannot be read.
        """
        position, claimed, within = after, False, LIVE_SECONDS
        ahead = subscription.ahead if subscription else asyncio.Event()
        while True:
            news = False
            try:
                state = await self._cache.state(thread, within=within)
                while events := await self._after(thread, position, state):
                    for event in events:
                        position, news = int(event["position"]), True
                        yield event
                if state["status"] in CLOSED:
                    return
            except EventsMissing as error:
                if error.stop is None:
                    raise
                position, news = error.stop - 1, True
            except (ServerUnreachable, QueryRefused):
                pass  # the next reading may succeed
            # Anybody may claim that there is news: a claim that proves wrong is followed by an ordinary pause.
            false_claim = claimed and not news
            live = false_claim or bool(subscription and subscription.attempts)
            pause = LIVE_SECONDS if live else QUIET_SECONDS
            claimed = await _is_set(asyncio.Event() if false_claim else ahead, within=pause)
            within = NEWS_SECONDS if claimed else pause if live else OLDEST

    async def _after(self, thread: str, position: int, state: JSON) -> list[JSON]:
        if int(state["events"]) <= position + 1:
            return []
        return await self._cache.events(thread, position, lambda: self._read(thread, position))


async def _is_set(event: asyncio.Event, *, within: float) -> bool:
    """Wait for an event, and clear it; return whether it was set within a time in seconds."""
    with suppress(TimeoutError):
        async with asyncio.timeout(within):
            await event.wait()
        event.clear()
        return True
    return False
