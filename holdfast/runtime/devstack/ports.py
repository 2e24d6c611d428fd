"""TCP ports of the embedded Temporal server on the loopback address: the usual ones, or free ones instead."""

import socket
import time
from collections.abc import Collection
from dataclasses import dataclass

from holdfast.errors import StackError
from holdfast.runtime.devstack.processes import Say

HOST = "127.0.0.1"


@dataclass(frozen=True)
class Ports:
    """The ports of the embedded stack; the defaults are the usual ones."""

    grpc: int = 7233
    ui: int = 8233
    http: int = 7243

    def all_free(self) -> bool:
        """Tell whether nobody listens on those of the Temporal server itself."""
        return is_free(self.grpc) and is_free(self.http)

    def or_free(self, *, say: Say) -> "Ports":
        """Return these ports, with a free one in place of each of Temporal's own that is taken; tell `say` which.

        Raises:
            StackError: no free port was found.
        """
        # A server that was killed a moment ago may still hold its ports: let the kernel finish.
        patience = time.monotonic() + 0.5
        while not self.all_free() and time.monotonic() < patience:
            time.sleep(0.01)
        grpc = pick(self.grpc, "Temporal", say=say, but={self.ui})
        return Ports(grpc=grpc, http=pick(self.http, "Temporal's HTTP API", say=say, but={grpc, self.ui}), ui=self.ui)


def is_free(port: int) -> bool:
    """Tell whether a server could listen on a port of the loopback address."""
    with socket.socket() as probe:
        # As the server does: a connection of the last run, still fading out, does not hold the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def any_free() -> int:
    """Return a port that is free now, chosen by the operating system."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def pick(port: int, purpose: str, *, say: Say, but: Collection[int] = ()) -> int:
    """Return the port, or a free one in its place; tell `say` which.

    Raises:
        StackError: no free port was found.
    """
    # 7333, 7433, …: like the usual port, clear of Temporal's own neighbours and of short-lived ports.
    candidates: list[int] = [port, *range(port + 100, min(port + 1000, 65_536), 100), any_free(), any_free()]
    for candidate in candidates:
        if candidate not in but and is_free(candidate):
            if candidate != port:
                say(f"port {port} is taken; {purpose} uses {candidate}")
            return candidate
    raise StackError(f"No free port was found for {purpose}, neither {port} nor any other.")
