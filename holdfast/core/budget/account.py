"""The account of one run: its limits, spending and reservations, and how a reservation is settled. A pure value.

1. The estimated cost of a call is reserved first, under a name, and later settled at the actual cost: for an LLM call
   its usage, for a sub-agent the spending of its whole tree.
2. No reservation exceeds the limits, except for the last call. So parallel calls never exceed them together, and a call
   exceeds them only by the difference between its cost and its estimate.
3. A call that is lost without a result is settled at the full reservation.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from holdfast.core.base.models import Frozen, replace
from holdfast.core.budget.budget import LIMITS, NANO, Amounts, Budget, LimitName, amount_text, budget_of
from holdfast.errors import EventOutOfPlace

LOW_PERCENT = 80
"""Percentage of a limit at which people and the LLM are warned."""

LLM_CALL = "llm"
"""The name of the reservation for an LLM call; a run makes one at a time."""

MONEY: tuple[LimitName, ...] = ("tokens", "usd")
"""The limits against which a call is estimated."""

IDS = 100
"""Number of recent extension ids that an account keeps; an extension with one of them is rejected as a duplicate."""


RAISERS = 100
"""Number of people for whom an account keeps by how much they raised its limits."""


class TokenPrice(Frozen):
    """The price of an LLM's tokens in nano-dollars, rounded up; used to estimate reservations."""

    request: int
    """Per token of a request."""
    reply: int
    """Per token of a reply."""


@dataclass(frozen=True)
class Cost:
    """A cost, in whole units."""

    steps: int = 0
    tokens: int = 0
    usd: int = 0
    """Nano-dollars."""
    seconds: int = 0
    """Microseconds."""

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(*(getattr(self, name) + getattr(other, name) for name in LIMITS))

    def of(self, name: LimitName) -> int:
        """Return the part of the cost that counts against this limit."""
        amount: int = getattr(self, name)
        return amount


@dataclass(frozen=True)
class Raised:
    """The amount by which one person, or the sub-agents, raised an account's limits. Others decide if it is valid."""

    by: str = ""
    """The person; empty for extensions of sub-agents' budgets, as far as those were spent."""
    key: str = ""
    """The public key that signed the extension; empty if it was not signed."""
    units: dict[LimitName, int] = field(default_factory=dict)
    """The total, in whole units."""
    most: dict[LimitName, int] = field(default_factory=dict)
    """The largest single extension, in whole units."""


@dataclass(frozen=True)
class Account:
    """The limits, spending and reservations of a run."""

    limits: dict[LimitName, int] = field(default_factory=dict)
    """In whole units; empty for a run without a budget, which keeps no account."""
    price: TokenPrice | None = None
    """None if the LLM's list price is unknown."""
    spent: Cost = Cost()
    reserved: dict[str, Cost] = field(default_factory=dict)
    """Reservations for calls under way, by name."""
    low: tuple[LimitName, ...] = ()
    """Limits that have been reported as low."""
    closing: Literal["", "asked", "over"] = ""
    """The LLM was notified that the budget ends and makes its last call · it has made that call, or could not."""
    short: LimitName | Literal[""] = ""
    """The limit that ended the budget."""
    request_tokens: int = 0
    """Estimated tokens of the next request."""
    fixed_tokens: int = 0
    """Estimated tokens of the part that all requests begin with."""
    lost: int = 0
    """Number of attempts at the current step, or at a summary, that may have cost something but returned no reply."""
    extensions: tuple[str, ...] = ()
    """Ids of the last extensions."""
    extended: Cost = Cost()
    """Total extensions by people, without time; those of sub-agents' budgets count as far as they were spent."""
    raised: tuple[Raised, ...] = ()
    """Extensions by person, time included, for the last `RAISERS` people."""
    is_allowance: bool = False
    """Whether the budget is an allowance from the parent run; when used up, the run ends with a partial result."""

    @classmethod
    def open(cls, budget: Budget, price: TokenPrice | None, *, tokens: int) -> "Account":
        """Open an account.

        Args:
            budget: The limits.
            price: The price of the run's LLM; None if it is unknown.
            tokens: Estimated tokens of the first request.
        """
        return cls(limits=budget.units, price=price, request_tokens=tokens, fixed_tokens=tokens)

    @property
    def priced(self) -> bool:
        """Whether money is limited, so that costs must be computed."""
        return "usd" in self.limits

    @property
    def unpriced(self) -> bool:
        """Whether money is limited and the LLM's price is unknown, so that nothing can be reserved."""
        return self.priced and self.price is None

    def used(self, name: LimitName) -> int:
        """Return the spent and reserved amount of a limit."""
        return self.spent.of(name) + sum(cost.of(name) for cost in self.reserved.values())

    def left(self, name: LimitName) -> int:
        """Return the amount of a limit that can still be reserved; 0 if the limit is exceeded."""
        return max(0, self.limits[name] - self.used(name))

    def lacks(self, cost: Cost) -> LimitName | Literal[""]:
        """Return the first limit that has no room for this cost; empty if all have."""
        return next((name for name in self.limits if self.used(name) + cost.of(name) > self.limits[name]), "")

    def lacks_besides_time(self, cost: Cost) -> LimitName | Literal[""]:
        """Return the first limit other than time that has no room for this cost; empty if all have."""
        others: dict[LimitName, int] = {name: limit for name, limit in self.limits.items() if name != "seconds"}
        return replace(self, limits=others).lacks(cost)

    def newly_low(self) -> tuple[LimitName, ...]:
        """Return the limits that are spent to `LOW_PERCENT` and have not been reported yet."""
        return tuple(
            name
            for name, limit in self.limits.items()
            if name not in self.low and 100 * self.spent.of(name) >= LOW_PERCENT * limit
        )

    def reserve(self, name: str, cost: Cost) -> "Account":
        """Reserve a cost under a name. An open reservation of that name belongs to a lost call and counts in full.

        The last call, in which the LLM returns a partial result, is reserved even if there is no room for it.

        Raises:
            EventOutOfPlace: There is no room for it.
        """
        after = self.lose(name)
        if not self.closing and (short := after.lacks_besides_time(cost)):
            raise EventOutOfPlace(f"the budget has no room for what is reserved: {short}")
        return replace(after, reserved={**after.reserved, name: cost})

    def settle(self, name: str, cost: Cost) -> "Account":
        """Settle a reservation at the actual cost.

        Raises:
            EventOutOfPlace: Nothing is reserved under the name.
        """
        if name not in self.reserved:
            raise EventOutOfPlace(f"nothing was reserved for {name}, so nothing can be settled")
        left = {each: reserved for each, reserved in self.reserved.items() if each != name}
        lost = 0 if name == LLM_CALL else self.lost
        return replace(self, spent=self.spent + cost, reserved=left, lost=lost)

    def lose(self, name: str) -> "Account":
        """Settle a reservation, if it is open, in full, but without its steps: only a call with a reply is a step."""
        return self.settle(name, replace(self.reserved[name], steps=0)) if name in self.reserved else self

    def spend(self, cost: Cost) -> "Account":
        """Add a cost that was not reserved, such as time."""
        return replace(self, spent=self.spent + cost)

    def extend(self, more: Amounts, *, id: str = "", by: str = "", key: str = "") -> "Account":
        """Raise the limits that the budget has. Time is added to the time spent if that is over the limit.

        A limit that was reported as low may be reported again.

        Args:
            more: The amounts to add.
            id: The id of the extension.
            by: The person who extends it.
            key: The public key that signed the extension; empty if it was not signed.
        """
        limits = dict(self.limits)
        for name, units in more.units.items():
            if name in limits:
                limits[name] = (max(limits[name], self.spent.seconds) if name == "seconds" else limits[name]) + units
        low = tuple(name for name in self.low if 100 * self.spent.of(name) >= LOW_PERCENT * limits[name])
        ids = (*self.extensions, id)[-IDS:] if id else self.extensions
        added = Cost(**{name: units for name, units in more.units.items() if name in limits and name != "seconds"})
        increases = {name: limit - self.limits[name] for name, limit in limits.items() if limit != self.limits[name]}
        raised = _with_raised(self.raised, Raised(by, key, increases, dict(more.units)))
        return replace(self, limits=limits, low=low, extensions=ids, extended=self.extended + added, raised=raised)

    @property
    def budget(self) -> Budget | None:
        """The limits as a budget, rounded down; None if there are none."""
        return budget_of(self.limits) if self.limits else None

    def continue_with(self, own: "Account") -> "Account":
        """Continue with the limits and the price of another agent's account, which are no higher."""
        return replace(self, limits=own.limits, price=own.price, fixed_tokens=own.fixed_tokens)

    def extended_below(self, beyond: Cost) -> "Account":
        """Raise the limits by the part of sub-agents' extensions that was spent."""
        units = {name: beyond.of(name) for name in self.limits if beyond.of(name)}
        if not units:
            return self
        limits = {name: limit + units.get(name, 0) for name, limit in self.limits.items()}
        raised = _with_raised(self.raised, Raised(units=units))
        return replace(self, limits=limits, extended=self.extended + beyond, raised=raised)

    def cost_of(self, *, request: int, reply: int, steps: int) -> Cost:
        """Return the cost of a call by the estimated price of its tokens."""
        price = self.price
        usd = price.request * request + price.reply * reply if price and self.priced else 0
        return Cost(steps=steps, tokens=request + reply, usd=usd)

    def view(self) -> dict[str, Any] | None:
        """Return the account as JSON, for `show`: the allowed, spent, reserved and remaining amount of each limit."""
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
    """Add an extension to the entry of the same person and key."""
    before = next((each for each in raised if (each.by, each.key) == (more.by, more.key)), Raised())
    others = tuple(each for each in raised if each is not before)
    units = {name: before.units.get(name, 0) + more.units.get(name, 0) for name in (before.units | more.units)}
    most = {name: max(before.most.get(name, 0), more.most.get(name, 0)) for name in (before.most | more.most)}
    return (*others, Raised(more.by, more.key, units, most))[-RAISERS:]


def nano_dollars(usd: Any) -> int:
    """Convert US dollars (a `Decimal`) to whole nano-dollars, rounded up."""
    units = usd * NANO
    whole = int(units)
    return whole + (1 if units > whole else 0)
