"""Who may write to a repository: one of ours at a time, and none beside a git that is at work.

1. Our lock is held from the first look at the repository until what git has made is brought into it. A git that
   outlives its worker writes to a view of its own, and harms nobody.
2. A lock file that git left behind is removed when nobody can be using it: our lock is held, no git process works in
   the repository, and the file is some seconds old. It is waited for otherwise.
"""

import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import structlog

from holdfast.memory.errors import MemoryRefused
from holdfast.runtime.memory import git_files
from holdfast.runtime.memory.git import GitFailed

WAIT_SECONDS = 60.0
"""How long to wait for others of ours."""
LOCK_SECONDS = 15.0
"""How long to wait for a lock file of git's."""
STALE_SECONDS = 3.0
"""Age of a lock file that may be left behind."""

log = structlog.get_logger(__name__)


class RepositoryBusy(MemoryRefused):
    """Somebody else is at work in the repository, and did not end in time."""


@contextmanager
def exclusive(git_folder: Path) -> Iterator[int]:
    """Keep other workers out of a repository; gives the lock's descriptor.

    Raises:
        RepositoryBusy: Another is at it for too long.
        GitFailed: The repository cannot be written.
    """
    try:
        lock = git_files.open_lock(git_folder, "holdfast.lock")
    except OSError as error:
        raise GitFailed(f"the repository of {git_folder.parent.name} cannot be written: {error.strerror}") from None
    try:
        ends = time.monotonic() + WAIT_SECONDS
        while not _taken(lock):
            if time.monotonic() > ends:
                raise RepositoryBusy(
                    f"another run has been committing in {git_folder.parent.name} for {WAIT_SECONDS:g} s; "
                    "try it again later"
                )
            time.sleep(0.02)
        yield lock
    finally:
        os.close(lock)


def _taken(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def clear_locks(lock_files: Iterable[Path], top: Path) -> None:
    """Wait until git has no lock on the repository; remove those that were left behind.

    Args:
        lock_files: What git locks, such as `.git/index.lock`. Our own lock must be held.
        top: The repository's work tree.

    Raises:
        RepositoryBusy: A git process holds one for too long.
    """
    ends = time.monotonic() + LOCK_SECONDS
    for path in lock_files:
        while (age := _age(path)) is not None:
            processes = git_processes(top)
            if age > STALE_SECONDS and not processes:
                log.warning("stale_git_lock_removed", path=str(path), seconds=round(age, 1))
                path.unlink(missing_ok=True)
            elif time.monotonic() > ends:
                named = ", ".join(f"{process}" for process in processes) or "unknown"
                raise RepositoryBusy(
                    f"git is at work in {top.name}: it holds {path.name} (process {named}); "
                    "let it end, or remove that file if no git is running, then try it again"
                )
            else:
                time.sleep(0.05)


def _age(path: Path) -> float | None:
    with suppress(FileNotFoundError):
        return time.time() - path.lstat().st_mtime
    return None


def git_processes(top: Path) -> list[int]:
    """The ids of git processes that work below `top`, and of those of which that cannot be told."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess):
            if not process.name().startswith("git") or process.status() == psutil.STATUS_ZOMBIE:
                continue
            try:
                at_work = Path(process.cwd()).is_relative_to(top) or str(top) in " ".join(process.cmdline())
            except psutil.AccessDenied:
                at_work = True
            if at_work:
                found.append(process.pid)
    return found
