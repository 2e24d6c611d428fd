"""What holds for every request, before anything looks at it: how large, how slow, and a line in the log.

1. The body is read whole, up to a limit, whatever its headers say.
2. The path stays as it was sent: `%2F` within a thread's id is no slash between two segments.
3. The log has method, path and status, and who it was; no header, no query and no body.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any
from urllib.parse import quote

import structlog

from holdfast.runtime.gateway.problems import Trouble

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

BODY_BYTES = 256 * 1024
BODY_SECONDS = 10.0
"""In which a body has to arrive."""
ANSWER_SECONDS = 60.0
"""In which an answer has to begin. Everything behind has limits of its own; this is the backstop."""
PATIENCE = 16
"""How many times `BODY_BYTES` are read and thrown away, so that the caller hears why, and not just a closed door."""

log = structlog.get_logger("gateway")


class _Gone(Exception):
    """The caller hung up before the request was whole."""


class Limits:
    """An ASGI application with limits around it.

    Args:
        app: What is limited.
        body_bytes: The longest body.
        body_seconds: In which it has to arrive.
        larger: The longest body below certain paths.
    """

    def __init__(
        self,
        app: App,
        *,
        body_bytes: int = BODY_BYTES,
        body_seconds: float = BODY_SECONDS,
        larger: Mapping[str, int] | None = None,
    ) -> None:
        self._app = app
        self._body_bytes = body_bytes
        self._body_seconds = body_seconds
        self._larger = dict(larger or {})

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve a request; anything else goes on as it is."""
        if scope["type"] == "http":
            await self._serve(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _serve(self, scope: Message, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        path = _raw_path(scope)
        inner = {**scope, "path": path, "state": dict(scope.get("state", {}))}
        status = 0

        async def answering(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._answer(inner, receive, answering)
        except _Gone:
            return
        except Trouble as trouble:
            await trouble.response(inner, receive, answering)
        except Exception:
            log.exception("request_failed", method=scope["method"], path=path)
        finally:
            took = round((time.perf_counter() - began) * 1000)
            caller = inner["state"].get("caller", "")
            log.info("request", method=scope["method"], path=path, status=status, ms=took, caller=caller)

    async def _answer(self, scope: Message, receive: Receive, send: Send) -> None:
        """Read the body, and have the application answer within its time.

        Raises:
            Trouble: The body is too long or too slow, or the answer is.
        """
        most = next((size for path, size in self._larger.items() if scope["path"].startswith(f"{path}/")), None)
        body = await self._body(receive, self._body_bytes if most is None else most)
        limit = asyncio.timeout(ANSWER_SECONDS)

        async def sending(message: Message) -> None:
            limit.reschedule(None)  # an answer that has begun may go on for days
            await send(message)

        try:
            async with limit:
                await self._app(scope, _again(body, receive), sending)
        except TimeoutError:
            if limit.expired():
                raise Trouble(503, f"no answer within {ANSWER_SECONDS:g} s; look before you send it again") from None
            raise

    async def _body(self, receive: Receive, most: int) -> bytes:
        """The whole body.

        Raises:
            Trouble: It is too long, or too slow.
        """
        parts: list[bytes] = []
        size, more = 0, True
        try:
            async with asyncio.timeout(self._body_seconds):
                while more and size <= PATIENCE * self._body_bytes + most:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _Gone
                    part, more = message.get("body", b""), message.get("more_body", False)
                    size += len(part)
                    if size <= most:
                        parts.append(part)
        except TimeoutError:
            slow = f"the body did not arrive within {self._body_seconds:g} s; send it at once"
            raise Trouble(408, slow, headers={"Connection": "close"}) from None
        if size > most:
            large = f"a body has at most {most:,} bytes; put more into a file in the workspace"
            raise Trouble(413, large, headers={"Connection": "close"})
        return b"".join(parts)


def _raw_path(scope: Message) -> str:
    raw: bytes | None = scope.get("raw_path")
    return raw.decode("ascii", "replace") if raw else quote(scope["path"])


def _again(body: bytes, receive: Receive) -> Receive:
    """A `receive` that has the body, and then goes on with what else comes: that the caller hangs up."""
    told = False

    async def receiving() -> Message:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receiving
