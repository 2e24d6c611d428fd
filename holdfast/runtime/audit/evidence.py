"""What is kept beside a thread's log, compared with it: the ledger of effects, and artifacts."""

import asyncio
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Literal

from pydantic import ValidationError

from holdfast.audit.audit import Begun, Effects
from holdfast.base.digests import address_of
from holdfast.errors import ArtifactAltered, ArtifactNotFound, RecordUnavailable
from holdfast.run.contracts import ToolOutcome
from holdfast.runtime.reading.record import Evidence, answered
from holdfast.stores import ArtifactStore, EffectRow

Where = Literal["record", "history", "ledger", "artifacts"]

ADVICE: Mapping[Where, str] = {
    "record": "Trust nothing from there on: compare with a backup of the database, and find out who could write to it.",
    "history": "Trust nothing from there on, and find out who could write to Temporal's database.",
    "ledger": "Ask the system that the effect is in whether it happened, and find out who could write to the database.",
    "artifacts": (
        "Restore the content from a backup. Where the workers have HOLDFAST_ARTIFACTS, set it here, too; where their "
        "catalog has a store of its own, name the catalog with --catalog."
    ),
}
"""What to do about a fault, by where it is."""


@dataclass(frozen=True)
class Found:
    """A fault."""

    where: Where
    reason: str
    position: int | None = None
    """Of the event at fault; None where no event is."""

    @property
    def order(self) -> float:
        """The first event at fault is the one to name."""
        return float("inf") if self.position is None else self.position


@dataclass(frozen=True)
class Unchecked:
    """Something that could not be checked."""

    what: str
    """`history`, `record`, `beginning`, `end`, `keys`, `policy`, `seals`, `ledger` or `artifacts`."""
    why: str


async def ledger_rows(evidence: Evidence | None, thread: str, unchecked: list[Unchecked]) -> Sequence[EffectRow] | None:
    """The ledger's rows of a thread; None, and a line in `unchecked`, where they cannot be read."""
    why = "no database is known here, or it does not answer: set DATABASE_URL as the workers have it"
    if evidence and evidence.effects:
        try:
            return await answered(evidence.effects(thread))
        except RecordUnavailable as error:
            why = str(error)
    unchecked.append(Unchecked("ledger", why))
    return None


async def asides(evidence: Evidence, thread: str) -> Sequence[str]:
    """The logs of a thread that were set aside; none where the database does not answer."""
    try:
        return await answered(evidence.asides(thread))
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
) -> list[Found]:
    """Where the ledger and the log do not agree.

    Args:
        evidence: The ledger.
        thread: The thread id.
        before: Its rows, from before the log was read.
        effects: What the log has begun.
        began: The same, and what logs that were set aside have begun.
        past: Keys of effects that a reset has found in the ledger, which no log may have.
        whole: The log was read from its beginning: a row without a start has none.
    """
    faults = [
        Found("ledger", f"effect {row.key} of {row.tool} (epoch {row.epoch}) is in the ledger, and no event starts it")
        for row in before
        if whole and (row.key, row.epoch) not in began and row.key not in past
    ]
    try:
        rows = await answered(evidence.effects(thread)) if evidence.effects else ()
    except RecordUnavailable:
        return faults
    kept = {(row.key, row.epoch): row for row in rows}
    for (key, epoch), begun in effects.items():
        if reason := _disagreement(begun, kept.get((key, epoch))):
            position = begun.finished.position if begun.finished else begun.position
            faults.append(Found("ledger", f"effect {key} of {begun.tool} (epoch {epoch}): {reason}", position))
    return faults


def _disagreement(begun: Begun, row: EffectRow | None) -> str:
    """What the ledger says otherwise of an effect; empty for nothing."""
    if row and row.tool != begun.tool:
        return f"the ledger has it as one of {row.tool}"
    finished = begun.finished
    if finished is None:
        return ""  # what became of it, people have said, or nobody yet
    if row is None:
        return "the log has its result, and the ledger does not have it"
    if row.outcome is None:
        return "the log has its result, and the ledger has it as not finished"
    try:
        outcome = ToolOutcome.model_validate_json(row.outcome)
    except ValidationError:
        return "its outcome in the ledger does not decode"
    # Where a person has changed the arguments, the log says so before the result.
    same = finished.content.endswith(outcome.content) if begun.edited else finished.content == outcome.content
    if not same or (finished.status, finished.artifact, finished.size) != (
        outcome.status,
        outcome.artifact,
        outcome.size,
    ):
        return (
            f"it is {outcome.status} in the ledger with another result than in the log, where it is {finished.status}"
        )
    return ""


async def artifact_faults(
    store: ArtifactStore | None, artifacts: Mapping[str, int], unchecked: list[Unchecked]
) -> list[Found]:
    """Artifacts that are not what the log refers to.

    Args:
        store: Where they are; None where that is not known.
        artifacts: Address → position of the first event that refers to it.
        unchecked: Gets a line where they cannot be read.
    """
    faults: list[Found] = []
    if store is None:
        why = f"the log refers to {len(artifacts)}, and no store of them was given"
        unchecked += [Unchecked("artifacts", why)] if artifacts else []
        return faults
    for address, position in artifacts.items():
        try:
            content = await answered(store.get(address))
            if await asyncio.to_thread(address_of, content) != address:
                faults.append(Found("artifacts", f"the content of {address} is another than was kept", position))
        except (ArtifactAltered, ArtifactNotFound) as error:
            faults.append(Found("artifacts", str(error), position))
        except RecordUnavailable as error:
            unchecked.append(Unchecked("artifacts", str(error)))
            break
    return faults
