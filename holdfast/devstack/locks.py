"""The locks of a state folder, which the kernel releases when their holder ends."""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from holdfast.devstack.processes import Report
from holdfast.errors import StackError


def lock(file: IO[bytes], *, shared: bool = False) -> bool:
    """Lock a file for as long as it is open; return False if another process holds the lock.

    Args:
        file: An open file.
        shared: Others may share the lock, too. A lock that is shared already becomes exclusive without this.
    """
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock(file: IO[bytes]) -> None:
    """Release a lock, for processes that were forked meanwhile, too: closing the file would leave it to them."""
    fcntl.flock(file, fcntl.LOCK_UN)


@contextmanager
def exclusively(home: Path, *, timeout: float, report: Report) -> Iterator[None]:
    """Hold the lock under which the servers of the state folder `home` are started and stopped.

    Args:
        home: The state folder, with the file `stack.lock`.
        timeout: Seconds to wait for another process.
        report: Called with a line if this call has to wait.

    Raises:
        StackError: The wait took too long.
    """
    deadline = time.monotonic() + timeout
    with (home / "stack.lock").open("ab") as file:
        if not lock(file):
            report(f"another process is starting or stopping the stack in {home}; waiting for it")
            while not lock(file):
                if time.monotonic() > deadline:
                    raise StackError(
                        f"Another process has been starting or stopping the stack in {home} for "
                        f"{timeout:.0f} s. End it (`fuser -v {file.name}` names it) and try again."
                    )
                time.sleep(0.02)
        yield
