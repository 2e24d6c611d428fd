"""The account of one run: its limits, what is spent, and what is reserved. A pure value.

1. What a call may cost is reserved first, under a name, and settled with what it has cost: an LLM call with its usage,
   a sub-agent with what its whole tree has spent.
2. Nothing is reserved beyond the limits, except for the last call. So what runs side by side never exceeds them
   together; a call exceeds them by no more than it costs beyond its estimate.
3. What is lost without an answer is settled with all that was reserved.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from holdfast.core.base.models import Frozen, replace
from holdfast.core.budget.budget import LIMITS, NANO, Amounts, Budget, LimitName, amount_text
from holdfast.errors import EventOutOfPlace

LOW_PERCENT = 80
"""Share of a limit at which people and the LLM are told."""

LLM_CALL = "llm"
"""The name of the reservation of an LLM call: a run makes one at a time."""

MONEY: tuple[LimitName, ...] = ("tokens", "usd")
"""What is estimated before a call."""

IDS = 100
"""Ids of the last extensions: one of the same id is refused as a duplicate."""


RAISERS = 100
"""Of how many people an account keeps by how much they have raised its limits."""


class TokenPrice(Frozen):
    """The price of an LLM's tokens in nano-dollars, rounded up. Reservations are estimated with it."""

    request: int
    """Of one token of a request."""
    reply: int
    """Of one token of a reply."""


@dataclass(frozen=True)
class Cost:
    """What something costs, in whole units."""

    steps: int = 0
    tokens: int = 0
    usd: int = 0
    """Nano-dollars."""
    seconds: int = 0
    """Microseconds."""

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(*(getattr(self, name) + getattr(other, name) for name in LIMITS))

    def of(self, name: LimitName) -> int:
        """Return how much it costs of what a budget can limit."""
        amount: int = getattr(self, name)
        return amount


@dataclass(frozen=True)
class Raised:
    """By how much one person, or the sub-agents, raised the limits of an account. Another place decides what counts."""

    by: str = ""
    """Who; empty for what people gave to sub-agents, as far as that was spent."""
    key: str = ""
    """The public key that has signed it; empty for none."""
    units: dict[LimitName, int] = field(default_factory=dict)
    """By how much in all."""
    most: dict[LimitName, int] = field(default_factory=dict)
    """The most that one extension gave."""


@dataclass(frozen=True)
class Account:
    """What a run may use, has used, and has reserved."""

    limits: dict[LimitName, int] = field(default_factory=dict)
    """In whole units; empty for a run without a budget, which keeps no account."""
    price: TokenPrice | None = None
    """None where the LLM's list price is unknown."""
    spent: Cost = Cost()
    reserved: dict[str, Cost] = field(default_factory=dict)
    """What is under way, by name."""
    low: tuple[LimitName, ...] = ()
    """Limits that have been reported as low."""
    closing: Literal["", "asked", "over"] = ""
    """The LLM has been told that the budget ends, and makes its last call · has made it, or could not."""
    short: LimitName | Literal[""] = ""
    """Which limit ended the budget."""
    request_tokens: int = 0
    """Estimated tokens of the next request."""
    fixed_tokens: int = 0
    """Estimated tokens of what every request begins with."""
    lost: int = 0
    """Attempts of the step under way, or of a summary, that may have cost something and gave no reply."""
    extensions: tuple[str, ...] = ()
    """Ids of the last extensions."""
    extended: Cost = Cost()
    """By how much people have extended the limits, without time; those of sub-agents as far as that was spent."""
    raised: tuple[Raised, ...] = ()
    """By how much people have raised the limits, time included: the last `RAISERS` of them."""
    handed: bool = False
    """The budget is an allowance of the run above: where it ends, the run ends, and hands in what it has."""

    @classmethod
    def open(cls, budget: Budget, price: TokenPrice | None, *, tokens: int) -> "Account":
        """Open an account.

        Args:
            budget: What may be used.
            price: Of the run's LLM; None where it is unknown.
            tokens: Estimated tokens of the first request.
        """
        return cls(limits=budget.units, price=price, request_tokens=tokens, fixed_tokens=tokens)

    @property
    def priced(self) -> bool:
        """Whether money is limited, so that costs have to be computed."""
        return "usd" in self.limits

    @property
    def unpriced(self) -> bool:
        """Whether money is limited and the LLM's price is unknown, so that nothing can be reserved."""
        return self.priced and self.price is None

    def used(self, name: LimitName) -> int:
        """Return what is spent and reserved of a limit."""
        return self.spent.of(name) + sum(cost.of(name) for cost in self.reserved.values())

    def left(self, name: LimitName) -> int:
        """Return what can still be reserved of a limit; 0 where it is exceeded."""
        return max(0, self.limits[name] - self.used(name))

    def lacks(self, cost: Cost) -> LimitName | Literal[""]:
        """Return the first limit that has no room for this cost; empty where all have."""
        return next((name for name in self.limits if self.used(name) + cost.of(name) > self.limits[name]), "")

    def short_of_more_than_time(self, cost: Cost) -> LimitName | Literal[""]:
        """Return the first limit but that of time which has no room for this cost; empty where all have."""
        others: dict[LimitName, int] = {name: limit for name, limit in self.limits.items() if name != "seconds"}
        return replace(self, limits=others).lacks(cost)

    def lows(self) -> tuple[LimitName, ...]:
        """Return the limits of which `LOW_PERCENT` is spent, and that have not been reported yet."""
        return tuple(
            name
            for name, limit in self.limits.items()
            if name not in self.low and 100 * self.spent.of(name) >= LOW_PERCENT * limit
        )

    def reserve(self, name: str, cost: Cost) -> "Account":
        """Reserve a cost under a name. One that is still reserved under it was lost: it counts in full.

        The last call is reserved where there is no room for it, too: the LLM hands in what it has.

        Raises:
            EventOutOfPlace: There is no room for it.
        """
        after = self.lose(name)
        if not self.closing and (short := after.short_of_more_than_time(cost)):
            raise EventOutOfPlace(f"the budget has no room for what is reserved: {short}")
        return replace(after, reserved={**after.reserved, name: cost})

    def settle(self, name: str, cost: Cost) -> "Account":
        """Settle a reservation with what it has cost.

        Raises:
            EventOutOfPlace: Nothing is reserved under the name.
        """
        if name not in self.reserved:
            raise EventOutOfPlace(f"nothing was reserved for {name}, so nothing can be settled")
        left = {each: reserved for each, reserved in self.reserved.items() if each != name}
        lost = 0 if name == LLM_CALL else self.lost
        return replace(self, spent=self.spent + cost, reserved=left, lost=lost)

    def lose(self, name: str) -> "Account":
        """Settle a reservation, if it is open, with all that was reserved, except for steps: those have a reply."""
        return self.settle(name, replace(self.reserved[name], steps=0)) if name in self.reserved else self

    def spend(self, cost: Cost) -> "Account":
        """Count what cannot be reserved: time."""
        return replace(self, spent=self.spent + cost)

    def extend(self, more: Amounts, *, id: str = "", by: str = "", key: str = "") -> "Account":
        """Raise the limits that the budget has. Time is asked for from now on: what was overrun is not asked for twice.

        A limit that was reported as low may be reported again.

        Args:
            more: By how much.
            id: The id of the extension.
            by: Who extends it.
            key: The public key that has signed it; empty for none.
        """
        limits = dict(self.limits)
        for name, units in more.units.items():
            if name in limits:
                limits[name] = (max(limits[name], self.spent.seconds) if name == "seconds" else limits[name]) + units
        low = tuple(name for name in self.low if 100 * self.spent.of(name) >= LOW_PERCENT * limits[name])
        ids = (*self.extensions, id)[-IDS:] if id else self.extensions
        given = Cost(**{name: units for name, units in more.units.items() if name in limits and name != "seconds"})
        by_how_much = {name: limit - self.limits[name] for name, limit in limits.items() if limit != self.limits[name]}
        raised = _with_raised(self.raised, Raised(by, key, by_how_much, dict(more.units)))
        return replace(self, limits=limits, low=low, extensions=ids, extended=self.extended + given, raised=raised)

    def extended_below(self, beyond: Cost) -> "Account":
        """Raise the limits by what people have given to sub-agents and was spent there."""
        units = {name: beyond.of(name) for name in self.limits if beyond.of(name)}
        if not units:
            return self
        limits = {name: limit + units.get(name, 0) for name, limit in self.limits.items()}
        raised = _with_raised(self.raised, Raised(units=units))
        return replace(self, limits=limits, extended=self.extended + beyond, raised=raised)

    def cost_of(self, *, request: int, reply: int, steps: int) -> Cost:
        """Return what a call costs by the estimated price of its tokens."""
        price = self.price
        usd = price.request * request + price.reply * reply if price and self.priced else 0
        return Cost(steps=steps, tokens=request + reply, usd=usd)

    def view(self) -> dict[str, Any] | None:
        """Return it as `show` presents it: what each limit allows, and what is spent, reserved and left of it."""
        if not self.limits:
            return None
        limits = [
            {
                "limit": name,
                "allowed": amount_text(name, units),
                "spent": amount_text(name, self.spent.of(name)),
                "reserved": amount_text(name, self.used(name) - self.spent.of(name)),
                "left": amount_text(name, self.left(name)),
            }
            for name, units in self.limits.items()
        ]
        return {"limits": limits, "closing": self.closing, "short": self.short}


def _with_raised(raised: tuple[Raised, ...], more: Raised) -> tuple[Raised, ...]:
    """Add an extension to those of the same person with the same key."""
    before = next((each for each in raised if (each.by, each.key) == (more.by, more.key)), Raised())
    others = tuple(each for each in raised if each is not before)
    units = {name: before.units.get(name, 0) + more.units.get(name, 0) for name in (before.units | more.units)}
    most = {name: max(before.most.get(name, 0), more.most.get(name, 0)) for name in (before.most | more.most)}
    return (*others, Raised(more.by, more.key, units, most))[-RAISERS:]


def nano_dollars(usd: Any) -> int:
    """Return a price in US dollars (a `Decimal`) as whole nano-dollars, rounded up."""
    units = usd * NANO
    whole = int(units)
    return whole + (1 if units > whole else 0)
