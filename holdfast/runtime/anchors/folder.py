"""An anchor that is a folder: `NODE/THREAD.jsonl`, both named by a digest, to which lines are only ever appended.

1. Each node has a folder of its own. So several machines can share an anchor on a network file system, where appends of
   two machines could overwrite each other, and under different users; workers on one machine append whole lines
   (O_APPEND).
2. Others may be able to write to the anchor. So no link in it is followed, and no named pipe or device is opened to be
   read or written.
"""

import asyncio
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from holdfast.errors import SettingsError
from holdfast.log.node_seals import NodeSeal, read_seal

MAX_LINE_BYTES = 16_384
"""A longer line is no seal, and is read in parts."""

_BENEATH = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class FolderAnchor:
    """Appends seals to files of a folder.

    Args:
        folder: Must exist: where a mount is missing, seals must not go to the disk below it.
    """

    def __init__(self, folder: Path) -> None:
        self.name = str(folder)
        self._folder = folder

    async def put(self, seal: NodeSeal) -> None:
        """Append a seal, durably.

        Raises:
            OSError: The folder is missing, or cannot be written.
        """
        await asyncio.to_thread(self._append, seal)

    async def aclose(self) -> None:
        """Do nothing: no file stays open."""

    def _append(self, seal: NodeSeal) -> None:
        node, name = _names(seal.thread, seal.node)
        root = os.open(self._folder, _DIRECTORY)
        try:
            own = _enter(root, node)
            try:
                flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | _BENEATH
                file = os.open(name, flags, 0o644, dir_fd=own)
                try:
                    if _write(file, seal.line()):
                        os.fsync(own)
                        os.fsync(root)
                finally:
                    os.close(file)
            finally:
                os.close(own)
        finally:
            os.close(root)


def _enter(root: int, name: str) -> int:
    """Open a folder below an open one; make it if it is not there."""
    try:
        return os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=root)
    except FileNotFoundError:
        with suppress(FileExistsError):  # another worker was first
            os.mkdir(name, 0o755, dir_fd=root)
        return os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=root)


def _write(file: int, line: bytes) -> bool:
    """Append a line, durably; return whether it is the file's first.

    Raises:
        OSError: It was not written, or it is no file of its own: a link to it elsewhere would let seals into that.
    """
    state = os.fstat(file)
    if not stat.S_ISREG(state.st_mode) or state.st_nlink != 1:
        raise OSError("its file for this thread is no regular file, or has a second name")
    size = state.st_size
    torn = size > 0 and os.pread(file, 1, size - 1) != b"\n"  # a machine lost its power, or the disk was full
    whole = (b"\n" if torn else b"") + line + b"\n"
    if os.write(file, whole) != len(whole):
        raise OSError("a line was written in part; is the disk full?")
    os.fsync(file)
    return size == 0


class AnchoredLines:
    """What anchors had of a thread at one moment; read line by line, as often as needed, however much it is.

    Args:
        places: Folders of anchors; or files with seals of any threads, such as what a webhook received.
        thread: The thread's id.

    Raises:
        SettingsError: One cannot be read.
    """

    def __init__(self, places: Iterable[Path], thread: str) -> None:
        self._thread = thread
        self.odd: list[str] = []
        """Names of what is not read: links, named pipes, devices."""
        self._files: list[tuple[Path, int, bool]] = []
        """Path and size of each file, and whether it is inside an anchor."""
        for place in places:
            try:
                if place.is_dir():
                    self._add_folder(place, thread)
                    continue
                state = place.stat()
            except OSError as error:
                raise _unreadable(place, error.strerror) from None
            if not stat.S_ISREG(state.st_mode):
                raise _unreadable(place, "it is neither a folder nor a regular file")
            self._files.append((place, state.st_size, False))

    def _add_folder(self, place: Path, thread: str) -> None:
        for node in sorted(os.scandir(place), key=lambda entry: entry.name):
            if not node.is_dir(follow_symlinks=False):
                self.odd += [str(Path(node.path))] if node.is_symlink() else []
                continue
            file = Path(node.path, _names(thread, "")[1])
            try:
                state = file.lstat()
            except FileNotFoundError:
                continue
            if stat.S_ISREG(state.st_mode):
                self._files.append((file, state.st_size, True))
            else:
                self.odd.append(str(file))

    def __iter__(self) -> Iterator[bytes]:
        """Yield the lines that were there, without their ends. Empty ones are left out, and of a file with seals of any
        threads those of others.

        Raises:
            SettingsError: A file cannot be read.
        """
        for path, size, inside in self._files:
            try:
                opened = os.open(path, os.O_RDONLY | (_BENEATH if inside else os.O_CLOEXEC))
                with os.fdopen(opened, "rb") as file:
                    read = 0
                    while read < size and (line := file.readline(MAX_LINE_BYTES)):
                        read += len(line)
                        if (stripped := line.strip()) and (inside or self._may_be_of_thread(stripped)):
                            yield stripped
            except OSError as error:
                raise _unreadable(path, error.strerror) from None

    def _may_be_of_thread(self, line: bytes) -> bool:
        seal = read_seal(line)
        return seal is None or seal.thread == self._thread


def _unreadable(place: Path, why: str | None) -> SettingsError:
    return SettingsError(
        f"the anchor {place} cannot be read: {why}; name a folder of HOLDFAST_ANCHORS, or a file with a seal on each "
        "line"
    )


def _names(thread: str, node: str) -> tuple[str, str]:
    """The names of a node's folder and of a thread's file in it: no id is part of a path."""
    node, thread = (hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() for text in (node, thread))
    return node[:16], f"{thread}.jsonl"
