"""Read the two sources of a thread's log, Temporal's histories and the permanent record; check and compare them."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from holdfast.audit.evidence.evidence import Finding, Unchecked
from holdfast.client.reading.histories import RecordedRun, converter_for, runs_back
from holdfast.client.reading.runs import ENDED
from holdfast.client.threads import Threads
from holdfast.core.log.event_log import first_altered
from holdfast.core.log.events import AgentEvent
from holdfast.core.log.upcasters import decode_event
from holdfast.core.run.state.origin import Loss
from holdfast.core.run.state.state import RunState
from holdfast.core.temporal.history import READING
from holdfast.core.transcript.transcript import TranscriptBase
from holdfast.errors import EventUnreadable, FeaturesUnknown, HistoryUnreadable, RecordUnavailable, RecordUnreadable

_POSITION = re.compile(r"event (\d+) of thread")


@dataclass
class Segment:
    """Consecutive events of one source, and the thread's state before them."""

    events: list[AgentEvent]
    state: RunState | None = None
    head: str = ""
    """The digest of the event before the first one; empty at the beginning of the log."""
    transcript: TranscriptBase | None = None
    """The transcript before; None at the beginning of the log."""


@dataclass
class Log:
    """One source's events, and its first fault."""

    segments: list[Segment] = field(default_factory=list)
    digests: dict[int, str] = field(default_factory=dict)
    """Digest of each event, by position."""
    heads: dict[int, str] = field(default_factory=dict)
    """The digests in the snapshots of Temporal runs: of the event before each run's first, by position."""
    fault: Finding | None = None
    archived: int = 0
    """The number of events that the permanent record must have."""
    closed: bool = False
    """Whether no more events can follow."""
    chain: str = ""
    """The first run id of the oldest Temporal run that remains."""
    empty: bool = False
    """For the record: whether it was read and has no events."""
    sealed: bool = False
    """For the histories: whether their MACs were checked."""
    newer: bool = False
    """For the histories: whether only a newer release can read a run, by its sealed feature level."""
    unchecked: list[Unchecked] = field(default_factory=list)

    def leave_out(self, lost: Loss) -> None:
        """Leave out the events of a log that a later run knows to be lost, if they are its last ones.

        They stay if they join the events before the gap: then they are not lost.
        """
        if self.digests.get(lost.events - 1) != lost.head or lost.position in self.digests:
            return
        self.digests = {at: digest for at, digest in self.digests.items() if at < lost.position}
        self.heads = {at: digest for at, digest in self.heads.items() if at < lost.position}
        self.segments = [each for each in self.segments if each.events[-1].position < lost.position]
        self.archived = 0


# Temporal's histories.


async def from_histories(threads: Threads, thread: str) -> Log:
    """Rebuild the events from the histories of all Temporal runs that remain."""
    log = Log()
    execution = await threads.reader.find(thread)
    if execution is None:
        reason = (
            "Temporal has no history of this thread: unsigned events may have been rewritten, or cut off at the end "
            "of a run, without a trace"
        )
        log.unchecked.append(Unchecked("history", reason))
        return log
    by = converter_for(threads.runs.client, thread)
    log.sealed = by is not READING
    if not log.sealed:
        reason = "no fleet key is set here: set HOLDFAST_FLEET_KEYS as the workers have it"
        log.unchecked.append(Unchecked("seals", reason))
    runs = [run async for run in runs_back(threads.runs, thread, execution.run_id, by=by)]
    for run in reversed(runs):
        log.chain = log.chain or run.chain
        try:
            _add_run(log, run)
        except HistoryUnreadable as error:
            if log.sealed and isinstance(error.__cause__, FeaturesUnknown):
                log.newer = True
                log.unchecked.append(Unchecked("history", str(error.__cause__)))
                return log
            last = max(log.digests, default=-1) + 1
            reason = f"the history of run {run.run_id} cannot be read: {error}"
            log.fault = log.fault or Finding("history", reason, last)
    ended = log.segments and log.segments[-1].events[-1].type == "run_finished"
    log.closed = execution.status in ENDED and bool(ended) and not log.fault
    return log


def _add_run(log: Log, run: RecordedRun) -> None:
    """Add one run's events to the log; they must follow those of the run before.

    Raises:
        HistoryUnreadable: The events cannot be read.
    """
    events, begin, archived = run.log, run.begin, run.archived
    start, head = begin.position, begin.head
    if begin.state.lost and start <= max(log.digests, default=-1):
        log.leave_out(begin.state.lost)
    log.archived = max(log.archived, archived)
    if log.digests.get(start - 1, head) != head:
        log.fault = log.fault or Finding("history", "it does not follow from the run before it", start)
    if start:
        log.heads[start - 1] = head
    altered = first_altered(events, start=start, head=head)
    if altered is not None:
        log.fault = log.fault or Finding("history", "its digest does not follow", altered)
    for event in events:
        known = log.digests.setdefault(event.position, event.digest)
        if known != event.digest:
            log.fault = log.fault or Finding("history", "two Temporal runs have different events here", event.position)
    if not events:
        return
    before = log.segments[-1].events if log.segments else []
    if before and start <= before[-1].position + 1:
        before += [event for event in events if event.position > before[-1].position]
    else:
        later = Segment(list(events), begin.state, head, begin.transcript)
        log.segments.append(later if start else Segment(list(events)))


# The permanent record.


async def from_record(threads: Threads, thread: str, *, decode: Callable[[bytes], Any] = decode_event) -> Log:
    """Read the events of the permanent record, and check the stored lines; `decode` decodes one."""
    log, events = Log(), list[Any]()
    if threads.reader.record is None:
        log.unchecked.append(Unchecked("record", "no database is set here: set DATABASE_URL as the workers have it"))
        return log
    try:
        async for lines in threads.reader.record.pages(thread, 0):
            events += [decode(line) for line in lines]
        log.empty = not events
    except (RecordUnreadable, EventUnreadable) as error:
        named = _POSITION.search(str(error))
        log.fault = Finding("record", str(error), int(named[1]) if named else len(events))
    except RecordUnavailable as error:
        events = []  # a part of the record would look like a truncated log
        log.unchecked.append(Unchecked("record", str(error)))
    log.digests = {event.position: event.digest for event in events}
    if events:
        log.segments = [Segment(events)]
    return log


# Both.


def differences(history: Log, record: Log) -> list[Finding]:
    """Return a finding about the first difference between the record and the histories, or a record that ends early."""
    if not history.digests or not (record.digests or record.empty):
        return []
    if record.empty:
        least = least_recorded(history) if history.sealed else 0
        reason = (
            f"it has no events of this thread, and {least} were written to it: they were deleted or pruned, or "
            "DATABASE_URL names another database than the workers have"
        )
        return [Finding("record", reason, 0)] if least else []
    known = {**history.heads, **history.digests}
    for position in sorted(known.keys() & record.digests.keys()):
        if known[position] != record.digests[position]:
            reason = "the record has a different event here than Temporal's history"
            return [Finding("record", reason, position)]
    length = len(record.digests)
    if record.fault is None and history.closed and length <= max(history.digests):
        return [Finding("record", "it is missing: the run has ended, but the record ends before this event", length)]
    if record.fault is None and length < (least := least_recorded(history)):
        reason = f"it is missing: {least} events were written to the record, but it ends before this one"
        return [Finding("record", reason, length)]
    return []


def least_recorded(history: Log) -> int:
    """Return the number of events that the permanent record must have according to the histories."""
    return max(history.archived, min(history.digests), max(history.digests) + 1 if history.closed else 0)


def join(history: Log, record: Log) -> list[Segment]:
    """Join the thread's events from both sources; an event in both is taken from the record."""
    if not record.segments:
        return history.segments
    (own,) = record.segments
    events = list(own.events)
    for segment in history.segments:
        events += [event for event in segment.events if event.position >= len(events)]
    return [Segment(events)]
