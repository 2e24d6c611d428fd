"""Verify a forgotten thread: the digests of its events, and that its content is gone."""

from contextlib import suppress

from holdfast.audit.evidence.evidence import Finding, Unchecked, ledger_rows
from holdfast.client.reading.record import Evidence, call_store
from holdfast.client.threads import Threads
from holdfast.config.programs import CLI
from holdfast.core.log.tombstones import Tombstone, fault_in
from holdfast.errors import RecordUnavailable, ThreadForgotten, ThreadNotFound


async def tombstone_of(evidence: Evidence | None, thread: str) -> Tombstone | None:
    """Return the tombstone of a forgotten thread; None for any other, or if the database is unavailable."""
    if evidence and evidence.tombstone:
        with suppress(RecordUnavailable):
            return await call_store(evidence.tombstone(thread))
    return None


async def forgotten_faults(
    threads: Threads, tombstone: Tombstone, evidence: Evidence
) -> tuple[list[Finding], list[Unchecked]]:
    """Return the faults of a forgotten thread, and the checks that are no longer possible."""
    position, fault = fault_in(tombstone)
    faults = [Finding("record", fault, position)] if fault else []
    again = CLI.command("forget-thread", tombstone.thread)
    unchecked: list[Unchecked] = []
    # Otherwise a forged tombstone row could pass off an altered thread as a forgotten one.
    with suppress(ThreadForgotten, RecordUnavailable):
        if threads.reader.record and (left := await threads.reader.record.length(tombstone.thread)):
            faults.append(Finding("record", f"it still has {left} events of this thread, which was forgotten"))
    rows = await ledger_rows(evidence, tombstone.thread, unchecked) or ()
    if left := sum(row.outcome not in (None, "{}") for row in rows):
        faults.append(
            Finding("ledger", f"it has {left} outcomes from after the thread was forgotten: repeat `{again}`")
        )
    with suppress(ThreadNotFound):
        await threads.runs.describe(tombstone.thread, loops=True)
        faults.append(Finding("history", f"Temporal still has a run of this forgotten thread: `{again}` removes it"))
    reason = f" ({tombstone.reason})" if tombstone.reason else ""
    text = (
        f"{tombstone.forgotten_by} removed it on {tombstone.forgotten_at:%Y-%m-%d at %H:%M} UTC{reason}. The digests "
        "remain: they prove a copy of an event, from a backup or an export"
    )
    return faults, [Unchecked("content", text), *unchecked]
