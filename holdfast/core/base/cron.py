"""Cron expressions with five fields, parsed here so that errors name the field; Temporal gets them as sets of numbers.

1. `*`, `7`, `1-5`, `*/15`, `8-18/2`, `5/10`, lists of these, and three-letter names of months and weekdays. Sunday is 0
   or 7.
2. All fields must match. (Classic cron accepts a match of either day or weekday if both are restricted.)
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

from holdfast.core.base.text import one_line

_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_LONGEST = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
"""The maximum number of days in each month."""

_DAY_MINUTES = 24 * 60


class _Field(NamedTuple):
    name: str
    first: int
    last: int
    names: Mapping[str, int]


_FIELDS = (
    _Field("minute", 0, 59, {}),
    _Field("hour", 0, 23, {}),
    _Field("day of the month", 1, 31, {}),
    _Field("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, start=1)}),
    _Field("day of the week", 0, 7, {name: number for number, name in enumerate(_DAYS)}),
)


class Cron(NamedTuple):
    """A cron expression: the numbers that each field matches, in order."""

    text: str
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[int, ...]
    months: tuple[int, ...]
    weekdays: tuple[int, ...]
    """0 for Sunday."""

    @property
    def shortest_gap(self) -> int:
        """The fewest seconds between two matching times, unless clocks change."""
        times = [hour * 60 + minute for hour in self.hours for minute in self.minutes]
        return 60 * min(after - before for before, after in pairwise([*times, times[0] + _DAY_MINUTES]))


def read_cron(text: str) -> Cron:
    """Parse a cron expression.

    Raises:
        ValueError: The text is not a cron expression; the message names the field.
    """
    values = text.split()
    shown = one_line(text, 60)
    if len(values) != len(_FIELDS):
        names = ", ".join(field.name for field in _FIELDS)
        raise ValueError(f"{shown!r} has {len(values)} fields, not the five of cron: {names}")
    parsed = []
    for field, value in zip(_FIELDS, values, strict=True):
        try:
            parsed.append(tuple(sorted(set(_numbers(field, value)))))
        except ValueError as error:
            raise ValueError(f"{shown!r}: the {field.name}, {one_line(value, 30)!r}, {error}") from None
    minutes, hours, days, months, weekdays = parsed
    if days[0] > max(_LONGEST[month - 1] for month in months):
        raise ValueError(f"{shown!r} never comes: the day of the month is {days[0]}, and no such month has it")
    weekdays = tuple(sorted({day % 7 for day in weekdays}))
    return Cron(" ".join(values), minutes, hours, days, months, weekdays)


def _numbers(field: _Field, value: str) -> Iterator[int]:
    """Yield the numbers that a field matches."""
    for part in value.split(","):
        span, slash, step = part.partition("/")
        if slash and not (_is_number(step) and int(step) > 0):
            raise ValueError("has a step that is not a number from 1")
        start, dash, end = span.partition("-")
        if span == "*":
            first, last = field.first, field.last
        else:
            first = _number(field, start)
            last = _number(field, end) if dash else field.last if slash else first
        if first > last:
            raise ValueError(f"has a range that ends before it begins; write {start}-{field.last},{field.first}-{end}")
        yield from range(first, last + 1, int(step) if slash else 1)


def _number(field: _Field, text: str) -> int:
    if (named := field.names.get(text.upper())) is not None:
        return named
    names = f", or {next(iter(field.names))}" if field.names else ""
    if not _is_number(text) or not field.first <= int(text) <= field.last:
        raise ValueError(f"is not a number from {field.first} to {field.last}{names}")
    return int(text)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 4


def read_weekdays(text: str) -> tuple[int, ...]:
    """Parse days of the week, as in the fifth field of a cron expression: `mon-fri`, `1-5`, `sat,sun`; 0 is Sunday.

    Raises:
        ValueError: The text names no such days.
    """
    days = "".join(text.split())
    if not days:
        raise ValueError("no day is named; write mon-fri, or sat,sun")
    try:
        return read_cron(f"0 0 * * {days}").weekdays
    except ValueError as error:
        raise ValueError(str(error).partition(": ")[2]) from None
