"""The account of a loop: its limits on tokens and money, kept in the same form as the accounts of runs. Pure functions.

1. Each iteration gets everything that is left: it is reserved for the iteration and becomes the budget of its run and
   all runs below it. The agent's own budget may narrow it.
2. When the iteration ends, the reservation is settled at the spending of its run and all runs below it; if that is
   unknown, the whole reservation counts.
3. A limit is reached if nothing is left of it, or if it ended the last iteration: then the rest is too little for
   another call. `retry` grants the same amount again, on top of the rest, so even a limit that is too small for a first
   call becomes large enough after some retries.
"""

from decimal import Decimal
from typing import Literal

from holdfast.core.base.models import replace
from holdfast.core.budget.account import MONEY, Account, Cost, nano_dollars
from holdfast.core.budget.budget import NANO, LimitName, largest
from holdfast.core.budget.tree import allowance_name, reserve_allowance, settle_allowance
from holdfast.core.log.loop_events import IterationEnded, LoopLimits
from holdfast.core.loop.state import LoopState
from holdfast.core.run.state.features import LOOP_BUDGETS


def open_account(state: LoopState) -> LoopState:
    """Return the state with an account, if the loop has limits for one and its feature level includes accounts.

    A loop that workers of 0.1.0 started has already spent something, and may have been granted more than its limit.
    """
    if state.features < LOOP_BUDGETS or state.account.limits:
        return state
    granted = _granted(state.limits)
    if "usd" in granted and state.cost_limit is not None:
        granted["usd"] = _nano(state.cost_limit)
    used = state.usage.prompt_tokens + state.usage.completion_tokens
    usd = granted.get("usd", 0) if state.cost is None else _nano(state.cost)
    return replace(state, account=Account(limits=granted, spent=Cost(tokens=used, usd=usd)))


def reserve_rest(account: Account, number: int) -> Account:
    """Reserve everything that is left for an iteration.

    Raises:
        EventOutOfPlace: The spending exceeds the limits, or the iteration already has a reservation.
    """
    if not account.limits:
        return account
    left = Cost(**{name: account.left(name) for name in account.limits})
    return reserve_allowance(replace(account, short=""), number, left)


def settle_iteration(account: Account, event: IterationEnded) -> Account:
    """Settle an iteration's reservation at its spending."""
    if allowance_name(event.number) not in account.reserved:  # it began before the loop had an account
        return account
    short = event.spent.short if event.spent and event.spent.short in account.limits else ""
    return replace(settle_allowance(account, event.number, event.spent), short=short)


def reached_limit(account: Account) -> LimitName | Literal[""]:
    """Return the first limit that is reached; empty if none is."""
    return next((name for name in account.limits if name == account.short or not account.left(name)), "")


def grant_again(account: Account, limits: LoopLimits) -> Account:
    """Grant the same amount again for each limit that is reached."""
    more = _granted(limits)
    raised = {
        name: min(max(account.used(name), units) + more.get(name, units), largest(name))
        if name == account.short or not account.left(name)
        else units
        for name, units in account.limits.items()
    }
    return replace(account, limits=raised, short="")


def _granted(limits: LoopLimits) -> dict[LimitName, int]:
    """Return the limits in whole units, in the order of `MONEY`."""
    tokens = None if limits.tokens is None else min(limits.tokens, largest("tokens"))
    granted = {"tokens": tokens, "usd": None if limits.cost is None else max(1, _nano(limits.cost))}
    return {name: units for name in MONEY if (units := granted[name]) is not None}


def _nano(usd: float) -> int:
    """Convert dollars to whole nano-dollars, capped at the largest budget; a loop's limit may be any number."""
    return nano_dollars(Decimal(str(min(usd, largest("usd") // NANO))))
