"""Messages from people that the LLM has not answered yet."""

from dataclasses import dataclass

from holdfast.authority.follow_ups import INBOX, INBOX_BYTES
from holdfast.base.models import Frozen
from holdfast.base.replacing import replace
from holdfast.errors import EventOutOfPlace


class WaitingMessage(Frozen):
    """A message that the LLM was not shown yet."""

    message: int
    """The position of its event."""
    text: str
    by: str = ""
    more: str = ""
    """What it holds besides text (`holdfast.llm.messages.more_than_text`)."""
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
