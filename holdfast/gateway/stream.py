"""A thread's frames as server-sent events, for programs that follow a run.

1. Each event's id is its position, and each chunk's is that of the reply to come (`holdfast.core.streams.chunks`): a
   follower that reconnects with `Last-Event-ID` gets what comes after it. An id grants nothing: it is a place in the
   thread of the path, which the caller must be allowed to read.
2. The stream ends with the run, or with a problem when the server stops. It reads by queries, which leave no trace and
   delay no decision.
3. Each connection has one reader; their number is limited, in total and for each caller. All readers of a thread share
   one follower.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping

import structlog
from fastapi.responses import StreamingResponse

from holdfast.client.threads import JSON, Threads
from holdfast.core.streams.chunks import Chunk, Cursor
from holdfast.errors import HoldfastError
from holdfast.gateway.http.limits import Message, Receive, Send, ended_by_stop
from holdfast.gateway.http.problems import problem_of
from holdfast.gateway.http.quotas import Slots
from holdfast.streaming.followers import Followers
from holdfast.streaming.hub import Hub
from holdfast.streaming.reading import read_stream

KEEP_ALIVE_SECONDS = 15.0
"""Seconds without an event before a comment is sent, so that no proxy closes the connection."""
AHEAD = 64
"""The most events that are read ahead of the follower."""
STOPPING = "the gateway stops; continue after the last id"
"""The problem with which each stream ends when the server stops."""

log = structlog.get_logger("gateway")


def frame(name: str, content: JSON, *, id: str = "") -> str:
    """Write a server-sent event.

    Args:
        name: The event's type; empty for none.
        content: The data, as JSON.
        id: The id; empty for none.
    """
    lines = [f"data: {json.dumps(content, ensure_ascii=True)}"]
    return "\n".join([*([f"id: {id}"] if id else []), *([f"event: {name}"] if name else []), *lines, "", ""])


def problem_frame(detail: str) -> str:
    """Write the event that says that the stream failed."""
    return frame("problem", {"detail": detail})


async def event_frames(
    threads: Threads, hub: Hub | None, thread: str, after: Cursor, *, followers: Followers
) -> AsyncIterator[str]:
    """Yield a thread's events and chunks as server-sent events, until its run is over.

    Args:
        threads: The threads.
        hub: The streams, for replies while they are written; None for events alone.
        thread: The thread id.
        after: The last id that the follower has.
        followers: The threads that this process follows.

    Raises:
        HoldfastError: See `read_stream`.
    """
    async for each in read_stream(threads, hub, thread, after, patient=True, followers=followers):
        yield _chunk_frame(each) if isinstance(each, Chunk) else frame(each["type"], each, id=str(each["position"]))
    yield frame("end", {"thread": thread})


class EventStream(StreamingResponse):
    """Streams frames until their end, or the follower disconnects.

    Args:
        frames: The frames, of which few are read ahead of the follower.
        thread: The thread id.
        followers: The streams; the caller has acquired a slot already, which the stream releases at its end.
        caller: The follower's name.
        problem: Writes the frame of a failure.
        headers: Further headers.
        keep_alive: Seconds without an event before a comment is sent.
        ahead: The most frames that are read ahead.
        is_open: Whether the follower may have more, asked before each frame.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        frames: AsyncIterator[str],
        thread: str,
        *,
        followers: Slots,
        caller: str,
        problem: Callable[[str], str] = problem_frame,
        headers: Mapping[str, str] = {},  # never changed
        keep_alive: float = KEEP_ALIVE_SECONDS,
        ahead: int = AHEAD,
        is_open: Callable[[], bool] = lambda: True,
    ) -> None:
        self._followers = followers
        self._caller = caller
        self._thread = thread
        self._problem = problem
        self._frames: asyncio.Queue[str] = asyncio.Queue(ahead)
        self._keep_alive = keep_alive
        self._is_open = is_open
        self._reader = asyncio.create_task(self._read_ahead(frames))
        common = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(self._frames_sent(), headers={**common, **headers})

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Send the frames until the end, and release the slot."""
        try:
            with ended_by_stop(scope, self._end):
                await super().__call__(scope, receive, send)
        finally:
            self._reader.cancel()
            self._followers.release(self._caller)

    def _end(self) -> None:
        """End the stream with the problem that the server stops, without the frames that were read ahead."""
        self._reader.cancel()
        while not self._frames.empty():
            self._frames.get_nowait()
        self._frames.put_nowait(self._problem(STOPPING))
        self._frames.put_nowait("")

    async def _read_ahead(self, frames: AsyncIterator[str]) -> None:
        """Read frames into the queue; an empty text marks the end."""
        try:
            async for each in frames:
                await self._frames.put(each)
        except HoldfastError as error:
            await self._frames.put(self._problem(str(problem_of(error, self._thread))))
        except Exception:
            log.exception("following_failed", thread=self._thread)
            await self._frames.put(self._problem("the gateway failed; reconnect"))
        await self._frames.put("")

    async def _frames_sent(self) -> AsyncIterator[str]:
        yield ": following\n\n"
        while True:
            try:
                async with asyncio.timeout(self._keep_alive):
                    each = await self._frames.get()
            except TimeoutError:
                each = ": keep-alive\n\n"
            if not each or not self._is_open():
                return
            yield each


def _chunk_frame(chunk: Chunk) -> str:
    if chunk.kind == "superseded":
        return frame("superseded", {}, id=chunk.id)
    content = {"kind": chunk.kind, "text": chunk.text, "call": chunk.call, "tool": chunk.tool}
    return frame("delta", {name: value for name, value in content.items() if value not in (None, "")}, id=chunk.id)
