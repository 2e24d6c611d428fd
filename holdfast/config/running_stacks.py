"""The embedded stacks that this user runs, from any folder. They are found among the processes; no list is kept.

A stack's identity is its state folder: its Temporal server was started with that folder's database, and no other server
can have its port while it runs. A port alone identifies nothing: another program may have it in the meantime.
"""

import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.config.programs import WORKER
from holdfast.config.stack_file import LOOPBACK, Stack, read_stack

TEMPORAL_DATABASE: Final = "temporal.db"
"""The database of the embedded Temporal server, in the state folder."""

_SECONDS: Final = 0.5


@dataclass(frozen=True)
class RunningStack:
    """An embedded stack whose Temporal server runs."""

    home: Path
    """Its state folder."""
    stack: Stack
    """Its record."""


def running_stacks() -> list[RunningStack]:
    """Return this user's running stacks whose record can be used, in the order of their process ids."""
    import psutil

    stacks = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.uids().effective != os.geteuid() or process.name() != "temporal":
                continue
            if database := option(process.cmdline(), "--db-filename"):
                home = Path(database).parent
                stack = read_stack(home)
                if stack and stack.temporal_pid == process.pid:
                    stacks.append(RunningStack(home, stack))
    return stacks


def is_running(home: Path, stack: Stack) -> bool:
    """Whether the Temporal server of a state folder runs, at the address that the folder's record names.

    Only a process of this user that was started with this folder's database and this port counts: not a reused process
    id, a copy of the folder, or another program at that port.

    Args:
        home: The state folder.
        stack: Its record. Its process is tried first; the server may have been restarted a moment ago.
    """
    import psutil

    expected = str(home.resolve() / TEMPORAL_DATABASE), _port(stack.temporal_address)

    def is_ours(process: psutil.Process) -> bool:
        with suppress(psutil.Error, OSError):
            argv = process.cmdline()  # empty for a zombie
            actual = option(argv, "--db-filename"), option(argv, "--port")
            return actual == expected and process.uids().effective == os.geteuid()
        return False

    with suppress(psutil.Error, ValueError, OverflowError):
        if stack.temporal_pid is not None and is_ours(psutil.Process(stack.temporal_pid)):
            return True
    return any(map(is_ours, psutil.process_iter()))


def without_stack(home: Path, address: str) -> tuple[str, str]:
    """Return a message that a state folder has no running stack and what has its address, and advice.

    Args:
        home: The state folder.
        address: The address of its Temporal server, or the default one.
    """
    others = [each for each in running_stacks() if each.home != home.resolve()]
    relevant = [each for each in others if _port(each.stack.temporal_address) == _port(address)]
    if not relevant and is_taken(address):
        rivals = f"another program at {address}"
    else:
        relevant = relevant or others
        rivals = ", ".join(f"{each.home} at {each.stack.temporal_address}" for each in relevant)
    instead = f", or set HOLDFAST_HOME={relevant[0].home}" if relevant else ""
    return (
        f"{home} has no running stack" + (f"; there is {rivals}" if rivals else ""),
        f"{WORKER.command('--dev')} in this folder{instead}",
    )


def is_taken(address: str) -> bool:
    """Whether a program of this machine listens at a loopback address."""
    if address.rpartition(":")[0] not in LOOPBACK:
        return False
    with suppress(OSError, ValueError, OverflowError):
        socket.create_connection(("127.0.0.1", int(_port(address))), timeout=_SECONDS).close()
        return True
    return False


def option(argv: Sequence[str], name: str) -> str | None:
    """Return the word after `name` on a command line, or None."""
    return argv[argv.index(name) + 1] if name in argv[:-1] else None


def _port(address: str) -> str:
    return address.rpartition(":")[2]
