"""Refused signals and updates: the content that the log keeps of them, and how many it records.

1. The log keeps the outcome, the reason, the sender, and digest and size of the payload, but never the payload itself.
   Such an event has about a kilobyte at most. Temporal's history has the rest.
2. After `RECORDED` rejections in one Temporal run, further ones are only counted (`RejectionCounter`), so that a flood
   grows neither the log nor the permanent record.
"""

import hashlib
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Self

from holdfast.core.base.canonical import GENESIS, canonical, chain, exact_json, portable
from holdfast.core.base.models import is_unread
from holdfast.core.log.event_log import event_json
from holdfast.core.log.events import AgentEvent, DecisionReceived, RefusalsCounted, SignalRejected
from holdfast.errors import NotPortable

RECORDED = 100
"""Refusals that are recorded individually in each Temporal run."""

SHOWN = 3
"""Refusals that the Web UI shows."""

EXPLANATION_BYTES = 400
"""Bytes, as JSON, that an explanation in a refused event may have."""

TEXT_BYTES = 80
"""Bytes, as JSON, that any other text from a sender may have: a name, a request, a digest, a reason."""

EFFECTIVE_OUTCOMES = ("accepted", "waiting_for_quorum", "judged_anew")
"""The outcomes of decisions that have an effect: the log keeps such a decision as it was sent."""


def is_refused(event: AgentEvent) -> bool:
    """Return whether the event only records a refusal."""
    return isinstance(event, SignalRejected) or (
        isinstance(event, DecisionReceived) and event.outcome not in EFFECTIVE_OUTCOMES
    )


def bound_refusals(events: Iterable[AgentEvent], payload: Any) -> list[AgentEvent]:
    """Return the events that a payload led to; refusals have its digest and size in place of its content."""
    return [_bound(event, payload) for event in events]


def bound_rejection(event: SignalRejected, payload: Any) -> SignalRejected:
    """Return the event of a refused signal or update, with digest and size of the payload in place of its content."""
    by = payload.get("by") if isinstance(payload, dict) else ""
    sent = payload_bytes(payload)
    return SignalRejected(
        signal=shorten(event.signal),
        explanation=shorten(event.explanation, EXPLANATION_BYTES),
        outcome=event.outcome,
        by=shorten(by) if isinstance(by, str) else "",
        sent_digest=hashlib.sha256(sent).hexdigest(),
        sent_bytes=len(sent),
    )


def shorten(text: str, limit: int = TEXT_BYTES) -> str:
    """Shorten a text to this many bytes as JSON."""
    short = text[:limit].encode("utf-8", "replace").decode()
    if len(text) <= limit and _size(short) <= limit:
        return short
    while _size(short) > limit - 3:  # the ellipsis has three bytes
        short = short[: len(short) * 9 // 10]
    return f"{short}…"


def _size(text: str) -> int:
    return len(canonical(text)) - 2


def _bound(event: AgentEvent, payload: Any) -> AgentEvent:
    if not is_refused(event):
        return event
    if isinstance(event, SignalRejected):
        return event if event.sent_digest else bound_rejection(event, payload)
    assert isinstance(event, DecisionReceived)
    sent = payload_bytes(payload)
    digest, size = hashlib.sha256(sent).hexdigest(), len(sent)
    return DecisionReceived(
        request=shorten(event.request),
        decision=event.decision,
        by=shorten(event.by),
        reason=shorten(event.reason),
        outcome=event.outcome,
        explanation=shorten(event.explanation, EXPLANATION_BYTES),
        digest_given=shorten(event.digest_given),
        right=event.right,
        rule=shorten(event.rule),
        proof=event.proof,
        key=event.key,
        sent_digest=digest,
        sent_bytes=size,
    )


def payload_bytes(payload: Any) -> bytes:
    """Return a payload as bytes: canonical JSON with integers in full, or else the closest portable JSON."""
    if is_unread(payload):
        return payload.sent
    if isinstance(payload, bytes):
        return payload
    for value in (payload, portable(payload)):
        try:
            return exact_json(value).encode()
        except NotPortable:
            continue
    return type(payload).__name__.encode()


@dataclass
class RejectionCounter:
    """The refusals of one Temporal run: the number recorded individually, and the number only counted.

    Not part of `RunState`, because a state follows from events, and counted refusals have none yet.
    """

    counted: int = 0
    """Refusals that were only counted, and whose count is not recorded yet."""
    recorded: int = 0
    last: deque[AgentEvent] = field(default_factory=lambda: deque(maxlen=SHOWN))
    """The last individually recorded refusals, for the Web UI."""
    _bytes: int = 0
    _digest: str = GENESIS

    @classmethod
    def after(cls, before: RefusalsCounted) -> Self:
        """Return the counter of a run that begins with the count that an earlier Temporal run could not record."""
        return cls(before.count, _bytes=before.sent_bytes, _digest=before.refusals_digest)

    def keep(self, event: AgentEvent) -> None:
        """Note a refusal that is recorded individually."""
        self.recorded += 1
        self.last.append(event)

    @property
    def over_limit(self) -> bool:
        """Whether further refusals are only counted."""
        return self.recorded >= RECORDED

    def count(self, event: AgentEvent) -> None:
        """Count a refusal that is not recorded individually."""
        assert isinstance(event, SignalRejected | DecisionReceived)
        self.counted += 1
        self._bytes += event.sent_bytes
        self._digest = chain(self._digest, canonical(event_json(event)))

    def take(self) -> RefusalsCounted:
        """Return the event that records the count, and reset the count."""
        event = RefusalsCounted(count=self.counted, sent_bytes=self._bytes, refusals_digest=self._digest)
        self.counted, self._bytes, self._digest = 0, 0, GENESIS
        return event
