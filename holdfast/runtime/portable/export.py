"""Export a thread to a portable file: its log byte for byte, what follows from it, artifacts and the ledger's rows; and
the logs of its sub-agents, of theirs, and so on.

The logs stream from the permanent record and Temporal into the file, one after the other; an open run is exported as
far as it is recorded. Secrets are in none of these: tools get them from the worker's environment, and results are
recorded without them.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence, Set
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, Final

from holdfast.base.canonical import canonical
from holdfast.base.digests import GENESIS
from holdfast.errors import (
    EventsMissing,
    EventUnreadable,
    ExportFailed,
    HistoryUnreadable,
    LogBroken,
    RecordUnavailable,
    RecordUnreadable,
    ThreadNotFound,
)
from holdfast.log.events import (
    AgentLoaded,
    RunContinued,
    RunForked,
    RunStarted,
    SubagentStarted,
    ToolCallFinished,
    ToolCallStarted,
)
from holdfast.log.references import artifacts_of
from holdfast.log.upcasters import decode_event
from holdfast.portable.derived import Derived
from holdfast.portable.manifest import Exported, LeftOut, Manifest
from holdfast.portable.members import (
    LEDGER,
    LOG,
    MAX_LEVELS,
    NODES,
    ORDER,
    REDACTED_LOG,
    SEALS,
    artifact_member,
    child_member,
)
from holdfast.portable.redaction import redacted, redacted_row
from holdfast.portable.seals import OwnSeals, own_seals
from holdfast.run.features import RESULT_NAMES_ARTIFACTS
from holdfast.runtime.audit.anchors import Anchors, find_seals
from holdfast.runtime.client.connect import seals_of
from holdfast.runtime.client.imported_subagents import may_be_imported
from holdfast.runtime.client.loops import find_loop, is_archived_loop
from holdfast.runtime.client.threads import Threads
from holdfast.runtime.portable.vouching import Vouched, vouch
from holdfast.runtime.portable.writer import Writer, new_file
from holdfast.runtime.reading.reader import Note
from holdfast.runtime.reading.record import Evidence, call_store
from holdfast.seals.outcomes import OutcomeMACs, Recorded
from holdfast.stores import ArtifactStore, EffectRow, origin_of
from holdfast.tools.subagents import child_thread

PART_BYTES: Final = 1_000_000
"""How much of an artifact is in memory at once."""

_UNREADABLE = (ThreadNotFound, EventsMissing, LogBroken, HistoryUnreadable, RecordUnreadable, EventUnreadable)
"""Why a sub-agent's log cannot be read, now or ever. A server that is away fails the export."""


@dataclass
class _Log:
    """What was seen of a log while it was written."""

    events: int = 0
    head: str = GENESIS
    derived: Derived = field(default_factory=Derived)
    artifacts: dict[str, None] = field(default_factory=dict)
    """Addresses, in the order in which events refer to them."""
    runs: set[str] = field(default_factory=set)
    """The first run ids of the runs that it has."""
    children: dict[int, tuple[str, str]] = field(default_factory=dict)
    """The sub-agents that it has started, by the numbers of the calls: thread and first run id."""
    digests: dict[int, str] = field(default_factory=dict)
    """Digests of the events that seals name, by position."""
    under_way: dict[int, str] = field(default_factory=dict)
    """Keys of the effects that calls have begun, by the numbers of the calls."""
    finished: set[str] = field(default_factory=set)
    """Keys of the effects of which the log has the outcome."""


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
    seals: OwnSeals | None = None,
    subagents: bool = True,
    unsigned: bool = False,
    note: Note | None = None,
    progress: Callable[[], None] = lambda: None,
) -> Exported:
    """Write a thread to a file, which is signed only if what it has was checked (`holdfast.runtime.portable.vouching`).

    Args:
        threads: Reads the thread.
        thread: The thread id, or the id of a log that a reset has set aside.
        to: The path of a new file; or an open file, which is empty and seekable.
        evidence: Ledger and artifacts; None without a database.
        private: The key to sign with; None to sign nothing.
        redact: Drop bodies and artifacts, and keep digests.
        artifacts: Whether the file is to have the artifacts.
        anchors: Where seals of the thread are, which the file is to have; None to put none into it.
        seals: Seals of the thread, where they were read already, before this call.
        subagents: Whether the file is to have the logs of the sub-agents.
        unsigned: Leave the file unsigned where it cannot be vouched for; otherwise that is an error.
        note: As for `Threads.state`.
        progress: Called with each part that is written.

    Raises:
        ThreadNotFound: There is no such thread.
        ExportFailed: The new file exists, cannot be written or would be too large; the id is that of a loop; or the
            file is to be signed, and the thread does not verify, or too little of it can be checked.
        OSError: The open file cannot be written.
        RecordUnavailable: The permanent record does not answer.
        ArtifactNotFound: The store lacks an artifact that the log refers to.
        SettingsError: An anchor cannot be read.
    """
    with new_file(to) if isinstance(to, Path) else nullcontext(to) as file:
        if await find_loop(threads, thread) or await is_archived_loop(threads, thread):
            raise ExportFailed(
                f"{thread!r} is a loop: export the threads of its iterations, which `log {thread}` names"
            )
        if seals is None:  # before the log, so that the log has what they cover
            seals = await asyncio.to_thread(read_seals, threads, thread, anchors)
        made = _File(threads, Writer(file, progress), evidence, redact=redact, note=note)
        made.vouching = _Vouching(anchors) if private else None
        checked = await made.vouch(thread)
        found = await threads.reader.find(thread)
        lines = threads.reader.lines(thread, 0, found=found, note=note)
        log = await made.write(lines, origin_of(thread) or thread, sealed=seals.positions, vouched=checked)
        writer, left_out = made.writer, list[LeftOut]()
        sealed = dict(seals.members(log.digests))
        if sealed:
            writer.add(SEALS, sealed[SEALS])
        if subagents:
            await made.write_children(log)
        store = evidence.artifacts if evidence and artifacts and not redact else None
        if store is None and (made.artifacts or redact or not artifacts):
            left_out.append("artifacts")
        if store:
            for address in sorted(made.artifacts):
                await _write_artifact(writer, store, address)
        if not made.has_ledger:
            left_out.append("ledger")
        if made.unread or (log.children and not subagents):
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
        lacks = made.vouching.lacks if made.vouching else ""
        if lacks and not unsigned:
            raise ExportFailed(
                f"the file of thread {thread!r} cannot be signed, because it cannot be checked here ({lacks}). "
                "Export it without a key, or where it can be checked"
            )
        writer.finish(manifest, None if lacks else private)
        return Exported(
            thread,
            log.events,
            log.head,
            file.tell(),
            signed=private is not None and not lacks,
            not_vouched_for=lacks,
            redacted=redact,
            left_out=tuple(left_out),
            seals=sealed.get(SEALS, b"").count(b"\n"),
            subagents=made.subagents,
            unread=made.unread,
        )


def read_seals(threads: Threads, thread: str, anchors: Anchors | None) -> OwnSeals:
    """Return what anchors have for the file of a thread; nothing where there are none.

    Raises:
        SettingsError: An anchor cannot be read.
    """
    if anchors is None:
        return OwnSeals()
    namespace = threads.runs.client.namespace
    lines = find_seals(anchors, thread, namespace=namespace).lines
    return own_seals(lines, thread=thread, namespace=namespace)


def with_nodes(derived: Iterable[tuple[str, bytes]], nodes: bytes | None) -> Iterator[tuple[str, bytes]]:
    """Yield the members that follow from the log, and in its place the one that names the nodes of seals."""
    members = [*derived, *([(NODES, nodes)] if nodes else [])]
    yield from sorted(members, key=lambda member: ORDER.index(member[0]))


@dataclass
class _Vouching:
    """What was checked of the threads in a file that is to be signed."""

    anchors: Anchors | None
    lacks: str = ""
    """Why the file cannot be vouched for; empty if it can."""


class _NotItsOwn(Exception):
    """The log under a sub-agent's id is not that of the sub-agent."""


class _File:
    """Writes the logs and ledgers of a thread and of its sub-agents, and collects what they refer to.

    Args:
        threads: Reads the threads.
        writer: Writes the members.
        evidence: The ledger; None without a database.
        redact: Drop bodies.
        note: As for `Threads.state`. A worker that is silent about one thread is not asked about the others.
    """

    def __init__(
        self, threads: Threads, writer: Writer, evidence: Evidence | None, *, redact: bool, note: Note | None
    ) -> None:
        self.writer = writer
        self.artifacts: dict[str, None] = {}
        self.has_ledger = True
        """All ledgers could be read."""
        self.subagents = 0
        """How many logs of sub-agents were written."""
        self.unread: dict[str, str] = {}
        """Threads of sub-agents whose logs cannot be read → why."""
        self.vouching: _Vouching | None = None
        """Set where the file is to be signed."""
        self._threads = threads
        self._evidence = evidence
        self._redact = redact
        self._note = note
        self._silent = False

    async def vouch(self, thread: str) -> Vouched:
        """Check a thread that is about to be written, if the file is to be signed.

        Raises:
            ExportFailed: It does not verify.
        """
        if self.vouching is None:
            return Vouched()
        found = await vouch(self._threads, thread, self._evidence, self.vouching.anchors)
        # What a file has brought, the one who signed that file has vouched for.
        if found.lacks and not self.vouching.lacks and not await may_be_imported(self._threads.reader, thread):
            self.vouching.lacks = f"{thread}: {found.lacks}"
        return found

    async def write(
        self,
        lines: AsyncIterator[bytes],
        thread: str,
        path: str = "",
        *,
        run_id: str = "",
        sealed: Set[int] = frozenset(),
        vouched: Vouched | None = None,
    ) -> _Log:
        """Write a log, and the rows of the ledger that it starts.

        Args:
            lines: The log.
            thread: The thread.
            path: Of a sub-agent: its place below the thread at the top.
            run_id: Of a sub-agent: the first run id of the run that its parent started.
            sealed: The positions of events whose digests are to be kept.
            vouched: What was checked of it before it is read.

        Raises:
            _NotItsOwn: The log does not have that run.
            ExportFailed: It is not what was checked.
        """
        name = child_member(REDACTED_LOG if self._redact else LOG, path)
        kept = sealed | vouched.last if vouched else sealed
        log = await _write_log(self.writer, lines, redact=self._redact, name=name, run_id=run_id, sealed=kept)
        if vouched and any(log.digests.get(position) != vouched.head for position in vouched.last):
            raise ExportFailed(f"the log of thread {thread!r} changed while it was exported; try again")
        self.artifacts |= log.artifacts
        rows = await _rows(self._evidence, thread, log, OutcomeMACs(seals_of(self._threads.runs.client)))
        if rows is None:
            self.has_ledger = False
        else:
            self.writer.add(child_member(LEDGER, path), _ledger(rows, redact=self._redact))
        return log

    async def write_children(self, parent: _Log, above: str = "", level: int = 1) -> None:
        """Write the sub-agents that a log has started, each with those below it; note those that cannot be read.

        Args:
            parent: The log.
            above: Its place below the thread at the top.
            level: How many agents stand above them.
        """
        for number, (thread, run_id) in sorted(parent.children.items()):
            path = f"{above}.{number}" if above else str(number)
            try:
                if level > MAX_LEVELS:
                    raise _NotItsOwn(f"it is more than {MAX_LEVELS} levels down")
                checked = await self.vouch(thread)
                log = await self.write(self._lines(thread), thread, path, run_id=run_id, vouched=checked)
            except (*_UNREADABLE, _NotItsOwn) as error:
                self.unread[thread] = str(error)
                continue
            self.subagents += 1
            await self.write_children(log, path, level + 1)

    async def _lines(self, thread: str) -> AsyncIterator[bytes]:
        def on_silence(message: str) -> None:
            self._silent = True
            if self._note:
                self._note(message)

        found, note = await self._threads.reader.find(thread), on_silence if self._note else None
        async for line in self._threads.reader.lines(thread, 0, found=found, note=note, use_worker=not self._silent):
            yield line


async def _write_log(
    writer: Writer,
    lines: AsyncIterator[bytes],
    *,
    redact: bool,
    name: str = "",
    run_id: str = "",
    sealed: Set[int] = frozenset(),
) -> _Log:
    log, features, thread = _Log(), 0, ""
    with writer.member(name or (REDACTED_LOG if redact else LOG)) as member:
        async for line in lines:
            event = decode_event(line)
            log.derived.take(event.type, line)
            if isinstance(event, AgentLoaded | RunContinued):
                features = max(features, event.features)
            log.artifacts.update(dict.fromkeys(artifacts_of(event, named=features >= RESULT_NAMES_ARTIFACTS)))
            match event:
                case RunStarted():
                    log.runs.add(event.first_run_id)
                    thread = event.thread
                case RunForked():
                    log.children.clear()  # they stay the original's
                    thread = event.thread
                # A caller who may read a thread may read its sub-agents, and no other threads that it names.
                case SubagentStarted() if event.thread == child_thread(thread, event.number):
                    log.children[event.number] = event.thread, event.run_id
                case ToolCallStarted():
                    log.under_way[event.number] = event.key
                case ToolCallFinished() if event.status in ("ok", "failed", "cannot"):
                    log.finished.add(log.under_way.pop(event.number, ""))
                case _:
                    pass
            member.write((redacted(line) if redact else line) + b"\n")
            if log.events in sealed:
                log.digests[log.events] = event.digest
            log.events, log.head = log.events + 1, event.digest
        if run_id and run_id not in log.runs:
            raise _NotItsOwn("its run has recorded nothing yet" if not log.events else "its log is that of another run")
    return log


async def _write_artifact(writer: Writer, store: ArtifactStore, address: str) -> None:
    """Write an artifact part by part: it may be larger than what a gateway has in memory."""
    with writer.member(artifact_member(address)) as member:
        while part := await call_store(store.get(address, member.size, PART_BYTES)):
            member.write(part)
            if len(part) < PART_BYTES:
                return


async def _rows(evidence: Evidence | None, thread: str, log: _Log, macs: OutcomeMACs) -> Sequence[EffectRow] | None:
    """Return the ledger's rows of effects that the log has; None if the ledger cannot be read.

    They are read after the log, so an effect that the log has as finished is finished there as well. Effects that
    began meanwhile are no part of the file. An outcome that the log does not have has to carry a MAC of the fleet: the
    signature of the file must not make what the database's owner has written count elsewhere.
    """
    if evidence is None or evidence.effects is None:
        return None
    try:
        rows = await call_store(evidence.effects(thread))
    except RecordUnavailable:
        return None

    def kept(row: EffectRow) -> EffectRow:
        if row.outcome is None or row.key in log.finished:
            return row
        recorded = Recorded(thread, row.key, row.epoch, row.tool, row.call_digest, row.outcome)
        return row if macs.verify(row.mac, recorded) == "valid" else replace(row, outcome=None)

    own = [kept(row) for row in rows if row.key in log.derived.keys]
    return sorted(own, key=lambda row: (row.key, row.epoch))


def _ledger(rows: Sequence[EffectRow], *, redact: bool) -> bytes:
    fields = [{"key": row.key, "epoch": row.epoch, "tool": row.tool, "outcome": row.outcome} for row in rows]
    return b"".join(canonical(redacted_row(row) if redact else row) + b"\n" for row in fields)
