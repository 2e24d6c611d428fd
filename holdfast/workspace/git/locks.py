"""Locks on a repository: one worker writes at a time, and no worker while another git process writes.

1. Our lock is held from the first read of the repository until git's changes are published to it. A git process that
   outlives its worker writes only to its own view.
2. A stale lock file of git is removed only if nothing can be using it: our lock is held, no git process runs in the
   repository, and the file is some seconds old. Otherwise we wait until git removes it.
"""

import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from holdfast.config.logs import EventLogger
from holdfast.core.memory.errors import MemoryRefused
from holdfast.workspace.git import git_files
from holdfast.workspace.git.git import GitFailed

WAIT_SECONDS = 60.0
"""How long to wait for other workers."""
LOCK_SECONDS = 15.0
"""How long to wait for git's lock files."""
STALE_SECONDS = 3.0
"""Age from which a lock file may be stale."""

log = EventLogger(__name__)


class RepositoryBusy(MemoryRefused):
    """Another process uses the repository, and did not finish in time."""


@contextmanager
def exclusive(git_folder: Path, name: str = "holdfast.lock") -> Iterator[int]:
    """Hold an exclusive lock on a repository, against other workers; yields the lock's descriptor.

    Args:
        git_folder: The repository's git folder.
        name: The file in it that is locked.

    Raises:
        RepositoryBusy: Another worker holds it for too long.
        GitFailed: The repository cannot be written.
    """
    try:
        lock = git_files.open_lock(git_folder, name)
    except OSError as error:
        raise GitFailed(f"the repository of {git_folder.parent.name} cannot be written: {error.strerror}") from None
    try:
        deadline = time.monotonic() + WAIT_SECONDS
        while not _try_lock(lock):
            if time.monotonic() > deadline:
                raise RepositoryBusy(
                    f"another run has been committing in {git_folder.parent.name} for {WAIT_SECONDS:g} s; "
                    "try again later"
                )
            time.sleep(0.02)
        yield lock
    finally:
        os.close(lock)


def _try_lock(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def clear_locks(lock_files: Iterable[Path], top: Path) -> None:
    """Wait until git holds no lock on the repository; remove stale lock files.

    Args:
        lock_files: Git's lock files, such as `.git/index.lock`. The caller must hold our own lock.
        top: The repository's work tree.

    Raises:
        RepositoryBusy: A git process holds one for too long.
    """
    deadline = time.monotonic() + LOCK_SECONDS
    for path in lock_files:
        while (age := _age(path)) is not None:
            processes = git_processes(top)
            if age > STALE_SECONDS and not processes:
                log.warning("stale_git_lock_removed", path=str(path), seconds=round(age, 1))
                path.unlink(missing_ok=True)
            elif time.monotonic() > deadline:
                ids = ", ".join(f"{process}" for process in processes) or "unknown"
                raise RepositoryBusy(
                    f"git is running in {top.name}: it holds {path.name} (process {ids}); "
                    "let it end, or remove that file if no git is running, then try again"
                )
            else:
                time.sleep(0.05)


def _age(path: Path) -> float | None:
    with suppress(FileNotFoundError):
        return time.time() - path.lstat().st_mtime
    return None


def git_processes(top: Path) -> list[int]:
    """The ids of git processes that run below `top`, and of those whose folder cannot be read."""
    ids = []
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess):
            if not process.name().startswith("git") or process.status() == psutil.STATUS_ZOMBIE:
                continue
            try:
                in_repository = Path(process.cwd()).is_relative_to(top) or str(top) in " ".join(process.cmdline())
            except psutil.AccessDenied:
                in_repository = True
            if in_repository:
                ids.append(process.pid)
    return ids
