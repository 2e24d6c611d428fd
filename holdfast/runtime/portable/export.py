"""Export a thread to a portable file: its log byte for byte, what follows from it, artifacts and the ledger's rows.

The log streams from the permanent record and Temporal into the file; an open run is exported as far as it is recorded.
Secrets are in none of these: tools get them from the worker's environment, and results are recorded without them.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from holdfast.base.canonical import canonical
from holdfast.base.digests import GENESIS
from holdfast.errors import ExportFailed, RecordUnavailable
from holdfast.log.events import AgentLoaded, RunContinued
from holdfast.log.references import artifacts_of
from holdfast.log.upcasters import decode_event
from holdfast.portable.derived import Derived
from holdfast.portable.manifest import Exported, LeftOut, Manifest
from holdfast.portable.members import LEDGER, LOG, REDACTED_LOG, artifact_member
from holdfast.portable.redaction import redacted, redacted_row
from holdfast.run.features import RESULT_NAMES_ARTIFACTS
from holdfast.runtime.client.loops import find_loop, is_archived_loop
from holdfast.runtime.client.threads import Threads
from holdfast.runtime.portable.writer import Writer, new_file
from holdfast.runtime.reading.reader import Note
from holdfast.runtime.reading.record import Evidence, call_store
from holdfast.stores import ArtifactStore, EffectRow, origin_of

PART_BYTES: Final = 1_000_000
"""How much of an artifact is in memory at once."""


@dataclass
class _Log:
    """What was seen of the log while it was written."""

    events: int
    head: str
    derived: Derived
    artifacts: dict[str, None]
    """Addresses, in the order in which events refer to them."""


async def export_thread(
    threads: Threads,
    thread: str,
    path: Path,
    *,
    evidence: Evidence | None = None,
    private: str | None = None,
    redact: bool = False,
    artifacts: bool = True,
    note: Note | None = None,
) -> Exported:
    """Write a thread to a new file.

    Args:
        threads: Reads the thread.
        thread: The thread id, or the id of a log that a reset has set aside.
        path: The file.
        evidence: Ledger and artifacts; None without a database.
        private: The key to sign with; None to sign nothing.
        redact: Drop bodies and artifacts, and keep digests.
        artifacts: Whether the file is to have the artifacts.
        note: As for `Threads.state`.

    Raises:
        ThreadNotFound: There is no such thread.
        ExportFailed: The file exists, cannot be written or would be too large; or the id is that of a loop.
        RecordUnavailable: The permanent record does not answer.
        ArtifactNotFound: The store lacks an artifact that the log refers to.
    """
    with new_file(path) as file:
        return await write_thread(
            threads,
            thread,
            file,
            evidence=evidence,
            private=private,
            redact=redact,
            artifacts=artifacts,
            note=note,
        )


async def write_thread(
    threads: Threads,
    thread: str,
    file: BinaryIO,
    *,
    evidence: Evidence | None = None,
    private: str | None = None,
    redact: bool = False,
    artifacts: bool = True,
    note: Note | None = None,
) -> Exported:
    """Write a thread to an open file, which is empty and seekable: as `export_thread`, whose arguments these are.

    Raises:
        OSError: The file cannot be written.
    """
    if await find_loop(threads, thread) or await is_archived_loop(threads, thread):
        raise ExportFailed(f"{thread!r} is a loop: export the threads of its iterations, which `log {thread}` names")
    found = await threads.reader.find(thread)
    writer = Writer(file)
    log = await _write_log(writer, threads.reader.lines(thread, 0, found=found, note=note), redact=redact)
    left_out: list[LeftOut] = []
    rows = await _rows(evidence, origin_of(thread) or thread, log.derived.keys)
    if rows is None:
        left_out.append("ledger")
    else:
        writer.add(LEDGER, _ledger(rows, redact=redact))
    store = evidence.artifacts if evidence and artifacts and not redact else None
    if store is None and (log.artifacts or redact or not artifacts):
        left_out.insert(0, "artifacts")
    if store:
        for address in sorted(log.artifacts):
            await _write_artifact(writer, store, address)
    for name, content in log.derived.members(redacted=redact):
        writer.add(name, content)
    manifest = Manifest(
        thread=thread,
        events=log.events,
        head=log.head,
        redacted=redact,
        left_out=tuple(left_out),
        members=(),
    )
    writer.finish(manifest, private)
    signed = private is not None
    return Exported(thread, log.events, log.head, file.tell(), signed, redact, tuple(left_out))


async def _write_log(writer: Writer, lines: AsyncIterator[bytes], *, redact: bool) -> _Log:
    log, features = _Log(0, GENESIS, Derived(), {}), 0
    with writer.member(REDACTED_LOG if redact else LOG) as member:
        async for line in lines:
            event = decode_event(line)
            log.derived.take(event.type, line)
            if isinstance(event, AgentLoaded | RunContinued):
                features = max(features, event.features)
            log.artifacts.update(dict.fromkeys(artifacts_of(event, named=features >= RESULT_NAMES_ARTIFACTS)))
            member.write((redacted(line) if redact else line) + b"\n")
            log.events, log.head = log.events + 1, event.digest
    return log


async def _write_artifact(writer: Writer, store: ArtifactStore, address: str) -> None:
    """Write an artifact part by part: it may be larger than what a gateway has in memory."""
    with writer.member(artifact_member(address)) as member:
        while part := await call_store(store.get(address, member.size, PART_BYTES)):
            member.write(part)
            if len(part) < PART_BYTES:
                return


async def _rows(evidence: Evidence | None, thread: str, keys: set[str]) -> Sequence[EffectRow] | None:
    """Return the ledger's rows of effects that the log has; None if the ledger cannot be read.

    They are read after the log, so an effect that the log has as finished is finished there as well. Effects that
    began meanwhile are no part of the file.
    """
    if evidence is None or evidence.effects is None:
        return None
    try:
        rows = await call_store(evidence.effects(thread))
    except RecordUnavailable:
        return None
    return sorted((row for row in rows if row.key in keys), key=lambda row: (row.key, row.epoch))


def _ledger(rows: Sequence[EffectRow], *, redact: bool) -> bytes:
    fields = [{"key": row.key, "epoch": row.epoch, "tool": row.tool, "outcome": row.outcome} for row in rows]
    return b"".join(canonical(redacted_row(row) if redact else row) + b"\n" for row in fields)
