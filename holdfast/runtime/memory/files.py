"""The memory files of a workspace: read whole, and changed without losing what a person writes meanwhile.

1. A file is put in place in one step, or not at all; a link within the workspace is written through.
2. Just before that it is read again. Where a person has saved it meanwhile, the change is made to what they wrote.
3. Of several files that change together, all changes are worked out before the first is put in place.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from holdfast.memory.errors import MemoryRefused
from holdfast.runtime.workspace.files import NotAFile, NotText, opened, plain_errors, replace, write_lock
from holdfast.runtime.workspace.paths import OutsideWorkspace, inside

TASKS, PROGRESS, ERRORS, LEARNINGS = "TASKS.md", "progress.txt", "ERRORS.md", "LEARNINGS.md"
FEATURES, STRATEGIES = "features.json", ".agents/STRATEGIES.md"

LARGEST: Mapping[str, int] = {TASKS: 1_000_000, FEATURES: 1_000_000} | dict.fromkeys(
    (PROGRESS, ERRORS, LEARNINGS, STRATEGIES), 10_000_000
)
"""The memory files, and the bytes that each may have."""
TRIES = 5
"""How often a change is made anew to what a person saved meanwhile."""

Edit = Callable[[str | None], str]
"""The file's text before (None where there is no file), to its text after. May be called again, with another text."""

_MARK = b"\xef\xbb\xbf"
"""What some editors put before UTF-8 text; kept where it is, and never part of the text."""


class FileRefused(MemoryRefused):
    """A memory file cannot be read or written; nothing was changed."""


class MemoryFiles:
    """The memory files of one workspace.

    Args:
        workspace: Its folder; made with the first change.
    """

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace

    def read(self, name: str) -> str | None:
        """The text of a memory file (a name of `LARGEST`); None where there is none.

        Raises:
            FileRefused: It is no text, no regular file, too large, or leads outside the workspace.
        """
        with _refusing():
            return _text(self._bytes(name), name)

    def change(self, name: str, edit: Edit) -> None:
        """Change one file.

        Raises:
            FileRefused: It cannot be read or written.
            MemoryRefused: The edit refuses.
        """
        self.change_all({name: edit})

    def change_all(self, edits: Mapping[str, Edit]) -> None:
        """Change several files, in this order: where an edit refuses, none is changed.

        Raises:
            FileRefused: One cannot be read or written.
            MemoryRefused: An edit refuses.
        """
        with _refusing(), write_lock(self._workspace):
            worked_out = [(name, edit, *self._edited(name, edit)) for name, edit in edits.items()]
            for name, edit, before, after in worked_out:
                for _ in range(TRIES):
                    if before == after or self._put(name, before, after):
                        break
                    before, after = self._edited(name, edit)
                else:
                    raise FileRefused(f"{name} is being saved by somebody again and again; try it again later")

    def _edited(self, name: str, edit: Edit) -> tuple[bytes | None, bytes]:
        before = self._bytes(name)
        after = edit(_text(before, name)).encode("utf-8", "replace")
        if before is not None and before.startswith(_MARK):
            after = _MARK + after
        _require_size(len(after), name)
        return before, after

    def _bytes(self, name: str) -> bytes | None:
        most = LARGEST[name]
        try:
            with opened(self._workspace, name, follow=True) as file:
                content = file.read(most + 1)
        except FileNotFoundError:
            return None
        _require_size(len(content), name)
        return content

    def _put(self, name: str, before: bytes | None, after: bytes) -> bool:
        """Put `after` in the file's place; False if it is no longer what was read."""
        real = inside(self._workspace, name)
        folders = {part.casefold() for part in real.relative_to(os.path.realpath(self._workspace)).parts}
        if ".git" in folders or (".agents" in folders and name != STRATEGIES):
            raise OutsideWorkspace(f"{name} is a link to what belongs to git, or instructs later runs; make it a file")
        if name == STRATEGIES and real != Path(os.path.realpath(self._workspace), name):
            raise OutsideWorkspace(f"a link leads to {name}, so no run would be shown it; put the file there itself")
        # The same key every time, so that what a crash leaves is cleared away by the next change.
        put = replace(
            self._workspace,
            name,
            content=after,
            key="memory",
            instructions=True,
            follow=True,
            unchanged=lambda: self._bytes(name) == before,
        )
        if put:
            with plain_errors(name):
                _sync_folder(real.parent)
        return put


def _text(content: bytes | None, name: str) -> str | None:
    if content is None:
        return None
    try:
        return content.removeprefix(_MARK).decode("utf-8")
    except UnicodeDecodeError as error:
        raise FileRefused(f"{name} is not UTF-8 text (byte {error.start:,}); save it as UTF-8") from None


def _require_size(size: int, name: str) -> None:
    if size > LARGEST[name]:
        raise FileRefused(
            f"{name} has more than {LARGEST[name]:,} bytes; move what is old to another file, then try it again"
        )


def _sync_folder(folder: Path) -> None:
    """Make the new name last through a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _refusing() -> Iterator[None]:
    """Say in one type what cannot be done with a file."""
    try:
        yield
    except (NotAFile, NotText, OutsideWorkspace, OSError) as error:
        raise FileRefused(f"{error}; nothing was changed") from None
