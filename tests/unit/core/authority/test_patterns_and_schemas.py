"""Untrusted regular expressions, conditions and schemas cost little, and keep their meaning."""

import time
from contextlib import suppress
from typing import Any

import jsonschema
import pytest

from holdfast.core.authority.condition_costs import Budget
from holdfast.core.authority.conditions import ConditionFailed, holds
from holdfast.core.base.patterns import PatternInvalid, check_pattern, matches
from holdfast.core.tools.argument_schema import unfit

NESTED = "^(a+)+$"
HOSTILE = "a" * 50 + "!"
SECONDS = 20.0


def test_nested_repetition_takes_linear_time() -> None:
    """A text that would take a backtracking engine years is matched at once."""
    began = time.thread_time()
    assert not matches(NESTED, HOSTILE * 1_000)
    assert matches(NESTED, "a" * 50_000)
    assert time.thread_time() - began < SECONDS


@pytest.mark.parametrize("pattern", ["(?=a)", r"(a)\1", "[", r"\w{5000}", "(a{100}){100}", "((a{30}){30}){30}"])
def test_a_pattern_that_the_engine_lacks_or_that_is_too_large_is_invalid(pattern: str) -> None:
    """The error names the problem, and no match result is returned."""
    with pytest.raises(PatternInvalid, match="regular expression"):
        check_pattern(pattern)


OBJECT = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "string", "pattern": "^x+$"}},
    "required": ["a"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    "value",
    [{}, {"a": "x"}, {"a": 1, "c": 2, "d": 3}, {"a": 1.0}, {"a": True}, {"a": 1, "b": "y"}, {"a": 1, "b": "xx"}],
)
def test_a_value_fits_a_schema_as_before(value: Any) -> None:
    """If nothing is too complex, the result and its message are those of the library."""
    why = ""
    try:
        jsonschema.validate(value, OBJECT)
    except jsonschema.ValidationError as error:
        place = ".".join(map(str, error.absolute_path))
        why = f"arguments{'.' if place else ''}{place}: {error.message}"
    assert why == unfit(value, OBJECT)


def chain(levels: int) -> Any:
    """Return a value of that many levels that fails every alternative at the last."""
    value: Any = 5
    for _ in range(levels):
        value = {"c": value}
    return value


EITHER = {"anyOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}]}
RECURSIVE = {
    "$defs": {name: {"type": "object", "properties": {"c": EITHER}} for name in ("A", "B")},
    "properties": {"x": EITHER},
}
MANY = {f"{HOSTILE}{number}": 1 for number in range(1_500)}


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        ({"b": HOSTILE}, {"properties": {"b": {"pattern": NESTED}}}),
        (MANY, {"patternProperties": {NESTED: {}}, "additionalProperties": False}),
        (MANY, {"patternProperties": {NESTED: {}}, "unevaluatedProperties": False}),
        (MANY, {"propertyNames": {"pattern": NESTED}}),
        ({"x": chain(60)}, RECURSIVE),
        ({"x": [[1], {"a": 1}] * 10_000}, {"properties": {"x": {"uniqueItems": True}}}),
        ({"x": list(range(30_000))}, {"properties": {"x": {"items": {"type": "string"}}}}),
        ({}, {"$ref": "http://127.0.0.1:1/schema"}),
        ({}, {"type": "nothing that there is"}),
    ],
)
def test_a_schema_that_would_take_long_is_checked_in_bounded_time(value: Any, schema: Any) -> None:
    """Backtracking, nested alternatives and pairwise comparisons each end with a rejection."""
    began = time.thread_time()
    assert unfit(value, schema)
    assert time.thread_time() - began < SECONDS


def test_a_pattern_with_lookaround_is_left_to_the_activity() -> None:
    """Pydantic writes lookaround for decimals; the tool's own types check those."""
    assert (
        unfit({"a": "1.5"}, {"properties": {"a": {"type": "string", "pattern": r"^(?!^[-+.]*$)[+-]?\d*\.?\d*$"}}}) == ""
    )


ITEMS = [str(number) for number in range(290)]


@pytest.mark.parametrize(
    "expression",
    [
        r'args.l.all(x, !x.matches("\\w{200}"))',
        r'args.l.all(x, !x.matches("\\w{30}" + x))',
        'args.l.all(x, !args.b.matches("(a|b|ab)*c" + x))',
        "args.l.map(x, args.b) == []",
        "args.l.map(x, args.l.map(y, y)) == []",
        "args.l.all(x, args.l.all(y, !(args.b in args.l)))",
        "[" + ",".join(["args.l"] * 200) + '].all(x, x.all(y, y != "q"))',
        "+".join(["args.b"] * 250) + ' == "x"',
        "args.b.matches(args.b)",
    ],
)
def test_a_condition_that_would_take_long_is_evaluated_in_bounded_time(expression: str) -> None:
    """Patterns compiled in loops, lists copied for each item, and long texts are rejected or fast."""
    values = {"args": {"l": ITEMS, "b": "x" * 50_000}, "paths": {}}
    budget, began = Budget(), time.thread_time()
    for _ in range(3):  # as several rules, which share a budget
        with suppress(ConditionFailed):
            holds(expression, values, budget)
    assert time.thread_time() - began < 1.5 * SECONDS


@pytest.mark.parametrize(
    ("expression", "met"),
    [
        ('args.l.all(x, x.matches("^[0-9]+$"))', True),
        ('args.b.matches("x.matches(1)") // matches("', False),
        ('args.b.matches("^x") && args.b . matches("x$")', True),
        ('args.l.exists(x, x.startsWith("28"))', True),
    ],
)
def test_an_ordinary_condition_means_what_it_meant(expression: str, met: bool) -> None:
    """The result is the same with a budget and without one."""
    values = {"args": {"l": ITEMS, "b": "x" * 500}, "paths": {}}
    assert holds(expression, values, Budget()) is holds(expression, values) is met
