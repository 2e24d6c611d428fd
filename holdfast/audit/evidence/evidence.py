"""Compare the ledger of effects and the artifacts with a thread's log."""

import asyncio
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Literal

from pydantic import ValidationError

from holdfast.audit.judge.audit import Effects, StartedEffect
from holdfast.client.reading.record import Evidence, call_store
from holdfast.core.base.canonical import address_of
from holdfast.core.llm.blocks import with_heading
from holdfast.core.mac.outcomes import MACVerdict, OutcomeMACs, Recorded
from holdfast.core.run.contracts.tool_calls import ToolOutcome
from holdfast.core.run.state.features import OUTCOMES_HAVE_MACS
from holdfast.core.stores import ArtifactStore, EffectRow
from holdfast.errors import ArtifactAltered, ArtifactNotFound, RecordUnavailable

NO_MACS = OutcomeMACs()

Where = Literal["record", "history", "ledger", "artifacts"]

ADVICE: Mapping[str, str] = {
    "record": "Trust no event from there on: compare with a backup of the database, and find out who can write to it.",
    "history": "Trust no event from there on, and find out who can write to Temporal's database.",
    "ledger": "Check in the effect's own system whether it happened, and find out who can write to the database.",
    "artifacts": (
        "Restore the content from a backup. Where the workers have HOLDFAST_ARTIFACTS, set it here, too; where their "
        "catalog has a store of its own, name the catalog with --catalog."
    ),
}
"""Advice about a fault, by its location."""


@dataclass(frozen=True)
class Finding:
    """A fault that the verification found."""

    where: str
    """One of `Where`; for a file, a member, or `zip` for the layout."""
    reason: str
    position: int | None = None
    """Position of the event at fault; None if the fault is in no event."""

    @property
    def order(self) -> float:
        """Sort key: the report names the fault with the first event."""
        return float("inf") if self.position is None else self.position


@dataclass(frozen=True)
class Unchecked:
    """Something that could not be checked."""

    what: str
    """`history`, `record`, `beginning`, `end`, `keys`, `policy`, `seals`, `ledger`, `artifacts`, `iterations`,
    `anchors`, `nodes`, `results`, `content`, `original`, `lost`; for a file, also `signature`, `signer`, `bodies`,
    `parent`, `subagents`.
    """
    why: str


async def ledger_rows(evidence: Evidence | None, thread: str, unchecked: list[Unchecked]) -> Sequence[EffectRow] | None:
    """Return the ledger's rows of a thread; None, and an entry in `unchecked`, if they cannot be read."""
    reason = "no database is known here, or it does not answer: set DATABASE_URL as the workers have it"
    if evidence and evidence.effects:
        try:
            return await call_store(evidence.effects(thread))
        except RecordUnavailable as error:
            reason = str(error)
    unchecked.append(Unchecked("ledger", reason))
    return None


async def archived_branches(evidence: Evidence, thread: str) -> Sequence[str]:
    """Return the ids of the archived branches of a thread; none if the database is unavailable."""
    try:
        return await call_store(evidence.asides(thread))
    except RecordUnavailable:
        return []


async def ledger_faults(
    evidence: Evidence,
    thread: str,
    before: Sequence[EffectRow],
    effects: Effects,
    *,
    began: Effects,
    past: Set[str],
    whole: bool,
    macs: OutcomeMACs = NO_MACS,
) -> list[Finding]:
    """Return the disagreements between the ledger and the log.

    Args:
        evidence: The ledger.
        thread: The thread id.
        before: The thread's rows, read before the log.
        effects: The effects that the log starts.
        began: Those, and the effects that archived branches start.
        past: Keys of effects that a reset found in the ledger; they may be missing from all logs.
        whole: Whether the log was read from its beginning, so that a row that no event starts is a fault.
        macs: Verifies the MACs of the outcomes; without a fleet key, it verifies none.
    """
    faults = [
        Finding(
            "ledger", f"effect {row.key} of {row.tool} (epoch {row.epoch}) is in the ledger, but no event starts it"
        )
        for row in before
        if whole and (row.key, row.epoch) not in began and row.key not in past
    ]
    try:
        rows = await call_store(evidence.effects(thread)) if evidence.effects else ()
    except RecordUnavailable:
        return faults
    kept = {(row.key, row.epoch): row for row in rows}
    faults += [
        Finding("ledger", f"effect {row.key} of {row.tool} (epoch {row.epoch}): {_COPIED}")
        for identity, row in kept.items()
        if identity not in effects and _mac_of(row, thread, row.call_digest, macs) == "wrong"
    ]
    for (key, epoch), begun in effects.items():
        row = kept.get((key, epoch))
        if reason := _disagreement(begun, row, _mac_of(row, thread, begun.effect.call_digest, macs)):
            position = begun.finished.position if begun.finished else begun.position
            faults.append(Finding("ledger", f"effect {key} of {begun.tool} (epoch {epoch}): {reason}", position))
    return faults


def _mac_of(row: EffectRow | None, thread: str, call_digest: str, macs: OutcomeMACs) -> MACVerdict:
    """Verify the MAC of a row; a row without an outcome has none."""
    if row is None or row.outcome is None:
        return "unchecked"
    return macs.verify(row.mac, Recorded(thread, row.key, row.epoch, row.tool, call_digest, row.outcome))


def _disagreement(begun: StartedEffect, row: EffectRow | None, mac: MACVerdict) -> str:
    """Return how the ledger contradicts the log about an effect; empty if they agree."""
    if row and row.tool != begun.tool:
        return f"in the ledger it is an effect of {row.tool}"
    current = begun.features >= OUTCOMES_HAVE_MACS  # releases before 0.2.0 made no MACs
    finished = begun.finished
    if finished is None:  # its outcome is unknown, or a person has reported it
        planted = mac in ("wrong", "unknown key") or (mac == "missing" and current)
        return _PLANTED if planted else _other_call(begun, row)
    if row is None:
        return "the log has its result, but the ledger does not have the effect"
    if row.outcome is None:
        return "the log has its result, but in the ledger it has not finished"
    try:
        outcome = ToolOutcome.model_validate_json(row.outcome)
    except ValidationError:
        return "its outcome in the ledger does not decode"
    same = finished.content == (with_heading(begun.note, outcome.content) if begun.note else outcome.content)
    if not same or any(getattr(finished, name) != getattr(outcome, name) for name in _RESULT):
        return f"its result differs: {outcome.status} in the ledger, {finished.status} in the log"
    if mac == "missing" and current:
        return "the MAC of its outcome is missing: a worker of ours made one, and somebody has removed it"
    return _COPIED if mac == "wrong" else _other_call(begun, row)


def _other_call(begun: StartedEffect, row: EffectRow | None) -> str:
    """Return the reason why a row is of another call than the log starts; empty if it is of this one."""
    effect = begun.effect
    own = (effect.number, effect.first_run_id, effect.call, effect.call_digest)
    if row is None or row.call is None or begun.features < OUTCOMES_HAVE_MACS:
        return ""
    if (*row.call, row.call_digest) == own:
        return ""
    return "in the ledger it is the effect of another call"


_COPIED = "the MAC of its outcome is not of this effect and this outcome"
_PLANTED = "the ledger has an outcome that is not in the log, without a MAC of a fleet key that is set here"

_RESULT = ("status", "artifact", "size", "artifacts", "scope", "until")
"""The fields of a result that the log and the ledger share, besides its content."""


async def artifact_faults(
    store: ArtifactStore | None, artifacts: Mapping[str, int], unchecked: list[Unchecked]
) -> list[Finding]:
    """Return the artifacts whose content is missing or altered.

    Args:
        store: The artifact store; None if the caller does not have it.
        artifacts: Address → position of the first event that refers to it.
        unchecked: Gets an entry if the artifacts cannot be read.
    """
    faults: list[Finding] = []
    if store is None:
        reason = f"the log refers to {len(artifacts)}, but no artifact store was given"
        unchecked += [Unchecked("artifacts", reason)] if artifacts else []
        return faults
    for address, position in artifacts.items():
        try:
            content = await call_store(store.get(address))
            if await asyncio.to_thread(address_of, content) != address:
                faults.append(Finding("artifacts", f"the content of {address} was altered", position))
        except (ArtifactAltered, ArtifactNotFound) as error:
            faults.append(Finding("artifacts", str(error), position))
        except RecordUnavailable as error:
            unchecked.append(Unchecked("artifacts", str(error)))
            break
    return faults
