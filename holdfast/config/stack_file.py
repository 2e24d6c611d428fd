"""The record of the embedded stack, `<home>/stack.json`: its addresses, ports and process ids.

A record counts only if this user owns it, others cannot read it, and all its addresses are on this machine: a folder
that somebody cloned must not name a server. Nor does a copied folder have the stack of its original. It imports little,
so that the CLI starts fast. `devstack` starts and stops the servers.
"""

from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

from pydantic import BaseModel, ConfigDict, ValidationError

from holdfast.config.own_file import NotOwnFile, read_own_file
from holdfast.config.state_folder import write_private

DEFAULT_ADDRESS: Final = "localhost:7233"
"""The usual address of a Temporal server, and of the embedded one if no other program has it."""
LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")


class Stack(BaseModel):
    """An embedded stack: the addresses and process ids of its servers."""

    # A later release may have written more fields; ours are enough to connect.
    model_config = ConfigDict(frozen=True, extra="ignore")

    temporal_address: str
    """`host:port` of Temporal's gRPC API."""
    namespace: str
    """The Temporal namespace to use."""
    ui_url: str
    """Temporal's Web UI, for a browser on this machine."""
    database_url: str
    """A libpq URL of the database, over a Unix socket that only this account (and root) can reach."""
    temporal_port: int
    """Port of the gRPC API, reused after a restart."""
    ui_port: int
    """Port of the Web UI, reused after a restart."""
    http_port: int
    """Port of Temporal's HTTP API, which answers the readiness check; reused after a restart."""
    fleet_keys: str = ""
    """The file of the fleet key that this stack's processes share; empty for none."""
    skip_time: bool = False
    """Whether the Temporal server lets its clients skip time."""
    temporal_pid: int | None = None
    """Process id of the Temporal server; None once it has stopped."""
    postgres_pid: int | None = None
    """Process id of the PostgreSQL postmaster; None once it has stopped."""
    web_ui_pid: int | None = None
    """Process id of the guard in front of the Web UI; None once it has stopped."""
    owner_pid: int | None = None
    """Process id of the worker that stops the servers when it ends. For people: programs rely on the owner's lock."""

    def stopped(self) -> "Stack":
        """Return the record after an orderly stop: no processes, the same ports."""
        return self.model_copy(update=dict.fromkeys(("temporal_pid", "postgres_pid", "web_ui_pid", "owner_pid")))


def read_stack(home: Path) -> Stack | None:
    """Return the stack recorded in the state folder `home`, running or not; None without a usable record."""
    # The record is a hint: without it, the servers are found among the running processes.
    record = _read(home)
    return record if isinstance(record, Stack) else None


def record_fault(home: Path) -> str:
    """Return why the record in the state folder `home` is rejected; empty if it is not, or if there is none."""
    record = _read(home)
    return record if isinstance(record, str) else ""


def write_stack(home: Path, stack: Stack) -> None:
    """Replace the record in the state folder `home` atomically.

    Raises:
        OSError: The folder cannot be written.
    """
    write_private(_record(home), stack.model_dump_json(indent=2).encode() + b"\n")


def _read(home: Path) -> Stack | str:
    """Return the record, or why it is rejected; an empty text for none."""
    try:
        stack = Stack.model_validate_json(read_own_file(_record(home), private=True))
    except FileNotFoundError:
        return ""
    except NotOwnFile as error:
        return f"it {error}"
    except ValidationError:
        return "it is not a record of a stack"
    if not _is_local(stack):
        return "it names a server that is not on this machine"
    if stack.fleet_keys and Path(stack.fleet_keys).parent != home.resolve():
        return f"it is the record of {Path(stack.fleet_keys).parent}"  # a copied folder must not use the original's
    return stack


def _is_local(stack: Stack) -> bool:
    """Whether all addresses are on this machine; before the servers' first start, some are empty."""
    try:
        database, ui = urlsplit(stack.database_url), urlsplit(stack.ui_url)
        sockets = parse_qs(database.query, keep_blank_values=True)
        hosts = {stack.temporal_address.rpartition(":")[0], ui.hostname}
    except ValueError:
        return False
    # libpq uses the last of several values, and does not parse fragments.
    single = all(len(values) == 1 for values in sockets.values()) and "#" not in stack.database_url
    by_socket = database.hostname is None and sockets.keys() == {"host", "port"} and sockets["host"][0].startswith("/")
    return hosts <= {*LOOPBACK, "::1", None} and ((by_socket and single) or not stack.database_url)


def _record(home: Path) -> Path:
    return home / "stack.json"
