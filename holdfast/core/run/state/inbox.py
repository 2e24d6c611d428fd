"""Input from people: messages that the LLM has not answered yet, and refinements of the task. The task itself never
changes.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from holdfast.core.authority.follow_ups import INBOX, INBOX_BYTES
from holdfast.core.authority.refinements import RefinementKind
from holdfast.core.authority.statements import Proof
from holdfast.core.base.canonical import digest
from holdfast.core.base.models import Frozen, replace
from holdfast.core.llm.blocks import Content
from holdfast.core.llm.messages import content_json
from holdfast.errors import EventOutOfPlace


class WaitingMessage(Frozen):
    """A message that the LLM has not seen yet."""

    message: int
    """The position of its event."""
    text: str
    by: str = ""
    more: str = ""
    """Its content besides text, described (`holdfast.core.llm.blocks.more_than_text`)."""
    size: int = 0
    """Bytes of the whole message, as JSON."""


@dataclass(frozen=True)
class Inbox:
    """Messages that the LLM has not seen yet, and the number of those that wait for its answer."""

    waiting: tuple[WaitingMessage, ...] = ()
    """Messages that the LLM has not seen yet, oldest first."""
    unanswered: int = 0
    """How many messages the LLM has seen since its last reply."""
    unanswered_bytes: int = 0
    seen: tuple[str, ...] = ()
    """The latest messages with an id: a digest of the id, and one of the message, each."""

    def receive(self, message: WaitingMessage) -> "Inbox":
        """Add a message that waits."""
        return replace(self, waiting=(*self.waiting, message))

    def record_id(self, id: str, content: Content, by: str) -> "Inbox":
        """Record the id of an accepted message."""
        return replace(self, seen=(*self.seen, _seen(id, content, by))[-SEEN:]) if id else self

    def repeats(self, id: str, content: Content, by: str) -> Literal["", "same", "other"]:
        """Return whether this message was received before under its id, or another message was; empty if neither."""
        wanted = _seen(id, content, by)
        earlier = [each for each in self.seen if each.partition(":")[0] == wanted.partition(":")[0]] if id else []
        return "same" if wanted in earlier else "other" if earlier else ""

    def why_full(self, size: int) -> str:
        """Return why there is no room for another message of this many bytes; empty if there is."""
        waiting = len(self.waiting) + self.unanswered
        held = sum(message.size for message in self.waiting) + self.unanswered_bytes
        if not waiting or (waiting < INBOX and held + size <= INBOX_BYTES):
            return ""
        words = f"{waiting:,} messages with {held:,} bytes wait for the LLM's answer"
        return f"{words}; the limit is {INBOX:,} with {INBOX_BYTES:,}: send it again after the answer"

    def find(self, position: int) -> WaitingMessage:
        """Return the waiting message whose event has this position.

        Raises:
            EventOutOfPlace: No such message waits.
        """
        message = next((each for each in self.waiting if each.message == position), None)
        if message is None:
            raise EventOutOfPlace(f"message {position} does not wait")
        return message

    def take(self, taken: WaitingMessage) -> "Inbox":
        """Show a waiting message to the LLM, which then has to answer it."""
        return replace(
            self,
            waiting=tuple(each for each in self.waiting if each is not taken),
            unanswered=self.unanswered + 1,
            unanswered_bytes=self.unanswered_bytes + taken.size,
        )

    def mark_answered(self) -> "Inbox":
        """Record that the LLM has answered every message that it has seen."""
        return replace(self, unanswered=0, unanswered_bytes=0) if self.unanswered else self


SEEN = 500
"""Ids of messages that are kept: a later message with such an id is a duplicate."""

_SEEN_HEX = 16
"""Hex digits of each digest in `seen`."""


def _seen(id: str, content: Content, by: str) -> str:
    return f"{digest(['message id', id])[:_SEEN_HEX]}:{digest(['message', content_json(content), by])[:_SEEN_HEX]}"


REFINEMENTS = 50
"""Refinements of a thread; more are refused. None makes room, because each survives context compaction verbatim."""

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
    """The sender's id for it; a second refinement with the same id is a duplicate."""
    proof: Proof = ""
    """How its sender was authenticated."""
    own: bool = False
    """The agent made it by a call that people approved."""

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
