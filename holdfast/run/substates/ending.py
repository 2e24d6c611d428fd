"""What a run does between the LLM's answer and its end, and what it has noted of itself in progress.txt."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from holdfast.base.replacing import replace

PROGRESS_TOOL = "update_progress"
"""The tool that writes progress.txt: for the LLM, and for the run's own calls."""

LEARNING_TOOLS = ("remember", "note_learning")
"""The tools that the LLM may call in the step in which it is asked what it has learnt."""

LEARNING_SECONDS = 3_600
"""How long the end of a run waits for that step: for the LLM's reply, and then for people to approve what it calls."""


@dataclass(frozen=True)
class Ending:
    """The end of a run, as far as it has come."""

    noted: str = ""
    """What the run has noted in progress.txt last: `in progress`, `completed`, or `blocked` with the step."""
    learning: Literal["", "asked", "over"] = ""
    """Whether the LLM has been asked what it has learnt; `over` once it has replied, or could not."""
    until: datetime | None = None
    """How long its reply is waited for."""

    def ask(self, at: datetime) -> "Ending":
        """Ask the LLM what it has learnt."""
        return replace(self, learning="asked", until=at + timedelta(seconds=LEARNING_SECONDS))

    def replied(self) -> "Ending":
        """Note that the LLM has replied, or could not; nothing changes where it was not asked."""
        return replace(self, learning="over", until=None) if self.learning == "asked" else self

    def put_off(self) -> "Ending":
        """Note that the run does not end yet: a message has arrived."""
        return replace(self, learning="", until=None) if self.learning else self
