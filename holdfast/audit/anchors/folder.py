"""An anchor in a folder: files `NODE/THREAD.jsonl`, both named by a digest, to which lines are only appended.

1. Each node has its own folder. So machines can share an anchor, even under different users and on a network file
   system, which could lose one of two concurrent appends. Workers on one machine append whole lines (O_APPEND).
2. Others may have write access to the anchor. So no link in it is followed, and no named pipe or device is opened.
"""

import asyncio
import hashlib
import os
import stat
from contextlib import suppress
from pathlib import Path

from holdfast.core.log.node_seals import SignedCheckpoint

BENEATH = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class FolderAnchor:
    """Appends seals to files of a folder.

    Args:
        folder: An existing folder: if a mount is missing, seals must not go to the disk below it.
    """

    def __init__(self, folder: Path) -> None:
        self.name = str(folder)
        self._folder = folder

    async def put(self, seal: SignedCheckpoint) -> None:
        """Append a seal, durably.

        Raises:
            OSError: The folder is missing, or cannot be written.
        """
        await asyncio.to_thread(self._append, seal)

    async def aclose(self) -> None:
        """Do nothing: no file stays open."""

    def _append(self, seal: SignedCheckpoint) -> None:
        node, name = names(seal.thread, seal.node)
        root = os.open(self._folder, _DIRECTORY)
        try:
            own = _enter(root, node)
            try:
                flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | BENEATH
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
    """Open a folder below an open one; create it if it is missing."""
    try:
        return os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=root)
    except FileNotFoundError:
        with suppress(FileExistsError):  # another worker was first
            os.mkdir(name, 0o755, dir_fd=root)
        return os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=root)


def _write(file: int, line: bytes) -> bool:
    """Append a line, durably; return whether it is the file's first.

    Raises:
        OSError: The line was not written; or the file has a second hard link, so seals would reach another file.
    """
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        raise OSError("its file for this thread is no regular file, or has a second name")
    size = status.st_size
    torn = size > 0 and os.pread(file, 1, size - 1) != b"\n"  # after a power failure or on a full disk
    whole = (b"\n" if torn else b"") + line + b"\n"
    if os.write(file, whole) != len(whole):
        raise OSError("a line was written in part; is the disk full?")
    os.fsync(file)
    return size == 0


def names(thread: str, node: str) -> tuple[str, str]:
    """Return the names of a node's folder and of a thread's file in it: digests, so that no id is part of a path."""
    node, thread = (hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() for text in (node, thread))
    return node[:16], f"{thread}.jsonl"
