"""A thread's events as server-sent events, for programs that follow a run.

1. Each event's id is its position: who comes back with `Last-Event-ID` gets what came after.
2. The stream ends with the run. What is asked of workers are queries, which leave no trace and hold up no decision.
3. One reader for each connection, and a bounded number of them, for each caller too.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator

import structlog
from fastapi.responses import StreamingResponse

from holdfast.errors import HoldfastError
from holdfast.runtime.client.follow import follow
from holdfast.runtime.client.threads import JSON, Threads
from holdfast.runtime.gateway.limits import Message, Receive, Send
from holdfast.runtime.gateway.problems import Trouble, trouble_of

KEEP_ALIVE_SECONDS = 15.0
"""After so much silence a comment is sent, or a proxy would take the connection for dead."""
AHEAD = 64
"""Events that are read before the follower has taken them."""

log = structlog.get_logger("gateway")


class Followers:
    """Counts those who follow.

    Args:
        limit: How many there may be at once.
        each: How many of one caller.
    """

    def __init__(self, limit: int, each: int) -> None:
        self._limit = limit
        self._each = each
        self._counts: Counter[str] = Counter()

    def enter(self, caller: str) -> None:
        """One more.

        Raises:
            Trouble: 429, 503: there are as many as there may be, of this caller or of all.
        """
        if self._counts[caller] >= self._each:
            raise Trouble(429, f"{caller} follows {self._each} times already; close one, and ask again")
        if self._counts.total() >= self._limit:
            raise Trouble(503, f"{self._limit} follow already; ask again, or read /threads/… now and then")
        self._counts[caller] += 1

    def leave(self, caller: str) -> None:
        """One less."""
        self._counts[caller] -= 1
        if not self._counts[caller]:
            del self._counts[caller]


class EventStream(StreamingResponse):
    """Follows a thread until its run is over, or the follower goes.

    Args:
        threads: Where the thread is.
        thread: The thread id.
        after: The last position that is known already.
        followers: Where this one counts; the caller has entered, and leaves when this ends.
        caller: Who follows.
        keep_alive: Seconds of silence.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        threads: Threads,
        thread: str,
        *,
        after: int,
        followers: Followers,
        caller: str,
        keep_alive: float = KEEP_ALIVE_SECONDS,
    ) -> None:
        self._followers = followers
        self._caller = caller
        self._read: asyncio.Queue[str] = asyncio.Queue(AHEAD)
        self._keep_alive = keep_alive
        self._pumping = asyncio.create_task(self._pump(threads, thread, after))
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(self._told(), headers=headers)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Tell what is read, until the end."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._pumping.cancel()
            self._followers.leave(self._caller)

    async def _pump(self, threads: Threads, thread: str, after: int) -> None:
        """Read the thread; an empty text marks the end."""
        try:
            async for event in follow(threads, thread, after=after, patient=True):
                await self._read.put(_framed(event["type"], event, position=event["position"]))
            await self._read.put(_framed("end", {"thread": thread}))
        except HoldfastError as error:
            await self._read.put(_framed("problem", {"detail": str(trouble_of(error, thread))}))
        except Exception:
            log.exception("following_failed", thread=thread)
            await self._read.put(_framed("problem", {"detail": "the gateway failed; follow again"}))
        await self._read.put("")

    async def _told(self) -> AsyncIterator[str]:
        yield ": following\n\n"
        while True:
            try:
                frame = await asyncio.wait_for(self._read.get(), self._keep_alive)
            except TimeoutError:
                yield ": still there\n\n"
                continue
            if not frame:
                return
            yield frame


def _framed(name: str, content: JSON, *, position: int | None = None) -> str:
    lines = [f"event: {name}", f"data: {json.dumps(content, ensure_ascii=True)}"]
    return "\n".join([*([f"id: {position}"] if position is not None else []), *lines, "", ""])
