"""The fast JSON parser accepts exactly what `json.loads` accepts."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.base.canonical import parse_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def outcome(parse: Any, text: bytes | str) -> str:
    """Return a parser's outcome for a text: the value with its types, or the rejection."""
    try:
        return repr(parse(text))
    except (ValueError, RecursionError):
        return "refused"


@given(value=VALUES, plain=st.booleans())
def test_valid_json_reads_the_same(value: Any, plain: bool) -> None:
    """Numbers keep their types and their last bit, integers any size, and strings every character."""
    text = json.dumps(value, ensure_ascii=plain)
    assert outcome(parse_json, text) == outcome(json.loads, text)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            " ",
            "{",
            "[1,]",
            '{"a":1,}',
            "01",
            "+1",
            ".5",
            "1.",
            "-",
            "- 1",
            "0x1",
            "1e",
            "nul",
            "True",
            "'a'",
            "1 2",
        ),
        *("NaN", "-NaN", "Infinity", "-Infinity", "+Infinity", "nan", "inf", "1e400", "-1e400", "1e-400", "-0", "-0.0"),
        *(
            '"\\ud800"',
            '"\\udc00\\ud800"',
            '"\\ud83d\\ude00"',
            '"\\x"',
            '"\\u12"',
            '"a\nb"',
            '"\x00"',
            '"\x7f"',
            '{"a":1,"a":2}',
        ),
        *(
            "{1:2}",
            "/**/1",
            "\ufeff1",
            " 1 ",
            "\u00a01",
            "9" * 400,
            "1" * 5_000,
            "0.1" + "0" * 400 + "1",
            "[" * 300 + "]" * 300,
        ),
        *("[" * 100_000, "5e-324", "2.2250738585072011e-308", "1.7976931348623159e308", "9007199254740993.0", "1E5"),
    ],
)
def test_input_that_parsers_disagree_on_reads_the_same(text: str) -> None:
    """Invalid JSON is rejected, and input that only some parsers accept is still accepted."""
    for each in (text, text.encode()):
        assert outcome(parse_json, each) == outcome(json.loads, each)


@pytest.mark.parametrize(
    "text", [b'"\xff"', b'"\xed\xa0\x80"', b"\xef\xbb\xbf1", "[1]".encode("utf-16"), b'{"\x80":1}']
)
def test_bytes_that_are_not_utf_8_read_the_same(text: bytes) -> None:
    """Encodings that `json.loads` guesses or rejects are left to it."""
    assert outcome(parse_json, text) == outcome(json.loads, text)


@pytest.mark.parametrize("text", ['"\ud800"', '{"\udc80": 1}', "\ud800"])
def test_a_text_without_utf_8_reads_the_same(text: str) -> None:
    """Only `json.loads` can read a string with an unescaped lone surrogate."""
    assert outcome(parse_json, text) == outcome(json.loads, text)
