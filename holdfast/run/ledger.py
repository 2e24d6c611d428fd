"""The effect ledger, as calls and runs use it. What it is for is in `holdfast.tools.effects`."""

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from holdfast.run.contracts import PastEffects, ToolOutcome
from holdfast.tools.effects import PastEffect


class ClaimedEffect(Protocol):
    """One effect, claimed by one attempt."""

    @property
    def started_before(self) -> bool:
        """Whether an earlier attempt started the effect."""
        ...

    @property
    def outcome(self) -> ToolOutcome | None:
        """The outcome of an earlier attempt, if one finished."""
        ...

    @property
    def doubt(self) -> str:
        """Why an outcome that is recorded does not count, so that people have to be asked; empty for no doubt."""
        ...

    async def finish(self, outcome: ToolOutcome) -> None:
        """Record the outcome. The effect has happened, so this does not give up."""
        ...


class EffectLedger(Protocol):
    """Which effects were started, which were finished, and with which outcome."""

    def claim(
        self, effect: PastEffect, *, thread: str, start: bool = False
    ) -> AbstractAsyncContextManager[ClaimedEffect]:
        """Hold an exclusive claim on an effect during the block.

        Args:
            effect: The effect, identified by key and epoch; its other fields describe the call.
            thread: The thread of the call.
            start: Record that the effect may happen from here on, unless an earlier attempt has.

        Raises:
            ApplicationError: Another attempt holds the claim, or the ledger is unavailable; Temporal tries again.
        """
        ...

    async def past_effects(self, thread: str, *, after: int) -> PastEffects:
        """Read the effects of a thread's calls numbered above `after`, oldest first."""
        ...
