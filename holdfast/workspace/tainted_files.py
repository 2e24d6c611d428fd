"""Files that agents wrote after reading the web: marks in the state folder, by which later reads keep that trust level.

1. A mark is set before the file is written, and looked up after it is read. It covers a path, not content: it
   stays until a person clears it (`holdfast trust DIR --files`), however the content changes.
2. The marks mirror the folders of the machine, so a workspace within another shares its marks with that one. Each name
   is a digest: no name that an agent chooses is one of ours, is too long, or hides a mark by its case.
3. No tool of a workspace reaches them. An unconfined command reaches everything that the worker's user can.
"""

import hashlib
import os
import shutil
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from holdfast.config.state_folder import state_folder

FOLDER = "tainted-files"
DEPTH = 60
"""How many folders deep marks tell files apart. Those below share a mark: a longer path of digests cannot be opened."""
_FILE, _WHOLE = "file", "folder"
"""Names of marks: of one file, or of a folder with everything below it."""


class TaintedFiles:
    """The marks on this machine.

    Each method blocks on the file system, and raises OSError if the state folder cannot be used.

    Args:
        home: The state folder; None for this process's (`state_folder()`).
    """

    def __init__(self, home: Path | None = None) -> None:
        self._home = home

    def mark(self, workspace: Path, files: Sequence[str] | None = None) -> None:
        """Mark files of a workspace, or all of it, before they are written.

        Args:
            workspace: The folder.
            files: Paths relative to it; None for everything below it.
        """
        name = _WHOLE if files is None else _FILE
        self._root().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in _paths(workspace, files):
            folder = self._mirror(path)
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with suppress(FileExistsError), (folder / name).open("x", encoding="utf-8", errors="replace") as mark:
                mark.write(path)
                mark.flush()
                os.fsync(mark.fileno())

    def have(self, workspace: Path, files: Sequence[str] | None = None) -> bool:
        """Whether one of these files of a workspace is marked, or anything below one; None for any file of it."""
        root = self._root()
        return root.exists() and any(self._has(root, path) for path in _paths(workspace, files))

    def below(self, folder: Path) -> list[str]:
        """The marks on a folder, on its contents, and on the folders that contain it. Folders end in `/`."""
        path, marks = os.path.realpath(folder), set[str]()
        for mark in self._mirror(path).rglob("*"):
            if mark.name in (_FILE, _WHOLE):
                marks.add(_described(mark))
        marks |= {_described(each / _WHOLE) for each in self._above(path) if (each / _WHOLE).exists()}
        return sorted(marks)

    def clear(self, folder: Path) -> None:
        """Remove the marks on a folder and on its contents. Marks on the folders that contain it stay."""
        mirror, root = self._mirror(os.path.realpath(folder)), self._root()
        with suppress(FileNotFoundError):
            shutil.rmtree(mirror)
        with suppress(OSError):  # the first folder that has other marks ends the loop
            while mirror.parent != root.parent:
                mirror = mirror.parent
                mirror.rmdir()

    def _has(self, root: Path, path: str) -> bool:
        """Whether a path, something below it, or a folder that contains it is marked."""
        at = root
        for name in _digests(path):
            if (at / _WHOLE).exists():
                return True
            at /= name
            if not at.exists():
                return False
        return True

    def _above(self, path: str) -> Iterator[Path]:
        at = self._root()
        for name in _digests(path):
            yield at
            at /= name

    def _mirror(self, path: str) -> Path:
        return self._root().joinpath(*_digests(path))

    def _root(self) -> Path:
        return (self._home or state_folder()) / FOLDER


def _paths(workspace: Path, files: Sequence[str] | None) -> Sequence[str]:
    """The absolute paths of files, as they are named and with all links resolved; None for the workspace."""
    base = os.path.realpath(workspace)
    named = [base] if files is None else [os.path.normpath(Path(base, each)) for each in files]
    return list(dict.fromkeys([*named, *map(_resolved, named)]))


def _resolved(path: str) -> str:
    try:
        return os.path.realpath(path)
    except ValueError:  # it cannot be a path, so no such file exists
        return path


def _digests(path: str) -> list[str]:
    names = unicodedata.normalize("NFC", path.casefold()).split("/")
    return [hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32] for name in names if name][:DEPTH]


def _described(mark: Path) -> str:
    try:
        path = mark.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:  # a person has just cleared it
        path = ""
    return f"{path}/" if mark.name == _WHOLE else path
