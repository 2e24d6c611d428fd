"""Check a thread: its log by itself, Temporal's histories against the permanent record, and what is kept beside them.

1. Each source's digests follow one from the other; where both have an event, it is the same one.
2. Every event follows from those before it (`holdfast.audit`).
3. The ledger has the effects that the log begins and ends, and no others; the artifacts are what the log refers to.
4. What could not be checked is said, too. Nothing in a log proves that it was not written anew as a whole.
"""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from temporalio.converter import PayloadConverter, WorkflowSerializationContext

from holdfast.audit import Audit, Effects, Fault
from holdfast.errors import HistoryUnreadable, RecordUnreadable
from holdfast.events import AgentEvent
from holdfast.log import first_altered
from holdfast.policy import Policy
from holdfast.recorded import READING
from holdfast.runtime.client import seals_of
from holdfast.runtime.evidence import (
    ADVICE,
    Found,
    Unchecked,
    Where,
    artifact_faults,
    asides,
    ledger_faults,
    ledger_rows,
)
from holdfast.runtime.histories import Recorded, runs_back
from holdfast.runtime.record import Evidence
from holdfast.runtime.runs import ENDED
from holdfast.runtime.thread_errors import RecordAway
from holdfast.runtime.threads import Threads
from holdfast.seals import SealKeyUnknown
from holdfast.state import RunState
from holdfast.stores import origin_of
from holdfast.upcasters import decode_event

_POSITION = re.compile(r"event (\d+) of thread")


@dataclass(frozen=True)
class Verified:
    """What the check of a thread came to."""

    thread: str
    ok: bool
    events: int
    """How many events were checked."""
    sources: tuple[str, ...]
    """Where they were read: `history`, `record`."""
    first: int = 0
    """Position of the first event that could be checked: what came before is nowhere to be read."""
    where: str = ""
    """Which has the first fault: `record`, `history`, `ledger`, `artifacts`."""
    position: int | None = None
    """Of the event that is at fault; None where no event is."""
    reason: str = ""
    """What is wrong."""
    advice: str = ""
    """What to do."""
    signatures: int = 0
    """How many signatures were verified."""
    unchecked: tuple[Unchecked, ...] = ()
    """What could not be checked, and why."""


@dataclass
class _Segment:
    """Events of one source without a gap, and where the thread stood before them."""

    events: list[AgentEvent]
    state: RunState | None = None


@dataclass
class _Log:
    """One source's events, and its first fault."""

    segments: list[_Segment] = field(default_factory=list)
    digests: dict[int, str] = field(default_factory=dict)
    """By position."""
    heads: dict[int, str] = field(default_factory=dict)
    """What each Temporal run took for the digest of the event before its first, by that event's position."""
    fault: Found | None = None
    archived: int = 0
    """How many events the permanent record has to have."""
    closed: bool = False
    """Whether nothing more can come."""
    unchecked: list[Unchecked] = field(default_factory=list)


@dataclass
class _Judged:
    """What an audit of the events came to."""

    fault: Fault | None = None
    effects: Effects = field(default_factory=dict)
    artifacts: dict[str, int] = field(default_factory=dict)
    signatures: int = 0
    last: str = ""
    """The type of the last event."""
    whole: bool = False
    """The events begin with the thread's first."""


async def verify(
    threads: Threads, thread: str, *, evidence: Evidence | None = None, trusted: Policy | None = None
) -> Verified:
    """Check all of a thread that can still be read.

    Args:
        threads: Reads it.
        thread: The thread id, or that of a log that was set aside.
        evidence: Ledger and artifacts; None where there is no database.
        trusted: People, gateways and their keys, from outside the log; None to take the log's own.

    Raises:
        ThreadNotFound: There is no such thread.
        ServerUnreachable: The server does not answer.
    """
    unchecked: list[Unchecked] = []
    origin = origin_of(thread) or thread
    # Before the log: what an effect of these rows was started by is in all that is read later.
    rows = await ledger_rows(evidence, origin, unchecked)
    history = await _from_histories(threads, thread)
    record = await _from_record(threads, thread)
    unchecked += [*history.unchecked, *record.unchecked]
    faults = [log.fault for log in (record, history) if log.fault] + _differences(history, record)
    log = _Judged()
    if not faults:
        log = await asyncio.to_thread(_judge, _joined(history, record), origin, trusted)
    if log.fault:
        where: Where = "record" if log.fault.position in record.digests else "history"
        faults.append(Found(where, log.fault.reason, log.fault.position))
    if not faults and evidence:
        if history.digests and not record.digests and not rows:
            why = "it has nothing of this thread: is DATABASE_URL the one that the workers have?"
            unchecked += [Unchecked("ledger", why)] if rows is not None else []
        elif rows is not None:
            began = dict(log.effects)
            for aside in await asides(evidence, thread):
                left = await _from_record(threads, aside)
                began |= _judge(left.segments, thread, None).effects
            # Of a log that was set aside, the ledger also has what its thread began after the reset.
            whole = log.whole and origin == thread
            faults += await ledger_faults(evidence, origin, rows, log.effects, began=began, whole=whole)
        faults += await artifact_faults(evidence, log.artifacts, unchecked)
    unchecked += _not_proven(history, log, trusted=trusted)
    known = history.digests.keys() | record.digests.keys()
    first = min(faults, key=lambda fault: fault.order) if faults else None
    return Verified(
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
        unchecked=tuple(unchecked),
    )


# Temporal's histories.


async def _from_histories(threads: Threads, thread: str) -> _Log:
    """The events rebuilt from the histories of all Temporal runs that are left."""
    log = _Log()
    found = await threads.reader.find(thread)
    if found is None:
        why = "Temporal has none of this thread: what was altered as a whole, its digests included, cannot be seen"
        log.unchecked.append(Unchecked("history", why))
        return log
    by = _checking(threads, thread)
    if by is READING:
        why = "there is no fleet key here: set HOLDFAST_FLEET_KEYS as the workers have it"
        log.unchecked.append(Unchecked("seals", why))
    runs = [run async for run in runs_back(threads.runs, thread, found.run_id, by=by)]
    for run in reversed(runs):
        try:
            _add(log, run)
        except HistoryUnreadable as error:
            if isinstance(error.__cause__, SealKeyUnknown):
                log.unchecked.append(Unchecked("seals", f"of run {run.run_id}: {error.__cause__}"))
                run = Recorded(run.thread, run.run_id, run.events)
                try:
                    _add(log, run)
                    continue
                except HistoryUnreadable as again:
                    error = again
            last = max(log.digests, default=-1) + 1
            words = f"the history of run {run.run_id} cannot be read: {error}"
            log.fault = log.fault or Found("history", words, last)
    ended = log.segments and log.segments[-1].events[-1].type == "run_finished"
    log.closed = found.status in ENDED and bool(ended) and not log.fault
    return log


def _checking(threads: Threads, thread: str) -> PayloadConverter:
    """What decodes the thread's payloads: checking their seals, if the key is here."""
    client = threads.runs.client
    if not seals_of(client):
        return READING
    place = WorkflowSerializationContext(namespace=client.namespace, workflow_id=thread)
    return client.data_converter.with_context(place).payload_converter


def _add(log: _Log, run: Recorded) -> None:
    """Take in one run's events; they have to follow from those of the run before.

    Raises:
        HistoryUnreadable: They cannot be read.
    """
    events, begin, archived = run.log, run.begin, run.archived
    log.archived = max(log.archived, archived)
    start, head = begin.position, begin.head
    if log.digests.get(start - 1, head) != head:
        log.fault = log.fault or Found("history", "it does not follow from the run before it", start)
    if start:
        log.heads[start - 1] = head
    altered = first_altered(events, start=start, head=head)
    if altered is not None:
        log.fault = log.fault or Found("history", "its digest does not follow", altered)
    for event in events:
        known = log.digests.setdefault(event.position, event.digest)
        if known != event.digest:
            log.fault = log.fault or Found("history", "two Temporal runs have different events here", event.position)
    if not events:
        return
    joined = log.segments[-1].events if log.segments else []
    if joined and start <= joined[-1].position + 1:
        joined += [event for event in events if event.position > joined[-1].position]
    else:
        log.segments.append(_Segment(list(events), begin.state if start else None))


# The permanent record.


async def _from_record(threads: Threads, thread: str) -> _Log:
    """The events of the permanent record, checked as they are stored."""
    log, events = _Log(), list[AgentEvent]()
    if threads.reader.record is None:
        log.unchecked.append(Unchecked("record", "no database is known here: set DATABASE_URL as the workers have it"))
        return log
    try:
        async for lines in threads.reader.record.parts(thread, 0):
            events += [decode_event(line) for line in lines]
        if not events:
            why = "it has nothing of this thread: is DATABASE_URL the one that the workers have?"
            log.unchecked.append(Unchecked("record", why))
    except RecordUnreadable as error:
        named = _POSITION.search(str(error))
        log.fault = Found("record", str(error), int(named[1]) if named else len(events))
    except RecordAway as error:
        log.unchecked.append(Unchecked("record", str(error)))
    log.digests = {event.position: event.digest for event in events}
    if events:
        log.segments = [_Segment(events)]
    return log


# Both.


def _differences(history: _Log, record: _Log) -> list[Found]:
    """Where the record has something else than the histories, or ends before it should."""
    if not record.digests or not history.digests:
        return []
    known = {**history.heads, **history.digests}
    for position in sorted(known.keys() & record.digests.keys()):
        if known[position] != record.digests[position]:
            words = "the record has another event here than Temporal's history"
            return [Found("record", words, position)]
    length = len(record.digests)
    if record.fault is None and history.closed and length <= max(history.digests):
        return [Found("record", "it is missing: the record ends before it, and the run has ended", length)]
    if record.fault is None and length < (least := max(history.archived, min(history.digests))):
        words = f"it is missing: {least} events were written to the record, and it ends before this one"
        return [Found("record", words, length)]
    return []


def _joined(history: _Log, record: _Log) -> list[_Segment]:
    """The thread's events from both sources, the record's first."""
    if not record.segments:
        return history.segments
    (own,) = record.segments
    events = list(own.events)
    for segment in history.segments:
        events += [event for event in segment.events if event.position >= len(events)]
    return [_Segment(events)]


def _judge(segments: Sequence[_Segment], thread: str, trusted: Policy | None) -> _Judged:
    """Audit the events, up to the first fault."""
    judged = _Judged(whole=bool(segments) and segments[0].state is None)
    for segment in segments:
        audit = Audit(thread, state=segment.state, trusted=trusted)
        audit.take(segment.events)
        judged.effects |= audit.effects
        judged.artifacts |= audit.artifacts
        judged.signatures += audit.signatures
        judged.last = segment.events[-1].type
        if audit.fault:
            judged.fault = audit.fault
            break
    return judged


def _not_proven(history: _Log, log: _Judged, *, trusted: Policy | None) -> list[Unchecked]:
    """What a log that passes does not prove."""
    found: list[Unchecked] = []
    if history.segments and not log.whole and not log.fault and log.last:
        count = history.segments[0].events[0].position
        why = (
            f"events 0 to {count - 1} are of earlier Temporal runs, which Temporal has removed. The permanent record "
            "has them: set DATABASE_URL to the one that the workers have"
        )
        found.append(Unchecked("beginning", why))
    if not history.digests and log.last != "run_finished":
        why = "the log does not end with run_finished: without Temporal's history, nobody can tell what came after it"
        found.append(Unchecked("end", why))
    if trusted is None and (log.signatures or not history.digests):
        why = "the policy, its people and their keys were taken from the log itself: give those you know with --keys"
        found.append(Unchecked("keys", why))
    elif trusted is not None and not history.digests:
        found.append(Unchecked("policy", "what needs no approval was taken from the policy in the log itself"))
    return found
