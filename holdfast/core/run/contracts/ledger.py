"""The effect ledger, as calls and runs use it. What it is for is in `holdfast.core.tools.effects`."""

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from holdfast.core.run.contracts.loading import PastEffects
from holdfast.core.run.contracts.tool_calls import ToolOutcome
from holdfast.core.tools.effects import PastEffect


@dataclass(frozen=True)
class CallAttempt:
    """Names an attempt at a call, and so the one before it."""

    call: str = ""
    """The activity, in its Temporal run."""
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
        """The outcome of an earlier attempt, if one finished."""
        ...

    @property
    def doubt(self) -> str:
        """Why an outcome that is recorded does not count, so that people have to be asked; empty for no doubt."""
        ...

    @property
    def fresh(self) -> bool:
        """Whether the claim was confirmed so recently that no other attempt can hold it."""
        ...

    async def confirm(self) -> None:
        """Make sure that this attempt still holds the claim, which ends with the connection to the ledger.

        Raises:
            Exception: It does not; the attempt must not act, and Temporal tries again.
        """
        ...

    async def start(self) -> None:
        """Record that the effect may happen from here on, for the first time or again."""
        ...

    async def settling(self) -> float | None:
        """Return for how many seconds no attempt has been at work whose request may still arrive.

        Counted by the ledger's clock alone, from the first time that this is asked after the end of an attempt. None
        where no attempt was lost.
        """
        ...

    async def finish(self, outcome: ToolOutcome) -> ToolOutcome:
        """Record the outcome, unless one is recorded, and return the recorded one.

        The effect has happened, so this does not give up.
        """
        ...


def stands(outcome: ToolOutcome, effect: PastEffect, epoch: int) -> bool:
    """Whether an outcome that the ledger has of an epoch is that of the effect.

    People are asked while no outcome is recorded. Where they said that it did not happen, and the attempt that they
    were asked about returns after all, it has happened.
    """
    return epoch == effect.epoch or outcome.status == "ok"


class EffectLedger(Protocol):
    """Which effects were started, which were finished, and with which outcome."""

    def claim(
        self, effect: PastEffect, *, thread: str, start: bool = False, attempt: CallAttempt = FIRST_ATTEMPT
    ) -> AbstractAsyncContextManager[ClaimedEffect]:
        """Hold an exclusive claim on an effect, in this epoch and those before, during the block.

        Args:
            effect: The effect, identified by key and epoch; its other fields describe the call.
            thread: The thread of the call.
            start: Record that the effect may happen from here on, unless an earlier attempt has.
            attempt: The attempt that claims it.

        Raises:
            ApplicationError: Another attempt holds the claim, or the ledger is unavailable; Temporal tries again.
        """
        ...

    async def past_effects(self, thread: str, *, after: int) -> PastEffects:
        """Read the effects of a thread's calls numbered above `after`, oldest first."""
        ...
