"""Recalls an agent's memory from its workspace: skills, learnt strategies, and the five memory files.

Bad content does not prevent a run: one line reports a file that is not text, too large, or outside the workspace.
Content that instructs the agent needs a person's approval (`holdfast.workspace.approved_instructions`);
without it, one line reports that, quoting none of the content.
"""

import codecs
import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from holdfast.config.logs import EventLogger
from holdfast.config.programs import CLI
from holdfast.core.agents.agent import SkillSpec
from holdfast.core.agents.skills import SKILL_FILE, Skill, unusable
from holdfast.core.llm.tokens import newest_of
from holdfast.core.memory.files_tier import FileRead, files_tier, memory_files, read_ahead
from holdfast.core.memory.recalled import RecalledTier
from holdfast.core.tools.progress_file import DEFAULT_FILE
from holdfast.core.transcript.prompt import strategies_room
from holdfast.workspace.approved_instructions import Approvals, Instruction, skill, strategies
from holdfast.workspace.files import NotAFile, NotText, open_text_file
from holdfast.workspace.memory.files import LARGEST, STRATEGIES, MemoryFiles
from holdfast.workspace.memory.skills import WORKSPACE_SKILLS, is_linked, workspace_skills
from holdfast.workspace.paths import OutsideWorkspace, inside
from holdfast.workspace.tainted_files import TaintedFiles

log = EventLogger(__name__)

HOW_TO_APPROVE = "a person approves it with `holdfast trust DIR`, on this machine"


class WorkspaceMemory:
    """Reads the memory of agents from their workspaces.

    Each method raises OSError if the file system fails. Retryable.

    Args:
        approvals: The approvals of people; None for those in the process's state folder.
    """

    def __init__(self, approvals: Approvals | None = None) -> None:
        self._approvals = approvals or Approvals()

    def skills(self, workspace: Path) -> Iterator[Skill | SkillSpec]:
        """Yield the workspace's skills that a person has approved, and one entry that counts the others."""
        others: dict[str, str] = {}
        for candidate in workspace_skills(workspace):
            if isinstance(candidate, Skill) and self._approvals.have(_instruction(candidate), workspace):
                yield candidate
            else:
                others[candidate.name] = candidate.description if isinstance(candidate, SkillSpec) else "not approved"
        if others:
            self._log_left_out(workspace, [f"{WORKSPACE_SKILLS}, {name}: {why}" for name, why in others.items()])
            yield unusable(WORKSPACE_SKILLS, f"{len(others):,} not approved, or unusable; {HOW_TO_APPROVE}")

    def strategies(self, workspace: Path, tokens: int) -> str:
        """Return the learnt strategies, the newest within the token budget; empty if there are none."""
        room = strategies_room(tokens)
        read = _read(workspace, STRATEGIES, most=LARGEST[STRATEGIES] + 1, newest=True)
        if read is None or not (read.problem or read.text.strip()):
            return ""
        if read.problem or read.unread:
            return f"[{STRATEGIES} is not shown: {read.problem or 'it is too large'}]"
        if not self._approvals.have(strategies(read.text, what=STRATEGIES), workspace):
            self._log_left_out(workspace, [STRATEGIES])
            return f"[{STRATEGIES} is not shown: no person has approved its current text; {HOW_TO_APPROVE}]"
        return newest_of(read.text.strip("\n"), room, source=STRATEGIES)

    def instructions(self, workspace: Path) -> Iterator[tuple[Instruction, bool]]:
        """Yield each instruction in a workspace for a person to review, and whether it is approved.

        Raises:
            FileRefused: The strategies cannot be read.
        """
        text = MemoryFiles(workspace).read(STRATEGIES)
        instructions = [strategies(text, what=STRATEGIES)] if text and text.strip() else []
        instructions += [_instruction(each) for each in workspace_skills(workspace) if isinstance(each, Skill)]
        for each in instructions:
            yield each, self._approvals.have(each, workspace)

    def _log_left_out(self, workspace: Path, what: Sequence[str]) -> None:
        if self._approvals.count_in(workspace):
            then = f"read it, then: {CLI.command('trust', str(workspace))}"
        else:
            then = "the state folder is in the workspace, where approvals do not count: set HOLDFAST_HOME elsewhere"
        log.warning("instructions_not_trusted", workspace=str(workspace), left_out=list(what), then=then)

    def files(self, workspace: Path, tokens: int, *, progress: str = DEFAULT_FILE) -> RecalledTier | None:
        """The workspace's memory files within the token budget; None if it has none of them.

        Args:
            workspace: The folder.
            tokens: The budget.
            progress: Path of the progress file in it.
        """
        files = memory_files(progress)
        reads = (_read(workspace, f.name, most=read_ahead(f, tokens), newest=f.newest) for f in files)
        present = [read for read in reads if read]
        tier = files_tier(present, tokens, progress=progress)
        if tier and TaintedFiles().have(workspace, [read.name for read in present]):
            return tier.model_copy(update={"trust": "web"})
        return tier


def _instruction(candidate: Skill) -> Instruction:
    others = [f"{path}  {address}" for path, address in candidate.spec.files.items() if path != SKILL_FILE]
    text = candidate.files[SKILL_FILE].decode("utf-8-sig", "replace")
    shown = "\n".join([text, *(["Further files:", *others] if others else [])])
    return skill(candidate.spec, what=f"{WORKSPACE_SKILLS}/{candidate.name}", text=shown)


def _read(workspace: Path, name: str, *, most: int, newest: bool) -> FileRead | None:
    """Read at most `most` bytes from the beginning or the end of a file; None if there is no such file."""
    try:
        if _is_loop(workspace, name):
            return FileRead(name, problem="it is a link that leads to itself")
        if name == STRATEGIES and is_linked(workspace, name):
            return FileRead(name, problem="a link leads to it; put the file there itself")
        with open_text_file(workspace, name, follow=True) as file:
            size = os.fstat(file.fileno()).st_size
            start = max(0, size - most) if newest else 0
            file.seek(start)
            content = file.read(most)
        # A part may begin or end within a character.
        skipped = next((n for n in range(4) if content[n : n + 1] < b"\x80" or content[n] >= 0xC0), 0) if start else 0
        text = codecs.getincrementaldecoder("utf-8")().decode(content[skipped:], final=len(content) == size)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OutsideWorkspace:
        return FileRead(name, problem="it leads outside the workspace")
    except NotAFile:
        return FileRead(name, problem="it is not a regular file")
    except (NotText, UnicodeDecodeError):
        return FileRead(name, problem="it is not UTF-8 text")
    except PermissionError:
        return FileRead(name, problem="permission to read it was denied")
    return FileRead(name, size, text.removeprefix("\ufeff"), unread=size - len(text.encode()))


def _is_loop(workspace: Path, name: str) -> bool:
    try:
        os.lstat(inside(workspace, name))
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return True
    return False
