"""The files of a repository's git folder, read and written by us: no link is followed on the way, nor at its end.

A confined command may write to `.git`, and a cloned folder may bring one. Each name is looked up from an open folder,
so that what is swapped for a link meanwhile is refused as well.
"""

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from holdfast.runtime.memory.git import GitFailed

LARGEST = 50_000_000
"""Bytes of a file that is read whole."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_KEPT = ("objects", "refs", "logs", "info", "reftable")
"""What git keeps in folders; hooks and the git folders of submodules are looked at by nobody."""


class NotPlain(GitFailed):
    """Something in a git folder is a link, a pipe or the like where git keeps a file or a folder of its own."""


@contextmanager
def parent_of(folder: Path, name: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
    """The open folder that has `name`, a path below `folder`, and its last part.

    Raises:
        NotPlain: A link is on the way.
        FileNotFoundError: There is no such folder, and it is not to be made.
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
def opened(folder: Path, name: str) -> Iterator[int]:
    """A regular file of a git folder, open for reading.

    Raises:
        NotPlain: It is a link or no file, or a link is on the way.
        FileNotFoundError: There is none.
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
    """The bytes of a file; None where there is none.

    Raises:
        NotPlain: It is a link, no file, or larger than `LARGEST`.
    """
    try:
        with opened(folder, name) as handle, os.fdopen(os.dup(handle), "rb") as file:
            content = file.read(LARGEST + 1)
    except FileNotFoundError:
        return None
    if len(content) > LARGEST:
        raise NotPlain(f"{folder.name}/{name} has more than {LARGEST:,} bytes")
    return content


def copy(folder: Path, name: str, to: Path | int) -> None:
    """Copy a file with its time: git tells by that of the index which files it has to look at again.

    Args:
        folder: The git folder.
        name: The file; where there is none, an older copy is removed.
        to: A path in a folder of ours, or an open file.

    Raises:
        NotPlain: It is a link or no file.
    """
    try:
        with opened(folder, name) as handle, os.fdopen(os.dup(handle), "rb") as source, _target(to) as target:
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
    """Make a file that is not there yet, such as a lock; returns it open for writing.

    Raises:
        FileExistsError: Something has that name; a link that leads nowhere, for instance.
        NotPlain: A link is on the way.
    """
    with parent_of(folder, name, make=True) as (parent, last):
        return os.open(last, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE, 0o666, dir_fd=parent)


def open_lock(folder: Path, name: str) -> int:
    """A file to lock, open; it is made where there is none.

    Raises:
        NotPlain: It is a link.
    """
    with parent_of(folder, name) as (parent, last), _plainly(folder, name):
        return os.open(last, os.O_RDWR | os.O_CREAT | _FILE, 0o666, dir_fd=parent)


def rename(folder: Path, old: str, new: str) -> None:
    """Put a file of a folder in the place of another in the same one."""
    with parent_of(folder, new) as (parent, last):
        os.rename(old.rpartition("/")[2], last, src_dir_fd=parent, dst_dir_fd=parent)


def remove(folder: Path, name: str) -> None:
    """Remove a file, if it is there."""
    with suppress(FileNotFoundError), parent_of(folder, name) as (parent, last):
        os.unlink(last, dir_fd=parent)


def append(folder: Path, name: str, content: bytes) -> None:
    """Add to a file's end; it is made where there is none.

    Raises:
        NotPlain: It is a link or no file, or has another name elsewhere.
    """
    with parent_of(folder, name, make=True) as (parent, last):
        with _plainly(folder, name):
            handle = os.open(last, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _FILE, 0o666, dir_fd=parent)
        with os.fdopen(handle, "wb") as file:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
                raise _not_plain(folder, name)
            file.write(content)


def bring(source: Path, folder: Path, name: str) -> None:
    """Put a file of ours at `name` of a git folder, unless something is there: git names objects by their content."""
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
    """Refuse a git folder in which links, pipes or devices stand where git reads or writes.

    Raises:
        NotPlain: The text names the first that was found.
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
        f"{folder.name}/{name} is a link, or no plain file or folder, and would lead git elsewhere; "
        "put in its place what it leads to, or remove it"
    )
