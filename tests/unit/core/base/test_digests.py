"""Canonical JSON is RFC 8785, for every value that JSON parsers agree on; any other value is one clear error."""

import json
import math
import struct
from typing import Any

import pytest
import rfc8785
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.core.base.canonical import (
    GENESIS,
    MAX_INTEGER,
    canonical,
    digest,
    exact_json,
    plain_json,
    portable,
    unportable,
)
from holdfast.core.log.event_log import digest_after, digest_of_line, stamped_line
from holdfast.errors import NotPortable

TEXTS = st.text() | st.text(st.characters(min_codepoint=0xE000, codec="utf-8"), max_size=4)
"""Characters, half of them beyond the range in which UTF-16 and code points sort alike."""

FLOATS = st.floats(allow_nan=False, allow_infinity=False) | st.binary(min_size=8, max_size=8).map(
    lambda bits: struct.unpack(">d", bits)[0]
).filter(math.isfinite)

SCALARS = st.none() | st.booleans() | st.integers(-MAX_INTEGER, MAX_INTEGER) | FLOATS | TEXTS
I_JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
"""JSON whose numbers are doubles (RFC 7493)."""

ANYTHING = st.recursive(
    SCALARS
    | st.floats()
    | st.integers()
    | st.sampled_from([2**70, 10**30, 10**400])
    | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec=None)), inner, max_size=4),
    max_leaves=12,
)
"""Any value that Python's JSON parser can return, lone surrogates and NaN included."""

EDGES = [edge for bound in (1e-4, 1e15) for edge in (bound, math.nextafter(bound, 0), math.nextafter(bound, math.inf))]
"""The limits of the fast path."""

ODD_FLOATS = [600.0, 1e-05, 1e-06, 1e-07, 1e16, 5e-324, -0.0, 1e20, 1e21, 1.5, -1e22, 2.0**53, 2.0**60, 0.1, 1e22 / 3]


@given(I_JSON)
@example(ODD_FLOATS)
@example([sign * edge for edge in EDGES for sign in (1, -1)])
@example({"\U0001f600": 1, "\ufb33": 2, "\ue000": 3, "a": 4, "": 5})
@example([MAX_INTEGER, -MAX_INTEGER, True, '\x00\x1f\x7f\u2028"\\/\b'])
def test_canonical_json_is_rfc_8785(value: Any) -> None:
    """Our encoder and the library's write the same bytes, and parsing and encoding them again changes none."""
    encoded = canonical(value)
    assert encoded == rfc8785.dumps(value)
    assert canonical(json.loads(encoded)) == encoded
    assert unportable(value) == ""


@given(I_JSON)
def test_the_fast_path_is_taken_only_if_it_is_exact(value: Any) -> None:
    """Whenever `json.dumps` is used, it writes RFC 8785; for other values it often does not."""
    if plain_json(value) is not None:
        fast = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
        assert fast == rfc8785.dumps(value)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (600.0, b"600"),
        (1e-05, b"0.00001"),
        (1e-07, b"1e-7"),
        (1e16, b"10000000000000000"),
        (5e-324, b"5e-324"),
        (-0.0, b"0"),
        (1e20, b"100000000000000000000"),
        (1e21, b"1e+21"),
        (333333333.33333329, b"333333333.3333333"),
        ({"\U0001f600": 1, "\ufb33": 2}, '{"\U0001f600":1,"\ufb33":2}'.encode()),
    ],
)
def test_numbers_and_keys_are_those_of_ecmascript(value: Any, encoded: bytes) -> None:
    """A stranger can compare with these fixed points: RFC 8785, appendix B and section 3.2.3."""
    assert canonical(value) == encoded


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (2**53 + 1, "the integer 9007199254740993, beyond"),
        (-(2**63) + 1, "beyond"),
        (2**60, "beyond"),
        (10**30, "beyond"),
        pytest.param(10**5_000, "thousands of digits", id="digits"),
        (math.nan, "NaN or infinity"),
        (-math.inf, "NaN or infinity"),
        ("\ud800", "lone surrogate"),
        ({"a\udfff": 1}, "lone surrogate"),
        ({"a\udfff": 0.5}, "lone surrogate"),
        ({1: 2}, "a key that is not a string"),
        (b"bytes", "no JSON"),
        ({1, 2}, "no JSON"),
    ],
)
def test_a_value_without_canonical_json_is_one_clear_error(value: Any, words: str) -> None:
    """The error may come from anywhere in a value, and is a `ValueError` as in other encoders."""
    for each in (value, [0.5, {"x": value}], [{"x": value}]):
        with pytest.raises(NotPortable, match=words):
            canonical(each)
        assert words in unportable(each)
    assert issubclass(NotPortable, ValueError)


def test_deep_nesting_is_an_error_and_no_crash() -> None:
    """A value deeper than the interpreter's stack is rejected like every other value without canonical JSON."""
    value: Any = 0.5
    for _ in range(100_000):
        value = [value]
    with pytest.raises(NotPortable, match="nested too deeply"):
        canonical(value)


@given(ANYTHING)
def test_everything_has_a_portable_neighbour(value: Any) -> None:
    """The neighbour has canonical JSON, survives a round trip, and is the value itself if that has canonical JSON."""
    near = portable(value)
    assert canonical(json.loads(canonical(near))) == canonical(near)
    if not unportable(value):
        assert canonical(near) == canonical(value)
    assert canonical(portable(near)) == canonical(near)


@given(I_JSON, st.integers(), st.integers())
def test_the_text_of_arguments_keeps_every_integer(value: Any, one: int, other: int) -> None:
    """The text is canonical JSON except that integers are exact, so two ids never have the same text."""
    assert exact_json(value).encode() == canonical(value)
    assert exact_json({"id": one}) == f'{{"id":{one}}}'
    assert (exact_json([one]) == exact_json([other])) == (one == other)
    big = (2**53 + abs(one)) * 2 + 1
    assert json.loads(exact_json([big, 0.5])) == [big, 0.5]


@given(I_JSON)
def test_the_digest_covers_the_meaning(value: Any) -> None:
    """Two spellings of the same JSON have one digest: other layout, other order of keys, 1.0 for 1."""
    spelled = json.dumps(value, indent=1)
    assert digest(json.loads(spelled)) == digest(value)
    if isinstance(value, dict):
        assert digest(dict(reversed(list(value.items())))) == digest(value)


EVENTS = st.dictionaries(
    st.sampled_from(["a", "digest", "position", "z"]),
    st.recursive(
        st.sampled_from([GENESIS, "é", f'"digest":"{GENESIS}",', 7]),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["b", "digest", "x"]), inner),
        max_leaves=4,
    ),
    max_size=4,
)


@given(EVENTS)
@example({"a": {"digest": GENESIS, "x": 1}})
@example({"digest": 7, "z": [{"digest": GENESIS, "x": 1}]})
@example({"z": {"digest": "None", "x": 1}})
@example({"digest": 7, "z": {"digest": "7", "x": 1}})
@example({"digest": 'a","b":"c', "z": {"b": "c", "digest": "a", "x": 1}})
@example({"a": {"digest": "7", "x": 1}, "digest": "7"})
def test_an_event_is_digested_without_its_own_digest(event: dict[str, Any]) -> None:
    """The digest is the same however it is computed, and whichever digest-like fields the event holds."""
    expected = digest_after("ab" * 32, event)
    line = canonical({**event, "digest": expected})
    assert stamped_line("ab" * 32, event) == (expected, line)
    assert digest_of_line("ab" * 32, {**event, "digest": expected}, line) == expected
    assert digest_of_line("ab" * 32, event, canonical(event)) == expected
