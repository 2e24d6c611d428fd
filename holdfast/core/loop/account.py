"""The account of a loop: its limits of tokens and money, kept with the accounts of runs. Pure functions.

1. Each iteration is given all that is left: that is reserved for it, and is the budget of its run and of all runs below
   it. The agent's own budget may narrow it.
2. When it has ended, what it and all runs below it have spent is settled. Where that is unknown, all that was reserved
   counts.
3. A limit is reached where nothing is left of it, or where its end has ended the last iteration: the rest is then too
   little for another call. `retry` grants the same amount again, on top of that rest: so a limit that is too small for
   a first call is large enough after some of them.
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


def opened(state: LoopState) -> LoopState:
    """Return the state with an account, where the loop has limits for one and its feature level accounts.

    A loop that workers of 0.1.0 began has spent something by then, and may have been granted more than its limit.
    """
    if state.features < LOOP_BUDGETS or state.account.limits:
        return state
    granted = _granted(state.limits)
    if "usd" in granted and state.cost_limit is not None:
        granted["usd"] = _nano(state.cost_limit)
    used = state.usage.prompt_tokens + state.usage.completion_tokens
    usd = granted.get("usd", 0) if state.cost is None else _nano(state.cost)
    return replace(state, account=Account(limits=granted, spent=Cost(tokens=used, usd=usd)))


def begun(account: Account, number: int) -> Account:
    """Reserve all that is left for an iteration.

    Raises:
        EventOutOfPlace: More is spent than the limits allow, or something is reserved for it already.
    """
    if not account.limits:
        return account
    left = Cost(**{name: account.left(name) for name in account.limits})
    return reserve_allowance(replace(account, short=""), number, left)


def settled(account: Account, event: IterationEnded) -> Account:
    """Settle what was reserved for an iteration with what it has spent."""
    if allowance_name(event.number) not in account.reserved:  # it began before the loop had an account
        return account
    short = event.spent.short if event.spent and event.spent.short in account.limits else ""
    return replace(settle_allowance(account, event.number, event.spent), short=short)


def reached(account: Account) -> LimitName | Literal[""]:
    """Return the limit that is reached; empty for none."""
    return next((name for name in account.limits if name == account.short or not account.left(name)), "")


def retried(account: Account, limits: LoopLimits) -> Account:
    """Grant the same amount again of each limit that is reached."""
    more = _granted(limits)
    raised = {
        name: min(max(account.used(name), units) + more.get(name, units), largest(name))
        if name == account.short or not account.left(name)
        else units
        for name, units in account.limits.items()
    }
    return replace(account, limits=raised, short="")


def _granted(limits: LoopLimits) -> dict[LimitName, int]:
    """The limits in whole units, in the order of `MONEY`."""
    tokens = None if limits.tokens is None else min(limits.tokens, largest("tokens"))
    given = {"tokens": tokens, "usd": None if limits.cost is None else max(1, _nano(limits.cost))}
    return {name: units for name in MONEY if (units := given[name]) is not None}


def _nano(usd: float) -> int:
    """Dollars as whole nano-dollars; a limit may be any number, and a budget has a largest."""
    return nano_dollars(Decimal(str(min(usd, largest("usd") // NANO))))
