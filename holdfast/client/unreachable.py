"""The error for a Temporal server that does not answer, and a check of its port that needs no Temporal client."""

import socket

from holdfast.config.programs import WORKER, in_checkout
from holdfast.errors import ServerUnreachable

_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_SECONDS = 0.5


def unreachable(address: str, reason: str) -> ServerUnreachable:
    """Return the error for a server that does not answer at `address`."""
    return ServerUnreachable(
        f"no Temporal server answers at {address} ({reason}). "
        f"Start one with `{WORKER.command('--dev')}`, or set TEMPORAL_ADDRESS."
        # Outside a checkout, only one folder records the embedded server.
        + ("" if in_checkout() else " If one was started in another folder, set HOLDFAST_HOME to the .holdfast there.")
    )


def check_port(address: str) -> None:
    """Reject a port of this machine that nothing listens on. Importing Temporal's client takes ten times as long.

    Args:
        address: `host:port`; only loopback hosts are checked.

    Raises:
        ServerUnreachable: The connection was refused.
    """
    host, _, port = address.rpartition(":")
    if host not in _LOOPBACK or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_SECONDS).close()
    except ConnectionRefusedError as error:
        raise unreachable(address, error.strerror or "connection refused") from None
    except (OSError, OverflowError):
        return  # Temporal's client reports everything else
