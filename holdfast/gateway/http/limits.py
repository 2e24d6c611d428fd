"""The limits of every request, before any route: its size, its time, its concurrency; and its line in the log.

1. The size and the number of headers are limited; uvicorn checks that only while they are incomplete.
2. A body is read when a route reads it, up to a limit, regardless of its headers. Before the caller is authenticated,
   that limit is small.
3. A request without a valid token or signature counts towards the quota of its address.
4. The path stays percent-encoded: `%2F` within a thread's id does not separate two segments.
5. The log has method, path, status and caller; no header, no query and no body. What an open page reads every few
   seconds is logged at the level DEBUG.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import quote

import structlog

from holdfast.client.signed_requests import SIGNATURE
from holdfast.gateway.http.problems import HTTPProblem
from holdfast.gateway.http.quotas import EACH_ADDRESS, UNKNOWN_AT_ONCE, Quota, Quotas, address_of

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

STREAMS = "streams"
"""The key, in the state of a request, of the server's set of functions that end what would delay its stop: streams
and waits (`Server.stop`)."""

HEAD_BYTES = 16 * 1024
"""The most bytes of a request's path, query and headers."""
URL_BYTES = 8 * 1024
"""The most bytes of its path and query."""
HEADERS = 100
"""The most headers."""
BODY_BYTES = 256 * 1024
UNKNOWN_BYTES = 64 * 1024
"""The longest body of an unauthenticated request, such as Slack's."""
BODY_SECONDS = 10.0
"""The time within which a body has to arrive."""
ANSWER_SECONDS = 60.0
"""The time within which a response has to begin, or its route to make progress. This is a last resort: the calls of a
route have their own time limits."""
log = structlog.get_logger("gateway")

_HEADERS = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))
"""Browsers must not sniff the type of a response, and caches must not store it."""

_CLOSE = {"Connection": "close"}
_CREDENTIALS = {b"authorization", b"cookie", SIGNATURE.lower().encode()}
"""A cookie counts on the page alone. With a wrong credential, a request is counted when it is answered."""


@contextmanager
def ended_by_stop(scope: Mapping[str, Any], end: Callable[[], object]) -> Iterator[None]:
    """Call a function if the server stops during the block.

    Args:
        scope: The request's.
        end: Ends what the block waits for.
    """
    ends: set[Callable[[], object]] = scope.get("state", {}).get(STREAMS, set())
    ends.add(end)
    try:
        yield
    finally:
        ends.discard(end)


class _Disconnected(Exception):
    """The caller disconnected before the request was complete."""


class Limits:
    """An ASGI application with limits around it.

    Args:
        app: The application.
        body_bytes: The longest body.
        body_seconds: The time within which it has to arrive.
        body_bytes_below: The longest body below certain paths.
        unauthenticated: The quota of each address, for unauthenticated requests.
    """

    def __init__(
        self,
        app: App,
        *,
        body_bytes: int = BODY_BYTES,
        body_seconds: float = BODY_SECONDS,
        body_bytes_below: Mapping[str, int] | None = None,
        unauthenticated: Quota = EACH_ADDRESS,
    ) -> None:
        self._app = app
        self._body_bytes = body_bytes
        self._body_seconds = body_seconds
        self._body_bytes_below = dict(body_bytes_below or {})
        self._unauthenticated = Quotas(unauthenticated, all_at_once=UNKNOWN_AT_ONCE)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve a request; pass anything else to the application."""
        if scope["type"] == "http":
            await self._serve(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _serve(self, scope: Message, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        path = _raw_path(scope)
        cleanup = ExitStack()
        inner = {**scope, "path": path, "state": {**scope.get("state", {}), "cleanup": cleanup}}
        status = 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = int(message["status"])
                message = {**message, "headers": [*message.get("headers", ()), *_missing_headers(message)]}
            await send(message)

        try:
            with cleanup:
                check_head(scope)
                await self._answer(inner, receive, send_with_headers)
        except _Disconnected:
            return
        except HTTPProblem as problem:
            if not status:
                await problem.response(inner, receive, send_with_headers)
        except Exception:
            log.exception("request_failed", method=scope["method"], path=path)
        finally:
            duration = round((time.perf_counter() - began) * 1000)
            caller = inner["state"].get("caller", "")
            write = log.debug if status in (200, 204) and _is_refresh(scope, path) else log.info
            write("request", method=scope["method"], path=path, status=status, ms=duration, caller=caller)

    async def _answer(self, scope: Message, receive: Receive, send: Send) -> None:
        """Call the application, with a time limit on the start of its response.

        Raises:
            HTTPProblem: The response did not begin in time, or the address has used up its quota.
        """
        address = address_of(scope.get("client"))
        counted = not _CREDENTIALS & {name for name, _ in scope["headers"]}
        if counted:
            self._unauthenticated.take(address)
            scope["state"]["cleanup"].enter_context(self._unauthenticated.under_way(address))
        limit, now = asyncio.timeout(ANSWER_SECONDS), asyncio.get_running_loop().time
        refused = False

        def progress() -> None:
            """Restart the time limit; called by a route that first writes a long response to the disk."""
            if limit.when() is not None:
                limit.reschedule(now() + ANSWER_SECONDS)

        scope["state"]["progress"] = progress

        async def send_counted(message: Message) -> None:
            nonlocal counted, refused
            limit.reschedule(None)  # once begun, a response may take days
            if not counted and not scope["state"].get("caller"):
                counted = True
                try:
                    self._unauthenticated.take(address)  # the token or signature was wrong, or no route checked it
                except HTTPProblem as problem:
                    refused = True
                    await problem.response(scope, receive, send)
            if not refused:
                await send(message)

        try:
            async with limit:
                await self._app(scope, self._limited(scope, receive), send_counted)
        except TimeoutError:
            if limit.expired():
                raise HTTPProblem(
                    503, f"no response within {ANSWER_SECONDS:g} s; check the state before you send it again"
                ) from None
            raise

    def _limited(self, scope: Message, receive: Receive) -> Receive:
        """Return a `receive` that limits the size and the time of the body; later messages pass unchanged."""
        below = self._body_bytes_below.items()
        body_bytes = next((size for path, size in below if scope["path"].startswith(f"{path}/")), self._body_bytes)
        size, more, deadline = 0, True, 0.0

        async def receive_limited() -> Message:
            nonlocal size, more, deadline
            if not more:
                return await receive()
            if not deadline and not scope["state"].get("caller"):
                scope["state"]["cleanup"].enter_context(
                    self._unauthenticated.under_way(address_of(scope.get("client")))
                )
            deadline = deadline or asyncio.get_running_loop().time() + self._body_seconds
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                more = False
                slow = f"the body did not arrive within {self._body_seconds:g} s; send it at once"
                raise HTTPProblem(408, slow, headers=_CLOSE) from None
            if message["type"] == "http.disconnect":
                raise _Disconnected
            size, more = size + len(message.get("body", b"")), message.get("more_body", False)
            allowed = body_bytes if scope["state"].get("caller") else UNKNOWN_BYTES
            if size > allowed:
                more = False
                raise HTTPProblem(413, f"a body has at most {allowed:,} bytes; put more into a file in the workspace")
            return message

        return receive_limited


def check_head(scope: Message) -> None:
    """Check the size of a request's path, query and headers.

    Raises:
        HTTPProblem: 414 or 431: they are too large.
    """
    url = len(scope.get("raw_path") or scope["path"].encode()) + len(scope.get("query_string", b""))
    if url > URL_BYTES:
        raise HTTPProblem(414, f"path and query have {url:,} bytes, and may have {URL_BYTES:,}", headers=_CLOSE)
    size = url + sum(len(name) + len(value) for name, value in scope["headers"])
    if size > HEAD_BYTES or len(scope["headers"]) > HEADERS:
        head = f"the headers, path and query have {size:,} bytes in {len(scope['headers'])} headers"
        raise HTTPProblem(431, f"{head}, and may have {HEAD_BYTES:,} in {HEADERS}", headers=_CLOSE)


def _missing_headers(response: Message) -> list[tuple[bytes, bytes]]:
    """Return the headers of every response, except those that the route has set."""
    present = {name.lower() for name, _ in response.get("headers", ())}
    return [header for header in _HEADERS if header[0] not in present]


def _is_refresh(scope: Message, path: str) -> bool:
    """Whether an open page refreshes a part of itself, as it does every few seconds."""
    refreshes = (b"hx-request", b"true") in scope["headers"]
    return bool(scope["method"] == "GET" and path.startswith("/page/") and refreshes)


def _raw_path(scope: Message) -> str:
    raw: bytes | None = scope.get("raw_path")
    return raw.decode("ascii", "replace") if raw else quote(scope["path"])
