"""What the embedded stack is and where it was put: the record `<home>/stack.json`.

Starts nothing and imports little: the CLI finds the stack without delay. `devstack` starts and stops it.
"""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from holdfast.runtime.config.state_folder import write_private


class Stack(BaseModel):
    """An embedded stack: where its servers answer, and which processes they are."""

    # A record written by a later release may hold more than we know; what we know is enough to connect.
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
    """Port of the gRPC API, taken again after a restart."""
    ui_port: int
    """Port of the Web UI, taken again after a restart."""
    http_port: int
    """Port of Temporal's HTTP API, which answers the readiness check; taken again after a restart."""
    fleet_keys: str = ""
    """The file of the fleet key that this stack's processes share; empty for none."""
    temporal_pid: int | None = None
    """Process id of the Temporal server; None once it was stopped."""
    postgres_pid: int | None = None
    """Process id of the PostgreSQL postmaster; None once it was stopped."""
    web_ui_pid: int | None = None
    """Process id of the guard in front of the Web UI; None once it was stopped."""
    owner_pid: int | None = None
    """Process id of the worker that stops the servers when it ends. For people: programs go by its lock."""

    def stopped(self) -> "Stack":
        """Return the record of this stack after an orderly stop: no processes, the same ports."""
        return self.model_copy(update=dict.fromkeys(("temporal_pid", "postgres_pid", "web_ui_pid", "owner_pid")))


def read_stack(home: Path) -> Stack | None:
    """Return the stack recorded in the state folder `home`, running or not; None without a usable record."""
    try:
        return Stack.model_validate_json(_record(home).read_bytes())
    except (OSError, ValidationError):
        # A record is a hint: what is missing or damaged is found again by looking at the processes.
        return None


def write_stack(home: Path, stack: Stack) -> None:
    """Record `stack` in the state folder `home`: a reader sees the old record or the new one, never a part.

    Raises:
        OSError: the folder cannot be written.
    """
    write_private(_record(home), stack.model_dump_json(indent=2).encode() + b"\n")


def _record(home: Path) -> Path:
    return home / "stack.json"
