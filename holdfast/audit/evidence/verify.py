"""Verify a thread: its log, Temporal's histories against the permanent record, the ledger and the artifacts.

1. Each source's digests form a chain; an event in both sources is the same.
2. Every event follows from those before it (`holdfast.audit.judge.audit`).
3. The ledger has the effects that the log starts and finishes, and no others; every artifact that the log refers to
   has its original content.
4. A result that a known node has signed is exactly what it signed.
5. The result lists the checks that could not be made. Nothing in a log can prove that it was not rewritten as a whole:
   that needs a witness (`holdfast.audit.evidence.verdicts`).
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from holdfast.audit.evidence.anchors import (
    NONE_GIVEN,
    Anchors,
    CheckpointComparison,
    compare_forgotten,
    compare_missing,
    compare_thread,
    find_seals,
)
from holdfast.audit.evidence.evidence import (
    Finding,
    Unchecked,
    Where,
    archived_branches,
    artifact_faults,
    ledger_faults,
    ledger_rows,
)
from holdfast.audit.evidence.forgotten import forgotten_faults, tombstone_of
from holdfast.audit.evidence.losses import lost
from holdfast.audit.evidence.results import all_signed, any_signed, unchecked_results
from holdfast.audit.evidence.sources import Log, Segment, differences, from_histories, from_record, join
from holdfast.audit.evidence.verdicts import Verification, conclude
from holdfast.audit.judge.audit import Audit, Effects, Fault
from holdfast.audit.judge.forks import first_thread
from holdfast.audit.judge.signed_results import MadeCall, NodeKeys
from holdfast.client.reading.record import Evidence
from holdfast.client.threads import Threads
from holdfast.core.authority.policy import Policy
from holdfast.core.log.events import EventsLost, RunForked, RunImported, RunStarted
from holdfast.core.mac.outcomes import OutcomeMACs
from holdfast.core.stores import origin_of
from holdfast.core.temporal.converter import seals_in
from holdfast.errors import ThreadNotFound


@dataclass
class AuditResult:
    """The result of auditing the events."""

    fault: Fault | None = None
    effects: Effects = field(default_factory=dict)
    past: set[str] = field(default_factory=set)
    """Keys of effects that a reset found in the ledger."""
    artifacts: dict[str, int] = field(default_factory=dict)
    policies: set[str] = field(default_factory=set)
    """Digests of the policies that were in force."""
    signatures: int = 0
    calls: list[MadeCall] = field(default_factory=list)
    """The LLM and tool calls, with the nodes that made them."""
    one_login: list[str] = field(default_factory=list)
    """Sentences about quorums that one login has filled."""
    last: str = ""
    """The type of the last event."""
    whole: bool = False
    """Whether the events start with the thread's first."""
    begins: dict[str, int] = field(default_factory=dict)
    """First run id of a chain of Temporal runs → position of its first event."""
    forked: int = 0
    """The number of events that belong to another thread."""
    imported: int = 0
    """The number of events that were imported from a file."""
    losses: list[EventsLost] = field(default_factory=list)
    """The gaps that restored backups have left."""


async def verify(
    threads: Threads,
    thread: str,
    *,
    evidence: Evidence | None = None,
    trusted: Policy | None = None,
    anchors: Anchors | None = None,
    nodes: NodeKeys | None = None,
) -> Verification:
    """Verify the readable part of a thread.

    Args:
        threads: Reads the thread.
        thread: The thread id, or the id of an archived branch (a log replaced by a reset).
        evidence: Ledger and artifacts; None without a database.
        trusted: A policy from outside the log, with people, gateways and their keys; None to trust the log's own.
        anchors: The anchors with seals of the thread; None to compare none.
        nodes: The keys of nodes, with which signatures of results are verified; None for those of `anchors`.

    Raises:
        ThreadNotFound: There is no such thread, and no seal of it.
        ServerUnreachable: The server is unreachable.
        SettingsError: An anchor cannot be read.
    """
    seals = None
    if anchors:  # before the log, so that the log has the events that they cover
        seals = await asyncio.to_thread(find_seals, anchors, thread, namespace=threads.runs.client.namespace)
    if evidence and (tombstone := await tombstone_of(evidence, thread)):
        faults, unchecked = await forgotten_faults(threads, tombstone, evidence)
        if seals:
            compared = await compare_forgotten(seals, tombstone, evidence)
            faults, unchecked = [*faults, *compared.faults], [*unchecked, *compared.unchecked]
        return conclude(thread, tombstone.events, ("record",), faults, unchecked)
    unchecked = []
    origin = origin_of(thread) or thread
    # Read before the log, so that the log has the events that started these effects.
    rows = await ledger_rows(evidence, origin, unchecked)
    try:
        history = await from_histories(threads, thread)
    except ThreadNotFound:
        if seals is None or (gone := await compare_missing(threads, seals)) is None:
            raise
        return conclude(thread, 0, ("record",), gone.faults, gone.unchecked)
    if history.newer:
        return conclude(thread, 0, (), [history.fault] if history.fault else [], history.unchecked)
    record = await from_record(threads, thread)
    unchecked += [*history.unchecked, *record.unchecked]
    if record.empty and not history.sealed:  # only histories with checked MACs show how much was written to it
        reason = "it has no events of this thread: does DATABASE_URL match that of the workers?"
        unchecked.append(Unchecked("record", reason))
    faults = [log.fault for log in (record, history) if log.fault] + differences(history, record)
    log = AuditResult()
    if not faults:
        known_nodes = nodes if nodes is not None else anchors.nodes if anchors else None
        log = await asyncio.to_thread(audit_segments, join(history, record), origin, trusted, known_nodes)
    if log.fault:
        where: Where = "record" if log.fault.position in record.digests else "history"
        faults.append(Finding(where, log.fault.reason, log.fault.position))
    if not faults and evidence and rows is not None:
        if rows or record.digests:
            began, past = dict(log.effects), set(log.past)
            for archived in await archived_branches(evidence, thread):
                branch = audit_segments((await from_record(threads, archived)).segments, thread, None)
                began |= branch.effects
                past |= branch.past
            # For an archived branch, the ledger also has the effects that its thread started after the reset.
            # After a loss, it has those of the lost events.
            whole = log.whole and origin == thread and not log.losses
            macs = OutcomeMACs(seals_in(threads.runs.client.data_converter))
            faults += await ledger_faults(
                evidence, origin, rows, log.effects, began=began, past=past, whole=whole, macs=macs
            )
        elif log.effects:
            reason = "it has no effects of this thread: does DATABASE_URL match that of the workers?"
            unchecked.append(Unchecked("ledger", reason))
    if not log.fault:
        faults += await artifact_faults(evidence.artifacts if evidence else None, log.artifacts, unchecked)
    unchecked += [*_unproven(history, log, trusted=trusted), *lost(log.losses), *unchecked_results(log.calls)]
    compared = CheckpointComparison(unchecked=() if history.digests else (NONE_GIVEN,))
    if seals and origin != thread:
        reason = f"seals are of threads, and a reset abandoned this log: verify {origin}"
        compared = CheckpointComparison(unchecked=(Unchecked("anchors", reason),))
    elif seals:
        compared = await compare_thread(threads, seals, record, history, evidence)
    known = {**history.digests, **record.digests}
    begun = {"history", "ledger", "artifacts"}
    begun |= {"seals"} if history.sealed and history.digests else set()
    begun |= {"record"} if record.digests or record.empty else set()
    begun |= {"anchors"} if compared.seals else set()
    begun |= {"results"} if all_signed(log.calls) else set()
    begun |= {"keys"} if trusted else set()
    foreign = threads.reader.ownership.foreign(thread)
    return conclude(
        thread,
        len(known),
        tuple(name for name, log in (("history", history), ("record", record)) if log.digests or log.fault is not None),
        [*faults, *compared.faults],
        [*unchecked, *compared.unchecked],
        begun=begun,
        first=min(known, default=0),
        signatures=log.signatures,
        seals=compared.seals,
        calls=tuple(log.calls) if any_signed(log.calls) else (),
        head=known[max(known)] if known else "",
        notes=(str(foreign),) if foreign else (),
    )


def audit_segments(
    segments: Sequence[Segment], thread: str, trusted: Policy | None, nodes: NodeKeys | None = None
) -> AuditResult:
    """Audit the events, up to the first fault."""
    result = AuditResult(whole=bool(segments) and segments[0].state is None)
    owner = first_thread([event for segment in segments for event in segment.events], thread)
    for event in (event for segment in segments for event in segment.events):
        if isinstance(event, RunStarted):
            result.begins.setdefault(event.first_run_id, event.position)
        elif isinstance(event, RunForked):
            result.forked = event.position
        elif isinstance(event, RunImported):
            result.imported = event.position
    for segment in segments:
        audit = Audit(
            owner,
            state=segment.state,
            trusted=trusted,
            head=segment.head,
            nodes=nodes,
            transcript=segment.transcript,
        )
        audit.take(segment.events)
        owner = audit.thread
        result.effects |= audit.effects
        result.past |= audit.past.keys()
        result.artifacts |= audit.artifacts
        result.policies |= audit.policies
        result.signatures += audit.signatures
        result.calls += audit.results.calls
        result.one_login += audit.one_login
        result.losses += audit.losses
        result.last = segment.events[-1].type
        if audit.fault:
            result.fault = audit.fault
            break
    return result


def _unproven(history: Log, log: AuditResult, *, trusted: Policy | None) -> list[Unchecked]:
    """Return the unproven claims of a log without a fault."""
    gaps: list[Unchecked] = []
    if history.segments and not log.whole and not log.fault and log.last:
        count = history.segments[0].events[0].position
        reason = (
            f"events 0 to {count - 1} belong to earlier Temporal runs, which Temporal has removed. They are in the "
            "permanent record: set DATABASE_URL as the workers have it"
        )
        gaps.append(Unchecked("beginning", reason))
    elif log.imported:
        reason = f"a file brought events 0 to {log.imported - 1}: who vouched for that file is in the event after them"
        gaps.append(Unchecked("original", reason))
    elif log.forked:
        reason = (
            f"events 0 to {log.forked - 1} are those of the thread that it was forked from, as it was then: verify that"
        )
        gaps.append(Unchecked("original", reason))
    elif history.segments and (begin := log.begins.get(history.chain, 0)):
        reason = (
            f"events 0 to {begin - 1} are as the permanent record had them when the thread was continued: Temporal has "
            "removed the history of the runs that recorded them"
        )
        gaps.append(Unchecked("beginning", reason))
    if not history.digests and log.last != "run_finished":
        reason = "the log does not end with run_finished: without Temporal's history, later events cannot be ruled out"
        gaps.append(Unchecked("end", reason))
    if trusted is None and (log.signatures or not history.digests):
        reason = "the policy, its people and their keys come from the log itself: give those that you trust with --keys"
        gaps.append(Unchecked("keys", reason))
    elif trusted is not None and not history.digests and log.policies - {trusted.hash}:
        reason = "the approvers come from the log itself: its policy differs from the one given"
        gaps.append(Unchecked("policy", reason))
    return gaps
