"""Limits the gateway's open connections, and closes idle ones.

1. A connection is busy from the last byte of a request's headers until its response is complete. All others are idle:
   they have sent nothing, part of the headers, or the rest of a body that is no longer read.
2. An idle connection is closed `HEADER_SECONDS` after its first byte; between two requests, after `IDLE_SECONDS`.
3. If there are too many, an idle one is closed: the oldest of the address with the most idle ones. So half-open
   connections displace each other, and never a caller who sends a request at once.
"""

import asyncio
from collections import Counter
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS = 5.0
"""The time within which the headers of a request have to arrive."""
CONNECTIONS = 512
"""The most connections, busy and idle."""


class Connections:
    """The connections of a server.

    Args:
        limit: The most connections.
    """

    def __init__(self, limit: int = CONNECTIONS) -> None:
        self._limit = limit
        self._open: set[Connection] = set()
        self._idle: dict[Connection, None] = {}
        """The idle connections, the longest idle first."""

    def add(self, connection: "Connection") -> None:
        """Add a connection; if there are too many, close another one."""
        self._open.add(connection)
        self._idle[connection] = None
        if len(self._open) > self._limit:
            self._close_one(besides=connection)

    def mark_idle(self, connection: "Connection") -> None:
        """Record that a connection has no request under way."""
        if connection in self._open:
            self._idle.setdefault(connection)

    def mark_busy(self, connection: "Connection") -> None:
        """Record that a connection has a request under way."""
        self._idle.pop(connection, None)

    def remove(self, connection: "Connection") -> None:
        """Remove a connection."""
        self._open.discard(connection)
        self._idle.pop(connection, None)

    def _close_one(self, *, besides: "Connection") -> None:
        candidates = [each for each in self._idle if each is not besides] or [besides]
        crowded, _ = Counter(each.address for each in candidates).most_common(1)[0]
        victim = next(each for each in candidates if each.address == crowded)
        self.remove(victim)
        victim.transport.abort()


class Connection(H11Protocol):
    """A connection with time limits; `connection_class` binds it to the connections of its server."""

    of_server: Connections
    header_seconds: float

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._deadline: asyncio.TimerHandle | None = None

    @property
    def address(self) -> str:
        """The client's address."""
        return self.client[0] if self.client else ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self.of_server.add(self)
        self._update()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._cancel_deadline()
        self.of_server.remove(self)

    def handle_events(self) -> None:
        super().handle_events()
        self._update()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._update()

    def _update(self) -> None:
        """Record whether it is busy, and set its deadline."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._cancel_deadline()
            self.of_server.mark_busy(self)
            return
        self.of_server.mark_idle(self)
        # Between two requests, uvicorn's own timer runs until the next byte arrives. Ours is set only once.
        if self.timeout_keep_alive_task is None and self._deadline is None and not self.transport.is_closing():
            self._deadline = self.loop.call_later(self.header_seconds, self.transport.abort)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def connection_class(limit: int = CONNECTIONS, header_seconds: float = HEADER_SECONDS) -> type[Connection]:
    """Return the class for the connections of one server, which share one limit."""
    return type("ServerConnection", (Connection,), {"of_server": Connections(limit), "header_seconds": header_seconds})
