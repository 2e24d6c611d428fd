"""Compare the seals in anchors with a thread's log, to find a record that was rewritten or truncated.

1. What the anchors have is listed before the log is read, so that the log has what the seals cover; the seals are read
   one by one after it.
2. A seal that the log does not bear out may be of a branch that a reset abandoned, or of a thread that was pruned. It
   is accounted for if a node has sealed that, or if Temporal's histories have the whole log as it is. What the database
   says about resets does not count.
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
from holdfast.audit.evidence.evidence import Finding, Unchecked, logs_set_aside
from holdfast.audit.evidence.forgotten import tombstone_of
from holdfast.audit.evidence.sources import Log, from_record
from holdfast.audit.judge.anchors import Nodes, Sorted, accounted_for, misfit_words, sort_out
from holdfast.client.reading.record import Evidence, call_store
from holdfast.client.threads import Threads
from holdfast.core.log.node_seals import NodeSeal, read_seal
from holdfast.core.log.tombstones import Tombstone
from holdfast.errors import RecordUnavailable

NONE_GIVEN = Unchecked(
    "anchors",
    "no anchors are given: where workers seal the record (HOLDFAST_ANCHORS), --anchors shows whether it was rewritten",
)

MOST_NAMESPACES = 16
"""Namespaces of seals that a file is compared with."""


@dataclass(frozen=True)
class Anchors:
    """Where a verifier finds seals, and whose it trusts."""

    places: Sequence[Path]
    """Folders of anchors, or files of seals."""
    nodes: Nodes | None = None
    """Public keys of nodes, with the time from which their seals do not count; None to trust all nodes whose seals are
    there."""


@dataclass(frozen=True)
class ThreadSeals:
    """What anchors have of a thread."""

    thread: str
    namespace: str | None
    """Temporal's namespace; None for any."""
    nodes: Nodes | None
    lines: Iterable[bytes]
    """Can be read more than once."""
    odd: Sequence[str] = ()
    """What is in a seal's place, and is not read, in words."""
    again: Callable[[], "ThreadSeals"] | None = None
    """Lists what the anchors have by now."""

    def sort_out(self, digests: Mapping[int, str], *, whole: bool = True) -> Sorted:
        """Compare each seal with a log."""
        return sort_out(
            self.lines, digests, thread=self.thread, namespace=self.namespace, nodes=self.nodes, whole=whole
        )

    def namespaces(self) -> list[str]:
        """The namespaces of the seals that may count, sorted."""
        found: set[str] = set()
        for line in self.lines:
            seal = read_seal(line)
            if seal and seal.thread == self.thread and seal.namespace not in found and len(found) < MOST_NAMESPACES:
                known = self.nodes is None or seal.node in self.nodes
                found |= {seal.namespace} if known and seal.is_signed() else set()
        return sorted(found)


@dataclass(frozen=True)
class Compared:
    """What seals show about a log."""

    faults: tuple[Finding, ...] = ()
    unchecked: tuple[Unchecked, ...] = ()
    seals: int = 0
    """How many seals the log bears out."""


def find_seals(anchors: Anchors, thread: str, *, namespace: str | None = None) -> ThreadSeals:
    """List what the anchors have of a thread now.

    Raises:
        SettingsError: An anchor cannot be read.
    """
    lines = AnchoredLines(anchors.places, thread)
    again = partial(find_seals, anchors, thread, namespace=namespace)
    odd = [f"{name} is a link, a pipe or a device: it was not read" for name in lines.odd]
    return ThreadSeals(thread, namespace, anchors.nodes, lines, odd, again)


Branches = Mapping[str, Mapping[int, str]]
"""The logs that the database has set aside: id → digests, by position."""


def compare(
    seals: ThreadSeals,
    digests: Mapping[int, str],
    *,
    whole: bool = True,
    vouched: bool = False,
    branches: Branches | None = None,
) -> Compared:
    """Compare seals with a log.

    Args:
        seals: The thread's seals.
        digests: The digests of the log's events.
        whole: As in `holdfast.audit.judge.anchors.sort_out`.
        vouched: Temporal's histories have the whole log as it is.
        branches: Logs that the database has set aside.

    Raises:
        SettingsError: An anchor cannot be read.
    """
    return compare_sorted(
        seals.sort_out(digests, whole=whole), seals, digests, vouched=vouched, branches=branches or {}
    )


def compare_sorted(
    found: Sorted,
    seals: ThreadSeals,
    digests: Mapping[int, str],
    *,
    vouched: bool = False,
    branches: Branches = MappingProxyType({}),
) -> Compared:
    """Say what sorted seals show about a log: as `compare`, whose arguments these are."""
    unchecked = [Unchecked("anchors", why) for why in found.refused]
    unchecked += [Unchecked("anchors", words) for words in seals.odd]
    if not found.any:
        return Compared(unchecked=(*unchecked, Unchecked("anchors", "they have no seal of this thread that counts")))
    trusting = seals.nodes is None
    why_gone = {
        seal: accounted_for(seal, found.gone, list(branches.values()), trusting=trusting) for seal in found.misfits
    }
    accused = [seal for seal, reason in why_gone.items() if reason is None]
    accused += [found.beyond] if found.beyond else []
    if accused and vouched:
        words = f"{len(accused)} seals do not fit this log, and Temporal's histories have it as it is: a reset left"
        unchecked.append(Unchecked("anchors", f"{words} their branch, and no node has sealed that"))
        accused = []
    faults = [
        Finding("record", _accusation(seal, found.gone, branches), min(seal.events - 1, len(digests)))
        for seal in accused[:1]
    ]
    unseen = sum(reason is not None and _unseen(seal, reason, branches) for seal, reason in why_gone.items())
    if unseen:
        words = f"{unseen} seals are of a log that is not here: nodes have sealed that a reset abandoned it"
        unchecked.append(Unchecked("anchors", f"{words}, or that it was pruned"))
    if not faults and found.covered <= max(digests, default=-1):
        why = f"no seal covers the events from {found.covered} on: they can have been rewritten since"
        unchecked.append(Unchecked("anchors", why))
    if trusting:
        nodes = ", ".join(sorted(found.nodes))
        why = f"it is not known whose keys signed the seals: give those that you trust with --nodes ({nodes})"
        unchecked.append(Unchecked("nodes", why))
    return Compared(tuple(faults), tuple(unchecked), found.fitting)


def _unseen(seal: NodeSeal, reason: NodeSeal, branches: Branches) -> bool:
    """Whether only the time of a seal shows that it is of the log that is gone."""
    same = (reason.events, reason.head) == (seal.events, seal.head)
    return not same and not any(known.get(seal.events - 1) == seal.head for known in branches.values())


def _accusation(seal: NodeSeal, gone: Sequence[NodeSeal], branches: Branches) -> str:
    words = misfit_words(seal)
    for name, known in branches.items():
        if known.get(seal.events - 1) == seal.head:
            return (
                f"{words}. That log is in {name}, as if a reset had abandoned it, but no seal that counts and no "
                "history of Temporal's says so"
            )
    if any(each.events >= seal.events for each in gone):
        return f"{words}. A node that may not be yours says that this log is gone: name yours with --nodes"
    return words


async def compare_thread(
    threads: Threads,
    seals: ThreadSeals,
    record: Log,
    history: Log,
    evidence: Evidence | None,
) -> Compared:
    """Compare a thread's seals with its record; without a record, with Temporal's histories.

    Args:
        threads: Reads the logs that resets have set aside.
        seals: Its seals, listed before the logs were read.
        record: The log in the permanent record.
        history: The log in Temporal's histories.
        evidence: Finds the logs that were set aside; None without a database.
    """
    digests = record.digests or {**history.heads, **history.digests}

    async def branch(aside: str) -> Mapping[int, str]:
        return _sound(await from_record(threads, aside))

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


async def compare_forgotten(seals: ThreadSeals, left: Tombstone, evidence: Evidence) -> Compared:
    """Compare the seals of a forgotten thread with the digests that remain of it.

    Args:
        seals: Its seals.
        left: What remains.
        evidence: Finds what remains of logs that were set aside.
    """
    digests = _digests_of(left)

    async def branch(aside: str) -> Mapping[int, str]:
        remains = await tombstone_of(evidence, aside)
        return _digests_of(remains) if remains else {}

    return await compare_with_branches(seals, digests, evidence, branch, whole=len(digests) == left.events)


async def compare_with_branches(
    seals: ThreadSeals,
    digests: Mapping[int, str],
    evidence: Evidence | None,
    branch: Callable[[str], Awaitable[Mapping[int, str]]],
    *,
    whole: bool,
    vouched: bool = False,
) -> Compared:
    """Compare seals with a log, and those that do not fit with the logs that the database has set aside.

    Args:
        seals: The thread's seals.
        digests: The digests of the log's events.
        evidence: Finds the logs that were set aside; None without a database.
        branch: Returns the digests of one.
        whole: As in `compare`.
        vouched: As in `compare`.
    """
    found = await asyncio.to_thread(seals.sort_out, digests, whole=whole)
    if found.misfits and seals.again:  # a reset since the seals were listed has sealed that it left them
        later = await asyncio.to_thread(seals.again)
        found.gone = (await asyncio.to_thread(later.sort_out, digests, whole=whole)).gone
    branches: dict[str, Mapping[int, str]] = {}
    if evidence and found.misfits:
        for aside in await logs_set_aside(evidence, seals.thread):
            branches[aside] = await branch(aside)
    return compare_sorted(found, seals, digests, vouched=vouched, branches=branches)


def _digests_of(left: Tombstone) -> dict[int, str]:
    """The digests that remain of a forgotten thread, by position; an altered tombstone may hold anything."""
    digests: dict[int, str] = {}
    with suppress(ValueError, TypeError, KeyError, RecursionError):
        for position, line in enumerate(left.remains.split(b"\n") if left.remains else ()):
            if digest := str(json.loads(line)["digest"]):
                digests[position] = digest
    return digests


async def compare_missing(threads: Threads, seals: ThreadSeals) -> Compared | None:
    """Compare the seals of a thread that neither Temporal nor the record has; None if there are none that count."""
    found = await asyncio.to_thread(seals.sort_out, {})
    if not found.any or threads.reader.record is None:
        return None
    with suppress(RecordUnavailable):
        if await call_store(threads.reader.record.store.length(seals.thread)):
            return None
        compared = compare_sorted(found, seals, {})
        if compared.faults:
            words = f"the record has no events of this thread: {compared.faults[0].reason}"
            return replace(compared, faults=(Finding("record", words, 0),))
        last = next((seal for seal in reversed(found.gone) if seal.gone == "pruned"), None)
        if last is None:
            return replace(compared, faults=(Finding("record", "the record has no events of this thread", 0),))
        words = f"on {last.at:%Y-%m-%d at %H:%M:%S} UTC, node {last.node} sealed that its {last.events} events were"
        return replace(compared, unchecked=(*compared.unchecked, Unchecked("record", f"{words} to be pruned")))
    return None
