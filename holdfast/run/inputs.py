"""The events that follow from signals and updates: all are recorded, even meaningless ones. Pure functions."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, cast

from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadConverter

from holdfast.authority.approvals import MandateOutcome
from holdfast.authority.follow_ups import Message, MessageOutcome, read_message
from holdfast.authority.key_revocations import KeyRevocation
from holdfast.authority.statements import (
    AuthorityDelegation,
    DecisionKind,
    Lift,
    Revocation,
    read_decision,
    read_signed,
)
from holdfast.base.unread import is_unread
from holdfast.llm.content import size_of
from holdfast.log.events import CompactionRequested, RunUnblocked, SignalRejected, UserMessageReceived
from holdfast.run.arrivals import verify_sender, when_shown
from holdfast.run.budgeting import BUDGET_SPENT
from holdfast.run.constraints import on_lift
from holdfast.run.decisions import Events, on_decision
from holdfast.run.dormancy import on_arrival_while_asleep, on_wake
from holdfast.run.features import (
    BUDGETS,
    COMPACT_ON_REQUEST,
    CONSTRAINTS,
    DORMANCY,
    KEYS_REVOKED,
    MOVES,
    PAUSE_BY_PERSON,
    REFINE_TASK,
    SUBAGENTS,
    UNREAD_CLAIMS,
)
from holdfast.run.key_revocations import on_key_revocation
from holdfast.run.moving import on_move
from holdfast.run.pausing import on_pause, on_resume
from holdfast.run.policies import policies_of
from holdfast.run.refusals import bounded
from holdfast.run.rights import (
    Speaker,
    claimed,
    on_delegation,
    on_revocation,
    refuse_reuse,
)
from holdfast.run.state import RunState
from holdfast.run.steering import Steerer, SteeringOutcome, steerer

CompactOutcome = Literal["accepted", "duplicate", "nothing_to_compact", "too_late"]
"""The outcome of a request for a compaction."""

RetryOutcome = Literal["accepted", "not_blocked", "budget_spent"] | SteeringOutcome
"""The outcome of `retry`."""

SIGNALS: dict[str, int] = dict.fromkeys(
    ("approve", "deny", "respond", "reconcile", "delegate_authority", "revoke", "retry", "say"), 0
) | {
    "compact": COMPACT_ON_REQUEST,
    "lift": CONSTRAINTS,
    "pause": PAUSE_BY_PERSON,
    "resume": PAUSE_BY_PERSON,
    "refine": REFINE_TASK,
    "wake": DORMANCY,
    "subagent_ended": SUBAGENTS,
    "extend": BUDGETS,
    "move": MOVES,
    "revoke_key": KEYS_REVOKED,
}
"""The signals that have a meaning, each with the feature level from which on (`holdfast.run.features`). A signal of any
other name is recorded, too.

Those of level 0 have a handler each in `workflows/run_interface.py`. Later ones come through the handler of all other
names, as they did in older releases, which recorded them as unknown: a handler of their own would drop what the SDK
cannot decode.
"""

MESSAGES = ("say", "refine", "extend")
"""The signals that the LLM may read. Each is taken in as the update of its name, because it may interrupt an LLM
call."""

MANDATES: Mapping[str, type[AuthorityDelegation] | type[Revocation] | type[Lift] | type[KeyRevocation]] = {
    "delegate_authority": AuthorityDelegation,
    "revoke": Revocation,
    "lift": Lift,
    "revoke_key": KeyRevocation,
}
"""The statements of approvers that are no decisions, by the name of their signal and update."""


def in_level(table: Mapping[str, int], name: str, state: RunState) -> bool:
    """Whether a run of that state has the signal or update of that name."""
    return name in table and table[name] <= state.features


def leaves_no_trace(state: RunState, payload: Any) -> bool:
    """Whether a signal that arrives now is dropped, as the SDK dropped one that did not decode in 0.1.0."""
    return is_unread(payload) and state.features < UNREAD_CLAIMS


def raw_texts(payloads: Iterable[Payload]) -> list[str]:
    """Return the payload of a signal of an unknown name: read as text, of which only a digest is kept."""
    return [payload.data.decode("utf-8", "replace") for payload in payloads]


def read_payload(payloads: Sequence[Payload], by: PayloadConverter) -> Any:
    """Return the payload of a signal of a later level: its first one, decoded; `Unread` where it does not decode."""
    try:
        return by.from_payloads(payloads[:1], [Any])[0] if payloads else None
    except Exception:  # anybody can send anything, and each converter raises its own exceptions
        return raw_texts(payloads)


def on_signal(state: RunState, signal: str, payload: Any, *, at: datetime) -> Events:
    """Return the events that follow from a signal of any name and payload, except `MESSAGES`."""
    if is_unread(payload):
        return bounded([SignalRejected(signal=signal, explanation=str(payload), outcome="malformed")], payload)
    if in_level(SIGNALS, signal, state):
        match signal:
            case "approve" | "deny" | "respond":
                return on_payload(state, signal, payload, decision=signal, at=at)
            case "reconcile":
                return on_payload(state, signal, payload, at=at)
            case "delegate_authority" | "revoke" | "lift" | "revoke_key":
                return on_mandate(state, signal, payload, at=at)[2]
            case "retry":
                return on_retry(state, payload)[2]
            case "compact":
                return on_compact(state, payload)[2]
            case "pause":
                return on_pause(state, payload, at=at)[2]
            case "resume":
                return on_resume(state, payload)[2]
            case "move":
                return on_move(state, payload)[2]
            case "wake":
                return on_wake(state, payload, at=at)[2]
            case "subagent_ended":  # only one that is about no open sub-agent comes here
                why = "it names no sub-agent of this run that is open"
                unknown = SignalRejected(signal=signal, explanation=why, outcome="not_waiting")
                return bounded([unknown], payload)
    refused = SignalRejected(signal=signal, explanation="no such signal", outcome="unknown_signal")
    return bounded([refused], payload)


def on_payload(
    state: RunState, name: str, payload: Any, *, decision: DecisionKind | None = None, at: datetime
) -> Events:
    """Return the events that follow from a decision as it was sent: its outcome, then what follows from it.

    Args:
        state: The state before.
        name: The signal or update that brought it.
        payload: What was sent.
        decision: The decision that the name stands for; None where the payload has it.
        at: Now.
    """
    given = read_decision(payload, decision=decision)
    if isinstance(given, str):
        return bounded([SignalRejected(signal=name, explanation=given, outcome="malformed")], payload)
    received, consequences = on_decision(state, given, at=at)
    return bounded([received, *consequences], payload)


def on_mandate(state: RunState, name: str, payload: Any, *, at: datetime) -> tuple[MandateOutcome, str, Events]:
    """Return the outcome, explanation and events of what `MANDATES` names."""
    given = read_signed(payload, MANDATES[name])
    if isinstance(given, str):
        rejected = SignalRejected(signal=name, explanation=given, outcome="malformed")
        return "malformed", given[:2_000], bounded([rejected], payload)
    if isinstance(given, AuthorityDelegation):
        refusal, events = on_delegation(state, given, at=at)
    elif isinstance(given, Lift):
        refusal, events = on_lift(state, given, at=at)
    elif isinstance(given, KeyRevocation):
        refusal, events = on_key_revocation(state, given, at=at)
    else:
        refusal, events = on_revocation(state, given)
    events = bounded(events, payload)
    return (refusal.outcome, refusal.explanation, events) if refusal else ("accepted", "", events)


def on_compact(state: RunState, payload: Any) -> tuple[CompactOutcome, str, Events]:
    """Return the outcome of the request for a compaction, why, and the events that follow."""
    if state.outcome:
        refused: tuple[CompactOutcome, str] = "too_late", f"the run is {state.outcome}"
    elif state.context.requested:
        refused = "duplicate", "somebody has asked for a compaction already, and it has not been made yet"
    elif state.spec is None or state.steps.count <= state.context.compacted_at:
        refused = "nothing_to_compact", "the LLM has said nothing since the run began or its context was compacted"
    else:
        when = "now"
        if state.pause:
            when = "when the run resumes, at the end of the step"
        elif state.blocked:
            when = "once the run is not blocked any more (`retry`)"
        elif not state.awaits_message:
            when = "at the end of the step"
        by, reason = claimed(payload)
        return "accepted", f"the context is compacted {when}", [CompactionRequested(by=by, reason=reason)]
    outcome, why = refused
    return outcome, why, bounded([SignalRejected(signal="compact", explanation=why, outcome=outcome)], payload)


def on_retry(state: RunState, payload: Any) -> tuple[RetryOutcome, str, Events]:
    """Return the outcome of `retry`, why, and the events that follow."""
    who = steerer(state, "retry", payload)
    if state.blocked is None:
        refused: tuple[RetryOutcome, str] = "not_blocked", f"the run is {state.status}, not blocked"
    elif state.blocked.cause == BUDGET_SPENT and state.account.limits:
        refused = "budget_spent", "the budget of the run has ended: extend it (`extend`)"
    elif not isinstance(who, Steerer):
        refused = who
    else:
        then = "the run is not blocked any more, and stays paused" if state.pause else "the run resumes"
        event = RunUnblocked.model_validate({"by": who.by, "reason": who.reason, **who.proven})
        return "accepted", then, [event]
    outcome, why = refused
    return outcome, why, bounded([SignalRejected(signal="retry", explanation=why, outcome=outcome)], payload)


def on_message(state: RunState, payload: Any, *, name: str, at: datetime) -> tuple[MessageOutcome, str, Events]:
    """Return the outcome of a follow-up message, why, and the events that follow.

    `name` is the signal or update that brought it.
    """
    given = read_message(payload)
    judged = given if isinstance(given, tuple) else _judge_message(state, given, at=at)
    if isinstance(judged, UserMessageReceived):
        return *when_shown(state, judged.when_busy), [judged, *on_arrival_while_asleep(state, "a message", at=at)]
    outcome, why = judged
    return outcome, why, bounded([SignalRejected(signal=name, explanation=why, outcome=outcome)], payload)


def _judge_message(
    state: RunState, given: Message, *, at: datetime
) -> UserMessageReceived | tuple[MessageOutcome, str]:
    """The event that accepts a message, or the outcome and the reason why it is refused."""
    if state.outcome:
        return "too_late", f"the run is {state.outcome}"
    speaker = _speaker(state, given, at=at)
    if not isinstance(speaker, Speaker):
        return speaker
    idle = state.idle.awaiting or state.status == "dormant"
    if (state.pause or not idle) and given.when_busy == "reject":
        return "busy", f"the run is {state.status}, and the sender asked for the message not to wait"
    if full := state.inbox.full(size_of(given.message)):
        return "too_many", full
    if not speaker.proof:  # without a proof, what would count once and expire counts for nothing
        return UserMessageReceived(content=given.message, by=given.by, when_busy=given.when_busy)
    return UserMessageReceived(
        content=given.message,
        by=given.by,
        when_busy=given.when_busy,
        id=given.id,
        until=given.until,
        proof=speaker.proof,
        key=speaker.key,
        signature=given.signature,
    )


def _speaker(state: RunState, message: Message, *, at: datetime) -> Speaker | tuple[MessageOutcome, str]:
    """Who sent the message, or why it is refused."""
    required = any(policy.proves_requesters for policy in policies_of(state))
    if required and not message.signature:
        return "unsigned", "requesters may not approve here, so requesters have to sign: --key, or a gateway"
    speaker = verify_sender(state, message, required=required, at=at)
    if isinstance(speaker, Speaker) and speaker.proof:
        speaker = refuse_reuse(state, message, at=at) or speaker
    return speaker if isinstance(speaker, Speaker) else (cast(MessageOutcome, speaker.outcome), speaker.explanation)
