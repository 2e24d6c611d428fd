"""The file in which a run keeps its progress, and what each note there commits to git."""

import re
from typing import Literal

from holdfast.core.base.models import Frozen

DEFAULT_FILE = "progress.txt"

Commits = Literal["none", "progress", "work"]
"""What a note commits, if the workspace is in a git repository: nothing · the file itself · all work since the last
commit."""

NAME_CHARS = 200
"""Maximum length of the file's path."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_. -]*(?:/[A-Za-z0-9_][A-Za-z0-9_. -]*)*")
_TAKEN = ("tasks.md", "errors.md", "learnings.md", "features.json")


class ProgressFile(Frozen):
    """The file, and what notes in it commit."""

    name: str = DEFAULT_FILE
    """Its path in the workspace."""
    commits: Commits = "none"


USUAL_FILE = ProgressFile()
"""The usual file, without commits."""


def require_name(name: str) -> str:
    """Return the name of a progress file.

    Raises:
        ValueError: It is no path inside the workspace, is hidden, or belongs to another memory file.
    """
    if len(name) > NAME_CHARS or not _NAME.fullmatch(name):
        raise ValueError(
            f"{name[:NAME_CHARS]!r} cannot be the progress file: give a path in the workspace, such as 'PROGRESS.md', "
            f"of at most {NAME_CHARS} letters, digits, `_`, `-`, `.`, spaces and `/`, none of whose names is hidden"
        )
    if name.casefold() in _TAKEN:
        raise ValueError(f"{name!r} cannot be the progress file, because it is another memory file")
    return name
