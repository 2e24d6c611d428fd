"""Opens and replaces files of a workspace: regular files only, replaced atomically, by one writer at a time."""

import errno
import fcntl
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from holdfast.workspace.beneath import OpenWorkspace, open_workspace
from holdfast.workspace.paths import OutsideWorkspace, inside


class NotAFile(Exception):
    """The path must name a regular file, but names a folder, a pipe, a device or a socket."""


class IsALink(NotAFile):
    """The path must name a regular file, but names a link."""


class NotText(Exception):
    """The file is not UTF-8 text."""


@contextmanager
def plain_errors(path: str) -> Iterator[None]:
    """Rewrite errors of the operating system to name the path that the LLM gave."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        advice = "; list_files shows what is there" if isinstance(error, FileNotFoundError) else ""
        raise type(error)(f"{path}: {error.strerror}{advice}") from None


@contextmanager
def write_lock(workspace: Path) -> Iterator[None]:
    """Hold the workspace's write lock: calls run concurrently, and an edit reads before it writes."""
    workspace.mkdir(parents=True, exist_ok=True)
    folder = os.open(workspace, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def require_file(status: os.stat_result, path: str) -> None:
    """Refuse anything but a regular file.

    Raises:
        NotAFile: The path is a folder, a pipe, a device or a socket.
        IsALink: The path is a link.
    """
    if stat.S_ISLNK(status.st_mode):
        raise IsALink(f"{path} is a link; name its target")
    if not stat.S_ISREG(status.st_mode):
        folder = stat.S_ISDIR(status.st_mode)
        kind = "a folder; list_files shows its files" if folder else "a pipe, a device or a socket; name a file"
        raise NotAFile(f"{path} is {kind}")


@contextmanager
def open_text_file(workspace: Path, path: str, *, follow: bool = False) -> Iterator[BinaryIO]:
    """Open a text file for reading.

    Args:
        workspace: The run's folder.
        path: The file, relative to it.
        follow: Follow links within the workspace: only for paths that no LLM gives and no policy judges.

    Raises:
        NotAFile, NotText, OutsideWorkspace, OSError: The path is not a text file of the workspace, or cannot be read.
    """
    with (
        plain_errors(path),
        open_workspace(workspace) as root,
        root.parent(_real(root, path, follow)) as (folder, name),
    ):
        try:
            require_file(os.stat(name or ".", dir_fd=folder, follow_symlinks=False), path)
            # Non-blocking, in case the file has been replaced by a pipe since the check.
            flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY
            descriptor = os.open(name, flags, dir_fd=folder)
        except (IsALink, OSError) as error:
            if isinstance(error, IsALink) or error.errno == errno.ELOOP:
                root.refuse_link(path)
            raise
        with os.fdopen(descriptor, "rb") as file:
            require_file(os.fstat(descriptor), path)
            if b"\0" in file.peek(8192)[:8192]:
                raise not_text(file, path)
            yield file


def _real(root: OpenWorkspace, path: str, follow: bool) -> str:
    return str(inside(Path(root.base), path)) if follow else path


def not_text(file: BinaryIO, path: str) -> NotText:
    """Build the error for a file that is not text, with its size."""
    size = os.fstat(file.fileno()).st_size
    return NotText(f"{path} is not UTF-8 text ({size:,} bytes); try a command such as `file` or `xxd`")


def replace(
    workspace: Path,
    path: str,
    *,
    content: bytes,
    key: str,
    instructions: bool = False,
    follow: bool = False,
    unchanged: Callable[[], bool] = lambda: True,
) -> bool:
    """Replace a file atomically, keeping its mode; missing folders are created.

    Args:
        workspace: The run's folder.
        path: The file, relative to it.
        content: The complete new bytes.
        key: The effect key, which names the temporary file: a second attempt removes the remains of a crashed one.
        instructions: Allow files below `.agents`; the caller has obtained the approvals for that.
        follow: Follow links within the workspace: only for paths that no LLM gives and no policy judges.
        unchanged: Called just before the replacement; if it returns False, the file stays as it is.

    Returns:
        Whether the content was written.

    Raises:
        OutsideWorkspace: The path leads outside, through a link, into `.git`, or to instructions for later runs.
    """
    with plain_errors(path), open_workspace(workspace) as root:
        relative = root.relative(_real(root, path, follow))
        folders = {part.casefold() for part in relative.split("/")}
        if ".git" in folders:
            # A hook or a setting written here would run commands without an approval.
            raise OutsideWorkspace(f"{path} belongs to git; change it with git commands")
        if ".agents" in folders and not instructions:
            raise OutsideWorkspace(
                f"{path} instructs later runs: only people and the tool learn_strategy may change files in .agents"
            )
        with root.parent(relative, make=True) as (folder, name):
            before: os.stat_result | None = None
            with suppress(FileNotFoundError):
                before = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if stat.S_ISLNK(before.st_mode):
                    root.refuse_link(path)
                require_file(before, path)
            # Named after the call, so that a second attempt removes the remains of a crashed one.
            mark = hashlib.sha256(f"{key}\n{path}".encode()).hexdigest()[:16]
            temporary = f".holdfast-{mark}.tmp"
            _remove(temporary, folder)
            try:
                _write(temporary, folder, content, like=before)
                if not unchanged():
                    return False
                os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)  # by descriptor
            finally:
                _remove(temporary, folder)
    return True


def _write(name: str, folder: int, content: bytes, *, like: os.stat_result | None) -> None:
    """Write a new file with the owner and the mode of the file that it replaces."""
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666, dir_fd=folder)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        if like is not None:
            with suppress(PermissionError):
                os.fchown(descriptor, like.st_uid, like.st_gid)
            # Never set-user-ID: a program written by an LLM would run with the rights of the file's owner.
            os.fchmod(descriptor, stat.S_IMODE(like.st_mode) & 0o777)
        file.flush()
        os.fsync(descriptor)


def _remove(name: str, folder: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)  # by descriptor
