"""Opens files and folders of a workspace by descriptor, so that the path that was checked is the one that is used.

1. A path is normalised by its text alone (`holdfast.core.base.paths`); a path that leaves the workspace is refused.
2. No link is followed anywhere in a path: it could lead to another path than the one that the policy judged.
3. A folder stays open from the check to the end of its use, and a file in it is addressed by its last name alone, so
   swapping a folder for a link in between has no effect.

Linux resolves such a path in one call (`openat2`). Elsewhere each folder is opened from its parent.
"""

import ctypes
import errno
import os
import struct
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from holdfast.config.state_folder import state_folder
from holdfast.core.base.paths import LONGEST, in_workspace, is_outside
from holdfast.workspace.paths import OutsideWorkspace, inside, matches_glob

WALKED = 100_000
"""The most entries that `list_files` and `search_files` visit."""

_OPENAT2 = 437
"""The system call's number, the same on every architecture."""
_RESOLVE = 0x02 | 0x04 | 0x08
"""RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, RESOLVE_BENEATH."""
_FOLDER = os.O_DIRECTORY | getattr(os, "O_PATH", os.O_RDONLY)
"""Flags for a folder on the way: with O_PATH, no permission to list it is needed."""


class LeadsElsewhere(OutsideWorkspace):
    """The path goes through a link; the message names the link's target."""


class Entry(NamedTuple):
    """An entry of a folder."""

    path: str
    """Relative to the workspace."""
    kind: Literal["file", "folder", "link", "other"]


@dataclass(frozen=True)
class OpenWorkspace:
    """An open workspace; `open_workspace` opens it."""

    fd: int
    base: str
    """Its real path."""
    spelled: str
    """Its path as the caller spelled it; absolute paths may begin with it, too."""

    def relative(self, path: str) -> str:
        """Normalise a path, relative to the workspace.

        Raises:
            OutsideWorkspace: The path leads outside.
            ValueError: The text cannot be a path.
        """
        try:
            encoded = os.fsencode(path)
        except UnicodeEncodeError:
            raise ValueError(f"{path!r} has a character that file names cannot have") from None
        if b"\0" in encoded or len(encoded) > LONGEST:
            raise ValueError(f"{path[:100]!r} cannot be a path: it has a NUL character or over {LONGEST:,} bytes")
        relative = in_workspace(path, self.base)
        if is_outside(relative) and path.startswith("/"):
            relative = in_workspace(path, self.spelled)
        if is_outside(relative):
            raise OutsideWorkspace(f"{path!r} leads outside the workspace; give a path relative to it")
        if self.hides(relative):
            raise OutsideWorkspace(f"{path!r} is in Holdfast's own state folder, which holds its keys and databases")
        return relative

    def hides(self, relative: str) -> bool:
        """Whether a normalised path is in the state folder. A workspace inside the state folder is not hidden."""
        own = os.path.realpath(state_folder())
        here = os.path.normpath(os.path.join(self.base, relative))  # noqa: PTH118  # the text alone
        covered = own == self.base or own.startswith(self.base.rstrip("/") + "/")
        return covered and (here == own or here.startswith(own + "/"))

    @contextmanager
    def folder(self, path: str) -> Iterator[int]:
        """Open a folder for listing.

        Raises:
            LeadsElsewhere, OutsideWorkspace, OSError: The path is not a folder, or cannot be opened.
        """
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK
        descriptor = self._open(self.relative(path), flags, path=path)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def parent(self, path: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """Open the folder of a path, for calls with `dir_fd`; yield it and the last name (`.` for the workspace).

        Args:
            path: The path; its last name need not exist.
            make: Create missing folders.

        Raises:
            LeadsElsewhere, OutsideWorkspace, OSError: There is no such folder, or it cannot be opened.
        """
        folder, _, name = self.relative(path).rpartition("/")
        try:
            descriptor = self._open(folder or ".", _FOLDER, path=path)
        except FileNotFoundError:
            if not make:
                raise
            descriptor = self._make(folder, path=path)
        try:
            yield descriptor, name
        finally:
            os.close(descriptor)

    def refuse_link(self, path: str) -> None:
        """Raise an error that names the target, if a path goes through a link.

        Raises:
            LeadsElsewhere: The link leads to another path in the workspace.
            OutsideWorkspace: The link leads outside.
        """
        relative = self.relative(path)
        names = relative.split("/")
        for end in range(1, len(names) + 1):
            link = "/".join(names[:end])
            if os.path.islink(f"{self.base}/{link}"):  # noqa: PTH114  # only for the message
                real, target = (inside(Path(self.base), each).relative_to(self.base) for each in (relative, link))
                if os.path.islink(f"{self.base}/{real}"):  # noqa: PTH114  # likewise
                    raise LeadsElsewhere(f"{path}: {link} is a link that leads in a circle; name a file or a folder")
                raise LeadsElsewhere(f"{path}: {link} is a link to {target}; name {real} instead")

    def _open(self, relative: str, flags: int, *, path: str) -> int:
        try:
            return open_beneath(self.fd, relative, flags)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EXDEV):
                self.refuse_link(path)
            raise

    def _make(self, relative: str, *, path: str) -> int:
        """Create a folder with its missing parents; returns its open descriptor."""
        here = os.dup(self.fd)
        try:
            for name in relative.split("/"):
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=here)  # pathlib does not support descriptors
                below = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=here)
                os.close(here)
                here = below
            return here
        except OSError as error:
            os.close(here)
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                self.refuse_link(path)
            raise


@contextmanager
def open_workspace(workspace: Path) -> Iterator[OpenWorkspace]:
    """Open a workspace for the block. Its own path may contain links, because a person chose it, not an LLM.

    Raises:
        OSError: The path does not exist, or is not a folder.
    """
    base = os.path.realpath(workspace)
    descriptor = os.open(base, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield OpenWorkspace(descriptor, base, os.path.abspath(workspace))  # noqa: PTH100  # the text alone
    finally:
        os.close(descriptor)


def open_beneath(folder: int, path: str, flags: int) -> int:
    """Open a path below an open folder, following no link and no `..`; returns the descriptor.

    Raises:
        OSError: With ELOOP, ENOTDIR or EXDEV if the path contains a link.
    """
    return (by_openat2 if has_openat2() else by_walk)(folder, path, flags)


def by_walk(folder: int, path: str, flags: int) -> int:
    """Implement `open_beneath` folder by folder."""
    *folders, last = path.split("/")
    through = os.O_DIRECTORY | getattr(os, "O_PATH", os.O_RDONLY) | os.O_NOFOLLOW
    here = os.dup(folder)
    try:
        if ".." in (*folders, last):
            raise OSError(18, "Invalid cross-device link", path)  # the error that the kernel gives
        for name in folders:
            below = os.open(name, through, dir_fd=here)
            os.close(here)
            here = below
        return os.open(last, flags | os.O_NOFOLLOW, dir_fd=here)
    finally:
        os.close(here)


def by_openat2(folder: int, path: str, flags: int) -> int:
    """Implement `open_beneath` in one system call."""
    how = struct.pack("=QQQ", flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0, _RESOLVE)
    while True:
        descriptor = _syscall()(_OPENAT2, folder, os.fsencode(path), how, len(how))
        if descriptor >= 0:
            return int(descriptor)
        if (number := ctypes.get_errno()) not in (errno.EINTR, errno.EAGAIN):
            raise OSError(number, os.strerror(number), path)


@cache
def _syscall() -> Callable[..., int]:
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    call.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]
    return call


@cache
def has_openat2() -> bool:
    """Whether the kernel has `openat2` (Linux 5.6) and allows it: some containers do not."""
    if sys.platform != "linux":
        return False
    root = os.open("/", os.O_PATH)
    try:
        os.close(by_openat2(root, ".", _FOLDER))
    except OSError:
        return False
    finally:
        os.close(root)
    return True


def walk(workspace: OpenWorkspace, start: str) -> Iterator[Entry]:
    """Yield the entries below a folder, nearest first, without entering links or `.git`."""
    folders = deque([workspace.relative(start)])
    while folders:
        folder = folders.popleft()
        with (
            suppress(OSError, OutsideWorkspace),
            workspace.folder(folder) as descriptor,
            os.scandir(descriptor) as entries,
        ):
            for entry in entries:
                if entry.name == ".git":
                    continue
                path = entry.name if folder == "." else f"{folder}/{entry.name}"
                if workspace.hides(path):
                    continue
                kind = _kind(entry)
                if kind == "folder":
                    folders.append(path)
                yield Entry(path, kind)


def _kind(entry: os.DirEntry[str]) -> Literal["file", "folder", "link", "other"]:
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


def find_entries(workspace: OpenWorkspace, start: str, pattern: str, *, most: int) -> tuple[list[Entry], bool]:
    """Find up to `most` entries below a folder that match the pattern, and whether some may have been left out."""
    matches: list[Entry] = []
    base = workspace.relative(start)
    for seen, entry in enumerate(walk(workspace, start)):
        if seen == WALKED:
            return matches, True
        if matches_glob(os.path.relpath(entry.path, base), pattern):
            if len(matches) == most:
                return matches, True
            matches.append(entry)
    return matches, False
