"""Which instructions in workspaces a person has approved: the digests of strategies and skills, in the state folder.

1. Who can write to a workspace can put instructions there. They are given to an agent only with their digest here.
2. An approval is of a content, wherever it lies: another clone of it needs none, and a changed one needs its own.
3. In a workspace that holds the state folder no approval counts, for a file there could be one.
"""

import fcntl
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from holdfast.agents.agent import SkillSpec
from holdfast.base.digests import digest
from holdfast.runtime.config.state_folder import state_folder

FILE = "approved-instructions.jsonl"


@dataclass(frozen=True)
class Instruction:
    """Something in a workspace that would instruct agents."""

    what: str
    """A path in the workspace."""
    digest: str
    text: str
    """What a person is shown of it before they approve."""


def strategies(text: str, *, what: str) -> Instruction:
    """The strategies of a workspace."""
    return Instruction(what, f"sha256:{digest({'strategies': text})}", text)


def skill(spec: SkillSpec, *, what: str, text: str) -> Instruction:
    """A skill: its name, its description and all of its files; `text` is what a person is shown of it."""
    return Instruction(what, f"sha256:{digest({'skill': spec.model_dump(mode='json')})}", text)


class Approvals:
    """The approvals of a machine.

    Args:
        home: The state folder; None for that of the process (`HOLDFAST_HOME`).
    """

    def __init__(self, home: Path | None = None) -> None:
        self._home = home

    def have(self, instruction: Instruction, workspace: Path) -> bool:
        """Whether a person has approved it."""
        return self.count_in(workspace) and instruction.digest in self._digests()

    def count_in(self, workspace: Path) -> bool:
        """Whether approvals count in a workspace: not where it holds them itself."""
        return not self._folder().resolve().is_relative_to(workspace.resolve())

    def add(self, instructions: Sequence[Instruction], *, by: str, at: datetime) -> None:
        """Record that these are approved; those that are already are not recorded again.

        Args:
            instructions: What was shown to the person.
            by: Who has approved, or the call of an agent's that was approved.
            at: When.

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
                continue  # cut short by a crash; the approval is given again
        return found
