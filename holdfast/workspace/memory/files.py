"""The memory files of a workspace: reads them, and changes them without losing concurrent edits by people.

1. A file is replaced atomically; a link within the workspace is followed, and its target replaced.
2. Just before that, the file is read again. If a person saved it meanwhile, the edit is applied to the new text.
3. If several files change together, all edits are computed before the first file is replaced.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from holdfast.core.memory.errors import MemoryRefused
from holdfast.workspace.files import NotAFile, NotText, open_text_file, plain_errors, replace, write_lock
from holdfast.workspace.paths import OutsideWorkspace, inside

TASKS, PROGRESS, ERRORS, LEARNINGS = "TASKS.md", "progress.txt", "ERRORS.md", "LEARNINGS.md"
FEATURES, STRATEGIES = "features.json", ".agents/STRATEGIES.md"

LARGEST: Mapping[str, int] = {TASKS: 1_000_000, FEATURES: 1_000_000} | dict.fromkeys(
    (PROGRESS, ERRORS, LEARNINGS, STRATEGIES), 10_000_000
)
"""The memory files, and their size limits in bytes."""
TRIES = 5
"""How often an edit is applied if a person keeps saving the file."""

Edit = Callable[[str | None], str]
"""Maps the file's text (None without a file) to its new text. May be called again, with another text."""

_BOM = b"\xef\xbb\xbf"
"""The byte order mark that some editors put before UTF-8 text; kept in the file, and never part of the text."""


class FileRefused(MemoryRefused):
    """A memory file cannot be read or written; nothing was changed."""


class MemoryFiles:
    """The memory files of one workspace.

    Args:
        workspace: Its folder; created with the first change.
    """

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace

    def read(self, name: str) -> str | None:
        """Read a memory file (a name in `LARGEST`, or that of the progress file); None if it does not exist.

        Raises:
            FileRefused: The file is not text, not regular, too large, or outside the workspace.
        """
        with _file_errors():
            return _text(self._bytes(name), name)

    def change(self, name: str, edit: Edit) -> None:
        """Change one file.

        Raises:
            FileRefused: It cannot be read or written.
            MemoryRefused: The edit raised it.
        """
        self.change_all({name: edit})

    def change_all(self, edits: Mapping[str, Edit]) -> None:
        """Change several files, in this order; if an edit raises, none is changed.

        Raises:
            FileRefused: One cannot be read or written.
            MemoryRefused: An edit raised it.
        """
        with _file_errors(), write_lock(self._workspace):
            edited = [(name, edit, *self._edited(name, edit)) for name, edit in edits.items()]
            for name, edit, before, after in edited:
                for _ in range(TRIES):
                    if before == after or self._put(name, before, after):
                        break
                    before, after = self._edited(name, edit)
                else:
                    raise FileRefused(f"{name} is being changed by somebody else again and again; try again later")

    def _edited(self, name: str, edit: Edit) -> tuple[bytes | None, bytes]:
        before = self._bytes(name)
        after = edit(_text(before, name)).encode("utf-8", "replace")
        if before is not None and before.startswith(_BOM):
            after = _BOM + after
        _require_size(len(after), name)
        return before, after

    def _bytes(self, name: str) -> bytes | None:
        most = _most(name)
        try:
            with open_text_file(self._workspace, name, follow=True) as file:
                content = file.read(most + 1)
        except FileNotFoundError:
            return None
        _require_size(len(content), name)
        return content

    def _put(self, name: str, before: bytes | None, after: bytes) -> bool:
        """Replace the file's content by `after`; False if it is no longer `before`."""
        real = inside(self._workspace, name)
        folders = {part.casefold() for part in real.relative_to(os.path.realpath(self._workspace)).parts}
        if ".git" in folders or (".agents" in folders and name != STRATEGIES):
            raise OutsideWorkspace(
                f"{name} is a link to a file that belongs to git, or instructs later runs; make it a regular file"
            )
        if name == STRATEGIES and real != Path(os.path.realpath(self._workspace), name):
            raise OutsideWorkspace(f"a link leads to {name}, so runs would ignore it; put the file there itself")
        # The same key every time, so that the next change removes the remains of a crashed one.
        replaced = replace(
            self._workspace,
            name,
            content=after,
            key="memory",
            instructions=True,
            follow=True,
            unchanged=lambda: self._bytes(name) == before,
        )
        if replaced:
            with plain_errors(name):
                _sync_folder(real.parent)
        return replaced


def _text(content: bytes | None, name: str) -> str | None:
    if content is None:
        return None
    try:
        return content.removeprefix(_BOM).decode("utf-8")
    except UnicodeDecodeError as error:
        raise FileRefused(f"{name} is not UTF-8 text (byte {error.start:,}); save it as UTF-8") from None


def _most(name: str) -> int:
    return LARGEST.get(name, LARGEST[PROGRESS])


def _require_size(size: int, name: str) -> None:
    if size > _most(name):
        raise FileRefused(
            f"{name} has more than {_most(name):,} bytes; move old entries to another file, then try again"
        )


def _sync_folder(folder: Path) -> None:
    """Make the new file name survive a power failure."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _file_errors() -> Iterator[None]:
    """Convert errors of reading and writing files to FileRefused."""
    try:
        yield
    except (NotAFile, NotText, OutsideWorkspace, OSError) as error:
        raise FileRefused(f"{error}; nothing was changed") from None
