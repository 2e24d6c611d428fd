"""Verify a thread: its log, Temporal's histories against the permanent record, the ledger and the artifacts.

1. Each source's digests form a chain; where both sources have an event, it is the same.
2. Every event follows from those before it (`holdfast.audit.audit`).
3. The ledger has the effects that the log starts and finishes, and no others; every artifact that the log refers to
   has its original content.
4. The result lists what could not be checked. Nothing in a log can prove that it was not rewritten as a whole.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from holdfast.audit.audit import Audit, Effects, Fault
from holdfast.audit.forks import first_thread
from holdfast.authority.policy import Policy
from holdfast.errors import ThreadNotFound
from holdfast.runtime.audit.anchors import (
    NONE_GIVEN,
    Anchors,
    Compared,
    compare_forgotten,
    compare_missing,
    compare_thread,
    find_seals,
)
from holdfast.runtime.audit.evidence import (
    ADVICE,
    Finding,
    Unchecked,
    Where,
    artifact_faults,
    ledger_faults,
    ledger_rows,
    logs_set_aside,
)
from holdfast.runtime.audit.forgotten import forgotten_faults, tombstone_of
from holdfast.runtime.audit.sources import Log, Segment, differences, from_histories, from_record, join
from holdfast.runtime.client.threads import Threads
from holdfast.runtime.reading.record import Evidence
from holdfast.stores import origin_of


@dataclass(frozen=True)
class Verification:
    """The result of verifying a thread."""

    thread: str
    ok: bool
    events: int
    """How many events were checked."""
    sources: tuple[str, ...]
    """The sources that they were read from: `history`, `record`."""
    first: int = 0
    """Position of the first event that could be checked: no source has the events before it."""
    where: str = ""
    """The place of the first fault: `record`, `history`, `ledger`, `artifacts`."""
    position: int | None = None
    """Position of the event at fault; None if the fault is in no event."""
    reason: str = ""
    """What is wrong."""
    advice: str = ""
    """What to do."""
    signatures: int = 0
    """How many signatures were verified."""
    seals: int = 0
    """How many seals of nodes, from anchors, the log bears out."""
    unchecked: tuple[Unchecked, ...] = ()
    """What could not be checked, and why."""
    notes: tuple[str, ...] = ()
    """What follows from the log, and a reader should know: a quorum that one login has filled."""


@dataclass
class _AuditResult:
    """The result of auditing the events."""

    fault: Fault | None = None
    effects: Effects = field(default_factory=dict)
    past: set[str] = field(default_factory=set)
    """Keys of effects that a reset found in the ledger."""
    artifacts: dict[str, int] = field(default_factory=dict)
    policies: set[str] = field(default_factory=set)
    """Digests of the policies that were in force."""
    signatures: int = 0
    one_login: list[str] = field(default_factory=list)
    """Sentences on quorums that one login has filled."""
    last: str = ""
    """The type of the last event."""
    whole: bool = False
    """The events start with the thread's first."""


async def verify(
    threads: Threads,
    thread: str,
    *,
    evidence: Evidence | None = None,
    trusted: Policy | None = None,
    anchors: Anchors | None = None,
) -> Verification:
    """Verify all of a thread that can still be read.

    Args:
        threads: Reads the thread.
        thread: The thread id, or the id of a log that a reset has set aside.
        evidence: Ledger and artifacts; None without a database.
        trusted: A policy from outside the log, with people, gateways and their keys; None to trust the log's own.
        anchors: Where seals of the thread are; None to compare none.

    Raises:
        ThreadNotFound: There is no such thread, and no seal of one.
        ServerUnreachable: The server does not answer.
        SettingsError: An anchor cannot be read.
    """
    seals = None
    if anchors:  # before the log, so that the log has what they cover
        seals = await asyncio.to_thread(find_seals, anchors, thread, namespace=threads.runs.client.namespace)
    if evidence and (found := await tombstone_of(evidence, thread)):
        faults, unchecked = await forgotten_faults(threads, found, evidence)
        if seals:
            compared = await compare_forgotten(seals, found, evidence)
            faults, unchecked = [*faults, *compared.faults], [*unchecked, *compared.unchecked]
        return _verification(thread, found.events, faults, unchecked)
    unchecked = []
    origin = origin_of(thread) or thread
    # Read before the log, so that the log has the events which started these effects.
    rows = await ledger_rows(evidence, origin, unchecked)
    try:
        history = await from_histories(threads, thread)
    except ThreadNotFound:
        if seals is None or (gone := await compare_missing(threads, seals)) is None:
            raise
        return _verification(thread, 0, list(gone.faults), list(gone.unchecked))
    record = await from_record(threads, thread)
    unchecked += [*history.unchecked, *record.unchecked]
    faults = [log.fault for log in (record, history) if log.fault] + differences(history, record)
    log = _AuditResult()
    if not faults:
        log = await asyncio.to_thread(_audit, join(history, record), origin, trusted)
    if log.fault:
        where: Where = "record" if log.fault.position in record.digests else "history"
        faults.append(Finding(where, log.fault.reason, log.fault.position))
    if not faults and evidence and rows is not None:
        if rows or record.digests:
            began, past = dict(log.effects), set(log.past)
            for aside in await logs_set_aside(evidence, thread):
                aside_log = _audit((await from_record(threads, aside)).segments, thread, None)
                began |= aside_log.effects
                past |= aside_log.past
            # For a log that was set aside, the ledger also has the effects that its thread started after the reset.
            whole = log.whole and origin == thread
            faults += await ledger_faults(evidence, origin, rows, log.effects, began=began, past=past, whole=whole)
        elif log.effects:
            why = "it has no effects of this thread: does DATABASE_URL match that of the workers?"
            unchecked.append(Unchecked("ledger", why))
    if not log.fault:
        faults += await artifact_faults(evidence.artifacts if evidence else None, log.artifacts, unchecked)
    unchecked += _unproven(history, log, trusted=trusted)
    compared = Compared(unchecked=() if history.digests else (NONE_GIVEN,))
    if seals and origin != thread:
        why = f"seals are of threads, and this log was set aside: verify {origin}"
        compared = Compared(unchecked=(Unchecked("anchors", why),))
    elif seals:
        compared = await compare_thread(threads, seals, record, history, evidence)
    faults += compared.faults
    unchecked += compared.unchecked
    known = history.digests.keys() | record.digests.keys()
    first = min(faults, key=lambda fault: fault.order) if faults else None
    return Verification(
        thread=thread,
        ok=first is None,
        events=len(known),
        sources=tuple(
            name for name, log in (("history", history), ("record", record)) if log.digests or log.fault is not None
        ),
        first=min(known, default=0),
        where=first.where if first else "",
        position=first.position if first else None,
        reason=first.reason if first else "",
        advice=ADVICE[first.where] if first else "",
        signatures=log.signatures,
        seals=compared.seals,
        unchecked=tuple(unchecked),
        notes=tuple(log.one_login),
    )


def _verification(thread: str, events: int, faults: list[Finding], unchecked: list[Unchecked]) -> Verification:
    """The result for a thread that is not there any more."""
    if not faults:
        return Verification(thread, True, events, ("record",), unchecked=tuple(unchecked))
    first = min(faults, key=lambda fault: fault.order)
    return Verification(
        thread=thread,
        ok=False,
        events=events,
        sources=("record",),
        where=first.where,
        position=first.position,
        reason=first.reason,
        advice=ADVICE[first.where],
        unchecked=tuple(unchecked),
    )


def _audit(segments: Sequence[Segment], thread: str, trusted: Policy | None) -> _AuditResult:
    """Audit the events, up to the first fault."""
    result = _AuditResult(whole=bool(segments) and segments[0].state is None)
    owner = first_thread([event for segment in segments for event in segment.events], thread)
    for segment in segments:
        audit = Audit(owner, state=segment.state, trusted=trusted, head=segment.head)
        audit.take(segment.events)
        owner = audit.thread
        result.effects |= audit.effects
        result.past |= audit.past.keys()
        result.artifacts |= audit.artifacts
        result.policies |= audit.policies
        result.signatures += audit.signatures
        result.one_login += audit.one_login
        result.last = segment.events[-1].type
        if audit.fault:
            result.fault = audit.fault
            break
    return result


def _unproven(history: Log, log: _AuditResult, *, trusted: Policy | None) -> list[Unchecked]:
    """Return what a log that passes does not prove."""
    found: list[Unchecked] = []
    if history.segments and not log.whole and not log.fault and log.last:
        count = history.segments[0].events[0].position
        why = (
            f"events 0 to {count - 1} belong to earlier Temporal runs, which Temporal has removed. They are in the "
            "permanent record: set DATABASE_URL as the workers have it"
        )
        found.append(Unchecked("beginning", why))
    if not history.digests and log.last != "run_finished":
        why = "the log does not end with run_finished: without Temporal's history, later events cannot be ruled out"
        found.append(Unchecked("end", why))
    if trusted is None and (log.signatures or not history.digests):
        why = "the policy, its people and their keys come from the log itself: give those that you trust with --keys"
        found.append(Unchecked("keys", why))
    elif trusted is not None and not history.digests and log.policies - {trusted.hash}:
        why = "the approvers come from the log itself: its policy differs from the one given"
        found.append(Unchecked("policy", why))
    return found
