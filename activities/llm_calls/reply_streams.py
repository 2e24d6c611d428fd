"""Streams replies to readers while they arrive (`holdfast.streaming`). The call itself does not depend on it.

The endpoint is asked to stream. One that refuses is asked once in a worker's life; so is one whose streams lack the
usage, because then budgets would rest on estimates.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import openai
from temporalio import activity

from holdfast.activities.calling_run import CallingRun
from holdfast.activities.safe_logs import SafeLogger
from holdfast.core.llm.adapters import Adapter
from holdfast.core.llm.deltas import StreamingAdapter, deltas_of
from holdfast.core.llm.messages import AssistantMessage
from holdfast.core.tools.secrets import Secrets
from holdfast.endpoints.http_client import stream_watch
from holdfast.streaming.publisher import LiveReply, Publisher
from holdfast.streaming.transport import Attempt

log = SafeLogger(__name__)

_REFUSALS = (400, 404, 405, 406, 415, 422, 501)
"""Statuses with which endpoints refuse a field of a request."""

_STREAM = re.compile(r"\bstream", re.IGNORECASE)
"""Not `upstream`, which proxies mention."""


class ReplyStreams:
    """Streams the replies of one worker.

    Args:
        publisher: Sends them to readers.
        secrets: Redacted in what is sent.
    """

    def __init__(self, publisher: Publisher, secrets: Secrets) -> None:
        self._publisher = publisher
        self._secrets = secrets
        self._disabled: set[tuple[str, str]] = set()
        """The endpoints that are not asked to stream: address and path."""

    def asking(self, body: bytes, adapter: Adapter, client: openai.AsyncOpenAI) -> bytes:
        """Return a request as one for a stream; unchanged if the API or the endpoint cannot stream."""
        if not isinstance(adapter, StreamingAdapter) or (str(client.base_url), adapter.path) in self._disabled:
            return body
        return adapter.asking_to_stream(body)

    def disable(self, adapter: Adapter, client: openai.AsyncOpenAI, reason: str) -> None:
        """Ask an endpoint for no more streams. An address may have several: one for each API."""
        if (endpoint := (str(client.base_url), adapter.path)) not in self._disabled:
            self._disabled.add(endpoint)
            log.warning("streaming_disabled", endpoint=endpoint[0], path=endpoint[1], reason=reason)

    @contextmanager
    def watching(self, run: CallingRun, adapter: Adapter) -> "Iterator[WatchedReply | None]":
        """Stream the reply that arrives within the block. Nothing that fails here reaches the block."""
        if not isinstance(adapter, StreamingAdapter):
            yield None
            return
        attempt = activity.info().attempt

        async def find() -> Attempt:
            session = await run.query("session")
            return Attempt(run.thread, session["next"], session["reply"], attempt)

        watched = WatchedReply(adapter, self._publisher.reply(find, self._secrets))
        token = stream_watch.set(watched.watch)
        try:
            yield watched
        except BaseException:
            watched.live.stop()
            raise
        finally:
            stream_watch.reset(token)


class WatchedReply:
    """A reply that is read and published while it arrives, in one response or, if the provider pauses, in several.

    Args:
        adapter: Makes the reader of each response.
        live: Publishes the reply.
    """

    def __init__(self, adapter: StreamingAdapter, live: LiveReply) -> None:
        self._adapter = adapter
        self._stream = adapter.reply_stream()
        self._bytes = 0
        self._calls = 0
        """The calls in the responses before this one."""
        self._failed = False
        self.began = False
        """Whether a part of the reply has arrived, which the provider may charge."""
        self.live = live

    def expect(self, before: AssistantMessage | None = None) -> None:
        """Read another response.

        Args:
            before: The reply so far, which the response continues; None for none.
        """
        self._stream, self._bytes = self._adapter.reply_stream(), 0
        self._calls = len(before.tool_calls) if before else 0

    def watch(self, piece: bytes) -> None:
        """Read the next piece of the body."""
        self._bytes += len(piece)
        if self._failed:
            return
        try:
            for delta in self._stream.feed(piece):
                self.began = True
                self.live.emit(delta if delta.call is None else delta._replace(call=delta.call + self._calls))
        except Exception as error:
            self._failed = True
            self.live.stop()
            log.warning("streaming_failed", reason=f"{type(error).__name__}: {error}")

    def answer(self, body: bytes) -> Mapping[str, Any] | None:
        """Return the body that was put together; None if it was not a stream, or not all of it has been read."""
        if self._failed or not self._bytes or self._bytes != len(body):
            return None
        return self._stream.end()

    def end(self, message: AssistantMessage | None) -> None:
        """The reply has arrived: this is its message."""
        try:
            self.live.end(list(deltas_of(message)))
        except Exception as error:
            log.warning("streaming_failed", reason=f"{type(error).__name__}: {error}")


def is_about_streaming(error: openai.APIStatusError) -> bool:
    """Whether an endpoint refuses a request because it asks for a stream."""
    return error.status_code in _REFUSALS and bool(_STREAM.search(error.response.text[:20_000]))
