"""Budgets as people write them: `Budget(steps=50, tokens=200_000, usd="2.50", seconds=3_600)`, `usd=2.50,tokens=200k`.

Money is a decimal with up to nine places, and is counted in whole nano-dollars: never in floats.
"""

from decimal import Decimal
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError, model_validator

from holdfast.core.base.durations import read_seconds
from holdfast.core.base.models import Definition

LimitName = Literal["steps", "tokens", "usd", "seconds"]
LIMITS: tuple[LimitName, ...] = ("steps", "tokens", "usd", "seconds")
"""The limits that a budget can have."""

NANO, MICRO = 10**9, 10**6
"""Nano-dollars in a dollar, microseconds in a second."""

_UNITS: dict[LimitName, int] = {"steps": 1, "tokens": 1, "usd": NANO, "seconds": MICRO}
_MAXIMA: dict[LimitName, int] = {
    "steps": 10**6,
    "tokens": 10**12,
    "usd": 10**6 * NANO,
    "seconds": 10 * 366 * 86_400 * MICRO,
}
"""The largest limits, in whole units; every JSON parser reads them exactly."""


_EXACT: TypeAdapter[Decimal] = TypeAdapter(
    Annotated[Decimal, Field(gt=0, le=_MAXIMA["usd"] // NANO, decimal_places=9, allow_inf_nan=False)]
)


def _usd(value: Any) -> Any:
    """Normalise an amount of dollars: no trailing zeros, no exponent."""
    if value is None:
        return None
    if isinstance(value, bool):
        raise ValueError("it has to be a number")
    try:
        exact = _EXACT.validate_python(value)
    except ValidationError as error:
        raise ValueError(error.errors(include_url=False)[0]["msg"]) from None
    return Decimal(format(exact.normalize(), "f"))  # only after the bounds check: 1E+999999 would fill the memory


class Amounts(Definition):
    """Amounts of at least one of steps, tokens, money and time."""

    steps: int | None = Field(default=None, ge=1, le=_MAXIMA["steps"], strict=True)
    """LLM calls whose replies count as steps."""
    tokens: int | None = Field(default=None, ge=1, le=_MAXIMA["tokens"], strict=True)
    """Tokens of requests and replies, those of context compactions included."""
    usd: Annotated[Decimal | int | str | None, BeforeValidator(_usd)] = None
    """US dollars by list prices, with up to nine decimal places: a decimal or its text."""
    seconds: int | None = Field(default=None, ge=1, le=_MAXIMA["seconds"] // MICRO, strict=True)
    """Seconds during which the run is `running`: not while it waits for people, sleeps, is paused or blocked."""

    @model_validator(mode="after")
    def _has_an_amount(self) -> Self:
        if all(getattr(self, name) is None for name in LIMITS):
            raise ValueError(f"give at least one of {', '.join(LIMITS)}")
        return self

    @property
    def units(self) -> dict[LimitName, int]:
        """The amounts that are set, in whole units: steps, tokens, nano-dollars, microseconds."""
        amounts = {name: getattr(self, name) for name in LIMITS}
        return {name: int(amount * _UNITS[name]) for name, amount in amounts.items() if amount is not None}

    @property
    def words(self) -> str:
        """The amounts as people write them: `steps=50,usd=2.5`."""
        return ",".join(f"{name}={amount_text(name, units)}" for name, units in self.units.items())


class Budget(Amounts):
    """The limits of one run. When it is nearly used up, the LLM gets one last call to return a partial result; then the
    run is blocked until a person extends the budget.
    """

    def narrowed(self, other: "Budget | None") -> "Budget":
        """Return the budget with the lower of each two limits."""
        if other is None:
            return self
        pairs = {name: (getattr(self, name), getattr(other, name)) for name in LIMITS}
        return Budget(**{name: min((a for a in pair if a is not None), default=None) for name, pair in pairs.items()})


def budget_of(limits: dict[LimitName, int]) -> Budget:
    """Return limits in whole units as a budget, rounded down to the units that people write, and at least 1 of each."""
    amounts: dict[str, Any] = {name: max(1, units // _UNITS[name]) for name, units in limits.items() if name != "usd"}
    if "usd" in limits:
        amounts["usd"] = Decimal(limits["usd"]) / NANO
    return Budget(**amounts)


def largest(name: LimitName) -> int:
    """Return the largest limit that a budget can have, in whole units."""
    return _MAXIMA[name]


def fits(limits: dict[LimitName, int]) -> bool:
    """Whether a budget can have these limits, in whole units."""
    return all(units <= _MAXIMA[name] for name, units in limits.items())


def amount_text(name: LimitName, units: int) -> str:
    """Format an amount in whole units exactly, in the unit that people read: `2.5` dollars, `90` seconds."""
    if _UNITS[name] == 1:
        return str(units)
    text = format(Decimal(units) / _UNITS[name], "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def read_amounts(text: str) -> dict[str, Any]:
    """Parse `usd=2,tokens=100k,seconds=1h` into the fields of `Amounts`, which checks their sizes.

    Raises:
        ValueError: The text is malformed.
    """
    amounts: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if name not in LIMITS or not equals or name in amounts:
            raise ValueError(f"{part[:40]!r}: write each of {', '.join(LIMITS)} at most once, as in usd=2,tokens=100k")
        amounts[name] = _read_amount(name, value)
    if not amounts:
        raise ValueError("it is empty; write usd=2,tokens=100k")
    return amounts


def _read_amount(name: str, value: str) -> int | str:
    if name == "usd":
        return value
    if name == "seconds":
        return int(read_seconds(value))
    factor = {"k": 1_000, "m": 1_000_000}.get(value[-1:].lower(), 1)
    digits = value[:-1] if factor > 1 else value
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 15):
        raise ValueError(f"{value[:40]!r} is not a whole number; write 100000, or 100k")
    return int(digits) * factor
