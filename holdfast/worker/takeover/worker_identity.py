"""The identity of a worker in Temporal, which names one process of one machine. Pure text; `liveness` checks processes.

    hf:build-7:3f1c9a2b7d5e8046:4711:8834112

Only a process in the same scope can prove from it that the worker's process has ended.
It is short because each step's history repeats it up to ten times.
"""

import re
from dataclasses import dataclass

_NOT_IN_HOST = re.compile(r"[^A-Za-z0-9-]")
_IDENTITY = re.compile(
    r"hf:(?P<host>[A-Za-z0-9-]{1,24}):(?P<scope>[0-9a-f]{16})"
    r":(?P<pid>[1-9][0-9]{0,9}):(?P<started>0|[1-9][0-9]{0,19})",
    re.ASCII,
)


@dataclass(frozen=True)
class WorkerIdentity:
    """Identifies one process permanently: its id may be reused, but not with the same start time in the same scope."""

    host: str
    """The machine's name, for people. Names are not unique, so no decision depends on it."""
    scope: str
    """16 hex digits that identify one boot of a machine or container, within which all processes see the same process
    ids and start times."""
    pid: int
    """The process id."""
    started: int
    """When the process was started, in the kernel's clock ticks."""

    def __str__(self) -> str:
        return f"hf:{self.host}:{self.scope}:{self.pid}:{self.started}"


def parse_identity(text: str) -> WorkerIdentity | None:
    """Parse an identity; None for any other text, which belongs to another program."""
    match = _IDENTITY.fullmatch(text)
    if match is None:
        return None
    return WorkerIdentity(match["host"], match["scope"], int(match["pid"]), int(match["started"]))


def host_in_identity(name: str) -> str:
    """Shorten a machine's name for an identity: without its domain, special characters as hyphens, the last 24
    characters, which distinguish the pods of one deployment.
    """
    return _NOT_IN_HOST.sub("-", name.partition(".")[0])[-24:] or "-"
