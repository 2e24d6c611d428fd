"""Accounts of a tree of runs: what a run reserves for a sub-agent, and how that is settled. Pure values.

1. What is reserved for a sub-agent is its allowance, the budget of its whole tree. It opens its own account with it,
   and reserves parts of that for its own sub-agents.
2. What it hands back is what its account has spent, its own sub-agents' included. The rest is free again.
3. Where that is unknown, the whole allowance counts as spent.
4. Where people have extended a sub-agent's budget, what was spent of that beyond the allowance raises the limits of the
   run above: people have added it to the tree. Anything else beyond the allowance counts against the limits.
"""

from decimal import Decimal
from typing import Any, Literal

from pydantic import Field

from holdfast.core.base.models import Frozen
from holdfast.core.budget.account import Account, Cost
from holdfast.core.budget.budget import MICRO, NANO, Budget, LimitName, largest
from holdfast.errors import EventOutOfPlace

SHARED: tuple[LimitName, ...] = ("steps", "tokens", "usd")
"""What an allowance takes from the limits of the run above. Time is not shared out: side by side, it passes once."""


class TreeCost(Frozen):
    """What a run and all runs below it have spent, by its account."""

    steps: int = Field(default=0, ge=0, strict=True)
    tokens: int = Field(default=0, ge=0, strict=True)
    nano_usd: int = Field(default=0, ge=0, strict=True)
    """Nano-dollars; 0 where money is not limited."""
    more_steps: int = Field(default=0, ge=0, strict=True)
    """By how much people have extended its limit, and those below it as far as that was spent."""
    more_tokens: int = Field(default=0, ge=0, strict=True)
    more_nano_usd: int = Field(default=0, ge=0, strict=True)
    short: LimitName | Literal[""] = ""
    """The limit that ended it; empty where it ended for another reason."""

    @property
    def spent(self) -> Cost:
        """What was spent."""
        return Cost(steps=self.steps, tokens=self.tokens, usd=self.nano_usd)

    @property
    def more(self) -> Cost:
        """By how much it was extended."""
        return Cost(steps=self.more_steps, tokens=self.more_tokens, usd=self.more_nano_usd)


def tree_cost(account: Account) -> TreeCost | None:
    """Return what an account hands back: what is still reserved counts as spent; None for a run without a budget."""
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
    """Return the name of the reservation for the sub-agent that the call of this number starts."""
    return f"agent {number}"


def allowance_of(account: Account, number: int) -> Budget | None:
    """Return the budget that a sub-agent gets by its reservation; None where nothing is reserved for it.

    Args:
        account: The account of the run that starts it.
        number: The number of the call.
    """
    reserved = account.reserved.get(allowance_name(number))
    if reserved is None:
        return None
    given: dict[str, Any] = {name: reserved.of(name) for name in SHARED if name in account.limits}
    if "usd" in given:
        given["usd"] = Decimal(given["usd"]) / NANO
    if "seconds" in account.limits:
        given["seconds"] = max(1, account.left("seconds") // MICRO)
    return Budget(**given)


def reserve_allowance(account: Account, number: int, cost: Cost) -> Account:
    """Reserve an allowance, or raise the one that is reserved.

    Raises:
        EventOutOfPlace: As much is reserved already, or there is no room for it.
    """
    name = allowance_name(number)
    if name in account.reserved:
        before = account.reserved[name]
        if cost == before or any(cost.of(each) < before.of(each) for each in SHARED):
            raise EventOutOfPlace(f"an allowance is reserved for call {number} already")
        account = account.settle(name, Cost())
    return account.reserve(name, cost)


def covering(account: Account, number: int, given: Budget | None) -> Cost | None:
    """Return what has to be reserved for a sub-agent that was started with this allowance; None where it has no end.

    Args:
        account: The account of the run that starts it.
        number: The number of the call.
        given: The allowance that it was started with.
    """
    reserved, units = account.reserved[allowance_name(number)], given.units if given else {}
    if any(name in account.limits and name not in units for name in SHARED):
        return None
    return Cost(**{name: max(reserved.of(name), units.get(name, 0)) for name in SHARED if name in account.limits})


def settle_allowance(account: Account, number: int, cost: TreeCost | None) -> Account:
    """Settle what was reserved for a sub-agent with what its tree has spent; None: that is unknown.

    A sub-agent without a reservation was started by an earlier run of the thread, whose account it was.
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
                largest(each) - account.limits[each],  # an allowance has to be a budget that there can be
            ),
        )
        for each in SHARED
        if each in account.limits
    }
    return account.settle(name, cost.spent).extended_below(Cost(**beyond))
