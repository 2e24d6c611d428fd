"""Export a thread to a portable file: its log byte for byte, the members derived from it, artifacts, the ledger's rows,
and the logs of all sub-agents below it.

The logs stream from the permanent record and Temporal into the file, one after the other; an open run is exported up to
its last recorded event. No log contains secrets: tools get them from the worker's environment, and results are recorded
without them.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import BinaryIO, Final

from holdfast.audit.evidence.anchors import Anchors, find_seals
from holdfast.client.loops import find_loop, is_archived_loop
from holdfast.client.reading.reader import Note
from holdfast.client.reading.record import Evidence, call_store
from holdfast.client.threads import Threads
from holdfast.core.stores import ArtifactStore, origin_of
from holdfast.errors import ExportFailed
from holdfast.portable.exported_logs import LogWriter
from holdfast.portable.format.manifest import Exported, LeftOut, Manifest
from holdfast.portable.format.members import NODES, ORDER, SEALS, artifact_member
from holdfast.portable.format.seals import FileCheckpoints, own_seals
from holdfast.portable.writer import Writer, new_file

PART_BYTES: Final = 1_000_000
"""The most bytes of an artifact in memory at a time."""


async def export_thread(
    threads: Threads,
    thread: str,
    to: Path | BinaryIO,
    *,
    evidence: Evidence | None = None,
    private: str | None = None,
    redact: bool = False,
    artifacts: bool = True,
    anchors: Anchors | None = None,
    seals: FileCheckpoints | None = None,
    subagents: bool = True,
    unsigned: bool = False,
    note: Note | None = None,
    progress: Callable[[], None] = lambda: None,
) -> Exported:
    """Write a thread to a file, which is signed only if the thread was checked (`holdfast.portable.vouching`).

    Args:
        threads: Reads the thread.
        thread: The thread id, or the id of an archived branch (a log replaced by a reset).
        to: The path of a new file; or an open file, empty and seekable.
        evidence: Ledger and artifacts; None without a database.
        private: The key to sign with; None to sign nothing.
        redact: Drop bodies and artifacts, and keep digests.
        artifacts: Whether to include the artifacts.
        anchors: Anchors with seals of the thread for the file; None to include no seals.
        seals: Seals of the thread, if they were read before this call.
        subagents: Whether to include the logs of the sub-agents.
        unsigned: Leave a file unsigned if the thread cannot be checked; otherwise that is an error.
        note: As for `Threads.state`.
        progress: Called with each part that is written.

    Raises:
        ThreadNotFound: There is no such thread.
        ExportFailed: The new file exists, cannot be written or would be too large; the id is that of a loop; or there
            is a key, and the thread does not verify, or too little of it can be checked to sign.
        OSError: The open file cannot be written.
        RecordUnavailable: The permanent record is unavailable.
        ArtifactNotFound: The store lacks an artifact that the log refers to.
        SettingsError: An anchor cannot be read.
    """
    with new_file(to) if isinstance(to, Path) else nullcontext(to) as file:
        if await find_loop(threads, thread) or await is_archived_loop(threads, thread):
            raise ExportFailed(
                f"{thread!r} is a loop: export the threads of its iterations, which `log {thread}` names"
            )
        if seals is None:  # before the log, so that the log has the events that they cover
            seals = await asyncio.to_thread(read_seals, threads, thread, anchors)
        writer = Writer(file, progress)
        logs = LogWriter(
            threads, writer, evidence, redact=redact, note=note, signing=private is not None, anchors=anchors
        )
        checked = await logs.vouch(thread)
        execution = await threads.reader.find(thread)
        lines = threads.reader.lines(thread, 0, found=execution, note=note)
        log = await logs.write(lines, origin_of(thread) or thread, sealed=seals.positions, vouched=checked)
        left_out = list[LeftOut]()
        sealed = dict(seals.members(log.digests))
        if sealed:
            writer.add(SEALS, sealed[SEALS])
        if subagents:
            await logs.write_children(log)
        store = evidence.artifacts if evidence and artifacts and not redact else None
        if store is None and (logs.artifacts or redact or not artifacts):
            left_out.append("artifacts")
        if store:
            for address in sorted(logs.artifacts):
                await _write_artifact(writer, store, address)
        if not logs.has_ledger:
            left_out.append("ledger")
        if logs.unread or (log.children and not subagents):
            left_out.append("subagents")
        for name, content in with_nodes(log.derived.members(redacted=redact), sealed.get(NODES)):
            writer.add(name, content)
        manifest = Manifest(
            thread=thread,
            events=log.events,
            head=log.head,
            redacted=redact,
            left_out=tuple(left_out),
            members=(),
        )
        if logs.unsignable and not unsigned:
            raise ExportFailed(
                f"the file of thread {thread!r} cannot be signed, because it cannot be checked here "
                f"({logs.unsignable}). Export it without a key, or where it can be checked"
            )
        writer.finish(manifest, None if logs.unsignable else private)
        return Exported(
            thread,
            log.events,
            log.head,
            file.tell(),
            signed=private is not None and not logs.unsignable,
            not_vouched_for=logs.unsignable,
            redacted=redact,
            left_out=tuple(left_out),
            seals=sealed.get(SEALS, b"").count(b"\n"),
            subagents=logs.subagents,
            unread=logs.unread,
        )


def read_seals(threads: Threads, thread: str, anchors: Anchors | None) -> FileCheckpoints:
    """Return the seals of a thread for its file; none without anchors.

    Raises:
        SettingsError: An anchor cannot be read.
    """
    if anchors is None:
        return FileCheckpoints()
    namespace = threads.runs.client.namespace
    lines = find_seals(anchors, thread, namespace=namespace).lines
    return own_seals(lines, thread=thread, namespace=namespace)


def with_nodes(derived: Iterable[tuple[str, bytes]], nodes: bytes | None) -> Iterator[tuple[str, bytes]]:
    """Yield the members derived from the log and, in the right position, the one that names the nodes of seals."""
    members = [*derived, *([(NODES, nodes)] if nodes else [])]
    yield from sorted(members, key=lambda member: ORDER.index(member[0]))


async def _write_artifact(writer: Writer, store: ArtifactStore, address: str) -> None:
    """Write an artifact part by part: it may be larger than a gateway's memory."""
    with writer.member(artifact_member(address)) as member:
        while part := await call_store(store.get(address, member.size, PART_BYTES)):
            member.write(part)
            if len(part) < PART_BYTES:
                return
