"""Reads the seals of a thread from anchors, whose content is untrusted."""

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from holdfast.audit.anchors.folder import BENEATH, names
from holdfast.core.log.node_seals import read_seal
from holdfast.errors import SettingsError

MAX_LINE_BYTES = 16_384
"""The longest possible seal; a longer line is read in parts, none of which is a seal."""


class AnchoredLines:
    """The lines of a thread in anchors at one moment; they are read one by one, as often as needed.

    Args:
        places: Folders of anchors; or files with seals of any threads, such as the bodies that a webhook received.
        thread: The thread's id.

    Raises:
        SettingsError: An anchor cannot be read.
    """

    def __init__(self, places: Iterable[Path], thread: str) -> None:
        self._thread = thread
        self.odd: list[str] = []
        """Links, named pipes and devices, which are skipped."""
        self._files: list[tuple[Path, int, bool]] = []
        """Path and size of each file, and whether it is inside an anchor."""
        for place in places:
            try:
                if place.is_dir():
                    self._add_folder(place, thread)
                    continue
                status = place.stat()
            except OSError as error:
                raise _unreadable(place, error.strerror) from None
            if not stat.S_ISREG(status.st_mode):
                raise _unreadable(place, "it is neither a folder nor a regular file")
            self._files.append((place, status.st_size, False))

    def _add_folder(self, place: Path, thread: str) -> None:
        for node in sorted(os.scandir(place), key=lambda entry: entry.name):
            if not node.is_dir(follow_symlinks=False):
                self.odd += [str(Path(node.path))] if node.is_symlink() else []
                continue
            file = Path(node.path, names(thread, "")[1])
            try:
                status = file.lstat()
            except FileNotFoundError:
                continue
            if stat.S_ISREG(status.st_mode):
                self._files.append((file, status.st_size, True))
            else:
                self.odd.append(str(file))

    def __iter__(self) -> Iterator[bytes]:
        """Yield the lines without line ends, except empty ones and seals of other threads.

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

    def _may_be_of_thread(self, line: bytes) -> bool:
        seal = read_seal(line)
        return seal is None or seal.thread == self._thread


def _unreadable(place: Path, reason: str | None) -> SettingsError:
    return SettingsError(
        f"the anchor {place} cannot be read: {reason}; name a folder of HOLDFAST_ANCHORS, or a file with a seal on "
        "each line"
    )
