"""The interface of the effect ledger for calls and runs. `holdfast.core.tools.effects` explains its purpose."""

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from holdfast.core.run.contracts.loading import PastEffects
from holdfast.core.run.contracts.tool_calls import ToolOutcome
from holdfast.core.tools.effects import PastEffect


@dataclass(frozen=True)
class CallAttempt:
    """Identifies an attempt at a call, and so the attempt before it."""

    call: str = ""
    """Identifies the activity in its Temporal run."""
    number: int = 1

    @property
    def name(self) -> str:
        """The attempt's name."""
        return f"{self.call}/{self.number}"

    @property
    def previous(self) -> str:
        """The name of the attempt before it."""
        return f"{self.call}/{self.number - 1}"


FIRST_ATTEMPT = CallAttempt()


class ClaimedEffect(Protocol):
    """One effect, claimed by one attempt."""

    @property
    def started_before(self) -> bool:
        """Whether an earlier attempt of this epoch started the effect."""
        ...

    @property
    def outcome(self) -> ToolOutcome | None:
        """The outcome of an earlier attempt, if one has finished."""
        ...

    @property
    def doubt(self) -> str:
        """Why a recorded outcome is not trusted, so that people have to be asked; empty if it is."""
        ...

    @property
    def fresh(self) -> bool:
        """Whether the claim was confirmed so recently that no other attempt can hold it."""
        ...

    async def confirm(self) -> None:
        """Verify that this attempt still holds the claim, which ends with the connection to the ledger.

        Raises:
            Exception: The claim is lost; the attempt must not act, and Temporal retries.
        """
        ...

    async def start(self) -> None:
        """Record that the effect may happen from here on, for the first time or again."""
        ...

    async def settling(self) -> float | None:
        """Return how many seconds have passed since the last attempt that was lost; None if no attempt was lost.

        A request of that attempt may still arrive. Measured by the ledger's clock alone, from the first call of this
        method after the end of the attempt.
        """
        ...

    async def finish(self, outcome: ToolOutcome) -> ToolOutcome:
        """Record the outcome, unless one is recorded already, and return the recorded one.

        Retries without end, because the effect has happened.
        """
        ...


def outcome_applies(outcome: ToolOutcome, effect: PastEffect, epoch: int) -> bool:
    """Return whether the ledger's outcome of an epoch is the outcome of the effect.

    People are asked while no outcome is recorded. If they say that the effect did not happen, but the attempt in
    question succeeds after all, the effect has happened.
    """
    return epoch == effect.epoch or outcome.status == "ok"


class EffectLedger(Protocol):
    """Records started effects, and the outcomes of finished ones."""

    def claim(
        self, effect: PastEffect, *, thread: str, start: bool = False, attempt: CallAttempt = FIRST_ATTEMPT
    ) -> AbstractAsyncContextManager[ClaimedEffect]:
        """Hold an exclusive claim on an effect, in this epoch and those before, during the block.

        Args:
            effect: The effect, identified by key and epoch; its other fields describe the call.
            thread: The thread of the call.
            start: Record that the effect may happen from here on, unless an earlier attempt has recorded it.
            attempt: The attempt that claims it.

        Raises:
            ApplicationError: Another attempt holds the claim, or the ledger is unavailable; Temporal retries.
        """
        ...

    async def past_effects(self, thread: str, *, after: int) -> PastEffects:
        """Read the effects of a thread's calls numbered above `after`, oldest first."""
        ...
