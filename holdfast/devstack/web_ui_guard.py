"""A program: the reverse proxy in front of Temporal's Web UI, which has no access control. Run it by its path.

Browsers on this machine also show pages of other sites. Those must neither read nor act through the Web UI:

1. The `Host` must be a name of the Web UI. After DNS rebinding, a page sends its own name.
2. A request that changes something must come from the Web UI's own pages, by the `Origin` that the browser sends.
3. Other sites may link to a page. They may not fetch the API, nor show the Web UI in a frame.

It imports nothing of Holdfast, holds no secrets, and starts in a quarter of a second.
"""

import argparse
import asyncio
import ipaddress
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx2
import uvicorn

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

OURSELVES = ("localhost", "127.0.0.1", "::1")
"""The names that reach this machine and no other."""
CONNECT_SECONDS = 5.0
"""How long to wait for the Web UI to answer: it starts a second after Temporal."""

_SAFE = ("GET", "HEAD")
_STATIC = ("style", "script", "font", "image", "manifest", "serviceworker", "worker")
_HOP_BY_HOP = {b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"proxy-connection"}
_REPLACED = {b"x-frame-options", b"date", b"server"}


def refusal(method: str, headers: Iterable[tuple[bytes, bytes]], hosts: Sequence[str] = OURSELVES) -> str | None:
    """Return why a request is refused; None if it is allowed.

    Args:
        method: The HTTP method.
        headers: The headers, with names in lower case.
        hosts: The names of the Web UI.
    """
    values: dict[bytes, list[str]] = {}
    for name, value in headers:
        values.setdefault(name, []).append(value.decode("latin-1").strip())
    if any(len(values.get(name, [])) > 1 for name in (b"host", b"origin")):
        return "the request has more than one Host or Origin header"
    (host,), (origin,) = values.get(b"host", [""]), values.get(b"origin", [""])
    if _name(host) not in hosts:
        return f"{host[:100]!r} is not a name of the Web UI; open it as one of: {', '.join(hosts)}"
    site, mode, destination = (values.get(name, [""])[0] for name in _FETCH)
    own = origin == f"http://{host}" or origin == f"https://{host}"
    if method not in _SAFE and not own:
        return "a request that changes something must come from the Web UI's own page"
    if destination in _STATIC and method in _SAFE:
        return None  # public files, also needed by the sandboxed frame without an origin that shows Markdown
    if origin and not own:
        return "the request comes from another site's page"
    if site in ("cross-site", "same-site") and (mode, destination) != ("navigate", "document"):
        return "the request comes from another site's page"
    return None


_FETCH = (b"sec-fetch-site", b"sec-fetch-mode", b"sec-fetch-dest")


def _name(host: str) -> str:
    """Return the name in a `Host` header without its port; empty if it is malformed."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return str(ipaddress.ip_address(name)) if ":" in name else name
    except ValueError:
        return ""


class Guard:
    """An ASGI application that forwards allowed requests to the Web UI.

    Args:
        to: The Web UI's own address: `http://127.83.12.9:18233`.
        hosts: The names of the Web UI.
    """

    def __init__(self, to: str, hosts: Iterable[str] = OURSELVES) -> None:
        self._to = to.rstrip("/")
        self._hosts = tuple(hosts)
        # The environment's proxies and certificates are ignored. No time limit: the Web UI uses long polls.
        limits = httpx2.Limits(max_connections=None)
        self._client = httpx2.AsyncClient(trust_env=False, follow_redirects=False, timeout=None, limits=limits)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve a request."""
        assert scope["type"] == "http"
        target = scope.get("raw_path", b"").decode("ascii", "replace")
        reason = refusal(scope["method"], scope["headers"], self._hosts)
        if reason is None and not target.startswith("/"):
            reason = "the request names no path"
        if reason is not None:
            return await _answer(send, 403, f"Refused: {reason}.\n")
        query = scope["query_string"].decode("ascii", "replace")
        url = self._to + target + (f"?{query}" if query else "")
        try:
            response = await self._forward(scope, url, receive)
        except (httpx2.HTTPError, OSError) as error:
            return await _answer(
                send, 502, f"The Web UI does not answer ({type(error).__name__}). Is Temporal running?\n"
            )
        try:
            headers = _response_headers(response.headers.raw)
            await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
            sending = asyncio.ensure_future(_send_body(response, send))
            disconnect = asyncio.ensure_future(_disconnected(receive))
            await asyncio.wait({sending, disconnect}, return_when=asyncio.FIRST_COMPLETED)
            sending.cancel()  # the browser disconnected, or the body is sent
            disconnect.cancel()
            await asyncio.wait({sending, disconnect})
            if not sending.cancelled():
                sending.result()
        finally:
            await response.aclose()

    async def _forward(self, scope: Message, url: str, receive: Receive) -> httpx2.Response:
        """Forward the request; return the response once its headers have arrived."""
        headers = [(name, value) for name, value in scope["headers"] if name not in _HOP_BY_HOP]
        names = {name for name, _ in scope["headers"]}
        body = _body(receive) if {b"content-length", b"transfer-encoding"} & names else None
        until = asyncio.get_running_loop().time() + CONNECT_SECONDS
        while True:
            request = self._client.build_request(scope["method"], url, headers=headers, content=body)
            try:
                return await self._client.send(request, stream=True)
            except httpx2.ConnectError:  # safe to retry: nothing was sent
                if asyncio.get_running_loop().time() > until:
                    raise
                await asyncio.sleep(0.1)


async def _send_body(response: httpx2.Response, send: Send) -> None:
    """Forward the body as it arrives, without decompressing it."""
    async for part in response.aiter_raw():
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _body(receive: Receive) -> AsyncIterator[bytes]:
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise httpx2.RequestError("the browser disconnected")
        more = message.get("more_body", False)
        yield message.get("body", b"")


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _response_headers(headers: Headers) -> Headers:
    """Filter the Web UI's response headers: they must not grant other sites access or framing."""
    passed = []
    for name, value in headers:
        lower = name.lower()
        if not (lower in _HOP_BY_HOP | _REPLACED or lower.startswith(b"access-control-")):
            passed.append((lower, value))
    return [*passed, (b"x-frame-options", b"SAMEORIGIN"), (b"content-security-policy", b"frame-ancestors 'self'")]


async def _answer(send: Send, status: int, text: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"x-content-type-options", b"nosniff")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text.encode("utf-8", "replace")})


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description="Protect Temporal's Web UI from pages of other sites.")
    parser.add_argument("--for", help="the state folder, by which the process is recognised")
    parser.add_argument("--ip", default="127.0.0.1", help="the address to listen on")
    parser.add_argument("--port", type=int, required=True, help="the port to listen on")
    parser.add_argument("--to", required=True, help="the Web UI's own address, as http://host:port")
    parser.add_argument("--host", action="append", default=[], help="another name of the Web UI; may be repeated")
    arguments = parser.parse_args()
    app = Guard(arguments.to, (*OURSELVES, *(name.lower() for name in arguments.host if name)))
    uvicorn.run(
        app,
        host=arguments.ip,
        port=arguments.port,
        http="h11",
        ws="none",
        loop="asyncio",
        lifespan="off",
        proxy_headers=False,
        server_header=False,
        access_log=False,
        log_level="warning",
        timeout_graceful_shutdown=1,
    )


if __name__ == "__main__":
    main()
