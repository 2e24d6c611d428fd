"""Verify a loop: its log, Temporal's histories against the permanent record, and the logs of its iterations.

1. The record's digests form a chain; every event that is also in Temporal's histories is the same there.
2. Every event follows from those before it: one iteration at a time, numbered without a gap, each in its own thread.
3. When an iteration ended, the log of its thread had the digest that the loop recorded, and its account matches the
   amounts that the loop settled.
4. The log has all events that the seals in anchors cover.
5. The result lists the checks that could not be made.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import cast

from holdfast.audit.evidence.anchors import NONE_GIVEN, Anchors, CheckpointComparison, compare_with_branches, find_seals
from holdfast.audit.evidence.evidence import Finding, Unchecked
from holdfast.audit.evidence.sources import from_record
from holdfast.audit.evidence.verdicts import Verification, conclude
from holdfast.client.reading.costs import spent_by
from holdfast.client.reading.histories import converter_for, runs_back
from holdfast.client.reading.record import Evidence, call_store
from holdfast.client.reading.runs import ENDED
from holdfast.client.threads import Threads
from holdfast.core.base.canonical import GENESIS
from holdfast.core.budget.tree import TreeCost
from holdfast.core.log.event_log import digest_after
from holdfast.core.log.events import RunBlocked, RunFinished, RunPaused, RunResumed, RunUnblocked
from holdfast.core.log.loop_events import IterationEnded, IterationStarted, LoopEvent, LoopStarted
from holdfast.core.log.upcasters import decode_loop_event
from holdfast.core.loop.account import reached_limit
from holdfast.core.loop.evolve import evolve
from holdfast.core.loop.state import LoopState
from holdfast.core.temporal.history import READING
from holdfast.core.temporal.loop_history import archived_in, lines_in
from holdfast.errors import HistoryUnreadable, RecordUnavailable, RecordUnreadable


async def verify_loop(
    threads: Threads, loop: str, *, evidence: Evidence | None = None, anchors: Anchors | None = None
) -> Verification:
    """Verify the readable part of a loop.

    Args:
        threads: Reads the loop and its iterations.
        loop: The loop's id.
        evidence: Finds archived branches; None without a database.
        anchors: The anchors with seals of the loop; None to compare none.

    Raises:
        ThreadNotFound: There is no such loop.
        ServerUnreachable: The server is unreachable.
        SettingsError: An anchor cannot be read.
    """
    unchecked: list[Unchecked] = []
    seals = None
    if anchors:  # before the log, so that the log has the events that they cover
        seals = await asyncio.to_thread(find_seals, anchors, loop, namespace=threads.runs.client.namespace)
    history, faults, closed = await _from_histories(threads, loop, unchecked)
    record = await from_record(threads, loop, decode=decode_loop_event)
    unchecked += record.unchecked
    recorded = cast(Sequence[LoopEvent], record.segments[0].events if record.segments else ())
    faults += [record.fault] if record.fault else []
    least = max(history.archived, min(history.lines, default=0))
    if record.empty and least and history.sealed:
        reason = (
            f"it has no events of this loop, and {least} were written to it: they were deleted or pruned, or "
            "DATABASE_URL names another database than the workers have"
        )
        faults.append(Finding("record", reason, 0))
    if record.digests and not record.fault:
        faults += _differences(history.lines, record.digests)
        if len(record.digests) < least:
            reason = f"it is missing: {least} events were written to the record, but it ends before this one"
            faults.append(Finding("record", reason, len(record.digests)))
        if not faults and closed and recorded[-1].type != "run_finished":
            reason = "the loop is closed in Temporal, and its log does not end: it was closed from outside"
            unchecked.append(Unchecked("end", reason))
    events = list(recorded) or [decode_loop_event(line) for line in history.lines.values()]
    if not faults and events and events[0].position == 0:
        faults += _order_faults(loop, events)
        faults += await _iterations(threads, events, unchecked)
    elif not faults:
        unchecked.append(Unchecked("beginning", "no source has the first events: set DATABASE_URL as the workers do"))
    if not history.lines and recorded and recorded[-1].type != "run_finished":
        reason = "the log does not end with run_finished: without Temporal's history, later events cannot be ruled out"
        unchecked.append(Unchecked("end", reason))
    compared = CheckpointComparison(unchecked=() if history.lines else (NONE_GIVEN,))
    if seals:
        own = {position: str(json.loads(line)["digest"]) for position, line in history.lines.items()}

        async def branch(archived: str) -> Mapping[int, str]:
            archived_log = await from_record(threads, archived, decode=decode_loop_event)
            return {} if archived_log.fault else archived_log.digests

        compared = await compare_with_branches(
            seals,
            record.digests or own,
            evidence,
            branch,
            whole=bool(record.digests) and not record.fault,
            vouched=own.keys() >= (record.digests or own).keys(),
        )
    known = record.digests.keys() | history.lines.keys()
    begun = {"history", "iterations"} | ({"record"} if record.digests or record.empty else set())
    begun |= {"seals"} if history.sealed and history.lines else set()
    begun |= {"anchors"} if compared.seals else set()
    foreign = threads.reader.ownership.foreign(loop)
    return conclude(
        loop,
        len(known),
        tuple(name for name, has in (("history", history.lines), ("record", record.digests or record.fault)) if has),
        [*faults, *compared.faults],
        [*unchecked, *compared.unchecked],
        begun=begun,
        first=min(known, default=0),
        seals=compared.seals,
        notes=(str(foreign),) if foreign else (),
    )


class _HistoryLog:
    """The part of a loop's log in Temporal's histories."""

    def __init__(self) -> None:
        self.lines: dict[int, bytes] = {}
        """The events that were sent to the record, by position."""
        self.archived = 0
        """The number of events that the record must have."""
        self.sealed = False
        """Whether their MACs were checked."""


async def _from_histories(
    threads: Threads, loop: str, unchecked: list[Unchecked]
) -> tuple[_HistoryLog, list[Finding], bool]:
    """Read the remaining histories; return their events, the first fault, and whether the loop is closed."""
    history, faults = _HistoryLog(), list[Finding]()
    execution = await threads.reader.find(loop, loops=True)
    if execution is None:
        reason = "Temporal has no history of this loop: events may have been rewritten, or cut off at the end"
        unchecked.append(Unchecked("history", reason))
        return history, faults, False
    by = converter_for(threads.runs.client, loop)
    history.sealed = by is not READING
    if not history.sealed:
        unchecked.append(Unchecked("seals", "no fleet key is set here: set HOLDFAST_FLEET_KEYS as the workers have it"))
    async for run in runs_back(threads.runs, loop, execution.run_id, by=by):
        try:
            history.lines = lines_in(run.events, by=by) | history.lines
            history.archived = max(history.archived, archived_in(run.events, by=by))
        except HistoryUnreadable as error:
            faults.append(Finding("history", f"the history of run {run.run_id} cannot be read: {error}"))
    history.lines = dict(sorted(history.lines.items()))
    previous: tuple[int, str] | None = (-1, GENESIS)
    for position, line in history.lines.items():
        event = json.loads(line)
        follows = previous is None or previous[0] != position - 1 or digest_after(previous[1], event) == event["digest"]
        if not follows or event["position"] != position:
            faults.append(Finding("history", "its digest does not follow", position))
            break
        previous = position, event["digest"]
    return history, faults, execution.status in ENDED


def _differences(history: Mapping[int, bytes], record: Mapping[int, str]) -> list[Finding]:
    for position, line in history.items():
        if position in record and json.loads(line)["digest"] != record[position]:
            return [Finding("record", "the record has a different event here than Temporal's history", position)]
    return []


def _order_faults(loop: str, events: Sequence[LoopEvent]) -> list[Finding]:
    """Return a finding about the first event that does not follow from those before it."""
    state = LoopState(thread=loop)
    for event in events:
        if fault := _order_fault(loop, state, event):
            return [Finding("record", f"{event.type}: {fault}", event.position)]
        state = evolve(state, event)
    return []


def _order_fault(loop: str, state: LoopState, event: LoopEvent) -> str:
    """Return the reason why an event does not follow; empty if it does."""
    current = state.current
    if isinstance(event, LoopStarted) != (event.position == 0):
        return "a log begins with loop_started, and has one"
    match event:
        case LoopStarted(thread=thread) if thread != loop:
            return f"it belongs to loop {thread!r}, and this is {loop!r}"
        case IterationStarted() if current or state.outcome or state.paused or state.blocked:
            return "no iteration could begin here"
        case IterationStarted() if (event.number, event.thread) != (state.count, f"{loop}-{state.count}"):
            return f"the next iteration is number {state.count}, in thread {loop}-{state.count}"
        case IterationStarted() if limit := reached_limit(state.account):
            return f"no iteration could begin here: the loop's limit of {limit} is reached"
        case IterationEnded() if current is None or current.number != event.number:
            return f"iteration {event.number} is not under way"
        case RunResumed() if not state.paused:
            return "the loop is not paused"
        case RunUnblocked() if not state.blocked:
            return "the loop is not blocked"
        case RunBlocked() if current or state.blocked:
            return "a loop is blocked between iterations, once"
        case RunPaused() | RunFinished() if state.outcome:
            return "the loop has ended"
        case _:
            return ""


async def _iterations(threads: Threads, events: Sequence[LoopEvent], unchecked: list[Unchecked]) -> list[Finding]:
    """Return a finding about the first iteration whose log contradicts the loop's log."""
    if threads.reader.record is None:
        return []
    names = {event.number: event.thread for event in events if isinstance(event, IterationStarted)}
    gone: list[str] = []
    for event in events:
        if not isinstance(event, IterationEnded) or not event.log_events:
            continue
        thread, position = names[event.number], event.log_events - 1
        try:
            lines = await call_store(threads.reader.record.store.read(thread, position))
            length = 0 if lines else await threads.reader.record.length(thread)
            cost = await _cost_of(threads, event, thread) if lines else event.spent
        except (RecordUnavailable, RecordUnreadable) as error:
            unchecked.append(Unchecked("iterations", str(error)))
            return []
        if not lines and not length:
            gone.append(thread)
        elif not lines or json.loads(lines[0]).get("digest") != event.log_head:
            reason = f"the log of iteration {thread} had another event {position} when the iteration ended"
            return [Finding("record", reason, event.position)]
        elif cost != event.spent:
            reason = f"the log of iteration {thread} has another account than what the loop has settled (`spent`)"
            return [Finding("record", reason, event.position)]
    if gone:
        reason = f"the permanent record has no log of {len(gone)} of them, such as {gone[0]}: they were pruned"
        unchecked.append(Unchecked("iterations", reason))
    return []


async def _cost_of(threads: Threads, event: IterationEnded, thread: str) -> TreeCost | None:
    """Return the cost of an iteration by its own log, or the cost that the loop recorded if its log is incomplete.

    A terminated run has more events in Temporal than in the record.
    """
    record = threads.reader.record
    if event.spent is None or record is None:
        return event.spent
    ends = [(await call_store(record.store.read(thread, index)))[0] for index in (0, event.log_events - 1)]
    begin, end = map(json.loads, ends)
    if end["type"] != "run_finished":
        return event.spent
    cost = await spent_by(threads.reader, thread, first_run_id=str(begin.get("first_run_id")))
    # The log does not show whether a limit of the agent itself, narrower than the loop's, ran short.
    return cost.model_copy(update={"short": event.spent.short}) if cost else event.spent
