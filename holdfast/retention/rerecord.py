"""After a restore: write again from Temporal's histories what the backup is too old to have.

1. A thread may have continued, or begun, after the backup. Its events are in Temporal's histories, whose MACs are
   checked here: without the fleet key, nothing is written.
2. Events are written as far as the histories show that they were in the record: all of a closed run, and of an open one
   those that it had written. Its workers write the rest.
3. Effects that the histories start get their rows in the ledger again, so that none happens twice, and their outcomes.
4. Anchors may have seals of events that are lost for good. A node then seals that a backup was restored, so that those
   seals do not accuse the record; they still hold for the events that it kept.
5. If a closed thread lacks events that neither a history nor the record has any more, the record says so
   (`events_lost`), so that nobody mistakes what is left for the whole thread.
"""

import asyncio
from collections.abc import AsyncIterator, Container, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from psycopg_pool import AsyncConnectionPool
from temporalio.service import RPCError

from holdfast.audit.evidence.anchors import Anchors, find_seals
from holdfast.audit.evidence.sources import Log, from_histories, from_record, join, least_recorded
from holdfast.audit.evidence.verify import audit_segments
from holdfast.audit.judge.anchors import explaining_seal
from holdfast.audit.judge.audit import StartedEffect
from holdfast.audit.judge.events import as_outcome
from holdfast.client.reading.continuity import follows
from holdfast.client.reading.executions import list_runs
from holdfast.client.threads import Threads
from holdfast.core.llm.blocks import strip_heading
from holdfast.core.log.event_log import event_line
from holdfast.core.log.events import AgentEvent
from holdfast.core.log.node_seals import SignRecord
from holdfast.core.mac.seals import FleetKeys
from holdfast.core.run.contracts.runs import WORKFLOW
from holdfast.core.run.inputs.losses import LostLog, lost_after, says
from holdfast.errors import ThreadNotFound
from holdfast.storage.imported_effects import ImportedEffect, put_effects
from holdfast.storage.threads import PostgresThreads

_WITHIN = timedelta(seconds=10)


@dataclass
class Rerecorded:
    """What was written again."""

    events: dict[str, int] = field(default_factory=dict)
    """Thread → the number of events; only threads that lacked some."""
    effects: int = 0
    """The number of effects whose rows in the ledger were missing, or lacked the outcome."""
    left: dict[str, str] = field(default_factory=dict)
    """Threads that lack events which could not be written again → the reason."""
    lost: dict[str, LostLog] = field(default_factory=dict)
    """Closed threads whose remaining histories do not join the record → the log of which events are lost."""


async def rerecord(threads: Threads, pool: AsyncConnectionPool, *, seals: FleetKeys) -> Rerecorded:
    """Write again what the record and the ledger lack of the threads that Temporal has.

    Args:
        threads: Reads the threads, on a client with the fleet keys and the restored record.
        pool: Connections to the restored database.
        seals: The fleet keys.

    Raises:
        ServerUnreachable: Temporal does not answer.
        RecordConflict: The record has other events than Temporal's histories.
    """
    done = Rerecorded()
    async for thread in _threads(threads):
        try:
            history, record = await from_histories(threads, thread), await from_record(threads, thread)
        except ThreadNotFound:
            continue  # its run was removed meanwhile
        await _write(thread, history, record, pool, done, seals=seals)
    return done


async def _threads(threads: Threads) -> AsyncIterator[str]:
    """Yield the ids of all threads with a run in Temporal."""
    known: set[str] = set()
    try:
        async for run in list_runs(threads.runs.client, f"WorkflowType = '{WORKFLOW}'", within=_WITHIN):
            if run.id not in known:
                known.add(run.id)
                yield run.id
    except RPCError as error:
        raise threads.runs.translate_error(error) from error


async def _write(
    thread: str, history: Log, record: Log, pool: AsyncConnectionPool, done: Rerecorded, *, seals: FleetKeys
) -> None:
    known = len(record.digests)
    if not history.digests or max(history.digests) < known:
        return
    wanted = least_recorded(history)
    if history.closed and _begins_after(history, record, known):
        last = max(history.digests)
        done.lost[thread] = LostLog(events=last + 1, head=history.digests[last])
        effects = [_row(effect) for effect in audit_segments(history.segments, thread, None).effects.values()]
        done.effects += await put_effects(pool, thread, effects, seals=seals)
        return
    if reason := _unusable(history, record, known):
        done.left |= {thread: reason} if wanted > known else {}
        return
    segments = join(history, record)
    events = [event for segment in segments for event in segment.events]
    audit = audit_segments(segments, thread, None)
    if audit.fault:
        done.left[thread] = f"event {audit.fault.position}: {audit.fault.reason}"
        return
    missing = events[known:wanted]
    if missing:
        await PostgresThreads(pool).append(thread, known, [event_line(event) for event in missing])
        done.events[thread] = len(missing)
    effects = [_row(effect) for effect in audit.effects.values() if _is_new(effect, known)]
    done.effects += await put_effects(pool, thread, effects, seals=seals)


def _begins_after(history: Log, record: Log, known: int) -> bool:
    """Whether the histories can be trusted, and have no event that follows the last recorded one."""
    sound = history.sealed and not (history.fault or record.fault)
    return sound and 0 < known < min(history.digests)


def _unusable(history: Log, record: Log, known: int) -> str:
    """Return why events of the histories cannot follow those of the record; empty if they can."""
    if not history.sealed:
        return "their MACs cannot be checked without HOLDFAST_FLEET_KEYS"
    if fault := history.fault or record.fault:
        return fault.reason
    first = next((event for event in _events(history) if event.position >= known), None)
    if first is None or first.position > known:
        return f"events {known} to {first.position - 1 if first else known} are in no history any more"
    head = record.digests.get(known - 1, "")
    if known and not follows(head, event_line(first)):
        return f"event {known} does not follow from the restored one before it, as after a reset"
    return ""


def _events(log: Log) -> list[AgentEvent]:
    return [event for segment in log.segments for event in segment.events]


def _is_new(effect: StartedEffect, known: int) -> bool:
    """Whether the effect started or ended after the backup."""
    last = effect.finished.position if effect.finished else effect.position
    return last >= known


def _row(effect: StartedEffect) -> ImportedEffect:
    if effect.finished is None:
        return ImportedEffect(effect.effect, None)
    outcome = as_outcome(effect.finished)
    content = strip_heading(effect.note, outcome.content)
    return ImportedEffect(effect.effect, outcome.model_copy(update={"content": content}).model_dump_json())


async def seal_restored(
    threads: Threads, anchors: Anchors, restored: Iterable[str], seal: SignRecord
) -> dict[str, LostLog]:
    """Seal for each restored thread with later seals that a backup without those events was restored, unless a node has
    sealed that before; return the lost logs, by thread.

    Args:
        threads: Reads the restored record.
        anchors: The anchors with seals.
        restored: The ids of the threads in the backup.
        seal: Signs and anchors.

    Raises:
        SettingsError: An anchor cannot be read.
    """
    lost: dict[str, LostLog] = {}
    for thread in sorted(restored):
        record = await from_record(threads, thread)
        found = find_seals(anchors, thread, namespace=threads.runs.client.namespace)
        result = await asyncio.to_thread(found.sort_seals, record.digests)
        later = [each for each in result.mismatches if each.events > len(record.digests)]
        if record.fault or not later:
            continue
        last, trusting = later[-1], anchors.nodes is None
        if explaining_seal(last, result.gone, (), trusting=trusting) is None:
            await seal(thread, last.events, last.head, gone="restored", kept=len(record.digests))
        lost[thread] = LostLog(events=last.events, head=last.head)
    return lost


async def record_losses(
    threads: Threads, pool: AsyncConnectionPool, lost: Mapping[str, LostLog], *, histories: Container[str] = ()
) -> dict[str, int]:
    """Append to the record of each thread that its later events are lost; return their numbers.

    A thread that Temporal has is left out, unless its remaining histories have shown the loss: its own runs write the
    rest. So is one whose record says so already. Call it after `seal_restored`, whose seals count what the backup had.

    Args:
        threads: Reads the restored record.
        pool: Connections to the restored database.
        lost: The lost logs, by thread.
        histories: The threads whose histories have shown the loss (`Rerecorded.lost`).

    Raises:
        ServerUnreachable: Temporal does not answer.
        RecordConflict: The thread has grown meanwhile.
    """
    counts: dict[str, int] = {}
    for thread, log in sorted(lost.items()):
        record = await from_record(threads, thread)
        if record.fault or not record.segments or (thread not in histories and await threads.reader.find(thread)):
            continue
        last = record.segments[0].events[-1]
        if log.events > len(record.digests) and not says(last, log):
            loss = lost_after(last, log, at=datetime.now(UTC))
            await PostgresThreads(pool).append(thread, loss.position, [event_line(loss)])
            counts[thread] = log.events - loss.position
    return counts
