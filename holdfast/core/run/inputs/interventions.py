"""The table of interventions: how people, programs and sub-agents change a run from outside. Pure functions.

An intervention reaches a run as a signal or as an update of its name, with one JSON payload. `INTERVENTIONS` has a row
for each name. From it follow the handlers of the workflow (`workflows/run_interface.py`), the feature levels below, and
the signature that a client adds (`holdfast.client.interventions`). To add an intervention, write its reaction
and its row here; then its route in `holdfast.gateway.routes.acting`, its method and its command.

1. Every intervention is recorded, even a meaningless one: `holdfast.core.run.rules.refusals` bounds what is kept of it.
2. A signal and an update of one name lead to the same events. The update is answered, and its validator refuses what
   can be refused before it is in history.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadConverter

from holdfast.core.authority.extensions import Extension, read_extension
from holdfast.core.authority.follow_ups import Message, read_message
from holdfast.core.authority.key_revocations import KeyRevocation
from holdfast.core.authority.refinements import Refinement, read_refinement
from holdfast.core.authority.statements import (
    AuthorityDelegation,
    Decision,
    DecisionKind,
    Lift,
    Revocation,
    Signed,
    read_decision,
    read_signed,
)
from holdfast.core.authority.steering import Move, Pause, Resume, Retry
from holdfast.core.base.unread import is_unread
from holdfast.core.log.events import SignalRejected
from holdfast.core.run.fold.evolve import evolve
from holdfast.core.run.inputs.decisions import on_decision, on_due
from holdfast.core.run.inputs.delegations import on_delegation, on_key_revocation, on_revocation
from holdfast.core.run.inputs.extend import on_extension
from holdfast.core.run.inputs.messages import on_message
from holdfast.core.run.inputs.move import on_move
from holdfast.core.run.inputs.pause import on_pause, on_resume, on_retry
from holdfast.core.run.inputs.refine import on_refinement
from holdfast.core.run.rules.authority import Reaction, Refusal
from holdfast.core.run.rules.compaction import on_compact
from holdfast.core.run.rules.constraints import on_lift
from holdfast.core.run.rules.refusals import EXPLANATION_BYTES, bound_refusals, is_refused, shorten
from holdfast.core.run.state.features import (
    BUDGETS,
    COMPACT_ON_REQUEST,
    CONSTRAINTS,
    DORMANCY,
    KEYS_REVOKED,
    MOVES,
    PAUSE_BY_PERSON,
    REFINE_TASK,
    SIGNED_STEERING,
    SUBAGENTS,
    UNREAD_CLAIMS,
)
from holdfast.core.run.state.state import RunState
from holdfast.core.run.waits.dormancy import on_wake

GivenT = TypeVar("GivenT")
StatementT = TypeVar("StatementT", bound=Signed)
GivenT_contra = TypeVar("GivenT_contra", contravariant=True)


class React(Protocol[GivenT_contra]):
    """How a run reacts to an intervention, or why it refuses it."""

    def __call__(self, state: RunState, given: GivenT_contra, /, *, at: datetime) -> Reaction | Refusal: ...


@dataclass(frozen=True, kw_only=True)
class Intervention(Generic[GivenT]):
    """A row of the table."""

    react: React[GivenT]
    """How the run reacts. It gets the payload as `read` reads it."""
    read: Callable[[Any], GivenT | tuple[Any, str] | str] | None = None
    """Reads the payload, or says what is wrong with it; None if the reaction gets it as it was sent."""
    statement: type[Signed] | None = None
    """The statement that a sender may sign; None if a signature would not count."""
    signal: int | None = None
    """The feature level from which on a run has the signal of this name; None for no signal.

    Signals of level 0 have a handler each. Later ones come through the handler of all other names, as they did in older
    releases, which recorded them as unknown: a handler of their own would drop what the SDK cannot decode.
    """
    update: int | None = None
    """The feature level from which on a run has the update of this name; None for no update."""


def _decision(kind: DecisionKind | None = None) -> Intervention[Decision]:
    """The row of a signal that brings a decision of this kind; with None, of the kind that its payload names."""
    return Intervention(react=_on_decision, read=partial(read_decision, decision=kind), statement=Decision, signal=0)


def _statement(kind: type[StatementT], react: React[StatementT], *, since: int) -> Intervention[StatementT]:
    """The row of an approver's statement that is no decision."""
    return Intervention(react=react, read=partial(read_signed, kind=kind), statement=kind, signal=since, update=since)


def _on_decision(state: RunState, decision: Decision, *, at: datetime) -> Reaction:
    received, consequences = on_decision(state, decision, at=at)
    why = shorten(received.explanation, EXPLANATION_BYTES) if is_refused(received) else received.explanation
    return Reaction([received, *consequences], received.outcome, why)


def _on_unknown_subagent(state: RunState, payload: Any, *, at: datetime) -> Refusal:
    """Refuse the report of a sub-agent that is not open. `holdfast.core.run.machine.machine` takes in those of open
    ones.
    """
    return Refusal("not_waiting", "it names no sub-agent of this run that is open")


INTERVENTIONS: dict[str, Intervention[Any]] = {
    # Decisions on requests: one update, and a signal for each answer.
    "decide": Intervention(react=_on_decision, read=read_decision, statement=Decision, update=0),
    "approve": _decision("approve"),
    "deny": _decision("deny"),
    "respond": _decision("respond"),
    "reconcile": _decision(),
    # Approvers change authority and constraints.
    "delegate_authority": _statement(AuthorityDelegation, on_delegation, since=0),
    "revoke": _statement(Revocation, on_revocation, since=0),
    "revoke_key": _statement(KeyRevocation, on_key_revocation, since=KEYS_REVOKED),
    "lift": _statement(Lift, on_lift, since=CONSTRAINTS),
    # People steer the run. These are read only if they are signed.
    "pause": Intervention(react=on_pause, statement=Pause, signal=PAUSE_BY_PERSON, update=PAUSE_BY_PERSON),
    "resume": Intervention(react=on_resume, statement=Resume, signal=PAUSE_BY_PERSON, update=PAUSE_BY_PERSON),
    "retry": Intervention(react=on_retry, statement=Retry, signal=0, update=SIGNED_STEERING),
    "move": Intervention(react=on_move, statement=Move, signal=MOVES, update=MOVES),
    "compact": Intervention(react=on_compact, signal=COMPACT_ON_REQUEST, update=COMPACT_ON_REQUEST),
    # The LLM reads these, and some of them interrupt its call.
    "say": Intervention(react=on_message, read=read_message, statement=Message, signal=0, update=0),
    "refine": Intervention(
        react=on_refinement, read=read_refinement, statement=Refinement, signal=REFINE_TASK, update=REFINE_TASK
    ),
    "extend": Intervention(
        react=on_extension, read=read_extension, statement=Extension, signal=BUDGETS, update=BUDGETS
    ),
    # Events, from anybody.
    "wake": Intervention(react=on_wake, signal=DORMANCY, update=DORMANCY),
    "subagent_ended": Intervention(react=_on_unknown_subagent, signal=SUBAGENTS),
}
"""The interventions, by the name of their signal and update. The names and the formats of payloads never change."""

SIGNALS: dict[str, int] = {name: row.signal for name, row in INTERVENTIONS.items() if row.signal is not None}
"""The signals that have a meaning, each with its feature level. A signal of any other name is recorded, too."""

UPDATES: dict[str, int] = {name: row.update for name, row in INTERVENTIONS.items() if row.update is not None}
"""The updates, each with its feature level, below which its validator refuses it."""


def in_level(table: Mapping[str, int], name: str, state: RunState) -> bool:
    """Whether a run of that state has the signal or update of that name."""
    return name in table and table[name] <= state.features


def on_signal(state: RunState, name: str, payload: Any, *, at: datetime) -> Reaction:
    """Return the reaction to a signal of any name and payload."""
    if is_unread(payload) or in_level(SIGNALS, name, state):
        return react(state, name, payload, at=at)
    return _refused(name, Refusal("unknown_signal", "no such signal"), payload)


def react(state: RunState, name: str, payload: Any, *, at: datetime) -> Reaction:
    """Return the reaction to an update or a signal that the run has.

    Args:
        state: The state before.
        name: One of `INTERVENTIONS`; any name if the payload cannot be read.
        payload: The payload, unvalidated.
        at: Now.
    """
    if is_unread(payload):
        return _refused(name, Refusal("malformed", str(payload)), payload)
    row = INTERVENTIONS[name]
    given = row.read(payload) if row.read else payload
    if row.read and isinstance(given, str):
        given = Refusal("malformed", given[:2_000])
    elif row.read and isinstance(given, tuple):
        given = Refusal(*given)
    reaction = given if isinstance(given, Refusal) else row.react(state, given, at=at)
    if isinstance(reaction, Refusal):
        return _refused(name, reaction, payload)
    return reaction._replace(events=bound_refusals(reaction.events, payload))


def refuse_update(state: RunState, name: str, payload: Any, *, at: datetime) -> dict[str, str] | None:
    """Return the answer to an update that would be refused at that time; None for one that would not."""
    for event in on_due(state, at=at):  # recorded before the update
        state = evolve(state, event.model_copy(update={"at": at}))
    reaction = react(state, name, payload, at=at)
    return reaction.answer if all(map(is_refused, reaction.events)) else None


def _refused(name: str, refusal: Refusal, payload: Any) -> Reaction:
    rejected = SignalRejected(signal=name, explanation=refusal.explanation, outcome=refusal.outcome)
    return Reaction(bound_refusals([rejected], payload), refusal.outcome, refusal.explanation)


# Payloads of signals, as the SDK hands them over.


def leaves_no_trace(state: RunState, payload: Any) -> bool:
    """Whether a signal that arrives now is dropped, as the SDK dropped one that did not decode in 0.1.0."""
    return is_unread(payload) and state.features < UNREAD_CLAIMS


def raw_texts(payloads: Iterable[Payload]) -> list[str]:
    """Return the payload of a signal of an unknown name: read as text, of which only a digest is kept."""
    return [payload.data.decode("utf-8", "replace") for payload in payloads]


def read_payload(payloads: Sequence[Payload], by: PayloadConverter) -> Any:
    """Return the payload of a signal of a later level: its first one, decoded; `Unread` if it does not decode."""
    try:
        return by.from_payloads(payloads[:1], [Any])[0] if payloads else None
    except Exception:  # anybody can send anything, and each converter raises its own exceptions
        return raw_texts(payloads)
