"""The table of interventions: how people, programs and sub-agents change a run from outside. Pure functions.

An intervention reaches a run as a signal or as an update of its name, with one JSON payload. `INTERVENTIONS` has a row
for each name. The workflow's handlers (`workflows/run_interface.py`), the feature levels below and the signature that a
client adds (`holdfast.client.interventions`) derive from it. To add an intervention, write its reaction and its row
here, then its route in `holdfast.gateway.routes.acting`, its client method and its command.

1. Every intervention is recorded, even an invalid one: `holdfast.core.run.rules.refusals` limits how much of it.
2. A signal and an update of one name lead to the same events. An update also has an answer, and its validator rejects
   an invalid one before it is in history.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadConverter

from holdfast.core.authority.interventions import (
    Compaction,
    Extension,
    KeyRevocation,
    Message,
    Move,
    Pause,
    PolicyAdoption,
    Reclassification,
    Refinement,
    Resume,
    Retry,
    read_message,
    read_once,
    read_refinement,
)
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
from holdfast.core.base.models import is_unread
from holdfast.core.log.events import SignalRejected
from holdfast.core.run.fold.evolve import evolve
from holdfast.core.run.inputs.adopt_policy import on_adoption
from holdfast.core.run.inputs.compact import on_compact, refuse_summary
from holdfast.core.run.inputs.decisions import on_decision, on_due, refuse_feedback
from holdfast.core.run.inputs.delegations import on_delegation, on_key_revocation, on_revocation
from holdfast.core.run.inputs.extend import on_extension
from holdfast.core.run.inputs.messages import on_message
from holdfast.core.run.inputs.move import on_move
from holdfast.core.run.inputs.pause import on_pause, on_resume, on_retry
from holdfast.core.run.inputs.reclassify import on_reclassification
from holdfast.core.run.inputs.refine import on_refinement
from holdfast.core.run.rules.authority import Reaction, Rejection
from holdfast.core.run.rules.constraints import on_lift
from holdfast.core.run.rules.refusals import EXPLANATION_BYTES, bound_refusals, is_refused, shorten
from holdfast.core.run.state.features import (
    BUDGETS,
    CONSTRAINTS,
    DORMANCY,
    KEYS_REVOKED,
    MOVES,
    POLICY_CHANGES,
    REFINE_TASK,
    SIGNED_STEERING,
    SUBAGENTS,
    UNREAD_CLAIMS,
)
from holdfast.core.run.state.state import RunState
from holdfast.core.run.waits.dormancy import on_lifted_while_asleep, on_wake

InputT = TypeVar("InputT")
StatementT = TypeVar("StatementT", bound=Signed)
InputT_contra = TypeVar("InputT_contra", contravariant=True)


class React(Protocol[InputT_contra]):
    """Return the run's reaction to an intervention, or why the run rejects it."""

    def __call__(self, state: RunState, intervention: InputT_contra, /, *, at: datetime) -> Reaction | Rejection: ...


@dataclass(frozen=True)
class Intervention(Generic[InputT]):
    """A row of the table."""

    description: str | None = None
    """What it does, and its payload, for the Web UI; None for one that only sub-agents send."""
    _: KW_ONLY
    react: React[InputT]
    """Returns the run's reaction to the value that `read` returns."""
    read: Callable[[Any], InputT | tuple[Any, str] | str] | None = None
    """Parses the payload: a value, an outcome and an explanation, or an error message. None to pass the payload raw."""
    statement: type[Signed] | None = None
    """The statement that a sender may sign; None if signatures are ignored."""
    signal: int | None = None
    """The first feature level with the signal of this name; None for no signal.

    Signals of level 0 have a handler each. Later ones use the handler of all other names, as in older releases, which
    recorded them as unknown: with a handler for each, the SDK would drop payloads that it cannot decode.
    """
    update: int | None = None
    """The first feature level with the update of this name; None for no update."""


def _decision(description: str, kind: DecisionKind | None = None) -> Intervention[Decision]:
    """Return the row of a signal with a decision of this kind; with None, its payload names the kind."""
    read = partial(read_decision, decision=kind)
    return Intervention(description, react=_on_decision, read=read, statement=Decision, signal=0)


def _statement(
    description: str, kind: type[StatementT], react: React[StatementT], *, since: int
) -> Intervention[StatementT]:
    """Return the row of an approver's statement other than a decision."""
    read = partial(read_signed, kind=kind)
    return Intervention(description, react=react, read=read, statement=kind, signal=since, update=since)


def _on_decision(state: RunState, decision: Decision, *, at: datetime) -> Reaction:
    received, consequences = on_decision(state, decision, at=at)
    why = shorten(received.explanation, EXPLANATION_BYTES) if is_refused(received) else received.explanation
    return Reaction([received, *consequences], received.outcome, why)


def _on_lift(state: RunState, lift: Lift, *, at: datetime) -> Reaction | Rejection:
    """Lift a constraint, and wake the calls that wait for that."""
    lifted = on_lift(state, lift, at=at)
    if isinstance(lifted, Rejection):
        return lifted
    return lifted._replace(events=[*lifted.events, *on_lifted_while_asleep(state, lift.constraint, at=at)])


def _on_unknown_subagent(state: RunState, payload: Any, *, at: datetime) -> Rejection:
    """Reject the report of a sub-agent that is not open. `holdfast.core.run.machine.machine` handles reports of open
    ones.
    """
    return Rejection("not_waiting", "it names no sub-agent of this run that is open")


INTERVENTIONS: dict[str, Intervention[Any]] = {
    # Decisions on requests: one update, and a signal for each answer.
    "decide": Intervention(
        "Decide a request: approve, deny, respond, happened, absent, undo or abandon.",
        react=_on_decision,
        read=read_decision,
        statement=Decision,
        update=0,
    ),
    "approve": _decision("Let a call run. The run's current details have the JSON.", "approve"),
    "deny": _decision("Refuse a call; the agent reads the reason. The run's current details have the JSON.", "deny"),
    "respond": _decision("Answer the agent in a call's place. The run's current details have the JSON.", "respond"),
    "reconcile": _decision(
        "Say what became of a call with an unknown outcome. The run's current details have the JSON."
    ),
    # Approvers change authority and constraints.
    "delegate_authority": _statement(
        'Delegate your approval authority: {"by", "to", "seconds"}.', AuthorityDelegation, on_delegation, since=0
    ),
    "revoke": _statement(
        'Revoke a remembered rule or a delegation: {"by", "remembered"} or {"by", "delegated_to"}.',
        Revocation,
        on_revocation,
        since=0,
    ),
    "revoke_key": _statement(
        'Revoke the key of an approver: {"by", "key", "reason"}.', KeyRevocation, on_key_revocation, since=KEYS_REVOKED
    ),
    "lift": _statement('Remove a constraint: {"by", "constraint", "reason"}.', Lift, _on_lift, since=CONSTRAINTS),
    # People steer the run. The reaction parses the payload, and only if it is signed.
    "pause": Intervention('Pause the run: {"by", "reason"}.', react=on_pause, statement=Pause, signal=1, update=1),
    "resume": Intervention('Resume a paused run: {"by"}.', react=on_resume, statement=Resume, signal=1, update=1),
    "retry": Intervention(
        'Continue a blocked run, once its cause is fixed: {"by"}.',
        react=on_retry,
        statement=Retry,
        signal=0,
        update=SIGNED_STEERING,
    ),
    "move": Intervention(
        "Move the run to another place. The command `holdfast move` sends this.",
        react=on_move,
        statement=Move,
        signal=MOVES,
        update=MOVES,
    ),
    "compact": Intervention(
        'Compact the context: {"by"}, and {"summary"} for a summary of your own.',
        react=on_compact,
        statement=Compaction,
        signal=1,
        update=1,
    ),
    # Text for the LLM; some of it interrupts the LLM call.
    "say": Intervention(
        'Send the agent a message: {"message", "by"}.',
        react=on_message,
        read=read_message,
        statement=Message,
        signal=0,
        update=0,
    ),
    "refine": Intervention(
        'Refine the task: {"kind": "narrow", "rescope" or "correct", "text", "by"}.',
        react=on_refinement,
        read=read_refinement,
        statement=Refinement,
        signal=REFINE_TASK,
        update=REFINE_TASK,
    ),
    "reclassify": Intervention(
        'Reclassify the run: {"by", "reason"}, and {"agent"}, {"trust"} or {"budget"}.',
        react=on_reclassification,
        read=partial(
            read_once, kind=Reclassification, name="reclassification", example='{"agent": "b", "by": "alice"}'
        ),
        statement=Reclassification,
        signal=2,
        update=2,
    ),
    "adopt_policy": Intervention(
        'Have the run adopt the policy of a worker: {"policy", "by", "reason"}.',
        react=on_adoption,
        read=partial(
            read_once, kind=PolicyAdoption, name="adoption", example='{"policy": "<64 hex digits>", "by": "alice"}'
        ),
        statement=PolicyAdoption,
        signal=POLICY_CHANGES,
        update=POLICY_CHANGES,
    ),
    "extend": Intervention(
        'Extend the budget: {"by"}, and {"usd"}, {"tokens"} or another limit with what is added.',
        react=on_extension,
        read=partial(read_once, kind=Extension, name="extension", example='{"usd": "1", "by": "alice"}'),
        statement=Extension,
        signal=BUDGETS,
        update=BUDGETS,
    ),
    # Events, from anybody.
    "wake": Intervention(
        'Wake a dormant run: {"by", "reason"}; or send it an event: {"event", "id", "data", "by"}.',
        react=on_wake,
        signal=DORMANCY,
        update=DORMANCY,
    ),
    "subagent_ended": Intervention(react=_on_unknown_subagent, signal=SUBAGENTS),
}
"""Name of the signal and update → the intervention. The names and the formats of payloads never change."""

SIGNALS: dict[str, int] = {name: row.signal for name, row in INTERVENTIONS.items() if row.signal is not None}
"""The known signals, each with its feature level. A signal of any other name is recorded, too."""

UPDATES: dict[str, int] = {name: row.update for name, row in INTERVENTIONS.items() if row.update is not None}
"""The updates, each with its feature level, below which its validator rejects it."""


TAKES: dict[type[Signed], str] = {
    row.statement: name for name, row in INTERVENTIONS.items() if name in UPDATES and row.statement
}
"""The statement → the update that takes it."""


def in_level(table: Mapping[str, int], name: str, state: RunState) -> bool:
    """Return whether a run at that state's feature level has the signal or update of that name."""
    return name in table and table[name] <= state.features


def on_signal(state: RunState, name: str, payload: Any, *, at: datetime) -> Reaction:
    """Return the reaction to a signal of any name and payload."""
    if is_unread(payload) or in_level(SIGNALS, name, state):
        return react(state, name, payload, at=at)
    return _refused(name, Rejection("unknown_signal", "no such signal"), payload)


def react(state: RunState, name: str, payload: Any, *, at: datetime) -> Reaction:
    """Return the reaction to an update or a signal that the run has.

    Args:
        state: The state before.
        name: One of `INTERVENTIONS`; any name if the payload cannot be read.
        payload: The payload, unvalidated.
        at: Now.
    """
    if is_unread(payload):
        return _refused(name, Rejection("malformed", str(payload)), payload)
    row = INTERVENTIONS[name]
    value = row.read(payload) if row.read else payload
    if row.read and isinstance(value, str):
        value = Rejection("malformed", value[:2_000])
    elif row.read and isinstance(value, tuple):
        value = Rejection(*value)
    reaction = value if isinstance(value, Rejection) else row.react(state, value, at=at)
    if isinstance(reaction, Rejection):
        return _refused(name, reaction, payload)
    return reaction._replace(events=bound_refusals(reaction.events, payload))


def refuse_update(state: RunState, name: str, payload: Any, *, at: datetime) -> dict[str, str] | None:
    """Return the answer to an update that the run would reject at that time; None if it would accept it."""
    for event in on_due(state, at=at):  # recorded before the update
        state = evolve(state, event.model_copy(update={"at": at}))
    refuses = {"decide": refuse_feedback, "compact": refuse_summary}
    if name in refuses and (older := refuses[name](state, payload)):
        return Reaction([], older.outcome, older.explanation).answer
    reaction = react(state, name, payload, at=at)
    return reaction.answer if all(map(is_refused, reaction.events)) else None


def _refused(name: str, refusal: Rejection, payload: Any) -> Reaction:
    rejected = SignalRejected(signal=name, explanation=refusal.explanation, outcome=refusal.outcome)
    return Reaction(bound_refusals([rejected], payload), refusal.outcome, refusal.explanation)


# Payloads of signals, as the SDK passes them.


def leaves_no_trace(state: RunState, payload: Any) -> bool:
    """Return whether to drop a signal, as the SDK did in 0.1.0 if it could not decode the payload."""
    return is_unread(payload) and state.features < UNREAD_CLAIMS


def raw_texts(payloads: Iterable[Payload]) -> list[str]:
    """Return the payloads of a signal of an unknown name as text; only a digest of them is kept."""
    return [payload.data.decode("utf-8", "replace") for payload in payloads]


def read_payload(payloads: Sequence[Payload], by: PayloadConverter) -> Any:
    """Return the decoded first payload of a signal of a later level; `Unread` or all payloads as text if that fails."""
    try:
        return by.from_payloads(payloads[:1], [Any])[0] if payloads else None
    except Exception:  # payloads are untrusted, and each converter raises its own exceptions
        return raw_texts(payloads)
