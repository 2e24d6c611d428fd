"""Compare the seals in anchors with a thread's log, to find a record that was rewritten or truncated.

1. Seals are read before the log, so that the log has what they cover.
2. A seal that the log does not bear out may be of a branch that a reset abandoned: then a log set aside has its event,
   or a later seal covers the log as it is.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast.audit.anchors import Anchored, anchored, misfit_words, misfits, superseded
from holdfast.errors import RecordUnavailable
from holdfast.log.node_seals import NodeSeal
from holdfast.log.tombstones import Tombstone
from holdfast.runtime.anchors.folder import read_lines
from holdfast.runtime.audit.evidence import Finding, Unchecked, logs_set_aside
from holdfast.runtime.audit.forgotten import tombstone_of
from holdfast.runtime.audit.sources import Log, from_record
from holdfast.runtime.client.threads import Threads
from holdfast.runtime.reading.record import Evidence, call_store

NONE_GIVEN = Unchecked(
    "anchors",
    "no anchors are given: where workers seal the record (HOLDFAST_ANCHORS), --anchors shows whether it was rewritten",
)


@dataclass(frozen=True)
class Anchors:
    """Where a verifier finds seals, and whose it trusts."""

    places: Sequence[Path]
    """Folders of anchors, or files of seals."""
    nodes: frozenset[str] | None = None
    """Public keys of nodes; None to trust all nodes whose seals are there."""


@dataclass(frozen=True)
class Compared:
    """What seals show about a log."""

    faults: tuple[Finding, ...] = ()
    unchecked: tuple[Unchecked, ...] = ()
    seals: int = 0
    """How many seals the log bears out."""


def read_seals(anchors: Anchors, thread: str, *, namespace: str | None = None) -> Anchored:
    """Read the seals of a thread.

    Raises:
        SettingsError: An anchor cannot be read.
    """
    lines = read_lines(anchors.places, thread)
    return anchored(lines, thread=thread, namespace=namespace, nodes=anchors.nodes)


def compare(
    found: Anchored,
    digests: Mapping[int, str],
    *,
    trusting: bool,
    whole: bool = True,
    elsewhere: Sequence[NodeSeal] = (),
) -> Compared:
    """Compare seals with a log.

    Args:
        found: The thread's seals.
        digests: The digests of the log's events.
        trusting: No nodes are given: all are trusted.
        whole: As in `misfits`.
        elsewhere: Seals that a log set aside bears out.
    """
    unchecked = [Unchecked("anchors", why) for why in found.refused]
    if not found.seals:
        return Compared(unchecked=(*unchecked, Unchecked("anchors", "they have no seal of this thread that counts")))
    wrong = misfits(found.seals, digests, whole=whole)
    fitting = [seal for seal in found.seals if seal not in wrong and seal.events - 1 in digests]
    left = [seal for seal in wrong if seal not in elsewhere]
    accused = [seal for seal in left if not superseded(seal, fitting)]
    faults = [Finding("record", misfit_words(seal), min(seal.events - 1, len(digests))) for seal in accused[:1]]
    if len(left) > len(accused):
        why = (
            f"{len(left) - len(accused)} seals do not fit this log, and later ones do: they are of a branch that is "
            "not here, which a reset left; if nobody has reset the run, the log was rewritten"
        )
        unchecked.append(Unchecked("anchors", why))
    covered = max((seal.events for seal in fitting), default=0)
    if not faults and covered <= max(digests, default=-1):
        why = f"no seal covers the events from {covered} on: they can have been rewritten since"
        unchecked.append(Unchecked("anchors", why))
    if trusting:
        nodes = ", ".join(sorted({seal.node for seal in found.seals}))
        why = f"it is not known whose keys signed the seals: give those that you trust with --nodes ({nodes})"
        unchecked.append(Unchecked("nodes", why))
    return Compared(tuple(faults), tuple(unchecked), len(fitting))


async def compare_thread(
    threads: Threads,
    thread: str,
    found: Anchored,
    record: Log,
    history: Log,
    evidence: Evidence | None,
    *,
    trusting: bool,
) -> Compared:
    """Compare a thread's seals with its record; without a record, with Temporal's histories.

    Args:
        threads: Reads the logs that resets have set aside.
        thread: The thread.
        found: Its seals, read before the logs.
        record: The log in the permanent record.
        history: The log in Temporal's histories.
        evidence: Finds the logs that were set aside; None without a database.
        trusting: As in `compare`.
    """
    digests = record.digests or {**history.heads, **history.digests}
    whole = bool(record.digests) and record.fault is None

    async def branch(aside: str) -> Mapping[int, str]:
        return (await from_record(threads, aside)).digests

    return await _with_branches(found, digests, evidence, branch, thread=thread, trusting=trusting, whole=whole)


async def compare_forgotten(found: Anchored, left: Tombstone, evidence: Evidence, *, trusting: bool) -> Compared:
    """Compare the seals of a forgotten thread with the digests that remain of it.

    Args:
        found: Its seals.
        left: What remains.
        evidence: Finds what remains of logs that were set aside.
        trusting: As in `compare`.
    """
    digests = _digests_of(left)

    async def branch(aside: str) -> Mapping[int, str]:
        remains = await tombstone_of(evidence, aside)
        return _digests_of(remains) if remains else {}

    whole = len(digests) == left.events
    return await _with_branches(found, digests, evidence, branch, thread=left.thread, trusting=trusting, whole=whole)


async def _with_branches(
    found: Anchored,
    digests: Mapping[int, str],
    evidence: Evidence | None,
    branch: Callable[[str], Awaitable[Mapping[int, str]]],
    *,
    thread: str,
    trusting: bool,
    whole: bool,
) -> Compared:
    """Compare seals with a log, and those that do not fit with the logs that resets have set aside."""
    elsewhere: list[NodeSeal] = []
    names: list[str] = []
    if evidence and (left := misfits(found.seals, digests, whole=whole)):
        for aside in await logs_set_aside(evidence, thread):
            known = await branch(aside)
            if fitting := [seal for seal in left if known.get(seal.events - 1) == seal.head]:
                names.append(aside)
                elsewhere += fitting
    compared = compare(found, digests, trusting=trusting, whole=whole, elsewhere=elsewhere)
    if not names:
        return compared
    why = (
        f"{len(set(elsewhere))} seals are of a branch that a reset set aside, in {', '.join(names)}: if nobody has "
        "reset the run, the log was rewritten"
    )
    return replace(compared, unchecked=(*compared.unchecked, Unchecked("anchors", why)))


def _digests_of(left: Tombstone) -> dict[int, str]:
    """The digests that remain of a forgotten thread, by position; an altered tombstone may hold anything."""
    digests: dict[int, str] = {}
    with suppress(ValueError, TypeError, KeyError, RecursionError):
        for position, line in enumerate(left.remains.split(b"\n") if left.remains else ()):
            if digest := str(json.loads(line)["digest"]):
                digests[position] = digest
    return digests


def compare_file(found: Anchored, digests: Mapping[int, str], *, trusting: bool) -> Compared:
    """Compare seals with the log in a portable file, which may be an early part.

    Args:
        found: The thread's seals.
        digests: The digests of the file's events.
        trusting: As in `compare`.
    """
    compared = compare(found, digests, trusting=trusting, whole=False)
    if (most := max((seal.events for seal in found.seals), default=0)) <= len(digests):
        return compared
    why = f"a seal covers {most} events: the file was made before, or is cut off"
    return replace(compared, unchecked=(*compared.unchecked, Unchecked("anchors", why)))


async def missing(threads: Threads, found: Anchored) -> list[Finding]:
    """Return what is wrong where neither Temporal nor the record has a thread that was sealed."""
    if not found.seals or threads.reader.record is None:
        return []
    seal = found.seals[-1]
    with suppress(RecordUnavailable):
        if not await call_store(threads.reader.record.store.length(seal.thread)):
            words = f"the record has no events of this thread: {misfit_words(seal)}, or the thread was pruned"
            return [Finding("record", words, 0)]
    return []
