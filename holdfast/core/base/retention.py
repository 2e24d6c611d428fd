"""Retention rules: how long a thread is kept after its end, by its outcome. `finished=90d failed=1y`."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

_AGE = re.compile(r"(\d{1,5})([hdwy])", re.ASCII)
_HOURS = {"h": 1, "d": 24, "w": 7 * 24, "y": 365 * 24}
_ANY = "finished"
_ENDS = (_ANY, "completed", "failed", "cancelled")


def read_age(text: str) -> timedelta:
    """Parse an age.

    Raises:
        ValueError: `text` is not an age.
    """
    age = _AGE.fullmatch(text.strip())
    if not age:
        raise ValueError(f"{text[:40]!r} is not an age; write it as 48h, 30d, 8w or 1y")
    return timedelta(hours=int(age[1]) * _HOURS[age[2]])


@dataclass(frozen=True)
class Retention:
    """How long threads are kept; made by `read_rules`."""

    ages: tuple[tuple[str, timedelta], ...]
    """Pairs of an outcome (`completed`, `failed`, `cancelled`, or `finished` for any other one) and the age at which a
    thread with that outcome is due for removal."""

    @property
    def least(self) -> timedelta:
        """The shortest age."""
        return min(age for _, age in self.ages)

    def is_due(self, outcome: str, age: timedelta) -> bool:
        """Whether to remove a thread that ended with this outcome, this long ago."""
        ages = dict(self.ages)
        limit = ages.get(outcome, ages.get(_ANY))
        return limit is not None and age >= limit


def read_rules(rules: Iterable[str]) -> Retention:
    """Parse rules such as `finished=90d`. A rule for one outcome takes precedence over `finished`, the rule for all.

    Raises:
        ValueError: A rule is malformed, there is none, or two are for the same outcome.
    """
    ages: dict[str, timedelta] = {}
    for rule in rules:
        end, equals, age = rule.partition("=")
        if not equals or end not in _ENDS:
            raise ValueError(f"{rule[:40]!r} is not a rule; write END=AGE, with one of {', '.join(_ENDS)}")
        if end in ages:
            raise ValueError(f"there are two rules for {end}")
        ages[end] = read_age(age)
    if not ages:
        raise ValueError("there is no rule; write one such as finished=90d")
    return Retention(tuple(ages.items()))
