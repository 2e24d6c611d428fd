"""The embedded stacks that this user runs, from any folder. Found among the processes: nothing keeps a list of them."""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from holdfast.runtime.config.stack_file import Stack, read_stack


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

    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.uids().effective != os.geteuid() or process.name() != "temporal":
                continue
            for home in _home(process.cmdline()):
                stack = read_stack(home)
                if stack and stack.temporal_pid == process.pid:
                    found.append(RunningStack(home, stack))
    return found


def _home(argv: list[str]) -> Iterator[Path]:
    """The state folder that a server's command line names."""
    if "--db-filename" in argv[:-1]:
        yield Path(argv[argv.index("--db-filename") + 1]).parent
