"""Refused signals and updates: what the log keeps of them, and how many it records.

1. The log keeps the outcome, the reason, who sent it, and digest and size of what was sent; never the body. Such an
   event has about a kilobyte at the most. Temporal's history has the rest.
2. After `RECORDED` refusals in one Temporal run, further ones are only counted (`Refusals`), so that a flood grows
   neither the log nor the permanent record.
"""

import hashlib
from collections import deque
from collections.abc import Iterable
from typing import Any

from holdfast.core.base.canonical import GENESIS, canonical, chain, exact_json, portable
from holdfast.core.base.unread import is_unread
from holdfast.core.log.event_log import event_json
from holdfast.core.log.events import AgentEvent, DecisionReceived, RefusalsCounted, SignalRejected
from holdfast.errors import NotPortable

RECORDED = 100
"""How many refusals are recorded one by one in each Temporal run."""

SHOWN = 3
"""How many of them the Web UI shows."""

WORDS = 400
"""How many bytes, as JSON, an explanation in a refused event may have."""

SHORT = 80
"""How many bytes, as JSON, any other text that somebody sent may have: who, which request, which digest, why."""

CHANGING = ("accepted", "waiting_for_quorum", "judged_anew")
"""The outcomes of decisions that change something: the log keeps such a decision as it was sent."""


def is_refused(event: AgentEvent) -> bool:
    """Return whether the event records only that something was refused."""
    return isinstance(event, SignalRejected) or (isinstance(event, DecisionReceived) and event.outcome not in CHANGING)


def bounded(events: Iterable[AgentEvent], payload: Any) -> list[AgentEvent]:
    """Return the events that a payload led to; where it was refused, without its body."""
    return [_bounded(event, payload) for event in events]


def bounded_rejection(event: SignalRejected, payload: Any) -> SignalRejected:
    """Return the event of a refused signal or update, with digest and size of what was sent in place of its body."""
    by = payload.get("by") if isinstance(payload, dict) else ""
    sent = encoded(payload)
    return SignalRejected(
        signal=shown(event.signal),
        explanation=shown(event.explanation, WORDS),
        outcome=event.outcome,
        by=shown(by) if isinstance(by, str) else "",
        sent_digest=hashlib.sha256(sent).hexdigest(),
        sent_bytes=len(sent),
    )


def shown(text: str, limit: int = SHORT) -> str:
    """Return as much of a text as has that many bytes as JSON."""
    kept = text[:limit].encode("utf-8", "replace").decode()
    if len(text) <= limit and _size(kept) <= limit:
        return kept
    while _size(kept) > limit - 3:  # the ellipsis has three bytes
        kept = kept[: len(kept) * 9 // 10]
    return f"{kept}…"


def _size(text: str) -> int:
    return len(canonical(text)) - 2


def _bounded(event: AgentEvent, payload: Any) -> AgentEvent:
    if not is_refused(event):
        return event
    if isinstance(event, SignalRejected):
        return event if event.sent_digest else bounded_rejection(event, payload)
    assert isinstance(event, DecisionReceived)
    sent = encoded(payload)
    digest, size = hashlib.sha256(sent).hexdigest(), len(sent)
    return DecisionReceived(
        request=shown(event.request),
        decision=event.decision,
        by=shown(event.by),
        reason=shown(event.reason),
        outcome=event.outcome,
        explanation=shown(event.explanation, WORDS),
        digest_given=shown(event.digest_given),
        right=event.right,
        rule=shown(event.rule),
        proof=event.proof,
        key=event.key,
        sent_digest=digest,
        sent_bytes=size,
    )


def encoded(payload: Any) -> bytes:
    """Return what was sent, as bytes: canonical JSON with integers in full, or the nearest that is JSON."""
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


class Refusals:
    """The refusals of one Temporal run: how many were recorded, and how many only counted. Not part of `RunState`,
    because the state has to follow from the events, and these have none yet.

    Args:
        before: What an earlier Temporal run counted, and could not record.
    """

    def __init__(self, before: RefusalsCounted | None = None) -> None:
        self.recorded = 0
        self.counted = before.count if before else 0
        """How many were only counted, and not yet recorded as a number."""
        self.last: deque[AgentEvent] = deque(maxlen=SHOWN)
        """The last ones that were recorded, for the Web UI."""
        self._bytes = before.sent_bytes if before else 0
        self._digest = before.refusals_digest if before else GENESIS

    def keep(self, event: AgentEvent) -> None:
        """Note a refusal that is recorded one by one."""
        self.recorded += 1
        self.last.append(event)

    @property
    def many(self) -> bool:
        """Whether further refusals are only counted."""
        return self.recorded >= RECORDED

    def count(self, event: AgentEvent) -> None:
        """Count a refusal that is not recorded one by one."""
        assert isinstance(event, SignalRejected | DecisionReceived)
        self.counted += 1
        self._bytes += event.sent_bytes
        self._digest = chain(self._digest, canonical(event_json(event)))

    def take(self) -> RefusalsCounted:
        """Return the event that records what was counted, and count from zero again."""
        event = RefusalsCounted(count=self.counted, sent_bytes=self._bytes, refusals_digest=self._digest)
        self.counted, self._bytes, self._digest = 0, 0, GENESIS
        return event
