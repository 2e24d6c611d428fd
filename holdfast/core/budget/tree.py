"""Accounts of a tree of runs: reservations for sub-agents, and how they are settled. Pure values.

1. The reservation for a sub-agent is its allowance, the budget of its whole tree. The sub-agent opens its own account
   with it, and reserves parts of it for its own sub-agents.
2. At its end, the sub-agent reports the spending of its account, which includes its own sub-agents. The rest of the
   allowance is released.
3. If its spending is unknown, the whole allowance counts as spent.
4. If people extended a sub-agent's budget, spending beyond the allowance, up to that extension, raises the limits of
   the parent run: people added it to the tree. Any other spending beyond the allowance counts against the limits.
"""

from decimal import Decimal
from typing import Any, Literal

from pydantic import Field

from holdfast.core.base.models import Frozen
from holdfast.core.budget.account import Account, Cost
from holdfast.core.budget.budget import MICRO, NANO, Budget, LimitName, largest
from holdfast.errors import EventOutOfPlace

SHARED: tuple[LimitName, ...] = ("steps", "tokens", "usd")
"""The limits of the parent run that an allowance draws on. Time is not divided: it passes once for parallel runs."""


class TreeCost(Frozen):
    """The spending of a run and all runs below it, by its account."""

    steps: int = Field(default=0, ge=0, strict=True)
    tokens: int = Field(default=0, ge=0, strict=True)
    nano_usd: int = Field(default=0, ge=0, strict=True)
    """Nano-dollars; 0 if money is not limited."""
    more_steps: int = Field(default=0, ge=0, strict=True)
    """Extensions of its limit by people, and of the limits below it as far as they were spent."""
    more_tokens: int = Field(default=0, ge=0, strict=True)
    more_nano_usd: int = Field(default=0, ge=0, strict=True)
    short: LimitName | Literal[""] = ""
    """The limit that ended it; empty if it ended for another reason."""

    @property
    def spent(self) -> Cost:
        """The spending."""
        return Cost(steps=self.steps, tokens=self.tokens, usd=self.nano_usd)

    @property
    def more(self) -> Cost:
        """The extensions."""
        return Cost(steps=self.more_steps, tokens=self.more_tokens, usd=self.more_nano_usd)


def tree_cost(account: Account) -> TreeCost | None:
    """Return the spending that an account reports, with open reservations as spent; None for a run without a budget."""
    if not account.limits:
        return None
    steps, tokens, usd = (account.used(name) for name in SHARED)
    more = account.extended
    return TreeCost(
        steps=steps,
        tokens=tokens,
        nano_usd=usd,
        more_steps=more.steps,
        more_tokens=more.tokens,
        more_nano_usd=more.usd,
        short=account.short if account.closing == "over" else "",
    )


def allowance_name(number: int) -> str:
    """Return the name of the reservation for the sub-agent that call `number` starts."""
    return f"agent {number}"


def allowance_of(account: Account, number: int) -> Budget | None:
    """Return a sub-agent's reservation as a budget; None if nothing is reserved for it.

    Args:
        account: The account of the run that starts it.
        number: The number of the call.
    """
    reserved = account.reserved.get(allowance_name(number))
    if reserved is None:
        return None
    amounts: dict[str, Any] = {name: reserved.of(name) for name in SHARED if name in account.limits}
    if "usd" in amounts:
        amounts["usd"] = Decimal(amounts["usd"]) / NANO
    if "seconds" in account.limits:
        amounts["seconds"] = max(1, account.left("seconds") // MICRO)
    return Budget(**amounts)


def reserve_allowance(account: Account, number: int, cost: Cost) -> Account:
    """Reserve an allowance, or raise an existing reservation.

    Raises:
        EventOutOfPlace: The existing reservation is as large or larger, or there is no room.
    """
    name = allowance_name(number)
    if name in account.reserved:
        before = account.reserved[name]
        if cost == before or any(cost.of(each) < before.of(each) for each in SHARED):
            raise EventOutOfPlace(f"an allowance is reserved for call {number} already")
        account = account.settle(name, Cost())
    return account.reserve(name, cost)


def cost_to_reserve(account: Account, number: int, allowance: Budget | None) -> Cost | None:
    """Return the reservation needed for a sub-agent that was started with this allowance; None if it is unlimited.

    Args:
        account: The account of the run that starts it.
        number: The number of the call.
        allowance: The allowance that it was started with.
    """
    reserved, units = account.reserved[allowance_name(number)], allowance.units if allowance else {}
    if any(name in account.limits and name not in units for name in SHARED):
        return None
    return Cost(**{name: max(reserved.of(name), units.get(name, 0)) for name in SHARED if name in account.limits})


def settle_allowance(account: Account, number: int, cost: TreeCost | None) -> Account:
    """Settle the reservation for a sub-agent at the spending of its tree; None if that is unknown.

    A sub-agent without a reservation was started by an earlier run of the thread and belongs to that run's account.
    """
    name = allowance_name(number)
    reserved = account.reserved.get(name)
    if reserved is None:
        return account
    if cost is None:
        return account.settle(name, reserved)
    beyond = {
        each: max(
            0,
            min(
                cost.more.of(each),
                cost.spent.of(each) - reserved.of(each),
                largest(each) - account.limits[each],  # an allowance must be a valid budget
            ),
        )
        for each in SHARED
        if each in account.limits
    }
    return account.settle(name, cost.spent).extended_below(Cost(**beyond))
