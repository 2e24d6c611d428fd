"""The gateway's HTTP server: uvicorn with limits, without its own logs."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from holdfast.errors import SettingsError
from holdfast.gateway.http.connections import connection_class
from holdfast.gateway.http.limits import HEAD_BYTES, STREAMS

IDLE_SECONDS = 15
"""How long a connection may be idle between two requests."""
SHUTDOWN_SECONDS = 3
"""How long requests under way have to end when the gateway stops."""


def listen(host: str, port: int) -> socket.socket:
    """Open a socket that listens.

    Args:
        host: The address to listen on.
        port: The port; 0 for any free one.

    Raises:
        SettingsError: The address or the port is not available.
    """
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise SettingsError(
            f"the gateway cannot listen on {host}:{port} ({error.strerror}). "
            "Choose another port with --port, or another address with --host; `holdfast worker --dev` takes port 8470."
        ) from None


def serve_config(app: Any) -> uvicorn.Config:
    """Return the server's configuration, except for the socket.

    Args:
        app: An ASGI application.
    """
    return uvicorn.Config(
        app,
        http=connection_class(),
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,  # ours names the caller, and omits the query
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        h11_max_incomplete_event_size=HEAD_BYTES,
    )


class Server(uvicorn.Server):
    """Uvicorn without its signal handlers, which would end the process with the signal.

    Args:
        app: An ASGI application.
    """

    def __init__(self, app: Any) -> None:
        super().__init__(serve_config(app))
        self._streams: set[Callable[[], object]] = set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept requests."""
        self.lifespan.state[STREAMS] = self._streams
        await super().startup(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the caller."""
        yield

    def stop(self) -> None:
        """Accept no more requests; end once those under way are complete, or after `SHUTDOWN_SECONDS`.

        Streams and waits for results end at once: each of them would delay every restart.
        """
        self.should_exit = True
        for end in tuple(self._streams):
            end()
