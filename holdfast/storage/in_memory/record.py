"""The permanent record in memory: the effect ledger, threads and artifacts of one process."""

import itertools
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from holdfast.core.base.canonical import address_of
from holdfast.core.llm.blocks import text_of
from holdfast.core.log.event_log import PAGE_BYTES
from holdfast.core.run.contracts.error_types import Waits
from holdfast.core.run.contracts.ledger import FIRST_ATTEMPT, CallAttempt, outcome_applies
from holdfast.core.run.contracts.loading import PastEffects
from holdfast.core.run.contracts.tool_calls import ToolOutcome
from holdfast.core.stores import aside_id
from holdfast.core.tools.effects import PastEffect
from holdfast.errors import ArtifactAltered, ArtifactNotFound, RecordConflict, RecordGap


@dataclass
class Row:
    """A row of the ledger."""

    effect: PastEffect
    thread: str
    outcome: ToolOutcome | None = None
    settling_since: float | None = None


Rows = dict[tuple[str, int], Row]


@dataclass
class Entry:
    """An effect, claimed by one attempt."""

    effect: PastEffect
    thread: str
    started_before: bool
    rows: Rows
    fresh: bool = field(default=True, init=False)
    """Always true: no other process can take the claim."""
    doubt: str = field(default="", init=False)
    """Always empty: no other process can write to this ledger."""

    @property
    def outcome(self) -> ToolOutcome | None:
        """The outcome of an earlier attempt, if one finished."""
        for epoch in range(self.effect.epoch, -1, -1):
            row = self.rows.get((self.effect.key, epoch))
            if row and row.outcome and outcome_applies(row.outcome, self.effect, epoch):
                return row.outcome
        return None

    async def confirm(self) -> None:
        """Do nothing: the claim ends with the block."""

    async def start(self) -> None:
        """Record that the effect may happen from here on."""
        name = (self.effect.key, self.effect.epoch)
        self.rows.setdefault(name, Row(self.effect, self.thread)).settling_since = None

    async def settling(self) -> float | None:
        """Return the seconds since the last attempt whose request may still arrive; None if there is none."""
        key, now = self.effect.key, time.monotonic()
        rows = [self.rows.get((key, epoch)) for epoch in range(self.effect.epoch + 1)]
        lost = [row for row in rows if row and row.outcome is None]
        for row in lost:
            row.settling_since = now if row.settling_since is None else row.settling_since
        return min((now - (row.settling_since or now) for row in lost), default=None)

    async def finish(self, outcome: ToolOutcome) -> ToolOutcome:
        """Record the outcome."""
        row = self.rows.setdefault((self.effect.key, self.effect.epoch), Row(self.effect, self.thread))
        row.outcome = row.outcome or outcome
        return row.outcome


class InMemoryLedger:
    """A `holdfast.core.run.contracts.ledger.EffectLedger` for one process.

    No worker uses it, because it does not survive the worker.
    """

    def __init__(self) -> None:
        self._rows: Rows = {}
        self._claimed: set[str] = set()

    @asynccontextmanager
    async def claim(
        self, effect: PastEffect, *, thread: str, start: bool = False, attempt: CallAttempt = FIRST_ATTEMPT
    ) -> AsyncIterator[Entry]:
        """Hold an exclusive claim on an effect during the block."""
        if effect.key in self._claimed:
            why = f"another attempt of {effect.tool} is still running"
            raise Waits(why, type="EffectClaimed", next_retry_delay=timedelta(seconds=0.1))
        entry = Entry(effect, thread, (effect.key, effect.epoch) in self._rows, self._rows)
        self._claimed.add(effect.key)
        try:
            if start and not entry.started_before:
                await entry.start()
            yield entry
        finally:
            self._claimed.discard(effect.key)

    async def past_effects(self, thread: str, *, after: int) -> PastEffects:
        """Read the effects of a thread's calls numbered above `after`, oldest first."""
        last: dict[str, PastEffect] = {}
        for row in self._rows.values():
            if row.thread == thread and row.effect.number > after:
                last[row.effect.key] = _past(row)
        return PastEffects(effects=tuple(last.values()))


def _past(row: Row) -> PastEffect:
    if row.outcome is None:
        return row.effect
    content = text_of(row.outcome.content)
    return row.effect.model_copy(update={"status": row.outcome.status, "content": content[:500]})


class InMemoryThreads:
    """A `holdfast.core.stores.ThreadStore` for one worker process, and for runs that must leave no traces.

    It is empty when the process starts. A run that started before its worker is blocked if it needs earlier events
    (after continue-as-new, or to reopen a closed thread). Other processes, such as the command line, can read these
    threads only from Temporal's history.
    """

    def __init__(self) -> None:
        self._threads: dict[str, list[bytes]] = {}

    async def append(self, thread: str, start: int, lines: Sequence[bytes]) -> None:
        """Store `lines` at the positions from `start` on, atomically and idempotently."""
        stored = self._threads.get(thread, [])
        if start > len(stored):
            raise RecordGap(
                f"thread {thread} has {len(stored)} events in memory, so none can follow at position {start}; "
                f"append from position {len(stored)} on"
            )
        differs = start + _common(stored[start:], lines)
        if differs < min(len(stored), start + len(lines)):
            raise RecordConflict(
                f"thread {thread} has another event at position {differs} in memory; nothing was appended"
            )
        self._threads[thread] = stored + list(lines[len(stored) - start :])

    async def read(self, thread: str, start: int = 0) -> list[bytes]:
        """Read a page of lines from position `start` on."""
        page: list[bytes] = []
        size = 0
        for line in itertools.islice(self._threads.get(thread, ()), start, None):
            size += len(line)
            if page and size > PAGE_BYTES:
                break
            page.append(line)
        return page

    async def length(self, thread: str) -> int:
        """Return the number of stored lines."""
        return len(self._threads.get(thread, ()))

    async def set_aside(self, thread: str, start: int, lines: Sequence[bytes]) -> str:
        """Copy the log to an archived branch, and truncate it at the first event that differs from `lines`."""
        stored = self._threads.get(thread, [])
        aside = next(name for count in itertools.count(1) if (name := aside_id(thread, count)) not in self._threads)
        self._threads[aside] = stored
        self._threads[thread] = stored[: start + _common(stored[start:], lines)]
        return aside


def _common(one: Sequence[bytes], other: Sequence[bytes]) -> int:
    """Return the length of the common prefix of two lists."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


class InMemoryArtifacts:
    """A `holdfast.core.stores.ArtifactStore` for one worker process. It keeps every artifact until the process ends."""

    def __init__(self) -> None:
        self._contents: dict[str, bytes] = {}

    async def put(self, content: bytes, *, thread: str) -> str:
        """Store `content` and return its address."""
        address = address_of(content)
        self._contents.setdefault(address, bytes(content))
        return address

    async def get(self, address: str, offset: int = 0, limit: int | None = None) -> bytes:
        """Read the content, or a part of it."""
        content = self._at(address)
        if address_of(content) != address:
            raise ArtifactAltered(f"artifact {address} was altered in memory: its content has another digest")
        return content[offset : None if limit is None else offset + limit]

    async def size(self, address: str) -> int:
        """Return the size of the content in bytes."""
        return len(self._at(address))

    def _at(self, address: str) -> bytes:
        if address not in self._contents:
            raise ArtifactNotFound(f"there is no artifact {address[:100]!r} in this process's memory")
        return self._contents[address]
