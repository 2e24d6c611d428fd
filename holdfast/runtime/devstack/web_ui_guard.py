"""A program: the reverse proxy in front of Temporal's Web UI, which itself answers anybody. Run it by its path.

A browser on this machine also runs other people's pages. They must neither read nor act through the Web UI:

1. The `Host` must name the Web UI as a person does. A page whose own name was made to lead to this machine (DNS
   rebinding) sends that name.
2. What changes something must come from the Web UI's own pages, as the browser says in `Origin`.
3. Other sites may link to a page. They may not fetch the API, nor show the Web UI in a frame.

Starts nothing and imports nothing of Holdfast: it is up in a quarter of a second, and knows no secret.
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
"""The names of this machine that no other machine can have."""
PATIENCE = 5.0
"""Seconds to wait for the Web UI to answer: it starts a second after Temporal does."""

_SAFE = ("GET", "HEAD")
_STATIC = ("style", "script", "font", "image", "manifest", "serviceworker", "worker")
_HOP_BY_HOP = {b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"proxy-connection"}
_OURS_TO_SAY = {b"x-frame-options", b"date", b"server"}


def why_not(method: str, headers: Iterable[tuple[bytes, bytes]], hosts: Sequence[str] = OURSELVES) -> str | None:
    """Why a request is refused; None if it may pass.

    Args:
        method: Of HTTP.
        headers: Names in lower case.
        hosts: The names that the Web UI goes by.
    """
    given: dict[bytes, list[str]] = {}
    for name, value in headers:
        given.setdefault(name, []).append(value.decode("latin-1").strip())
    if any(len(given.get(name, [])) > 1 for name in (b"host", b"origin")):
        return "it has more than one Host or Origin"
    (host,), (origin,) = given.get(b"host", [""]), given.get(b"origin", [""])
    if _name(host) not in hosts:
        return f"the Web UI is not called {host[:100]!r}; open it as one of: {', '.join(hosts)}"
    site, mode, destination = (given.get(name, [""])[0] for name in _FETCH)
    own = origin == f"http://{host}" or origin == f"https://{host}"
    if method not in _SAFE and not own:
        return "what changes something must come from the Web UI's own page"
    if destination in _STATIC and method in _SAFE:
        return None  # the same for everybody; the sandbox in which the Web UI shows Markdown has no origin of its own
    if origin and not own:
        return "another site's page asks"
    if site in ("cross-site", "same-site") and (mode, destination) != ("navigate", "document"):
        return "another site's page asks"
    return None


_FETCH = (b"sec-fetch-site", b"sec-fetch-mode", b"sec-fetch-dest")


def _name(host: str) -> str:
    """The name in a `Host`, without its port; empty for what is none."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return str(ipaddress.ip_address(name)) if ":" in name else name
    except ValueError:
        return ""


class Guard:
    """An ASGI application that passes on to the Web UI what may pass.

    Args:
        to: The Web UI behind it: `http://127.83.12.9:18233`.
        hosts: The names that the Web UI goes by.
    """

    def __init__(self, to: str, hosts: Iterable[str] = OURSELVES) -> None:
        self._to = to.rstrip("/")
        self._hosts = tuple(hosts)
        # Nothing of the environment: no proxy, no certificates. No time limit either: the Web UI polls for long.
        limits = httpx2.Limits(max_connections=None)
        self._client = httpx2.AsyncClient(trust_env=False, follow_redirects=False, timeout=None, limits=limits)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve a request."""
        assert scope["type"] == "http"
        target = scope.get("raw_path", b"").decode("ascii", "replace")
        reason = why_not(scope["method"], scope["headers"], self._hosts)
        if reason is None and not target.startswith("/"):
            reason = "it names no path"
        if reason is not None:
            return await _answer(send, 403, f"Refused: {reason}.\n")
        query = scope["query_string"].decode("ascii", "replace")
        url = self._to + target + (f"?{query}" if query else "")
        try:
            response = await self._ask(scope, url, receive)
        except (httpx2.HTTPError, OSError) as error:
            return await _answer(
                send, 502, f"The Web UI does not answer ({type(error).__name__}). Is Temporal running?\n"
            )
        try:
            headers = _answered(response.headers.raw)
            await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
            telling = asyncio.ensure_future(_tell(response, send))
            gone = asyncio.ensure_future(_disconnected(receive))
            await asyncio.wait({telling, gone}, return_when=asyncio.FIRST_COMPLETED)
            telling.cancel()  # the browser hung up, or it is told already
            gone.cancel()
            await asyncio.wait({telling, gone})
            if not telling.cancelled():
                telling.result()
        finally:
            await response.aclose()

    async def _ask(self, scope: Message, url: str, receive: Receive) -> httpx2.Response:
        """Send the request on, and return the response, of which only the headers are there yet."""
        headers = [(name, value) for name, value in scope["headers"] if name not in _HOP_BY_HOP]
        names = {name for name, _ in scope["headers"]}
        body = _body(receive) if {b"content-length", b"transfer-encoding"} & names else None
        until = asyncio.get_running_loop().time() + PATIENCE
        while True:
            request = self._client.build_request(scope["method"], url, headers=headers, content=body)
            try:
                return await self._client.send(request, stream=True)
            except httpx2.ConnectError:  # nothing was sent yet
                if asyncio.get_running_loop().time() > until:
                    raise
                await asyncio.sleep(0.1)


async def _tell(response: httpx2.Response, send: Send) -> None:
    """Pass the body on as it comes, compressed as it is."""
    async for part in response.aiter_raw():
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _body(receive: Receive) -> AsyncIterator[bytes]:
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise httpx2.RequestError("the browser hung up")
        more = message.get("more_body", False)
        yield message.get("body", b"")


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _answered(headers: Headers) -> Headers:
    """The Web UI's headers: no other site is let in by them, and none may show it in a frame."""
    kept = []
    for name, value in headers:
        lower = name.lower()
        if not (lower in _HOP_BY_HOP | _OURS_TO_SAY or lower.startswith(b"access-control-")):
            kept.append((lower, value))
    return [*kept, (b"x-frame-options", b"SAMEORIGIN"), (b"content-security-policy", b"frame-ancestors 'self'")]


async def _answer(send: Send, status: int, text: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"x-content-type-options", b"nosniff")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text.encode("utf-8", "replace")})


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description="Keep other sites' pages away from Temporal's Web UI.")
    parser.add_argument("--for", help="the state folder, by which the process is recognised")
    parser.add_argument("--ip", default="127.0.0.1", help="the address to listen on")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--to", required=True, help="the Web UI behind it, as http://host:port")
    parser.add_argument("--host", action="append", default=[], help="a further name that the Web UI goes by")
    given = parser.parse_args()
    app = Guard(given.to, (*OURSELVES, *(name.lower() for name in given.host if name)))
    uvicorn.run(
        app,
        host=given.ip,
        port=given.port,
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
