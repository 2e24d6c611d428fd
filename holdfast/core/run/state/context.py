"""The LLM's context, as far as decisions depend on it: messages that it has not answered yet, refinements of its task,
how full the context is, which parts survive a context compaction word for word, and the trust level of its content.

The task itself never changes. The messages themselves are `holdfast.core.transcript`.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from holdfast.core.authority.interventions import INBOX, INBOX_BYTES, RefinementKind
from holdfast.core.authority.statements import Proof
from holdfast.core.base.canonical import digest
from holdfast.core.base.models import Frozen, replace
from holdfast.core.llm.blocks import Content
from holdfast.core.llm.messages import content_json
from holdfast.core.trust import Trust
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


FOLLOW_UPS_CHARS = 64_000
"""Characters of follow-up messages that survive a compaction word for word; the oldest make room."""

UNRESOLVED_CALLS = 50
"""Denied calls, and calls whose outcome is unknown, that survive a compaction; the oldest make room."""

UNRESOLVED_CALL_CHARS = 1_000
"""Characters of each unresolved call."""


@dataclass(frozen=True)
class Context:
    """The LLM's context."""

    tokens: int = 0
    """Tokens of the last request and its reply, as the provider counted them; 0 after a compaction."""
    floor: int = 0
    """Tokens of the first request since the last compaction, or of the very first one: no compaction leaves much
    less. Kept from feature level 1 on, if it exceeds half of `Limits.compaction_tokens`; else 0."""
    requested: bool = False
    """A person asked for a compaction, which has not been made yet."""
    given: str = ""
    """The summary that this person has written; empty if the LLM is to write it."""
    author: str = ""
    """The person who has written it."""
    overflows: int = 0
    """How often in a row a request did not fit the LLM's context window."""
    oversized: bool = False
    """The last request did not fit, and there has been no compaction since."""
    compacted_at: int = 0
    """The step after which the context was last compacted."""
    summary: str = ""
    """The LLM's summary at the last compaction."""
    standing_memory: str = ""
    """The agent's standing memory; it survives a compaction word for word."""
    follow_ups: tuple[WaitingMessage, ...] = ()
    """Follow-up messages that the LLM has seen; they survive a compaction word for word."""
    follow_ups_left_out: int = 0
    """How many older follow-up messages do not survive, because there are too many."""
    unresolved_calls: tuple[str, ...] = ()
    """Denied calls, and calls whose outcome is unknown, one line each: the LLM must not lose them."""
    trust: Trust = "agent"
    """The trust level of the LLM's words; kept only if the agent's tools or rules depend on it."""

    def record_reply(self, tokens: int) -> "Context":
        """Record how full the context is, and that the request fitted."""
        return replace(self, tokens=tokens, overflows=0, oversized=False)

    def with_floor(self, tokens: int, limit: int) -> "Context":
        """Record the tokens of the first request since the last compaction, if they matter for the next one."""
        return replace(self, floor=tokens if 2 * tokens > limit else 0)

    def is_full(self, limit: int) -> bool:
        """Return whether the context is to be compacted because of its size.

        It has to reach the limit, and twice the size that the last compaction left. Without the second condition, a
        task that is itself as long as the limit would cause a compaction at each step, each replacing only a summary.

        Args:
            limit: `Limits.compaction_tokens`.
        """
        return self.tokens >= max(limit, 2 * self.floor)

    def request_compaction(self, *, summary: str = "", by: str = "") -> "Context":
        """Record that a person asked for a compaction, perhaps with their own summary."""
        return replace(self, requested=True, given=summary, author=by if summary else "")

    def drop_request(self) -> "Context":
        """Drop a request for a compaction."""
        return replace(self, requested=False, given="", author="")

    def record_overflow(self) -> "Context":
        """Record that a request did not fit. That causes a compaction, so a requested one is no longer pending."""
        return replace(self, overflows=self.overflows + 1, oversized=True, requested=False)

    def record_compaction(self, summary: str, *, step: int) -> "Context":
        """Record that the context was compacted after this step."""
        done = replace(self, summary=summary, tokens=0, floor=0, requested=False, oversized=False, compacted_at=step)
        return replace(done, given="", author="") if done.given else done

    def prepare_retry(self, *, step: int) -> "Context":
        """Prepare for a retry: if nothing was left to compact, the same request is sent once more."""
        oversized = self.oversized and self.overflows <= 2 and step > 0
        return replace(self, overflows=min(self.overflows, 2), oversized=oversized)

    def add_follow_up(self, message: WaitingMessage) -> "Context":
        """Keep a follow-up message that the LLM sees; the oldest make room."""
        kept = [*self.follow_ups, message]
        while len(kept) > 1 and sum(len(each.text) for each in kept) > FOLLOW_UPS_CHARS:
            del kept[0]
        left_out = self.follow_ups_left_out + len(self.follow_ups) + 1 - len(kept)
        return replace(self, follow_ups=tuple(kept), follow_ups_left_out=left_out)

    def add_unresolved_call(self, line: str) -> "Context":
        """Keep a denied call, or one whose outcome is unknown; the oldest make room."""
        lines = (*self.unresolved_calls, line[:UNRESOLVED_CALL_CHARS])
        return replace(self, unresolved_calls=lines[-UNRESOLVED_CALLS:])
