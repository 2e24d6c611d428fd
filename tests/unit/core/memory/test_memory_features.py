"""features.json: a change affects one value and no other byte; an unreadable file is never changed."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.memory.errors import FeatureNotFound, FeaturesInvalid
from holdfast.core.memory.features import mark_feature, parse_features

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
FEATURE = st.builds(
    lambda before, passes, after: {**before, **passes, **after},
    st.dictionaries(st.sampled_from(["steps", 'a"b', "é", "category"]), VALUES, max_size=2),
    st.sampled_from(
        [{"passes": False}, {"passes": True}, {"passes": None}, {"status": "todo"}, {"status": "done"}, {}]
    ),
    st.dictionaries(st.sampled_from(["notes", "priority"]), VALUES, max_size=2),
)


def test_features_are_read_in_both_forms() -> None:
    """Features are a list at the top, or under `features`; they are named by id, name, title or description."""
    listed: list[dict[str, object]] = [
        {"id": 1, "description": "d"},
        {"name": "n", "passes": True},
        {"title": "t", "status": "Done"},
        {"description": "d2", "passes": False, "status": "done"},
    ]
    expected = [("1", False), ("n", True), ("t", True), ("d2", False)]
    for whole in (listed, {"version": 1, "features": listed, "more": []}):
        assert expected == [(each.name, each.passes) for each in parse_features(json.dumps(whole))]
    assert parse_features(" [ ] \n") == ()
    assert [each.line for each in parse_features('[{"id": 1},\n\n{"id": 2}]')] == [1, 3]


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ('[{"name": "a", "passes" : false }]', "a", '[{"name": "a", "passes" : true }]'),
        ('[{"id":7,"name":"a"}]', "a", '[{"id":7,"name":"a","passes":true}]'),
        (
            '[\r\n  {\r\n    "name": "a"\r\n  }\r\n]',
            "a",
            '[\r\n  {\r\n    "name": "a",\r\n    "passes": true\r\n  }\r\n]',
        ),
        ('[{"name": "a", "status": "todo"}]', "a", '[{"name": "a", "status": "passing"}]'),
        ('[{"id":1,"status":""},{"id":2,"status":"done"}]', "1", '[{"id":1,"status":"done"},{"id":2,"status":"done"}]'),
        ('[{"name": "a", "passes": true}]', "a", '[{"name": "a", "passes": true}]'),
        ('{"features": [{"name": "a  b", "passes": null}]}', "a b", '{"features": [{"name": "a  b", "passes": true}]}'),
    ],
)  # fmt: skip
def test_a_feature_is_marked_in_place(text: str, name: str, expected: str) -> None:
    """The value changes, or the field is added in the style of the others; a repeated call changes nothing."""
    assert expected == mark_feature(text, name)
    assert expected == mark_feature(expected, name)


@given(
    st.lists(FEATURE, min_size=1, max_size=4),
    st.integers(0, 3),
    st.booleans(),
    st.sampled_from([None, 0, 2, "\t"]),
    st.booleans(),
)
def test_marking_changes_nothing_else(
    listed: list[dict[str, Any]], number: int, passes: bool, indent: int | str | None, wrapped: bool
) -> None:
    """In any file with any layout, all other bytes and all other values stay."""
    named = [{"name": f"f{at}", **each} for at, each in enumerate(listed)]
    text = json.dumps({"v": [{"name": "f0"}], "features": named} if wrapped else named, indent=indent)
    before = parse_features(text)
    chosen = before[number % len(before)]

    after = mark_feature(text, chosen.name, passes=passes)

    expected = [each.model_copy(update={"passes": passes}) if each == chosen else each for each in before]
    assert [(each.name, each.passes) for each in expected] == [
        (each.name, each.passes) for each in parse_features(after)
    ]
    start = next((at for at, pair in enumerate(zip(text, after, strict=False)) if pair[0] != pair[1]), len(text))
    same_end = next((at for at in range(len(text)) if text[-1 - at] != after[-1 - at]), len(text))
    assert len(text) - start - same_end <= len('"failing"')
    assert text == after or chosen.passes != passes


@pytest.mark.parametrize(
    ("text", "place", "why"),
    [
        ("", "line 1, column 1", "Expecting value"),
        ("[", "line 1, column 2", "Expecting value"),
        ('[{"id": 1},\n {"id": 1}]', "line 2, column 2", "'1' is listed already, at line 1"),
        ('[{"id": 1, "id": 2}]', "line 1, column 12", "duplicate field 'id'"),
        ('[{"id": 1,}]', "line 1, column 11", "expected a field name"),
        ('[{"id": NaN}]', "line 1, column 9", "NaN is not JSON"),
        ('[{"id": 1}] x', "line 1, column 13", "unexpected text after the end"),
        ('[{"id": 1} {"id": 2}]', "line 1, column 12", "expected ','"),
        ("[1]", "line 1, column 2", "must be an object"),
        ('{"a": 1}', "line 1, column 1", "write a list of features"),
        ('{"features": {}}', "line 1, column 14", "must be a list"),
        ('[{"passes": true}]', "line 1, column 2", "needs one of id, name"),
        ('[{"id": 1, "passes": "yes"}]', "line 1, column 22", "must be true or false"),
        ('[\n{"id": "a\nb"}]', "line 2, column 10", "Invalid control character"),
        ("[" * 100_000, "line 1, column 2", "nested too deeply"),
        ('[{"id": ' + "[" * 100_000, "line 1, column 9", "nested too deeply"),
        ('[{"id": 1' + "0" * 5_000 + "}]", "line 1, column 9", "digits"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_read_is_rejected(text: str, place: str, why: str) -> None:
    """The error gives the location and the reason; no value is guessed."""
    with pytest.raises(FeaturesInvalid) as error:
        mark_feature(text, "a")
    assert f"features.json, {place}: " in str(error.value)
    assert why in str(error.value)


def test_an_unknown_feature_error_lists_those_that_do_not_pass() -> None:
    """The error names them; an ambiguous description matches none of them."""
    text = '[{"id": 1, "title": "t"}, {"id": 2, "title": "t", "passes": true}]'
    with pytest.raises(FeatureNotFound, match="no feature 'x'; the features that do not pass: '1'"):
        mark_feature(text, "x")
    with pytest.raises(FeatureNotFound, match="several features 't'"):
        mark_feature(text, "t")


@given(st.text(st.sampled_from('[]{},:"\\ \n\tabnu1e-.truefalsnid'), max_size=40))
def test_any_text_is_read_or_rejected(text: str) -> None:
    """No text raises anything but the typed error."""
    try:
        parse_features(text)
    except FeaturesInvalid:
        return
    json.loads(text)
