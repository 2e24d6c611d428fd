"""Writes the logs of a thread and of its sub-agents into a portable file, each with its rows of the effect ledger."""

from collections.abc import AsyncIterator, Sequence, Set
from dataclasses import dataclass, field, replace

from holdfast.audit.evidence.anchors import Anchors
from holdfast.client.imported_subagents import may_be_imported
from holdfast.client.reading.reader import Note
from holdfast.client.reading.record import Evidence, call_store
from holdfast.client.threads import Threads
from holdfast.core.base.canonical import GENESIS, canonical
from holdfast.core.log.events import (
    AgentLoaded,
    RunContinued,
    RunForked,
    RunStarted,
    SubagentStarted,
    ToolCallFinished,
    ToolCallStarted,
)
from holdfast.core.log.references import artifacts_of
from holdfast.core.log.upcasters import decode_event
from holdfast.core.mac.outcomes import OutcomeMACs, Recorded
from holdfast.core.run.state.features import RESULT_NAMES_ARTIFACTS
from holdfast.core.stores import EffectRow
from holdfast.core.temporal.converter import seals_in
from holdfast.core.tools.subagents import child_thread
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
from holdfast.portable.format.derived import DerivedMembers
from holdfast.portable.format.members import LEDGER, LOG, MAX_LEVELS, REDACTED_LOG, child_member
from holdfast.portable.format.redaction import redact_line, redact_row
from holdfast.portable.vouching import CheckedThread, vouch
from holdfast.portable.writer import Writer

_UNREADABLE = (ThreadNotFound, EventsMissing, LogBroken, HistoryUnreadable, RecordUnreadable, EventUnreadable)
"""Errors that mean that a sub-agent's log cannot be read at all. An unavailable server fails the export instead."""


@dataclass
class WrittenLog:
    """A written log, and its references."""

    events: int = 0
    head: str = GENESIS
    derived: DerivedMembers = field(default_factory=DerivedMembers)
    artifacts: dict[str, None] = field(default_factory=dict)
    """Addresses, in the order in which events refer to them."""
    runs: set[str] = field(default_factory=set)
    """The first run ids of its runs."""
    children: dict[int, tuple[str, str]] = field(default_factory=dict)
    """The sub-agents that it started, by call number, as thread and first run id."""
    digests: dict[int, str] = field(default_factory=dict)
    """Digests of the events that seals cover, by position."""
    under_way: dict[int, str] = field(default_factory=dict)
    """Keys of the effects under way, by call number."""
    finished: set[str] = field(default_factory=set)
    """Keys of the effects whose outcome is in the log."""


class _ForeignLog(Exception):
    """The log under a sub-agent's id is not the sub-agent's."""


class LogWriter:
    """Writes the logs and ledgers of a thread and of its sub-agents, and collects their references.

    Args:
        threads: Reads the threads.
        writer: Writes the members.
        evidence: The ledger; None without a database.
        redact: Drop bodies.
        note: As for `Threads.state`. If no worker answers about one thread, none is queried about the others.
        signing: The file will be signed, so each thread is checked before it is written.
        anchors: Anchors with seals for that check; None for no anchors.
    """

    def __init__(
        self,
        threads: Threads,
        writer: Writer,
        evidence: Evidence | None,
        *,
        redact: bool,
        note: Note | None,
        signing: bool,
        anchors: Anchors | None,
    ) -> None:
        self.writer = writer
        self.artifacts: dict[str, None] = {}
        self.has_ledger = True
        """Whether all ledgers could be read."""
        self.subagents = 0
        """The number of sub-agents' logs that were written."""
        self.unread: dict[str, str] = {}
        """Threads of sub-agents whose logs cannot be read → the reason."""
        self.unsignable = ""
        """The reason why the file must not be signed; empty if it may be."""
        self._threads = threads
        self._evidence = evidence
        self._redact = redact
        self._note = note
        self._signing = signing
        self._anchors = anchors
        self._silent = False

    async def vouch(self, thread: str) -> CheckedThread:
        """Check a thread before it is written, if the file will be signed.

        Raises:
            ExportFailed: The thread does not verify.
        """
        if not self._signing:
            return CheckedThread()
        checked = await vouch(self._threads, thread, self._evidence, self._anchors)
        # The signer of an imported file has vouched for the events that came with it.
        if checked.gap and not self.unsignable and not await may_be_imported(self._threads.reader, thread):
            self.unsignable = f"{thread}: {checked.gap}"
        return checked

    async def write(
        self,
        lines: AsyncIterator[bytes],
        thread: str,
        path: str = "",
        *,
        run_id: str = "",
        sealed: Set[int] = frozenset(),
        vouched: CheckedThread | None = None,
    ) -> WrittenLog:
        """Write a log, and the ledger rows of its effects.

        Args:
            lines: The log.
            thread: The thread.
            path: The sub-agent's path below the root thread; empty for the root.
            run_id: The first run id of the run that the sub-agent's parent started.
            sealed: The positions of events whose digests to return.
            vouched: The part of the log that was checked before.

        Raises:
            _ForeignLog: The log lacks that run.
            ExportFailed: The log changed since it was checked.
        """
        name = child_member(REDACTED_LOG if self._redact else LOG, path)
        kept = sealed | vouched.last if vouched else sealed
        log = await write_log(self.writer, lines, redact=self._redact, name=name, run_id=run_id, sealed=kept)
        if vouched and any(log.digests.get(position) != vouched.head for position in vouched.last):
            raise ExportFailed(f"the log of thread {thread!r} changed while it was exported; try again")
        self.artifacts |= log.artifacts
        rows = await _rows(self._evidence, thread, log, OutcomeMACs(seals_in(self._threads.runs.client.data_converter)))
        if rows is None:
            self.has_ledger = False
        else:
            self.writer.add(child_member(LEDGER, path), ledger_lines(rows, redact=self._redact))
        return log

    async def write_children(self, parent: WrittenLog, above: str = "", level: int = 1) -> None:
        """Write the sub-agents that a log has started, each with those below it; record those that cannot be read.

        Args:
            parent: The log.
            above: The path of the log below the root thread.
            level: The number of agents above the sub-agents.
        """
        for number, (thread, run_id) in sorted(parent.children.items()):
            path = f"{above}.{number}" if above else str(number)
            try:
                if level > MAX_LEVELS:
                    raise _ForeignLog(f"it is more than {MAX_LEVELS} levels down")
                checked = await self.vouch(thread)
                log = await self.write(self._lines(thread), thread, path, run_id=run_id, vouched=checked)
            except (*_UNREADABLE, _ForeignLog) as error:
                self.unread[thread] = str(error)
                continue
            self.subagents += 1
            await self.write_children(log, path, level + 1)

    async def _lines(self, thread: str) -> AsyncIterator[bytes]:
        def on_silence(message: str) -> None:
            self._silent = True
            if self._note:
                self._note(message)

        execution, note = await self._threads.reader.find(thread), on_silence if self._note else None
        async for line in self._threads.reader.lines(
            thread, 0, found=execution, note=note, use_worker=not self._silent
        ):
            yield line


async def write_log(
    writer: Writer,
    lines: AsyncIterator[bytes],
    *,
    redact: bool,
    name: str = "",
    run_id: str = "",
    sealed: Set[int] = frozenset(),
) -> WrittenLog:
    """Write a log line by line, and collect its references; the arguments are those of `LogWriter.write`.

    Raises:
        _ForeignLog: The log lacks the run.
    """
    log, features, thread = WrittenLog(), 0, ""
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
                    log.children.clear()  # they belong to the original
                    thread = event.thread
                # A caller who may read a thread may read its sub-agents, but no other threads that it names.
                case SubagentStarted() if event.thread == child_thread(thread, event.number):
                    log.children[event.number] = event.thread, event.run_id
                case ToolCallStarted():
                    log.under_way[event.number] = event.key
                case ToolCallFinished() if event.status in ("ok", "failed", "cannot"):
                    log.finished.add(log.under_way.pop(event.number, ""))
                case _:
                    pass
            member.write((redact_line(line) if redact else line) + b"\n")
            if log.events in sealed:
                log.digests[log.events] = event.digest
            log.events, log.head = log.events + 1, event.digest
        if run_id and run_id not in log.runs:
            raise _ForeignLog(
                "its run has recorded nothing yet" if not log.events else "its log is that of another run"
            )
    return log


async def _rows(
    evidence: Evidence | None, thread: str, log: WrittenLog, macs: OutcomeMACs
) -> Sequence[EffectRow] | None:
    """Return the ledger's rows of the log's effects; None if the ledger cannot be read.

    They are read after the log, so an effect that has finished in the log has finished in them, too. Effects that began
    in between are left out. An outcome that the log lacks needs a MAC by a fleet key: the signature of the file must
    not vouch for a row that the database's owner could have forged.
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


def ledger_lines(rows: Sequence[EffectRow], *, redact: bool) -> bytes:
    """Encode rows of the ledger as a member."""
    fields = [{"key": row.key, "epoch": row.epoch, "tool": row.tool, "outcome": row.outcome} for row in rows]
    return b"".join(canonical(redact_row(row) if redact else row) + b"\n" for row in fields)
