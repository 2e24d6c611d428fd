"""Reads what an agent has left for itself in its workspace: skills, learnt strategies, and the five files.

Whatever is there, a run begins: what is no text, too large, or a way out of the workspace is said in a line.
"""

import codecs
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from holdfast.agent import SkillSpec
from holdfast.budgets import BYTES_PER_TOKEN, newest_of
from holdfast.events import RecalledTier
from holdfast.memory.showing import MEMORY_FILES, FileRead, files_tier, read_ahead
from holdfast.prompt import strategies_room
from holdfast.runtime.files import NotAFile, NotText, opened
from holdfast.runtime.memory.files import STRATEGIES
from holdfast.runtime.paths import OutsideWorkspace, inside
from holdfast.runtime.skills import is_linked, workspace_skills
from holdfast.skills import Skill


class WorkspaceMemory:
    """What workspaces hold for the agents that work in them.

    Each method raises OSError where the file system does not answer as it should; that is to be tried again.
    """

    def skills(self, workspace: Path) -> Iterator[Skill | SkillSpec]:
        """The workspace's own skills; those that cannot be used say why."""
        return workspace_skills(workspace)

    def strategies(self, workspace: Path, tokens: int) -> str:
        """What was learnt, the newest of it within the budget; empty where nothing was."""
        room = strategies_room(tokens)
        read = _read(workspace, STRATEGIES, most=room * BYTES_PER_TOKEN + 1, newest=True)
        if read is None:
            return ""
        if read.problem:
            return f"[{STRATEGIES} is not shown: {read.problem}]"
        return newest_of(read.text.strip("\n"), room, where=STRATEGIES, unread=read.unread)

    def files(self, workspace: Path, tokens: int) -> RecalledTier | None:
        """The workspace's files within the budget; None where it has none of them."""
        reads = (_read(workspace, f.name, most=read_ahead(f, tokens), newest=f.newest) for f in MEMORY_FILES)
        return files_tier([read for read in reads if read], tokens)


def _read(workspace: Path, name: str, *, most: int, newest: bool) -> FileRead | None:
    """The beginning or the end of a file, `most` bytes of it; None where there is no such file."""
    try:
        if _is_loop(workspace, name):
            return FileRead(name, problem="it is a link that leads to itself")
        if name == STRATEGIES and is_linked(workspace, name):
            return FileRead(name, problem="a link leads to it; put the file there itself")
        with opened(workspace, name, follow=True) as file:
            size = os.fstat(file.fileno()).st_size
            start = max(0, size - most) if newest else 0
            file.seek(start)
            content = file.read(most)
        # A part may begin and end within a character.
        skipped = next((n for n in range(4) if content[n : n + 1] < b"\x80" or content[n] >= 0xC0), 0) if start else 0
        text = codecs.getincrementaldecoder("utf-8")().decode(content[skipped:], final=len(content) == size)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OutsideWorkspace:
        return FileRead(name, problem="it leads outside the workspace")
    except NotAFile:
        return FileRead(name, problem="it is no regular file")
    except (NotText, UnicodeDecodeError):
        return FileRead(name, problem="it is not UTF-8 text")
    except PermissionError:
        return FileRead(name, problem="it may not be read")
    return FileRead(name, size, text, unread=size - len(text.encode()))


def _is_loop(workspace: Path, name: str) -> bool:
    try:
        os.lstat(inside(workspace, name))
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return True
    return False
