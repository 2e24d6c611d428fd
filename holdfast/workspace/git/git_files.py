"""Reads and writes the files of a repository's git folder without following links.

A confined command may write to `.git`, and a cloned folder may contain one. Each name is looked up from an open folder,
so that a file or folder swapped for a link meanwhile is refused, too.
"""

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from holdfast.workspace.git.git import GitFailed

LARGEST = 50_000_000
"""The most bytes of a file that `read` returns."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_KEPT = ("objects", "refs", "logs", "info", "reftable")
"""The folders that git uses; our git never reads hooks or the git folders of submodules."""


class NotPlain(GitFailed):
    """A git folder has a link, a pipe or the like instead of a regular file or folder."""


@contextmanager
def parent_of(folder: Path, name: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
    """Open the parent folder of `name`, a path below `folder`; yields its descriptor and the last part of the name.

    Raises:
        NotPlain: The path contains a link.
        FileNotFoundError: There is no such folder, and `make` is False.
    """
    *parents, last = name.split("/")
    with _plainly(folder, name):
        handle = os.open(folder, _FOLDER)
    try:
        for parent in parents:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(parent, 0o777, dir_fd=handle)
            with _plainly(folder, name):
                inner = os.open(parent, _FOLDER, dir_fd=handle)
            os.close(handle)
            handle = inner
        yield handle, last
    finally:
        os.close(handle)


@contextmanager
def open_regular_file(folder: Path, name: str) -> Iterator[int]:
    """Open a regular file of a git folder for reading.

    Raises:
        NotPlain: It is a link or not a regular file, or its path contains a link.
        FileNotFoundError: There is no such file.
    """
    with parent_of(folder, name) as (parent, last):
        with _plainly(folder, name):
            handle = os.open(last, os.O_RDONLY | _FILE, dir_fd=parent)
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise _not_plain(folder, name)
            yield handle
        finally:
            os.close(handle)


def read(folder: Path, name: str) -> bytes | None:
    """Read a file; None if it does not exist.

    Raises:
        NotPlain: It is a link, not a regular file, or larger than `LARGEST`.
    """
    try:
        with open_regular_file(folder, name) as handle, os.fdopen(os.dup(handle), "rb") as file:
            content = file.read(LARGEST + 1)
    except FileNotFoundError:
        return None
    if len(content) > LARGEST:
        raise NotPlain(f"{folder.name}/{name} has more than {LARGEST:,} bytes")
    return content


def copy(folder: Path, name: str, to: Path | int) -> None:
    """Copy a file with its time: git uses the index's time to decide which files it has to read again.

    Args:
        folder: The git folder.
        name: The file; if it does not exist, an older copy is removed.
        to: A path in one of our own folders, or an open file.

    Raises:
        NotPlain: It is a link or not a regular file.
    """
    try:
        with (
            open_regular_file(folder, name) as handle,
            os.fdopen(os.dup(handle), "rb") as source,
            _target(to) as target,
        ):
            shutil.copyfileobj(source, target, 1 << 20)
            target.flush()
            status = os.fstat(handle)
            os.utime(target.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))
    except FileNotFoundError:
        if isinstance(to, Path):
            to.unlink(missing_ok=True)


def _target(to: Path | int) -> BinaryIO:
    return os.fdopen(os.dup(to), "wb") if isinstance(to, int) else to.open("wb")


def create(folder: Path, name: str) -> int:
    """Create a new file, such as a lock, and return it open for writing.

    Raises:
        FileExistsError: The name exists, even as a broken link.
        NotPlain: The path contains a link.
    """
    with parent_of(folder, name, make=True) as (parent, last):
        return os.open(last, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE, 0o666, dir_fd=parent)


def open_lock(folder: Path, name: str) -> int:
    """Open a file to lock, creating it if needed.

    Raises:
        NotPlain: It is a link.
    """
    with parent_of(folder, name) as (parent, last), _plainly(folder, name):
        return os.open(last, os.O_RDWR | os.O_CREAT | _FILE, 0o666, dir_fd=parent)


def rename(folder: Path, old: str, new: str) -> None:
    """Rename a file within its folder, replacing the file at the new name."""
    with parent_of(folder, new) as (parent, last):
        os.rename(old.rpartition("/")[2], last, src_dir_fd=parent, dst_dir_fd=parent)


def remove(folder: Path, name: str) -> None:
    """Remove a file if it exists."""
    with suppress(FileNotFoundError), parent_of(folder, name) as (parent, last):
        os.unlink(last, dir_fd=parent)


def append(folder: Path, name: str, content: bytes) -> None:
    """Append to a file, creating it if needed.

    Raises:
        NotPlain: It is a link, not a regular file, or has another hard link.
    """
    with parent_of(folder, name, make=True) as (parent, last):
        with _plainly(folder, name):
            handle = os.open(last, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _FILE, 0o666, dir_fd=parent)
        with os.fdopen(handle, "wb") as file:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
                raise _not_plain(folder, name)
            file.write(content)


def publish(source: Path, folder: Path, name: str) -> None:
    """Move our file to `name` in a git folder, unless that exists: git names objects by their content."""
    with parent_of(folder, name, make=True) as (parent, last):
        with suppress(FileNotFoundError):
            os.stat(last, dir_fd=parent, follow_symlinks=False)
            return
        try:
            os.rename(source, last, dst_dir_fd=parent)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            unfinished = f"tmp_obj_{os.urandom(8).hex()}"
            handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE, 0o444, dir_fd=parent)
            with os.fdopen(handle, "wb") as target, source.open("rb") as content:
                shutil.copyfileobj(content, target, 1 << 20)
            os.rename(unfinished, last, src_dir_fd=parent, dst_dir_fd=parent)


def require_plain(folder: Path) -> None:
    """Refuse a git folder that has links, pipes or devices among the files that git reads or writes.

    Raises:
        NotPlain: The text names the first one found.
    """
    pending = [folder]
    while pending:
        here = pending.pop()
        with _plainly(folder, str(here)), os.scandir(here) as entries:
            for entry in entries:
                of_git = here != folder or entry.name in _KEPT
                if entry.is_dir(follow_symlinks=False):
                    if of_git:
                        pending.append(Path(entry.path))
                elif not entry.is_file(follow_symlinks=False) and (of_git or entry.name not in ("hooks", "lfs")):
                    raise _not_plain(folder, os.path.relpath(entry.path, folder))


@contextmanager
def _plainly(folder: Path, name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO):
            raise _not_plain(folder, name) from None
        raise


def _not_plain(folder: Path, name: str) -> NotPlain:
    return NotPlain(
        f"{folder.name}/{name} is a link, or not a regular file or folder, and could lead git elsewhere; "
        "replace it by what it leads to, or remove it"
    )
