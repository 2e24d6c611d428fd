"""What signals and updates lead to: whatever arrives is recorded, also what means nothing. Pure functions."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from temporalio.api.common.v1 import Payload

from holdfast.authority.approvals import DecisionOutcome
from holdfast.authority.follow_ups import (
    INBOX,
    INBOX_BYTES,
    LONGEST_MESSAGE,
    Message,
    MessageOutcome,
    WhenBusy,
    read_message,
)
from holdfast.authority.statements import AuthorityDelegation, DecisionKind, Revocation, read_decision, read_signed
from holdfast.llm.content import size_of
from holdfast.log.events import RunUnblocked, SignalRejected, UserMessageReceived
from holdfast.run.decide import Events
from holdfast.run.decisions import on_decision
from holdfast.run.refusals import bounded
from holdfast.run.rights import Known, Refused, known, on_delegation, on_revocation, once, policy_of
from holdfast.run.state import RunState

SIGNALS = frozenset({"approve", "deny", "respond", "reconcile", "delegate_authority", "revoke", "retry", "say"})
"""The signals that mean something. Any other name is recorded, too."""


def raw_texts(payloads: Iterable[Payload]) -> list[str]:
    """What a signal of an unknown name carries: read as nothing but text, of which only a digest is kept."""
    return [payload.data.decode("utf-8", "replace") for payload in payloads]


def on_signal(state: RunState, signal: str, payload: Any, *, at: datetime) -> Events:
    """The events that a signal of any name and payload leads to, but for `say` (`on_message`)."""
    match signal:
        case "approve" | "deny" | "respond":
            return on_payload(state, signal, payload, decision=signal, at=at)
        case "reconcile":
            return on_payload(state, signal, payload, at=at)
        case "delegate_authority" | "revoke":
            return on_mandate(state, signal, payload, at=at)[2]
        case "retry":
            given = payload if isinstance(payload, dict) else {}
            by, reason = (str(given.get(field) or "")[:2_000] for field in ("by", "reason"))
            return bounded(on_retry(state, by=by or "unknown", reason=reason), payload)
        case _:
            refused = SignalRejected(signal=signal, explanation="no such signal", outcome="unknown_signal")
            return bounded([refused], payload)


def on_payload(
    state: RunState, door: str, payload: Any, *, decision: DecisionKind | None = None, at: datetime
) -> Events:
    """The events that a decision leads to as it was sent: first how it was received, then what follows from it.

    Args:
        state: The state before.
        door: The signal or update that it came by.
        payload: What was sent.
        decision: What the door's name says; None where the payload says it.
        at: Now.
    """
    given = read_decision(payload, decision=decision)
    if isinstance(given, str):
        return bounded([SignalRejected(signal=door, explanation=given, outcome="malformed")], payload)
    received, consequences = on_decision(state, given, at=at)
    return bounded([received, *consequences], payload)


def on_mandate(state: RunState, door: str, payload: Any, *, at: datetime) -> tuple[DecisionOutcome, str, Events]:
    """What becomes of a wish to lend a right (`delegate_authority`) or to take something back (`revoke`)."""
    given = (
        read_signed(payload, AuthorityDelegation) if door == "delegate_authority" else read_signed(payload, Revocation)
    )
    if isinstance(given, str):
        rejected = SignalRejected(signal=door, explanation=given, outcome="malformed")
        return "malformed", given[:2_000], bounded([rejected], payload)
    if isinstance(given, AuthorityDelegation):
        refused, events = on_delegation(state, given, at=at)
    else:
        refused, events = on_revocation(state, given)
    events = bounded(events, payload)
    return (refused.outcome, refused.explanation, events) if refused else ("accepted", "", events)


def on_retry(state: RunState, *, by: str, reason: str) -> Events:
    """The events that the signal `retry` leads to."""
    if state.blocked is None:
        why = f"the run is {state.status}, not blocked"
        return [SignalRejected(signal="retry", explanation=why, outcome="not_blocked")]
    return [RunUnblocked(by=by, reason=reason)]


def on_message(
    state: RunState, payload: Any, *, door: str, at: datetime
) -> tuple[MessageOutcome, str, Events, WhenBusy]:
    """What becomes of a follow-up message: its outcome, why, the events it leads to, and what the sender wished."""
    given = read_message(payload)
    judged = given if isinstance(given, tuple) else _judge_message(state, given, at=at)
    when_busy: WhenBusy = "queue" if isinstance(given, tuple) else given.when_busy
    if isinstance(judged, UserMessageReceived):
        if state.awaiting:
            return "accepted", "the run goes on with it", [judged], when_busy
        if when_busy == "interrupt":
            return "interrupting", "the LLM is asked anew, with the message", [judged], when_busy
        return "queued", "it is taken at the end of the step", [judged], when_busy
    outcome, why = judged
    return outcome, why, bounded([SignalRejected(signal=door, explanation=why, outcome=outcome)], payload), when_busy


def _judge_message(
    state: RunState, given: Message, *, at: datetime
) -> UserMessageReceived | tuple[MessageOutcome, str]:
    """The event that takes a message in, or the outcome and the reason why it is turned away."""
    if state.outcome:
        return "too_late", f"the run is {state.outcome}"
    proven = _speaker(state, given, at=at)
    if not isinstance(proven, Known):
        return proven
    if not state.awaiting and given.when_busy == "reject":
        return "busy", f"the run is {state.status}, and the message was not to wait"
    waiting = len(state.inbox) + state.unanswered
    size = sum(message.size for message in state.inbox) + state.unanswered_bytes
    if waiting and (waiting >= INBOX or size + size_of(given.message) > INBOX_BYTES):
        held = f"{waiting:,} messages with {size:,} bytes wait for the LLM's answer"
        return "too_many", f"{held}; {INBOX:,} with {INBOX_BYTES:,} are the limit: say it when it has answered"
    said = given.model_dump(exclude={"message"} if proven.proof else {"message", "signature", "id", "until"})
    proof = {"proof": proven.proof, "key": proven.key}
    return UserMessageReceived.model_validate({"content": given.message, **said, **proof})


def _speaker(state: RunState, message: Message, *, at: datetime) -> Known | tuple[MessageOutcome, str]:
    """How it is known who says this, or why it is turned away. Where it need not be known, a name is taken on trust."""
    proven, wanted = known(state, message), policy_of(state).proves_requesters
    if not message.signature and wanted:
        return "unsigned", "who asks does not approve here, so who asks has to sign: --key, or a gateway"
    if isinstance(proven, Refused) or not message.signature:
        return ("bad_signature", proven.explanation) if wanted and isinstance(proven, Refused) else Known()
    until = message.until
    if not message.id or until is None:
        return "malformed", "a signed message has an `id` of its own and says `until` when it is good: it counts once"
    if until <= at:
        return "too_late", f"the message was good until {until.isoformat()}"
    if until - at > timedelta(seconds=LONGEST_MESSAGE):
        return "malformed", f"until {until.isoformat()} is too far: {LONGEST_MESSAGE // 86_400} days are the most"
    if refused := once(state, message, at=at):
        return ("duplicate" if refused.outcome == "duplicate" else "too_many"), refused.explanation
    return proven
