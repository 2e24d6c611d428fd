"""The effect ledger in memory: for tests, where the worker and the effects end together."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

from temporalio.exceptions import ApplicationError

from holdfast.llm.blocks import text_of
from holdfast.run.contracts import PastEffects, ToolOutcome
from holdfast.tools.effects import PastEffect


@dataclass
class Entry:
    """A row of the ledger, as one attempt has claimed it."""

    effect: PastEffect
    thread: str
    started_before: bool = False
    outcome: ToolOutcome | None = None
    doubt: str = ""
    """Nobody else can write here."""

    async def finish(self, outcome: ToolOutcome) -> None:
        """Record the outcome."""
        self.outcome = outcome


class InMemoryLedger:
    """A `holdfast.run.ledger.EffectLedger` for one process. It cannot survive the worker, so no worker uses it."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, int], Entry] = {}
        self._claimed: set[tuple[str, int]] = set()

    @asynccontextmanager
    async def claim(self, effect: PastEffect, *, thread: str, start: bool = False) -> AsyncIterator[Entry]:
        """Hold an exclusive claim on an effect during the block."""
        name = (effect.key, effect.epoch)
        if name in self._claimed:
            raise ApplicationError(
                f"another attempt of {effect.tool} is still running",
                type="EffectClaimed",
                next_retry_delay=timedelta(seconds=0.1),
            )
        entry = self._rows.get(name) or Entry(effect, thread)
        if start:
            self._rows.setdefault(name, entry)
        self._claimed.add(name)
        try:
            yield entry
        finally:
            self._claimed.discard(name)
            entry.started_before = True

    async def past_effects(self, thread: str, *, after: int) -> PastEffects:
        """Read the effects of a thread's calls numbered above `after`, oldest first."""
        last: dict[str, PastEffect] = {}
        for entry in self._rows.values():
            if entry.thread == thread and entry.effect.number > after:
                last[entry.effect.key] = _past(entry)
        return PastEffects(effects=tuple(last.values()))


def _past(entry: Entry) -> PastEffect:
    if entry.outcome is None:
        return entry.effect
    content = text_of(entry.outcome.content)
    return entry.effect.model_copy(update={"status": entry.outcome.status, "content": content[:500]})
