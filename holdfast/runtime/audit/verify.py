"""Check a thread: its log by itself, Temporal's histories against the permanent record, and what is kept beside them.

1. Each source's digests follow one from the other; where both have an event, it is the same one.
2. Every event follows from those before it (`holdfast.audit.audit`).
3. The ledger has the effects that the log begins and ends, and no others; the artifacts are what the log refers to.
4. What could not be checked is said, too. Nothing in a log proves that it was not written anew as a whole.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from holdfast.audit.audit import Audit, Effects, Fault
from holdfast.authority.policy import Policy
from holdfast.runtime.audit.evidence import (
    ADVICE,
    Found,
    Unchecked,
    Where,
    artifact_faults,
    asides,
    ledger_faults,
    ledger_rows,
)
from holdfast.runtime.audit.sources import Log, Segment, differences, from_histories, from_record, joined
from holdfast.runtime.client.threads import Threads
from holdfast.runtime.reading.record import Evidence
from holdfast.stores import origin_of


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
class _Judged:
    """What an audit of the events came to."""

    fault: Fault | None = None
    effects: Effects = field(default_factory=dict)
    past: set[str] = field(default_factory=set)
    """Keys of effects that a reset has found in the ledger."""
    artifacts: dict[str, int] = field(default_factory=dict)
    policies: set[str] = field(default_factory=set)
    """Digests of those that were in force."""
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
    history = await from_histories(threads, thread)
    record = await from_record(threads, thread)
    unchecked += [*history.unchecked, *record.unchecked]
    faults = [log.fault for log in (record, history) if log.fault] + differences(history, record)
    log = _Judged()
    if not faults:
        log = await asyncio.to_thread(_judge, joined(history, record), origin, trusted)
    if log.fault:
        where: Where = "record" if log.fault.position in record.digests else "history"
        faults.append(Found(where, log.fault.reason, log.fault.position))
    if not faults and evidence and rows is not None:
        if rows or record.digests:
            began, past = dict(log.effects), set(log.past)
            for aside in await asides(evidence, thread):
                left = await from_record(threads, aside)
                aside_log = _judge(left.segments, thread, None)
                began |= aside_log.effects
                past |= aside_log.past
            # Of a log that was set aside, the ledger also has what its thread began after the reset.
            whole = log.whole and origin == thread
            faults += await ledger_faults(evidence, origin, rows, log.effects, began=began, past=past, whole=whole)
        elif log.effects:
            why = "it has nothing of this thread: is DATABASE_URL the one that the workers have?"
            unchecked.append(Unchecked("ledger", why))
    if not log.fault:
        faults += await artifact_faults(evidence.artifacts if evidence else None, log.artifacts, unchecked)
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


def _judge(segments: Sequence[Segment], thread: str, trusted: Policy | None) -> _Judged:
    """Audit the events, up to the first fault."""
    judged = _Judged(whole=bool(segments) and segments[0].state is None)
    for segment in segments:
        audit = Audit(thread, state=segment.state, trusted=trusted)
        audit.take(segment.events)
        judged.effects |= audit.effects
        judged.past |= audit.past
        judged.artifacts |= audit.artifacts
        judged.policies |= audit.policies
        judged.signatures += audit.signatures
        judged.last = segment.events[-1].type
        if audit.fault:
            judged.fault = audit.fault
            break
    return judged


def _not_proven(history: Log, log: _Judged, *, trusted: Policy | None) -> list[Unchecked]:
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
    elif trusted is not None and not history.digests and log.policies - {trusted.hash}:
        why = "who approves what was taken from the log itself: its policy is not the one given"
        found.append(Unchecked("policy", why))
    return found
