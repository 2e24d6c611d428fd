"""Serve a gateway and a receiver of notifications, both as real HTTP servers on loopback ports."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from holdfast.gateway.http.serving import Server, listen
from tests.support.rig import eventually

JSON = dict[str, Any]


@asynccontextmanager
async def served(app: Any) -> AsyncIterator[str]:
    """Serve an ASGI application as `gateway.py` does, and yield its URL."""
    listening = listen("127.0.0.1", 0)
    server = Server(app)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        await eventually(_value_of(lambda: server.started or serving.done()), bool)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.stop()
        await serving


def sha256(token: str) -> str:
    """Return a token's hash in the form of the gateway's file."""
    return hashlib.sha256(token.encode()).hexdigest()


@dataclass
class Receiver:
    """Accepts notifications after a given number of failures."""

    answers: list[int] = field(default_factory=list)
    """The statuses of the first answers; 200 afterwards."""
    headers: dict[str, str] = field(default_factory=dict)
    requests: list[tuple[int, dict[str, str], bytes]] = field(default_factory=list)
    """The status of each answer, with the request's headers and body."""
    open: asyncio.Event = field(default_factory=asyncio.Event)
    """Requests wait until it is set."""

    def __post_init__(self) -> None:
        self.open.set()

    @property
    def taken(self) -> list[JSON]:
        """Return the accepted notifications."""
        return [json.loads(body) for status, _, body in self.requests if status == 200]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request."""
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        await self.open.wait()
        status = self.answers.pop(0) if self.answers else 200
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.requests.append((status, headers, body))
        own = [(name.encode(), value.encode()) for name, value in self.headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": own})
        await send({"type": "http.response.body", "body": b""})


def _value_of(read: Callable[[], Any]) -> Callable[[], Any]:
    async def ask() -> Any:
        return read()

    return ask
