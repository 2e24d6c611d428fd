"""What holds for every request, before anything looks at it: how large, how slow, how many, and a line in the log.

1. A body is read when it is asked for, up to a limit, regardless of its headers. Of a caller who is not known yet, that
   limit is small.
2. Who shows no token and no signature counts by address, from the first byte on; who shows a wrong one, too.
3. The path stays as it was sent: `%2F` within a thread's id is no slash between two segments.
4. The log has method, path and status, and who it was; no header, no query and no body.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import ExitStack
from typing import Any
from urllib.parse import quote

import structlog

from holdfast.runtime.gateway.problems import Trouble
from holdfast.runtime.gateway.quotas import EACH_ADDRESS, UNKNOWN_AT_ONCE, Quota, Quotas, address_of
from holdfast.runtime.gateway.signed_requests import SIGNATURE

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

BODY_BYTES = 256 * 1024
UNKNOWN_BYTES = 64 * 1024
"""The longest body of somebody who is not known: what Slack sends."""
BODY_SECONDS = 10.0
"""In which a body has to arrive."""
ANSWER_SECONDS = 60.0
"""In which an answer has to begin. Everything behind has limits of its own; this is the backstop."""
log = structlog.get_logger("gateway")


_CREDENTIALS = {b"authorization", SIGNATURE.lower().encode()}


class _Gone(Exception):
    """The caller hung up before the request was whole."""


class Limits:
    """An ASGI application with limits around it.

    Args:
        app: What is limited.
        body_bytes: The longest body.
        body_seconds: In which it has to arrive.
        larger: The longest body below certain paths.
        unknown: What each address may take whose callers are not known.
    """

    def __init__(
        self,
        app: App,
        *,
        body_bytes: int = BODY_BYTES,
        body_seconds: float = BODY_SECONDS,
        larger: Mapping[str, int] | None = None,
        unknown: Quota = EACH_ADDRESS,
    ) -> None:
        self._app = app
        self._body_bytes = body_bytes
        self._body_seconds = body_seconds
        self._larger = dict(larger or {})
        self._unknown = Quotas(unknown, all_at_once=UNKNOWN_AT_ONCE)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve a request; anything else goes on as it is."""
        if scope["type"] == "http":
            await self._serve(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _serve(self, scope: Message, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        path = _raw_path(scope)
        leaving = ExitStack()
        inner = {**scope, "path": path, "state": {**scope.get("state", {}), "leaving": leaving}}
        status = 0

        async def answering(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            with leaving:
                await self._answer(inner, receive, answering)
        except _Gone:
            return
        except Trouble as trouble:
            if not status:
                await trouble.response(inner, receive, answering)
        except Exception:
            log.exception("request_failed", method=scope["method"], path=path)
        finally:
            took = round((time.perf_counter() - began) * 1000)
            caller = inner["state"].get("caller", "")
            log.info("request", method=scope["method"], path=path, status=status, ms=took, caller=caller)

    async def _answer(self, scope: Message, receive: Receive, send: Send) -> None:
        """Have the application answer within its time.

        Raises:
            Trouble: It does not, or somebody asks too often.
        """
        who = address_of(scope.get("client"))
        counted = not _CREDENTIALS & {name for name, _ in scope["headers"]}
        if counted:
            self._unknown.take(who)
            scope["state"]["leaving"].enter_context(self._unknown.under_way(who))
        limit = asyncio.timeout(ANSWER_SECONDS)

        refused = False

        async def sending(message: Message) -> None:
            nonlocal counted, refused
            limit.reschedule(None)  # an answer that has begun may go on for days
            if not counted and not scope["state"].get("caller"):
                counted = True
                try:
                    self._unknown.take(who)  # what they showed was wrong, or nobody looked at it
                except Trouble as trouble:
                    refused = True
                    await trouble.response(scope, receive, send)
            if not refused:
                await send(message)

        try:
            async with limit:
                await self._app(scope, self._reading(scope, receive), sending)
        except TimeoutError:
            if limit.expired():
                raise Trouble(503, f"no answer within {ANSWER_SECONDS:g} s; look before you send it again") from None
            raise

    def _reading(self, scope: Message, receive: Receive) -> Receive:
        """A `receive` that passes a body on as far as it may go, and then what else comes: that the caller hangs up."""
        most = next((size for path, size in self._larger.items() if scope["path"].startswith(f"{path}/")), None)
        size, more, until = 0, True, 0.0

        async def receiving() -> Message:
            nonlocal size, more, until
            if not more:
                return await receive()
            if not until and not scope["state"].get("caller"):
                scope["state"]["leaving"].enter_context(self._unknown.under_way(address_of(scope.get("client"))))
            until = until or asyncio.get_running_loop().time() + self._body_seconds
            try:
                async with asyncio.timeout_at(until):
                    message = await receive()
            except TimeoutError:
                more = False
                slow = f"the body did not arrive within {self._body_seconds:g} s; send it at once"
                raise Trouble(408, slow, headers={"Connection": "close"}) from None
            if message["type"] == "http.disconnect":
                raise _Gone
            size, more = size + len(message.get("body", b"")), message.get("more_body", False)
            allowed = (most or self._body_bytes) if scope["state"].get("caller") else UNKNOWN_BYTES
            if size > allowed:
                more = False
                raise Trouble(413, f"a body has at most {allowed:,} bytes; put more into a file in the workspace")
            return message

        return receiving


def _raw_path(scope: Message) -> str:
    raw: bytes | None = scope.get("raw_path")
    return raw.decode("ascii", "replace") if raw else quote(scope["path"])
