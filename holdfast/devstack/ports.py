"""TCP ports of the embedded Temporal server on the loopback address: the usual ones, or free replacements."""

import secrets
import socket
import time
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from holdfast.config.running_stacks import is_taken
from holdfast.devstack.processes import Report
from holdfast.errors import StackError

HOST = "127.0.0.1"

RELEASE_SECONDS = 5.0
"""How long to wait for a port that is in use, but on which nobody listens."""

_returned: set[int] = set()
"""The ports that `any_free` has returned in this process."""


@dataclass(frozen=True)
class Ports:
    """The ports of the embedded stack; the defaults are the usual ones."""

    grpc: int = 7233
    ui: int = 8233
    http: int = 7243

    def all_free(self) -> bool:
        """Return whether the ports of the Temporal server itself are free."""
        return is_free(self.grpc) and is_free(self.http)

    def or_free(self, *, report: Report) -> "Ports":
        """Replace each of Temporal's own ports that is in use by a free one, and report it.

        Raises:
            StackError: No free port was found.
        """
        # The kernel may not yet have released the ports of a server that was just killed: then nobody listens on them.
        begun = time.monotonic()
        while not self.all_free() and (waited := time.monotonic() - begun) < RELEASE_SECONDS:
            if waited > 0.5 and any(is_taken(f"{HOST}:{port}") for port in (self.grpc, self.http)):
                break
            time.sleep(0.01)
        grpc = pick(self.grpc, "Temporal", report=report, but={self.ui})
        return Ports(
            grpc=grpc, http=pick(self.http, "Temporal's HTTP API", report=report, but={grpc, self.ui}), ui=self.ui
        )


def is_free(port: int) -> bool:
    """Return whether a server could listen on a port of the loopback address."""
    with socket.socket() as probe:
        # Like the server: old connections in TIME_WAIT do not block the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def any_free() -> int:
    """Return a free port, different each time, outside the range that the system uses for outgoing connections.

    An outgoing connection could take the port before a server listens on it, and hold it for a minute after it closes.
    Temporal's server exits if that happens to the port of its Web UI, which it opens last.
    """
    usable = _unused_by_connections()
    for _ in range(100 if usable else 0):
        port = secrets.choice(usable)
        if port not in _returned and is_free(port):
            _returned.add(port)
            return port
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


@cache
def _unused_by_connections() -> list[int]:
    """Return the ports from 10,000 that the system does not choose for outgoing connections."""
    try:
        bounds = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()
        first, last = (int(bound) for bound in bounds)
    except (OSError, ValueError):  # not Linux: the range that IANA suggests
        first, last = 49_152, 65_535
    return [*range(10_000, first), *range(max(10_000, last + 1), 65_536)]


def pick(port: int, purpose: str, *, report: Report, but: Collection[int] = ()) -> int:
    """Return the port, or a free one if it is in use, and report that.

    Raises:
        StackError: No free port was found.
    """
    # 7333, 7433, …: similar to the usual port, away from Temporal's other ports and from ephemeral ones.
    candidates: list[int] = [port, *range(port + 100, min(port + 1000, 65_536), 100), any_free(), any_free()]
    for candidate in candidates:
        if candidate not in but and is_free(candidate):
            if candidate != port:
                report(f"port {port} is in use; {purpose} uses {candidate}")
            return candidate
    raise StackError(f"No free port was found for {purpose}: {port} and all alternatives are in use.")
