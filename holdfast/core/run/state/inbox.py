"""What people have sent: messages that the LLM has not answered yet, and refinements of the task, which itself stays as
it was given.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.core.authority.follow_ups import INBOX, INBOX_BYTES
from holdfast.core.authority.refinements import RefinementKind
from holdfast.core.authority.statements import Proof
from holdfast.core.base.models import Frozen, replace
from holdfast.errors import EventOutOfPlace


class WaitingMessage(Frozen):
    """A message that the LLM was not shown yet."""

    message: int
    """The position of its event."""
    text: str
    by: str = ""
    more: str = ""
    """What it holds besides text (`holdfast.core.llm.messages.more_than_text`)."""
    size: int = 0
    """Bytes of the whole message, as JSON."""


@dataclass(frozen=True)
class Inbox:
    """Messages that wait to be shown to the LLM, and how many wait for its answer."""

    waiting: tuple[WaitingMessage, ...] = ()
    """Messages that the LLM was not shown yet, oldest first."""
    unanswered: int = 0
    """Messages that the LLM was shown since its last reply."""
    unanswered_bytes: int = 0

    def receive(self, message: WaitingMessage) -> "Inbox":
        """Let a message wait."""
        return replace(self, waiting=(*self.waiting, message))

    def full(self, size: int) -> str:
        """Return why there is no room for another message of that many bytes; empty if there is."""
        waiting = len(self.waiting) + self.unanswered
        held = sum(message.size for message in self.waiting) + self.unanswered_bytes
        if not waiting or (waiting < INBOX and held + size <= INBOX_BYTES):
            return ""
        words = f"{waiting:,} messages with {held:,} bytes wait for the LLM's answer"
        return f"{words}; the limit is {INBOX:,} with {INBOX_BYTES:,}: send it again after the answer"

    def find(self, position: int) -> WaitingMessage:
        """Return the waiting message whose event has that position.

        Raises:
            EventOutOfPlace: It does not wait.
        """
        message = next((each for each in self.waiting if each.message == position), None)
        if message is None:
            raise EventOutOfPlace(f"message {position} does not wait")
        return message

    def take(self, taken: WaitingMessage) -> "Inbox":
        """Show a waiting message to the LLM, which then has to answer it."""
        return Inbox(
            waiting=tuple(each for each in self.waiting if each is not taken),
            unanswered=self.unanswered + 1,
            unanswered_bytes=self.unanswered_bytes + taken.size,
        )

    def answered(self) -> "Inbox":
        """Note that the LLM has answered all that it was shown."""
        return replace(self, unanswered=0, unanswered_bytes=0) if self.unanswered else self


REFINEMENTS = 50
"""Refinements of a thread. Each survives context compaction word for word, so none makes room; more are refused."""

REFINEMENTS_BYTES = 64_000
"""Bytes of their texts, as JSON."""


class TaskRefinement(Frozen):
    """One refinement, as the LLM reads it."""

    number: int
    """Counted from 1 throughout the thread."""
    message: int
    """The position of its event."""
    kind: RefinementKind
    text: str
    by: str
    at: datetime
    id: str = ""
    """The sender's id of it, which counts once."""
    proof: Proof = ""
    """How it is known who made it."""
    own: bool = False
    """The agent made it by a call, which people have approved."""

    def view(self) -> dict[str, Any]:
        """Return the refinement as `show` presents it."""
        return {
            "refinement": self.number,
            "kind": self.kind,
            "text": self.text,
            "by": self.by,
            "proof": self.proof,
            "own": self.own,
            "at": self.at.isoformat(),
        }
