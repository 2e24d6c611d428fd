"""Instructions in workspaces that a person has approved: digests of strategies and skills, in the state folder.

1. Anybody who can write to a workspace can put instructions there. An agent receives only approved ones.
2. An approval covers content, not a place: it holds in every clone, and a change needs a new approval.
3. No approval counts in a workspace that contains the state folder, because a file there could forge one.
"""

import fcntl
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from holdfast.config.state_folder import state_folder
from holdfast.core.agents.agent import SkillSpec
from holdfast.core.base.canonical import digest

FILE = "approved-instructions.jsonl"


@dataclass(frozen=True)
class Instruction:
    """Content of a workspace that instructs agents."""

    what: str
    """A path in the workspace."""
    digest: str
    text: str
    """What a person sees before approving."""


def strategies(text: str, *, what: str) -> Instruction:
    """Describe the strategies of a workspace."""
    return Instruction(what, f"sha256:{digest(['strategies/1', text])}", text)


def skill(spec: SkillSpec, *, what: str, text: str) -> Instruction:
    """Describe a skill by its name, description and files; `text` is what a person sees before approving."""
    return Instruction(what, f"sha256:{digest(['skill/1', spec.model_dump(mode='json')])}", text)


class Approvals:
    """The approvals on this machine.

    Args:
        home: The state folder; None for this process's (`state_folder()`).
    """

    def __init__(self, home: Path | None = None) -> None:
        self._home = home

    def have(self, instruction: Instruction, workspace: Path) -> bool:
        """Whether a person has approved the instruction."""
        return self.count_in(workspace) and instruction.digest in self._digests()

    def count_in(self, workspace: Path) -> bool:
        """Whether approvals count in a workspace: not if it contains the state folder."""
        return not self._folder().resolve().is_relative_to(workspace.resolve())

    def add(self, instructions: Sequence[Instruction], *, by: str, at: datetime) -> None:
        """Record approvals, except those already recorded.

        Args:
            instructions: What was shown to the person.
            by: The approver, or the approved tool call of an agent.
            at: The time of the approval.

        Raises:
            OSError: The state folder cannot be written.
        """
        self._folder().mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(self._folder() / FILE, flags, 0o600), "a", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            known = self._digests()
            for each in instructions:
                if each.digest not in known:
                    line = {"digest": each.digest, "what": each.what, "by": by, "at": at.isoformat()}
                    file.write(json.dumps(line) + "\n")

    def _folder(self) -> Path:
        return self._home or state_folder()

    def _digests(self) -> set[str]:
        try:
            lines = (self._folder() / FILE).read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return set()
        found = set()
        for line in lines:
            try:
                found.add(json.loads(line)["digest"])
            except (ValueError, KeyError, TypeError):
                continue  # truncated by a crash; the person has to approve again
        return found
