"""Limits the cost of a policy's conditions: an estimate before evaluation, and an account of regular expressions.

A policy may come from a stranger, with a fork, and the LLM selects the arguments. A workflow task has two seconds for
everything that arrives in it. All rules that are tried on one call share one budget; a condition that exceeds it cannot
be evaluated. One unit is about a quarter of a nanosecond.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from holdfast.core.base.patterns import PatternInvalid, check_pattern, matches, states

BUDGET = 4_000_000_000
"""Units for all conditions on one call: about a second."""

_VALUE, _OPERATION, _STATE = 400, 100, 80_000
"""Units to pass a value to the language, to evaluate one part of an expression, and to compile a state of a regular
expression."""

_NAME = re.compile(r"(?<![\w.])(?:args|paths|context)\b")
_BUILDS = re.compile(r"\.\s*(?:map|filter)\s*\(")
_PART = re.compile(r"\w+|[^\w\s]")


class Shape(NamedTuple):
    """The features of an expression that the estimate depends on."""

    parts: int
    mentions: int
    """How often it names the arguments."""
    additions: int
    items: int
    """Number of items in its list literals."""
    builds: bool
    """Whether it builds lists."""


@lru_cache(maxsize=1_024)
def shape_of(bare: str) -> Shape:
    """Return the shape of an expression."""
    builds = _BUILDS.search(bare) is not None
    return Shape(len(_PART.findall(bare)), len(_NAME.findall(bare)), bare.count("+"), bare.count(",") + 1, builds)


def cost(bare: str, loops: int, variables: Mapping[str, Any]) -> int:
    """Estimate the maximum cost of evaluating an expression, in units.

    Args:
        bare: The expression, without its string literals and comments.
        loops: Number of its loops over lists, which may be nested.
        variables: The values of its variables.
    """
    shape, (values, chars) = shape_of(bare), _size(_values(variables))
    size, items = chars + _VALUE * values // 10, (values + shape.items) * (shape.additions + 1)
    outer: int = items ** max(0, loops - 1)
    rounds = outer * items if loops else 1
    total = chars + _VALUE * values + _OPERATION * shape.parts * rounds
    total += max(0, shape.mentions - loops) * rounds * size
    total += shape.mentions * size * outer
    total += shape.additions**2 * rounds * size // 2
    if shape.builds:  # the language copies a list for each item that it appends
        total += rounds * items * (size + 600)
    return total


def _values(variables: Mapping[str, Any]) -> list[Any]:
    """Return the values whose sizes the sender of a call or of a start chooses."""
    context = [variables["context"]] if "context" in variables else []
    return [variables.get("args"), variables.get("paths"), *context]


class Budget:
    """The remaining budget of the conditions on one call."""

    def __init__(self, units: int = BUDGET) -> None:
        self._left = units
        self.why = ""
        """Why a regular expression was not evaluated; empty if all were."""

    def spend(self, units: int) -> bool:
        """Spend units if enough are left; return whether they were spent."""
        if units > self._left:
            return False
        self._left -= units
        return True

    def matcher(self) -> "Matcher":
        """Return the function `matches` of one evaluation."""
        self.why = ""
        return Matcher(self)


class Matcher:
    """A replacement of CEL's `matches`, which would compile a regular expression again in each round of a loop.

    It raises nothing, because the library would log that; the budget records why there was no answer.
    """

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._compiled: dict[str, int] = {}

    def __call__(self, text: Any, pattern: Any) -> bool:
        """Whether the pattern is found in the text."""
        if self._budget.why:
            return False
        if not isinstance(text, str) or not isinstance(pattern, str):
            self._budget.why = "matches: both have to be texts"
            return False
        try:
            if pattern not in self._compiled:
                self._compiled[pattern] = states(pattern)
                if not self._budget.spend(_STATE * self._compiled[pattern]):
                    self._budget.why = "its regular expressions are too large"
                    return False
                check_pattern(pattern)
            if self._budget.spend((len(text) + 4_000) * (4 + self._compiled[pattern])):
                return matches(pattern, text)
            self._budget.why = "its regular expressions would take too long"
        except PatternInvalid as error:
            self._budget.why = str(error)
        return False


def _size(value: Any) -> tuple[int, int]:
    """Count the values and the characters in JSON."""
    values, chars, rest = 0, 0, [value]
    while rest:
        each = rest.pop()
        values += 1
        if isinstance(each, dict):
            chars += sum(map(len, each))
            rest += each.values()
        elif isinstance(each, list | tuple):
            rest += each
        elif isinstance(each, str):
            chars += len(each)
    return values, chars
