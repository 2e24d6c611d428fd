"""The effect ledger in memory, for tests, in which the worker and the effects end together."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from temporalio.exceptions import ApplicationError

from holdfast.core.llm.blocks import text_of
from holdfast.core.run.contracts.ledger import FIRST_ATTEMPT, CallAttempt, outcome_applies
from holdfast.core.run.contracts.loading import PastEffects
from holdfast.core.run.contracts.tool_calls import ToolOutcome
from holdfast.core.tools.effects import PastEffect


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
            raise ApplicationError(
                f"another attempt of {effect.tool} is still running",
                type="EffectClaimed",
                next_retry_delay=timedelta(seconds=0.1),
            )
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
