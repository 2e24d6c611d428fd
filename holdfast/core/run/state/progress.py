"""The progress of a run: its steps, a pause by a person, the wait for a follow-up message, and its closing work."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from holdfast.core.authority.statements import Proof
from holdfast.core.base.models import Frozen, replace


@dataclass(frozen=True)
class Steps:
    """The steps of the whole thread, and their limit."""

    count: int = 0
    """LLM replies so far."""
    limit: int = 0
    """The step after which a person has to send `retry`, which raises the limit."""
    rejected_replies: int = 0
    """How many replies in a row were unusable."""

    @property
    def used_up(self) -> bool:
        """Whether the limit is reached."""
        return self.count >= self.limit

    def reject_reply(self) -> "Steps":
        """Count an unusable reply."""
        return replace(self, rejected_replies=self.rejected_replies + 1)

    def use_reply(self) -> "Steps":
        """Reset the count of unusable replies: a reply was usable, or a person asked for a retry."""
        return replace(self, rejected_replies=0) if self.rejected_replies else self


class Pause(Frozen):
    """A pause by a person: nothing starts before it ends; calls under way end, and are recorded."""

    by: str
    reason: str = ""
    since: datetime
    until: datetime | None = None
    """When it ends by itself; None for never."""
    proof: Proof = ""
    """How the person was authenticated: only a signed statement ends a signed pause."""

    def view(self) -> dict[str, Any]:
        """Return the pause as `show` presents it."""
        return self.model_dump(mode="json")


LONGEST_WAIT = 10 * 365 * 86_400
"""Maximum seconds of a wait. Anybody can start a run with any limit, and dates end with the year 9999."""


@dataclass(frozen=True)
class Idle:
    """The wait for a follow-up message."""

    awaiting: bool = False
    """The LLM has answered, and the run is open for a follow-up message."""
    limit: float | None = None
    """Seconds that the run stays open; None until its start or its agent sets them."""
    until: datetime | None = None
    """When the wait ends."""

    def begin(self, at: datetime) -> "Idle":
        """Begin to wait."""
        seconds = max(0, min(self.limit or 0, LONGEST_WAIT))
        return replace(self, awaiting=True, until=at + timedelta(seconds=seconds))

    def end(self) -> "Idle":
        """Stop waiting: a message arrived, or the run is over."""
        return replace(self, awaiting=False, until=None) if self.awaiting else self


PROGRESS_TOOL = "update_progress"
"""The tool that writes progress.txt: for the LLM, and for the run's own calls."""

LEARNING_TOOLS = ("remember", "note_learning")
"""The tools that the LLM may call in the step that asks it for its learnings."""

LEARNING_SECONDS = 3_600
"""How long the end of a run waits for that step: for the LLM's reply, and then for approval of its calls."""


@dataclass(frozen=True)
class Ending:
    """The progress of a run's closing work."""

    last_note: str = ""
    """The last note in progress.txt: `in progress`, `completed`, or `blocked` with the step."""
    learning: Literal["", "asked", "over"] = ""
    """Whether the LLM has been asked for its learnings; `over` once it has replied, or could not."""
    until: datetime | None = None
    """The deadline of its reply."""

    def ask(self, at: datetime) -> "Ending":
        """Ask the LLM for its learnings."""
        return replace(self, learning="asked", until=at + timedelta(seconds=LEARNING_SECONDS))

    def replied(self) -> "Ending":
        """Record that the LLM has replied, or could not; change nothing if it was not asked."""
        return replace(self, learning="over", until=None) if self.learning == "asked" else self

    def put_off(self) -> "Ending":
        """Postpone the end: a message has arrived."""
        return replace(self, learning="", until=None) if self.learning else self
