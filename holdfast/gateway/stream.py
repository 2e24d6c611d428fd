"""A thread's events as server-sent events, for programs that follow a run.

1. Each event's id is its position, and each chunk's is that of the reply to come (`holdfast.core.streams.chunks`): a
   follower that reconnects with `Last-Event-ID` gets what comes after it. An id grants nothing: it is a place in the
   thread of the path, which the caller must be allowed to read.
2. The stream ends with the run. It reads by queries, which leave no trace and delay no decision.
3. Each connection has one reader; their number is limited, in total and for each caller.
"""

import asyncio
import json
from collections.abc import AsyncIterator

import structlog
from fastapi.responses import StreamingResponse

from holdfast.client.threads import JSON, Threads
from holdfast.core.streams.chunks import Chunk, Cursor
from holdfast.errors import HoldfastError
from holdfast.gateway.http.limits import Message, Receive, Send
from holdfast.gateway.http.problems import problem_of
from holdfast.gateway.http.quotas import Slots
from holdfast.streaming.hub import Hub
from holdfast.streaming.reading import read_stream

KEEP_ALIVE_SECONDS = 15.0
"""Seconds without an event before a comment is sent, so that no proxy closes the connection."""
AHEAD = 64
"""The most events that are read ahead of the follower."""

log = structlog.get_logger("gateway")


class EventStream(StreamingResponse):
    """Streams a thread's events until its run is over, or the follower disconnects.

    Args:
        threads: The threads.
        thread: The thread id.
        after: The last id that the follower has.
        followers: The streams; the caller has acquired a slot already, which the stream releases at its end.
        caller: The follower's name.
        keep_alive: Seconds without an event before a comment is sent.
        hub: The streams, for replies while they are written; None for events alone.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        threads: Threads,
        thread: str,
        *,
        after: Cursor,
        followers: Slots,
        caller: str,
        keep_alive: float = KEEP_ALIVE_SECONDS,
        hub: Hub | None = None,
    ) -> None:
        self._followers = followers
        self._caller = caller
        self._frames: asyncio.Queue[str] = asyncio.Queue(AHEAD)
        self._keep_alive = keep_alive
        self._reader = asyncio.create_task(self._read_ahead(threads, thread, after, hub))
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(self._frames_sent(), headers=headers)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Send the frames until the end, and release the slot."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._reader.cancel()
            self._followers.release(self._caller)

    async def _read_ahead(self, threads: Threads, thread: str, after: Cursor, hub: Hub | None) -> None:
        """Read the thread's events into the queue; an empty text marks the end."""
        try:
            async for each in read_stream(threads, hub, thread, after, patient=True):
                await self._frames.put(_chunk_frame(each) if isinstance(each, Chunk) else _event_frame(each))
            await self._frames.put(_frame("end", {"thread": thread}))
        except HoldfastError as error:
            await self._frames.put(_frame("problem", {"detail": str(problem_of(error, thread))}))
        except Exception:
            log.exception("following_failed", thread=thread)
            await self._frames.put(_frame("problem", {"detail": "the gateway failed; reconnect"}))
        await self._frames.put("")

    async def _frames_sent(self) -> AsyncIterator[str]:
        yield ": following\n\n"
        while True:
            try:
                frame = await asyncio.wait_for(self._frames.get(), self._keep_alive)
            except TimeoutError:
                yield ": keep-alive\n\n"
                continue
            if not frame:
                return
            yield frame


def _event_frame(event: JSON) -> str:
    return _frame(event["type"], event, id=str(event["position"]))


def _chunk_frame(chunk: Chunk) -> str:
    if chunk.kind == "superseded":
        return _frame("superseded", {}, id=chunk.id)
    content = {"kind": chunk.kind, "text": chunk.text, "call": chunk.call, "tool": chunk.tool}
    return _frame("delta", {name: value for name, value in content.items() if value not in (None, "")}, id=chunk.id)


def _frame(name: str, content: JSON, *, id: str = "") -> str:
    lines = [f"event: {name}", f"data: {json.dumps(content, ensure_ascii=True)}"]
    return "\n".join([*([f"id: {id}"] if id else []), *lines, "", ""])
