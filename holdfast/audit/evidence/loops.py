"""Verify a loop: its log, Temporal's histories against the permanent record, and the logs of its iterations.

1. The record's digests form a chain; where Temporal's histories have an event, it is the same.
2. Every event follows from those before it: one iteration at a time, numbered without a gap, in a thread of its own.
3. The log of an iteration's thread had, at its end, the digest that the loop has recorded, and its account what the
   loop has settled.
4. The log has what the seals in anchors cover.
5. The result lists what could not be checked.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import cast

from holdfast.audit.evidence.anchors import NONE_GIVEN, Anchors, Compared, compare_with_branches, find_seals
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
from holdfast.core.loop.account import reached
from holdfast.core.loop.evolve import evolve
from holdfast.core.loop.state import LoopState
from holdfast.core.temporal.history import READING
from holdfast.core.temporal.loop_history import archived_in, lines_in
from holdfast.errors import HistoryUnreadable, RecordUnavailable, RecordUnreadable


async def verify_loop(
    threads: Threads, loop: str, *, evidence: Evidence | None = None, anchors: Anchors | None = None
) -> Verification:
    """Verify all of a loop that can still be read.

    Args:
        threads: Reads the loop and its iterations.
        loop: The loop's id.
        evidence: Finds logs that resets have set aside; None without a database.
        anchors: Where seals of the loop are; None to compare none.

    Raises:
        ThreadNotFound: There is no such loop.
        ServerUnreachable: The server does not answer.
        SettingsError: An anchor cannot be read.
    """
    unchecked: list[Unchecked] = []
    seals = None
    if anchors:  # before the log, so that the log has what they cover
        seals = await asyncio.to_thread(find_seals, anchors, loop, namespace=threads.runs.client.namespace)
    sent, faults, closed = await _from_histories(threads, loop, unchecked)
    record = await from_record(threads, loop, decode=decode_loop_event)
    unchecked += record.unchecked
    recorded = cast(Sequence[LoopEvent], record.segments[0].events if record.segments else ())
    faults += [record.fault] if record.fault else []
    least = max(sent.archived, min(sent.lines, default=0))
    if record.empty and least and sent.sealed:
        words = (
            f"it has no events of this loop, and {least} were written to it: they were deleted or pruned, or "
            "DATABASE_URL names another database than the workers have"
        )
        faults.append(Finding("record", words, 0))
    if record.digests and not record.fault:
        faults += _differences(sent.lines, record.digests)
        if len(record.digests) < least:
            words = f"it is missing: {least} events were written to the record, but it ends before this one"
            faults.append(Finding("record", words, len(record.digests)))
        if not faults and closed and recorded[-1].type != "run_finished":
            words = "the loop is closed in Temporal, and its log does not end: it was closed from outside"
            unchecked.append(Unchecked("end", words))
    events = list(recorded) or [decode_loop_event(line) for line in sent.lines.values()]
    if not faults and events and events[0].position == 0:
        faults += _follows(loop, events)
        faults += await _iterations(threads, events, unchecked)
    elif not faults:
        unchecked.append(Unchecked("beginning", "no source has the first events: set DATABASE_URL as the workers do"))
    if not sent.lines and recorded and recorded[-1].type != "run_finished":
        why = "the log does not end with run_finished: without Temporal's history, later events cannot be ruled out"
        unchecked.append(Unchecked("end", why))
    compared = Compared(unchecked=() if sent.lines else (NONE_GIVEN,))
    if seals:
        own = {position: str(json.loads(line)["digest"]) for position, line in sent.lines.items()}

        async def branch(aside: str) -> Mapping[int, str]:
            found = await from_record(threads, aside, decode=decode_loop_event)
            return {} if found.fault else found.digests

        compared = await compare_with_branches(
            seals,
            record.digests or own,
            evidence,
            branch,
            whole=bool(record.digests) and not record.fault,
            vouched=own.keys() >= (record.digests or own).keys(),
        )
    known = record.digests.keys() | sent.lines.keys()
    made = {"history", "iterations"} | ({"record"} if record.digests or record.empty else set())
    made |= {"seals"} if sent.sealed and sent.lines else set()
    made |= {"anchors"} if compared.seals else set()
    foreign = threads.reader.ownership.foreign(loop)
    return conclude(
        loop,
        len(known),
        tuple(name for name, has in (("history", sent.lines), ("record", record.digests or record.fault)) if has),
        [*faults, *compared.faults],
        [*unchecked, *compared.unchecked],
        made=made,
        first=min(known, default=0),
        seals=compared.seals,
        notes=(str(foreign),) if foreign else (),
    )


class _Sent:
    """What Temporal's histories have of a loop's log."""

    def __init__(self) -> None:
        self.lines: dict[int, bytes] = {}
        """The events that were sent to the record, by position."""
        self.archived = 0
        """How many events the record must have."""
        self.sealed = False
        """Their seals were checked."""


async def _from_histories(threads: Threads, loop: str, unchecked: list[Unchecked]) -> tuple[_Sent, list[Finding], bool]:
    """Return what the histories that remain have, their first fault, and whether the loop is closed."""
    sent, faults = _Sent(), list[Finding]()
    found = await threads.reader.find(loop, loops=True)
    if found is None:
        why = "Temporal has no history of this loop: events may have been rewritten, or cut off at the end"
        unchecked.append(Unchecked("history", why))
        return sent, faults, False
    by = converter_for(threads.runs.client, loop)
    sent.sealed = by is not READING
    if not sent.sealed:
        unchecked.append(Unchecked("seals", "no fleet key is set here: set HOLDFAST_FLEET_KEYS as the workers have it"))
    async for run in runs_back(threads.runs, loop, found.run_id, by=by):
        try:
            sent.lines = lines_in(run.events, by=by) | sent.lines
            sent.archived = max(sent.archived, archived_in(run.events, by=by))
        except HistoryUnreadable as error:
            faults.append(Finding("history", f"the history of run {run.run_id} cannot be read: {error}"))
    sent.lines = dict(sorted(sent.lines.items()))
    previous: tuple[int, str] | None = (-1, GENESIS)
    for position, line in sent.lines.items():
        event = json.loads(line)
        follows = previous is None or previous[0] != position - 1 or digest_after(previous[1], event) == event["digest"]
        if not follows or event["position"] != position:
            faults.append(Finding("history", "its digest does not follow", position))
            break
        previous = position, event["digest"]
    return sent, faults, found.status in ENDED


def _differences(sent: Mapping[int, bytes], record: Mapping[int, str]) -> list[Finding]:
    for position, line in sent.items():
        if position in record and json.loads(line)["digest"] != record[position]:
            return [Finding("record", "the record has a different event here than Temporal's history", position)]
    return []


def _follows(loop: str, events: Sequence[LoopEvent]) -> list[Finding]:
    """Return the first event that does not follow from those before it."""
    state = LoopState(thread=loop)
    for event in events:
        if wrong := _wrong(loop, state, event):
            return [Finding("record", f"{event.type}: {wrong}", event.position)]
        state = evolve(state, event)
    return []


def _wrong(loop: str, state: LoopState, event: LoopEvent) -> str:
    """Return why an event does not follow; empty if it does."""
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
        case IterationStarted() if limit := reached(state.account):
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
    """Return the first iteration whose own log does not have what the loop has recorded of it."""
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
            words = f"the log of iteration {thread} had another event {position} when the iteration ended"
            return [Finding("record", words, event.position)]
        elif cost != event.spent:
            words = f"the log of iteration {thread} has another account than what the loop has settled (`spent`)"
            return [Finding("record", words, event.position)]
    if gone:
        words = f"the permanent record has no log of {len(gone)} of them, such as {gone[0]}: they were pruned"
        unchecked.append(Unchecked("iterations", words))
    return []


async def _cost_of(threads: Threads, event: IterationEnded, thread: str) -> TreeCost | None:
    """Return what an iteration has spent by its own log; what the loop has recorded, where its log cannot say.

    A run that was closed from outside has more events in Temporal than in the record.
    """
    record = threads.reader.record
    if event.spent is None or record is None:
        return event.spent
    ends = [(await call_store(record.store.read(thread, place)))[0] for place in (0, event.log_events - 1)]
    begin, end = map(json.loads, ends)
    if end["type"] != "run_finished":
        return event.spent
    cost = await spent_by(threads.reader, thread, first_run_id=str(begin.get("first_run_id")))
    # A limit of the agent's own, narrower than the loop's, is not noted.
    return cost.model_copy(update={"short": event.spent.short}) if cost else event.spent
