"""Reads what anchors have of a thread. They may belong to others, and hold anything."""

import os
import stat
import weakref
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from holdfast.errors import SettingsError
from holdfast.log.node_seals import read_seal
from holdfast.runtime.anchors.folder import BENEATH, names
from holdfast.runtime.anchors.git import NotARepository, git_folder
from holdfast.runtime.anchors.git_seals import MAX_LINE_BYTES, READ_SECONDS, seals_in_git
from holdfast.runtime.memory.git import GitFailed


class AnchoredLines:
    """What anchors had of a thread at one moment; read line by line, as often as needed, however much it is.

    Args:
        places: Folders of anchors; git repositories; or files with seals of any threads, such as what a webhook
            received.
        thread: The thread's id.
        seconds: How long reading a git repository may take.

    Raises:
        SettingsError: One cannot be read, or not in time.
    """

    def __init__(self, places: Iterable[Path], thread: str, *, seconds: float = READ_SECONDS) -> None:
        self._thread = thread
        self._seconds = seconds
        self.odd: list[str] = []
        """Names of what is not read: links, named pipes, devices."""
        self.notes: list[str] = []
        """What else is not read, in words."""
        self._files: list[tuple[Path, int, bool]] = []
        """Path and size of each file, and whether it is inside an anchor."""
        self._committed: list[BinaryIO] = []
        """Lines of each git repository."""
        for place in places:
            try:
                if place.is_dir():
                    self._add_repository(place, thread)
                    self._add_folder(place, thread)
                    continue
                state = place.stat()
            except OSError as error:
                raise _unreadable(place, error.strerror) from None
            except GitFailed as error:
                raise _unreadable(place, str(error)) from None
            if not stat.S_ISREG(state.st_mode):
                raise _unreadable(place, "it is neither a folder nor a regular file")
            self._files.append((place, state.st_size, False))

    def _add_repository(self, place: Path, thread: str) -> None:
        with suppress(NotARepository):
            folder = git_folder(place)
            lines, notes = seals_in_git(folder, thread, seconds=self._seconds)
            weakref.finalize(self, lines.close)
            self._committed.append(lines)
            self.notes += notes

    def _add_folder(self, place: Path, thread: str) -> None:
        for node in sorted(os.scandir(place), key=lambda entry: entry.name):
            if not node.is_dir(follow_symlinks=False):
                self.odd += [str(Path(node.path))] if node.is_symlink() else []
                continue
            file = Path(node.path, names(thread, "")[1])
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
                opened = os.open(path, os.O_RDONLY | (BENEATH if inside else os.O_CLOEXEC))
                with os.fdopen(opened, "rb") as file:
                    read = 0
                    while read < size and (line := file.readline(MAX_LINE_BYTES)):
                        read += len(line)
                        if (stripped := line.strip()) and (inside or self._may_be_of_thread(stripped)):
                            yield stripped
            except OSError as error:
                raise _unreadable(path, error.strerror) from None
        for lines in self._committed:
            lines.seek(0)
            yield from (line.rstrip(b"\n") for line in lines)

    def _may_be_of_thread(self, line: bytes) -> bool:
        seal = read_seal(line)
        return seal is None or seal.thread == self._thread


def _unreadable(place: Path, why: str | None) -> SettingsError:
    return SettingsError(
        f"the anchor {place} cannot be read: {why}; name a folder or a repository of HOLDFAST_ANCHORS, or a file "
        "with a seal on each line"
    )
