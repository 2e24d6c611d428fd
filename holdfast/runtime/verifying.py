"""Check a thread's log: the chain of digests over the permanent record's stored lines, the events rebuilt from
Temporal's histories, that both tell the same, and that decisions were signed by those who may.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from holdfast.errors import HistoryUnreadable, RecordUnreadable
from holdfast.events import AgentEvent
from holdfast.log import event_json, first_altered
from holdfast.runtime.histories import Recorded, runs_back
from holdfast.runtime.proofs import PROVEN, Proofs
from holdfast.runtime.runs import ENDED
from holdfast.runtime.thread_errors import RecordAway
from holdfast.runtime.threads import Threads
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
    """`record` or `history`: which has the altered entry."""
    position: int | None = None
    """Of the first altered entry."""
    reason: str = ""
    signatures: int = 0
    """How many signatures of decisions were checked."""
    note: str = ""
    """Why a source was left out."""


@dataclass
class _Log:
    """One source's events: digests by position, and the first fault."""

    digests: dict[int, str] = field(default_factory=dict)
    fault: tuple[int, str] | None = None
    heads: dict[int, str] = field(default_factory=dict)
    """What each Temporal run took for the digest of the event before its first, by that event's position."""
    closed: bool = False
    """Whether nothing more can come."""
    proofs: Proofs = field(default_factory=lambda: Proofs(""))


async def verify(threads: Threads, thread: str) -> Verified:
    """Check every event of a thread that can still be read.

    Raises:
        ThreadNotFound: There is no such thread.
        ServerUnreachable: The server does not answer.
    """
    history = await _from_histories(threads, thread)
    record, note = _Log(), ""
    try:
        record = await _from_record(threads, thread)
    except RecordAway as error:
        note = str(error)
    faults = [(*log.fault, where) for log, where in ((record, "record"), (history, "history")) if log.fault]
    faults += _differences(history, record)
    # What was altered is told as that, before its signature is.
    faults += [
        (*fault, where) for log, where in ((record, "record"), (history, "history")) if (fault := log.proofs.fault)
    ]
    sources = tuple(where for where, log in (("history", history), ("record", record)) if log.digests or log.fault)
    known = history.digests.keys() | record.digests.keys()
    first_fault = min(faults, key=lambda fault: fault[0]) if faults else None
    position, reason, where = first_fault or (None, "", "")
    return Verified(
        thread=thread,
        ok=first_fault is None,
        events=len(known),
        sources=sources,
        first=min(known, default=0),
        where=where,
        position=position,
        reason=reason,
        signatures=max(history.proofs.signed, record.proofs.signed),
        note=note,
    )


async def _from_histories(threads: Threads, thread: str) -> _Log:
    """The events rebuilt from the histories of all Temporal runs that are left."""
    log = _Log(proofs=Proofs(thread))
    found = await threads.reader.find(thread)
    if found is None:
        return log
    runs: list[Recorded] = []
    async for run in runs_back(threads.runs, thread, found.run_id):
        runs.append(run)
    for run in reversed(runs):
        try:
            events, begin = run.log, run.begin
        except HistoryUnreadable as error:
            last = max(log.digests, default=-1) + 1
            log.fault = log.fault or (last, f"the history of run {run.run_id} cannot be read: {error}")
            continue
        _add(log, events, start=begin.position, head=begin.head)
    log.closed = found.status in ENDED and bool(runs) and not log.fault and _finished(runs[0].log)
    return log


def _add(log: _Log, events: Sequence[AgentEvent], *, start: int, head: str) -> None:
    """Take in one run's events; they have to follow from those of the run before."""
    if log.digests.get(start - 1, head) != head:
        log.fault = log.fault or (start, "it does not follow from the run before it")
    if start:
        log.heads[start - 1] = head
    altered = first_altered(list(events), start=start, head=head)
    if altered is not None:
        log.fault = log.fault or (altered, "its digest does not follow")
    for event in events:
        known = log.digests.setdefault(event.position, event.digest)
        if known != event.digest:
            log.fault = log.fault or (event.position, "two Temporal runs have different events here")
        log.proofs.add(event)


async def _from_record(threads: Threads, thread: str) -> _Log:
    """The events of the permanent record, checked as they are stored."""
    log = _Log(proofs=Proofs(thread))
    if threads.reader.record is None:
        return log
    try:
        async for lines in threads.reader.record.parts(thread, 0):
            for line in lines:
                event = json.loads(line)
                log.digests[int(event["position"])] = str(event["digest"])
                if event["type"] in PROVEN:
                    log.proofs.add(decode_event(line))
    except RecordUnreadable as error:
        named = _POSITION.search(str(error))
        log.fault = (int(named[1]) if named else len(log.digests), str(error))
    return log


def _differences(history: _Log, record: _Log) -> list[tuple[int, str, str]]:
    """Where the record has something else than the histories, or ends before it should."""
    if not record.digests or not history.digests:
        return []
    known = {**history.heads, **history.digests}
    for position in sorted(known.keys() & record.digests.keys()):
        if known[position] != record.digests[position]:
            return [(position, "the record has another event here than Temporal's history, as after a reset", "record")]
    length = len(record.digests)
    if history.closed and not record.fault and length <= max(history.digests):
        return [(length, "it is missing: the record ends before it, and the run has ended", "record")]
    return []


def _finished(events: Sequence[AgentEvent]) -> bool:
    return bool(events) and event_json(events[-1])["type"] == "run_finished"
