"""The name that a worker goes by in Temporal: which process of which machine it is. Pure text; `liveness` looks.

    hf:build-7:3f1c9a2b7d5e8046:4711:8834112

Whoever reads it can say for sure whether that process has ended, if it runs in the same place, and nobody else can.
Each step's history repeats it up to ten times, so it is short.
"""

import re
from dataclasses import dataclass

_NOT_IN_HOST = re.compile(r"[^A-Za-z0-9-]")
_IDENTITY = re.compile(
    r"hf:(?P<host>[A-Za-z0-9-]{1,24}):(?P<place>[0-9a-f]{16})"
    r":(?P<pid>[1-9][0-9]{0,9}):(?P<started>0|[1-9][0-9]{0,19})",
    re.ASCII,
)


@dataclass(frozen=True)
class WorkerIdentity:
    """One process, for ever: its number may be used again, but not with this start time, and not in this place."""

    host: str
    """The machine's name, for people. Names are not unique, so nothing is concluded from it."""
    place: str
    """16 hex digits: within one place, process ids and start times mean the same to everybody. A start of one machine,
    or a container of it."""
    pid: int
    """The process id."""
    started: int
    """When it was started, in the kernel's clock ticks."""

    def __str__(self) -> str:
        return f"hf:{self.host}:{self.place}:{self.pid}:{self.started}"


def parse_identity(text: str) -> WorkerIdentity | None:
    """Read an identity. None for anything that `str` of one does not say: another program's, to be left alone."""
    found = _IDENTITY.fullmatch(text)
    if found is None:
        return None
    return WorkerIdentity(found["host"], found["place"], int(found["pid"]), int(found["started"]))


def host_in_identity(name: str) -> str:
    """A machine's name as an identity can hold it: without its domain, other characters as hyphens, of a longer one the
    last 24, which tell the pods of one deployment apart.
    """
    return _NOT_IN_HOST.sub("-", name.partition(".")[0])[-24:] or "-"
