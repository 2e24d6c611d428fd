"""Compare the seals in anchors with a thread's log, to detect a record that was rewritten or truncated.

1. The anchors are listed before the log is read, so that the log has all events that the seals cover; the seals are
   read one by one afterwards.
2. A seal that contradicts the log may belong to a branch that a reset abandoned, or to a thread that was pruned. It is
   explained if a node has sealed the reset or the pruning, or if Temporal's histories confirm the whole log. A reset
   claimed only by the database explains nothing.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

from holdfast.audit.anchors.lines import AnchoredLines
from holdfast.audit.evidence.evidence import Finding, Unchecked, archived_branches
from holdfast.audit.evidence.forgotten import tombstone_of
from holdfast.audit.evidence.sources import Log, from_record
from holdfast.audit.judge.anchors import Nodes, SortedCheckpoints, explaining_seal, mismatch_text, sort_seals
from holdfast.client.reading.record import Evidence, call_store
from holdfast.client.threads import Threads
from holdfast.core.log.node_seals import SignedCheckpoint, read_seal
from holdfast.core.log.tombstones import Tombstone
from holdfast.errors import RecordUnavailable

NONE_GIVEN = Unchecked(
    "anchors",
    "no anchors are given: where workers seal the record (HOLDFAST_ANCHORS), --anchors shows whether it was rewritten",
)

MOST_NAMESPACES = 16
"""The most namespaces of seals that a file is compared with."""


@dataclass(frozen=True)
class Anchors:
    """The locations of seals, and the nodes that a verifier trusts."""

    locations: Sequence[Path]
    """Folders of anchors, or files of seals."""
    nodes: Nodes | None = None
    """Public keys of trusted nodes, each with the time from which its seals do not count; None to trust all nodes."""


@dataclass(frozen=True)
class ThreadCheckpoints:
    """The seals of a thread in anchors."""

    thread: str
    namespace: str | None
    """Temporal's namespace; None for any."""
    nodes: Nodes | None
    lines: Iterable[bytes]
    """Iterable more than once."""
    odd: Sequence[str] = ()
    """Sentences about links, pipes and devices that were not read."""
    again: Callable[[], "ThreadCheckpoints"] | None = None
    """Lists the anchors again."""

    def sort_seals(self, digests: Mapping[int, str], *, whole: bool = True) -> SortedCheckpoints:
        """Compare each seal with a log."""
        return sort_seals(
            self.lines, digests, thread=self.thread, namespace=self.namespace, nodes=self.nodes, whole=whole
        )

    def namespaces(self) -> list[str]:
        """Return the namespaces of the seals that may count, sorted."""
        names: set[str] = set()
        for line in self.lines:
            seal = read_seal(line)
            if seal and seal.thread == self.thread and seal.namespace not in names and len(names) < MOST_NAMESPACES:
                known = self.nodes is None or seal.node in self.nodes
                names |= {seal.namespace} if known and seal.is_signed() else set()
        return sorted(names)


@dataclass(frozen=True)
class CheckpointComparison:
    """The result of comparing seals with a log."""

    faults: tuple[Finding, ...] = ()
    unchecked: tuple[Unchecked, ...] = ()
    seals: int = 0
    """The number of seals that the log matches."""


def find_seals(anchors: Anchors, thread: str, *, namespace: str | None = None) -> ThreadCheckpoints:
    """List the current seals of a thread in the anchors.

    Raises:
        SettingsError: An anchor cannot be read.
    """
    lines = AnchoredLines(anchors.locations, thread)
    again = partial(find_seals, anchors, thread, namespace=namespace)
    odd = [f"{name} is a link, a pipe or a device: it was not read" for name in lines.odd]
    return ThreadCheckpoints(thread, namespace, anchors.nodes, lines, odd, again)


Branches = Mapping[str, Mapping[int, str]]
"""Archived branches in the database: id → digests, by position."""


def compare(
    seals: ThreadCheckpoints,
    digests: Mapping[int, str],
    *,
    whole: bool = True,
    vouched: bool = False,
    branches: Branches | None = None,
) -> CheckpointComparison:
    """Compare seals with a log.

    Args:
        seals: The thread's seals.
        digests: The digests of the log's events.
        whole: As in `holdfast.audit.judge.anchors.sort_seals`.
        vouched: Whether Temporal's histories confirm the whole log.
        branches: Archived branches in the database.

    Raises:
        SettingsError: An anchor cannot be read.
    """
    return compare_sorted(
        seals.sort_seals(digests, whole=whole), seals, digests, vouched=vouched, branches=branches or {}
    )


def compare_sorted(
    result: SortedCheckpoints,
    seals: ThreadCheckpoints,
    digests: Mapping[int, str],
    *,
    vouched: bool = False,
    branches: Branches = MappingProxyType({}),
) -> CheckpointComparison:
    """Compare sorted seals with a log; the other arguments are those of `compare`."""
    unchecked = [Unchecked("anchors", reason) for reason in result.refused]
    unchecked += [Unchecked("anchors", reason) for reason in seals.odd]
    if not result.any:
        return CheckpointComparison(
            unchecked=(*unchecked, Unchecked("anchors", "they have no seal of this thread that counts"))
        )
    trusting = seals.nodes is None
    why_gone = {
        seal: explaining_seal(seal, result.gone, list(branches.values()), trusting=trusting)
        for seal in result.mismatches
    }
    accused = [seal for seal, reason in why_gone.items() if reason is None]
    accused += [result.beyond] if result.beyond else []
    if accused and vouched:
        text = f"{len(accused)} seals do not fit this log, and Temporal's histories have it as it is: a reset left"
        unchecked.append(Unchecked("anchors", f"{text} their branch, and no node has sealed that"))
        accused = []
    faults = [
        Finding("record", _accusation(seal, result.gone, branches), min(seal.events - 1, len(digests)))
        for seal in accused[:1]
    ]
    unseen = sum(reason is not None and _unseen(seal, reason, branches) for seal, reason in why_gone.items())
    if unseen:
        text = f"{unseen} seals are of a log that is not here: nodes have sealed that a reset abandoned it"
        unchecked.append(Unchecked("anchors", f"{text}, that it was pruned, or that an older backup was restored"))
    if not faults and result.covered <= max(digests, default=-1):
        reason = f"no seal covers the events from {result.covered} on: they can have been rewritten since"
        unchecked.append(Unchecked("anchors", reason))
    if trusting:
        nodes = ", ".join(sorted(result.nodes))
        reason = f"it is not known whose keys signed the seals: give those that you trust with --nodes ({nodes})"
        unchecked.append(Unchecked("nodes", reason))
    return CheckpointComparison(tuple(faults), tuple(unchecked), result.matching)


def _unseen(seal: SignedCheckpoint, reason: SignedCheckpoint, branches: Branches) -> bool:
    """Whether a seal is of a log that is not here: events were lost with a restore, or only its time ties it to one."""
    if reason.gone == "restored":
        return True
    same = (reason.events, reason.head) == (seal.events, seal.head)
    return not same and not any(known.get(seal.events - 1) == seal.head for known in branches.values())


def _accusation(seal: SignedCheckpoint, gone: Sequence[SignedCheckpoint], branches: Branches) -> str:
    text = mismatch_text(seal)
    for name, known in branches.items():
        if known.get(seal.events - 1) == seal.head:
            return (
                f"{text}. That log is in {name}, as if a reset had abandoned it, but no seal that counts and no "
                "history of Temporal's says so"
            )
    if any(each.events >= seal.events for each in gone):
        return f"{text}. A node that may not be yours says that this log is gone: name yours with --nodes"
    return text


async def compare_thread(
    threads: Threads,
    seals: ThreadCheckpoints,
    record: Log,
    history: Log,
    evidence: Evidence | None,
) -> CheckpointComparison:
    """Compare a thread's seals with its record; without a record, with Temporal's histories.

    Args:
        threads: Reads archived branches.
        seals: The thread's seals, listed before the logs were read.
        record: The log in the permanent record.
        history: The log in Temporal's histories.
        evidence: Finds archived branches; None without a database.
    """
    digests = record.digests or {**history.heads, **history.digests}

    async def branch(archived: str) -> Mapping[int, str]:
        return _sound(await from_record(threads, archived))

    return await compare_with_branches(
        seals,
        digests,
        evidence,
        branch,
        whole=bool(record.digests) and record.fault is None,
        vouched=history.fault is None and history.digests.keys() >= digests.keys(),
    )


def _sound(log: Log) -> Mapping[int, str]:
    return {} if log.fault else log.digests


async def compare_forgotten(seals: ThreadCheckpoints, tombstone: Tombstone, evidence: Evidence) -> CheckpointComparison:
    """Compare the seals of a forgotten thread with its remaining digests.

    Args:
        seals: The thread's seals.
        tombstone: Its tombstone.
        evidence: Finds the tombstones of archived branches.
    """
    digests = _digests_of(tombstone)

    async def branch(archived: str) -> Mapping[int, str]:
        remains = await tombstone_of(evidence, archived)
        return _digests_of(remains) if remains else {}

    return await compare_with_branches(seals, digests, evidence, branch, whole=len(digests) == tombstone.events)


async def compare_with_branches(
    seals: ThreadCheckpoints,
    digests: Mapping[int, str],
    evidence: Evidence | None,
    branch: Callable[[str], Awaitable[Mapping[int, str]]],
    *,
    whole: bool,
    vouched: bool = False,
) -> CheckpointComparison:
    """Compare seals with a log, and those that contradict it with the archived branches in the database.

    Args:
        seals: The thread's seals.
        digests: The digests of the log's events.
        evidence: Finds archived branches; None without a database.
        branch: Returns the digests of one.
        whole: As in `compare`.
        vouched: As in `compare`.
    """
    result = await asyncio.to_thread(seals.sort_seals, digests, whole=whole)
    if result.mismatches and seals.again:
        # A reset since the seals were listed may have sealed that it abandoned their branch.
        later = await asyncio.to_thread(seals.again)
        result.gone = (await asyncio.to_thread(later.sort_seals, digests, whole=whole)).gone
    branches: dict[str, Mapping[int, str]] = {}
    if evidence and result.mismatches:
        for archived in await archived_branches(evidence, seals.thread):
            branches[archived] = await branch(archived)
    return compare_sorted(result, seals, digests, vouched=vouched, branches=branches)


def _digests_of(tombstone: Tombstone) -> dict[int, str]:
    """Return the remaining digests of a forgotten thread, by position; an altered tombstone may hold anything."""
    digests: dict[int, str] = {}
    with suppress(ValueError, TypeError, KeyError, RecursionError):
        for position, line in enumerate(tombstone.remains.split(b"\n") if tombstone.remains else ()):
            if digest := str(json.loads(line)["digest"]):
                digests[position] = digest
    return digests


async def compare_missing(threads: Threads, seals: ThreadCheckpoints) -> CheckpointComparison | None:
    """Compare the seals of a thread that is neither in Temporal nor in the record; None if none of them counts."""
    result = await asyncio.to_thread(seals.sort_seals, {})
    if not result.any or threads.reader.record is None:
        return None
    with suppress(RecordUnavailable):
        if await call_store(threads.reader.record.store.length(seals.thread)):
            return None
        compared = compare_sorted(result, seals, {})
        if compared.faults:
            text = f"the record has no events of this thread: {compared.faults[0].reason}"
            return replace(compared, faults=(Finding("record", text, 0),))
        last = next((seal for seal in reversed(result.gone) if seal.gone == "pruned"), None)
        if last is None:
            return replace(compared, faults=(Finding("record", "the record has no events of this thread", 0),))
        text = f"on {last.at:%Y-%m-%d at %H:%M:%S} UTC, node {last.node} sealed that its {last.events} events were"
        return replace(compared, unchecked=(*compared.unchecked, Unchecked("record", f"{text} to be pruned")))
    return None
