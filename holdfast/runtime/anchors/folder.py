"""An anchor that is a folder: `SHA-256 of the thread's id/NODE.jsonl`, to which lines are only ever appended.

Each node has files of its own. So several machines can share a folder on a network file system, where appends of two
machines could overwrite each other; workers on one machine append whole lines (O_APPEND).
"""

import asyncio
import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from holdfast.errors import SettingsError
from holdfast.log.node_seals import NodeSeal, read_seal


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
        folder = self._folder / _hex(seal.thread)
        path = folder / f"{_hex(seal.node)[:16]}.jsonl"
        new = not path.exists()
        if new:
            folder.mkdir(exist_ok=True)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        file = os.open(path, flags, 0o644)
        try:
            size = os.fstat(file).st_size
            torn = size > 0 and os.pread(file, 1, size - 1) != b"\n"  # a machine lost its power in mid-line
            line = (b"\n" if torn else b"") + seal.line() + b"\n"
            if os.write(file, line) != len(line):
                raise OSError(f"{path}: the line was written in part; is the disk full?")
            os.fsync(file)
        finally:
            os.close(file)
        if new:
            _sync(folder)
            _sync(self._folder)


def read_lines(places: Iterable[Path], thread: str) -> list[bytes]:
    """Return the lines that anchors have of a thread.

    Args:
        places: Folders of anchors; or files with seals of any threads, such as what a webhook received.
        thread: The thread's id. Of a file's lines, seals of other threads are left out.

    Raises:
        SettingsError: One cannot be read.
    """
    lines: list[bytes] = []
    for place in places:
        try:
            if place.is_dir():
                for file in sorted((place / _hex(thread)).glob("*.jsonl")):
                    lines += file.read_bytes().split(b"\n")
            else:
                given = place.read_bytes().split(b"\n")
                lines += [line for line in given if (seal := read_seal(line)) is None or seal.thread == thread]
        except OSError as error:
            raise SettingsError(
                f"the anchor {place} cannot be read: {error.strerror}; name a folder of HOLDFAST_ANCHORS, or a file "
                "with a seal on each line"
            ) from None
    return [line for line in lines if line.strip()]


def _hex(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _sync(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
