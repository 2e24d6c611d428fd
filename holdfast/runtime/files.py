"""Opening and replacing a file of a workspace: regular files only, whole or not at all, one writer at a time."""

import fcntl
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from holdfast.runtime.paths import OutsideWorkspace, inside


class NotAFile(Exception):
    """The path names a folder, a pipe, a device or a socket where a regular file is needed."""


class NotText(Exception):
    """The file is not UTF-8 text."""


@contextmanager
def plain_errors(path: str) -> Iterator[None]:
    """Say what the operating system refused in terms of the path the LLM gave."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        advice = "; list_files shows what is there" if isinstance(error, FileNotFoundError) else ""
        raise type(error)(f"{path}: {error.strerror}{advice}") from None


@contextmanager
def alone(workspace: Path) -> Iterator[None]:
    """Keep other writes out meanwhile: calls run concurrently, and an edit reads before it writes."""
    workspace.mkdir(parents=True, exist_ok=True)
    folder = os.open(workspace, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def require_file(status: os.stat_result, path: str) -> None:
    """Refuse what is not a regular file.

    Raises:
        NotAFile: It is a folder, a pipe, a device or a socket.
    """
    if not stat.S_ISREG(status.st_mode):
        folder = stat.S_ISDIR(status.st_mode)
        kind = "a folder; list_files shows what is in it" if folder else "a pipe, a device or a socket; name a file"
        raise NotAFile(f"{path} is {kind}")


@contextmanager
def opened(workspace: Path, path: str) -> Iterator[BinaryIO]:
    """A text file, open for reading.

    Raises:
        NotAFile, NotText, OutsideWorkspace, OSError: It is not one, or cannot be read.
    """
    real = inside(workspace, path)
    with plain_errors(path):
        require_file(os.lstat(real), path)
        with os.fdopen(os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW), "rb") as file:
            require_file(os.fstat(file.fileno()), path)
            if b"\0" in file.peek(8192)[:8192]:
                raise not_text(file, path)
            yield file


def not_text(file: BinaryIO, path: str) -> NotText:
    """The error that says so, with the file's size."""
    size = os.fstat(file.fileno()).st_size
    return NotText(f"{path} is not UTF-8 text ({size:,} bytes); try a command such as `file` or `xxd`")


def replace(
    workspace: Path,
    path: str,
    *,
    content: bytes,
    key: str,
    instructions: bool = False,
    unchanged: Callable[[], bool] = lambda: True,
) -> bool:
    """Put `content` in the file's place in one step, keeping its mode; missing folders are made.

    Args:
        workspace: The run's folder.
        path: The file, relative to it.
        content: All of its new bytes.
        key: Names the effect: what a crash left of an earlier attempt is cleared away.
        instructions: Below `.agents` too: the caller has asked whoever has to be asked.
        unchanged: Asked at the last moment; where it says no, the file stays as it is.

    Returns:
        Whether the content is in place.

    Raises:
        OutsideWorkspace: It leads outside, or to what belongs to git or instructs later runs.
    """
    real = inside(workspace, path)
    folders = {part.casefold() for part in real.relative_to(os.path.realpath(workspace)).parts}
    if ".git" in folders:
        # A hook or a setting written here would run as a command that nobody approved.
        raise OutsideWorkspace(f"{path} belongs to git; change it with git commands")
    if ".agents" in folders and not instructions:
        raise OutsideWorkspace(f"{path} instructs later runs: people change what is in .agents, or learn_strategy does")
    with plain_errors(path):
        real.parent.mkdir(parents=True, exist_ok=True)
        before: os.stat_result | None = None
        with suppress(FileNotFoundError):
            before = os.lstat(real)
            require_file(before, path)
        # Named after the call, so that a second attempt clears away what a crash left of the first.
        mark = hashlib.sha256(f"{key}\n{path}".encode()).hexdigest()[:16]
        temporary = real.parent / f".holdfast-{mark}.tmp"
        temporary.unlink(missing_ok=True)
        try:
            with temporary.open("xb") as file:
                file.write(content)
                if before is not None:
                    with suppress(PermissionError):
                        os.fchown(file.fileno(), before.st_uid, before.st_gid)
                    os.fchmod(file.fileno(), stat.S_IMODE(before.st_mode))
                file.flush()
                os.fsync(file.fileno())
            if not unchanged():
                return False
            temporary.replace(real)
        finally:
            temporary.unlink(missing_ok=True)
    return True
