"""How many connections the gateway keeps, and which ones it gives up.

1. A connection is busy from the last byte of a request's headers until its answer is whole. All others are idle: those
   that have sent nothing, half a header, or the rest of a body that nobody reads any more.
2. The idle ones have `HEADER_SECONDS` from their first byte on; between two requests, `IDLE_SECONDS`.
3. Where there are too many, idle ones are closed, the oldest of the address that has most of them. So half-open
   connections crowd out each other, and nobody who sends a request at once.
"""

import asyncio
from collections import Counter
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS = 5.0
"""In which the headers of a request have to arrive."""
CONNECTIONS = 512
"""All connections, busy and idle ones."""


class Connections:
    """The connections of a server.

    Args:
        most: How many there may be.
    """

    def __init__(self, most: int = CONNECTIONS) -> None:
        self._most = most
        self._open: set[Connection] = set()
        self._idle: dict[Connection, None] = {}
        """Those that are idle, the longest first."""

    def opened(self, connection: "Connection") -> None:
        """One more; another one is given up where there are too many."""
        self._open.add(connection)
        self._idle[connection] = None
        if len(self._open) > self._most:
            self._give_up(but=connection)

    def idle(self, connection: "Connection") -> None:
        """It has no request under way."""
        if connection in self._open:
            self._idle.setdefault(connection)

    def busy(self, connection: "Connection") -> None:
        """It has a request under way."""
        self._idle.pop(connection, None)

    def closed(self, connection: "Connection") -> None:
        """One less."""
        self._open.discard(connection)
        self._idle.pop(connection, None)

    def _give_up(self, *, but: "Connection") -> None:
        candidates = [each for each in self._idle if each is not but] or [but]
        crowded, _ = Counter(each.address for each in candidates).most_common(1)[0]
        victim = next(each for each in candidates if each.address == crowded)
        self.closed(victim)
        victim.transport.abort()


class Connection(H11Protocol):
    """A connection with time limits. `serving` has `Connections` in it."""

    kept: Connections
    header_seconds: float

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._deadline: asyncio.TimerHandle | None = None

    @property
    def address(self) -> str:
        """Where it comes from."""
        return self.client[0] if self.client else ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self.kept.opened(self)
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._in_time()
        self.kept.closed(self)

    def handle_events(self) -> None:
        super().handle_events()
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look()

    def _look(self) -> None:
        """See whether it is busy, and how much time it has."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._in_time()
            self.kept.busy(self)
            return
        self.kept.idle(self)
        # Between two requests uvicorn has a timer, until the next byte comes. Ours is set once.
        if self.timeout_keep_alive_task is None and self._deadline is None and not self.transport.is_closing():
            self._deadline = self.loop.call_later(self.header_seconds, self.transport.abort)

    def _in_time(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def connection_class(most: int = CONNECTIONS, header_seconds: float = HEADER_SECONDS) -> type[Connection]:
    """The connections of one server, which count together."""
    return type("ServerConnection", (Connection,), {"kept": Connections(most), "header_seconds": header_seconds})
