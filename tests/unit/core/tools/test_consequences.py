"""The sentence of a tool's author says what a call does, in the values of its arguments and nothing else."""

from typing import Any

import pytest

from holdfast import tool
from holdfast.core.tools.consequences import VALUE_CHARS, consequence_of
from holdfast.errors import ToolSignatureError


@tool(consequence="pays {cents} cents to {iban}, {{as}} {note}")
def pay(cents: int, iban: str, note: str = "refund") -> str:
    """Pay."""
    return f"paid {cents} to {iban}: {note}"


def sentence(**arguments: Any) -> str:
    """Return the sentence of a call."""
    return consequence_of(pay.spec.consequence, arguments, pay.spec.defaults)


def test_the_sentence_has_the_values_of_the_arguments_and_defaults() -> None:
    """Numbers are bare, texts are quoted, and doubled braces are braces."""
    assert sentence(cents=5, iban="DE89") == 'pays 5 cents to "DE89", {as} "refund"'


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ('x", and nothing else. "', r'"x\", and nothing else. \""'),
        ("{cents}", '"{cents}"'),
        ("a\u202eb\n\x1b[2J", r'"a\u202eb\n\u001b[2J"'),
        ("<b>", '"<b>"'),
        ({"__class__": [1]}, '{"__class__": [1]}'),
    ],
)
def test_a_value_cannot_pass_for_the_authors_words(value: Any, shown: str) -> None:
    """A value is quoted, its invisible characters are escaped, and it is never a template itself."""
    assert f"to {shown}, " in sentence(cents=5, iban=value)


def test_a_long_value_says_that_it_is_cut() -> None:
    """A value has at most 200 characters in the sentence, which says how many there are."""
    said = sentence(cents=5, iban="x" * 1_000)
    assert f'"{"x" * VALUE_CHARS}"… (the first 200 of 1,000 characters)' in said
    assert "a value of 1,000 characters" in sentence(cents=10**999, iban="x")


def test_without_the_arguments_there_is_no_sentence() -> None:
    """A missing argument, or arguments that are no object, give no sentence instead of a wrong one."""
    assert sentence(cents=5) == consequence_of(pay.spec.consequence, "cents: 5", {}) == consequence_of("", {}, {}) == ""


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("pays {amount}", "'amount', which is not a parameter"),
        ("pays {cents.real}", "not a parameter"),
        ("pays {cents:>9}", "not a parameter"),
        ("pays {cents!r}", "not a parameter"),
        ("pays {}", "not a parameter"),
        ("pays {cents", "single '{'"),
        ("pays } cents", "single '}'"),
        ("pays\n{cents}", "one line"),
        ("pays \u202e{cents}", "one line"),
        ("x" * 301, "300"),
    ],
)
def test_a_wrong_sentence_is_an_error_at_definition(wrong: str, why: str) -> None:
    """A placeholder is the name of a parameter alone; anything else fails when the tool is defined."""
    with pytest.raises(ToolSignatureError, match=why.replace("{", r"\{")):
        tool(consequence=wrong)(pay.function)


def test_a_tool_without_a_sentence_has_the_same_spec_as_before() -> None:
    """The hash of an agent that has no sentence does not change, and a sentence is part of it."""
    plain = tool(pay.function).spec
    assert "consequence" not in plain.model_dump(exclude_defaults=True)
    assert pay.spec.model_dump(exclude_defaults=True)["consequence"] == "pays {cents} cents to {iban}, {{as}} {note}"
