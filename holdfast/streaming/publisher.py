"""Publishes the replies of one worker while they arrive. An LLM call never waits for it, and never fails because of it.

1. The first piece is sent at once, then batches of 100 ms or 1 KB. One task sends those of all replies, so that a slow
   transport makes batches larger, and not more numerous.
2. If the transport fails, or is too slow, the rest of the attempt is dropped: readers wait for the recorded reply.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress

from holdfast.config.logs import EventLogger
from holdfast.core.llm.deltas import Delta
from holdfast.core.streams.batches import Batches
from holdfast.core.tools.secrets import Secrets
from holdfast.streaming.transport import Attempt, Transport

BATCH_SECONDS = 0.1
BATCH_CHARS = 1_024

SEND_SECONDS = 5.0
"""How long the transport may take to store a batch."""

RETRY_SECONDS = 2.0
"""After a failure: the time in which nothing is sent."""

FLUSH_SECONDS = 1.0
"""How long the last chunks may take when the publisher is closed."""

log = EventLogger("streams")


class LiveReply:
    """One attempt at a reply, while it arrives.

    Args:
        publisher: Sends the chunks.
        find: Finds the attempt's place in its thread.
        secrets: Redacted.
    """

    def __init__(self, publisher: "Publisher", find: Callable[[], Awaitable[Attempt]], secrets: Secrets) -> None:
        self._publisher = publisher
        self._find = find
        self._secrets = secrets
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._begun = False
        self.batches = Batches(secrets)
        self.finding: asyncio.Task[Attempt] | None = None
        self.attempt: Attempt | None = None
        """The attempt, once it has been claimed."""
        self.stopped = False

    def emit(self, delta: Delta) -> None:
        """Add the next piece. Returns at once."""
        if self.stopped:
            return
        self.batches.add(delta)
        if not self.batches.pending:
            return
        if not self._begun:
            self._begun = True
            self._look_up()
        elif self.batches.pending >= BATCH_CHARS:
            self._due()
        elif self._timer is None:
            self._timer = self._loop.call_later(BATCH_SECONDS, self._due)

    def end(self, whole: Sequence[Delta]) -> None:
        """End the reply: send what is left. Returns at once.

        Args:
            whole: The deltas of the recorded reply. If they differ from what has been sent, because a part of its text
                turned out to be a thought, or because the preview stopped, they are sent as another attempt.
        """
        if self.stopped or not self._begun:
            return
        self.batches.finish()
        if not self.batches.full and not self.batches.showed(whole):
            self.batches = Batches(self._secrets)
            for delta in whole:
                self.batches.add(delta)
            self.batches.finish()
            self.attempt = None
        self._due()

    def stop(self) -> None:
        """Drop the rest of the attempt."""
        self.stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self.finding is not None:
            self.finding.cancel()
        self.batches = Batches(self._secrets)

    def _look_up(self) -> None:
        async def find() -> Attempt:
            return await self._find()

        self.finding = self._loop.create_task(find())
        self.finding.add_done_callback(lambda found: self._due())

    def _due(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.stopped or self.finding is None or not self.finding.done():
            return
        if self.finding.cancelled() or self.finding.exception() is not None:
            self.stop()
        else:
            self._publisher.send(self)


class Publisher:
    """Sends the chunks of a worker's replies. `publishing` opens it.

    Args:
        transport: Carries them.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._due: dict[LiveReply, float] = {}
        """Replies with chunks to send, and since when."""
        self.on_sent: Callable[[float], None] | None = None
        """Called with the seconds that the oldest chunk of a batch waited until it was stored."""
        self._news = asyncio.Event()
        self._down_until = 0.0

    def reply(self, find: Callable[[], Awaitable[Attempt]], secrets: Secrets) -> LiveReply:
        """Begin an attempt at a reply.

        Args:
            find: Finds the attempt's place in its thread; called when the first piece arrives.
            secrets: Redacted in what is sent.
        """
        return LiveReply(self, find, secrets)

    def send(self, reply: LiveReply) -> None:
        """Send the chunks of a reply as soon as possible. Returns at once."""
        if time.monotonic() < self._down_until:
            reply.stop()
            return
        self._due.setdefault(reply, time.monotonic())
        self._news.set()

    async def run(self) -> None:
        """Send chunks until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            await self.flush()

    async def flush(self) -> None:
        """Send what is due. Never raises because of the transport."""
        due, self._due = self._due, {}
        try:
            async with asyncio.timeout(SEND_SECONDS):
                for reply in due:
                    if reply.attempt is None and reply.finding is not None:
                        reply.attempt = await self._transport.claim(reply.finding.result())
                await self._transport.append(
                    [(reply.attempt, pieces) for reply in due if reply.attempt and (pieces := reply.batches.take())]
                )
        except Exception as error:
            if time.monotonic() >= self._down_until:
                with suppress(Exception):  # a program's own logging may raise anything
                    log.warning("stream_failed", reason=f"{type(error).__name__}: {error}")
            self._down_until = time.monotonic() + RETRY_SECONDS
            for reply in due:
                reply.stop()
        else:
            if self.on_sent is not None and due:
                self.on_sent(time.monotonic() - min(due.values()))


@asynccontextmanager
async def publishing(transport: Transport) -> AsyncIterator[Publisher]:
    """Send chunks through a transport for a block, and close it."""
    publisher = Publisher(transport)
    running = asyncio.create_task(publisher.run())
    try:
        yield publisher
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        with suppress(Exception):
            async with asyncio.timeout(FLUSH_SECONDS):
                await publisher.flush()
        with suppress(Exception):
            await transport.close()
