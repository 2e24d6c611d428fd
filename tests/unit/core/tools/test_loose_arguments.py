"""Arguments as LLMs spell them: a text with one meaning is read as that, and no other text is accepted."""

import json
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from holdfast import Agent, Catalog, Tool, tool
from holdfast.core.base.loose_json import strict_json
from holdfast.core.tools.arguments import ArgumentsInvalid
from holdfast.core.tools.spec import FINAL_RESULT
from tests.support.examples import examples


class Item(BaseModel):
    """A nested model."""

    name: str
    count: int = 1


def tool_with(kind: Any) -> Tool:
    """Return a tool that takes one argument of that type, and one more with a default."""

    def act(x, limit: int = 10):  # type: ignore[no-untyped-def]
        """Act."""

    act.__annotations__ = {"x": kind, "limit": int}
    return tool(effect="unsafe")(act)


MEANT: dict[str, tuple[Any, str, Any]] = {
    "list as text": (list[str], '{"x": "[\\"ann\\", \\"bob\\"]"}', ["ann", "bob"]),
    "list as text, optional": (list[str] | None, '{"x": "[\\"ann\\"]"}', ["ann"]),
    "list as Python": (list[str], "{\"x\": \"['ann', 'bob',]\"}", ["ann", "bob"]),
    "object as text": (Item, '{"x": "{\\"name\\": \\"a\\", \\"count\\": null}"}', {"name": "a", "count": 1}),
    "objects as texts": (list[Item], '{"x": ["{\\"name\\": \\"a\\"}"]}', [{"name": "a", "count": 1}]),
    "digits in a text": (list[str], '{"x": "[1.10]"}', ["1.10"]),
    "null for a default": (str, '{"x": "a", "limit": null}', "a"),
    "null within": (Item, '{"x": {"name": "a", "count": null}}', {"name": "a", "count": 1}),
    "number for text": (str, '{"x": 77}', "77"),
    "digits of a number": (str, '{"x": 1.10}', "1.10"),
    "long number for text": (str, '{"x": 123456789012345678901234567890}', "123456789012345678901234567890"),
    "boolean for text": (str, '{"x": true}', "true"),
    "numbers for texts": (list[str], '{"x": [1, "b", 2.0]}', ["1", "b", "2.0"]),
    "number as text": (int, '{"x": "5"}', 5),
    "number for a name": (Literal["1", "2"], '{"x": 2}', "2"),
    "text for a fixed number": (Literal[1, 2], '{"x": "2"}', 2),
    "all of it as text": (str, json.dumps('{"x": "a"}'), "a"),
    "all of it as text twice": (str, json.dumps(json.dumps('{"x": "a"}')), "a"),
    "line end in a text": (str, '{"x": "a\nb\tc"}', "a\nb\tc"),
    "fence": (str, '```json\n{"x": "a"}\n```', "a"),
    "fence without a language": (str, '```{"x": "a"}```', "a"),
    "comma at the end": (list[int], '{"x": [1, 2,],}', [1, 2]),
    "Python": (bool, "{'x': True, 'limit': None}", True),
    "Python with quotes": (str, "{'x': 'it\\'s \"so\"'}", 'it\'s "so"'),
    "byte order mark": (str, '\ufeff{"x": "a"}', "a"),
    "keys without quotes": (Item, '{x: {name: "a", "count": 1}}', {"name": "a", "count": 1}),
    "an apostrophe escaped": (str, '{"x": "it\\\'s"}', "it's"),
    "after an empty object": (str, '{}{"x": "a"}', "a"),
    "the same twice": (str, '{"x": "a"} {"x": "a"}', "a"),
    "a template's tag after it": (str, '{"x": "a"}\n</tool_call><|im_end|>', "a"),
    "inside of arguments": (str, '{"arguments": {"x": "a"}}', "a"),
    "inside of arguments, as text": (str, '{"parameters": "{\\"x\\": 7}"}', "7"),
    "a fixed value in another case": (Literal["red", "blue"], '{"x": " Red"}', "red"),
    "fixed values in another case": (list[Literal["RED", "it's"]], '{"x": ["red", "RED"]}', ["RED", "RED"]),
}


@pytest.mark.parametrize("case", MEANT)
def test_unambiguous_text_is_read(case: str) -> None:
    """The call gets the value, recorded in canonical form: reading that again gives the same."""
    kind, written, value = MEANT[case]
    act = tool_with(kind)
    read = act.read(written)
    assert json.loads(read.text) == {"x": value, "limit": 10}
    assert act.read(read.text).text == read.text


@pytest.mark.parametrize("written", ["", "{}", "null", "[]", '""', "```json\n{}\n```", "{}{}", '{"arguments": {}}'])
def test_no_arguments_are_the_defaults(written: str) -> None:
    """Servers and gateways write them in many ways."""

    @tool(effect="unsafe")
    def act(limit: int = 10) -> None:
        """Act."""

    assert act.read(written).text == '{"limit":10}'


def test_a_parameter_that_is_called_like_a_wrapper_is_itself() -> None:
    """What is inside of it is corrected in its place."""

    @tool(effect="unsafe")
    def act(input: Item, name: str = "") -> None:
        """Act."""

    assert json.loads(act.read('{"input": {"name": 7}}').text) == {"input": {"name": "7", "count": 1}, "name": ""}


REFUSED: dict[str, tuple[Any, str]] = {
    "cut off": (str, '{"x": "a"'),
    "cut off in a text": (str, '{"x": "a'),
    "cut off in a fence": (str, '```json\n{"x": "a"'),
    "cut off within a text": (list[str], '{"x": "[\\"a\\", \\"b"}'),
    "two objects": (str, '{"x": "a"}{"x": "b"}'),
    "two objects, the first one empty and the last one cut off": (str, '{}{"x": "a"'),
    "the same twice, but cut off": (str, '{"x": "a"}{"x": "a"'),
    "one key twice, once without quotes": (str, '{x: "a", "x": "b"}'),
    "a word that Python writes otherwise as a key": (dict[str, int], '{"x": {True: 1}}'),
    "inside of an unknown name": (str, '{"data": {"x": "a"}}'),
    "arguments beside others": (str, '{"arguments": {"x": "a"}, "limit": 1}'),
    "two fixed values that differ in their case": (Literal["a", "A", "b"], '{"x": " a"}'),
    "an escape that JSON does not know": (str, '{"x": "\\d"}'),
    "one key twice, loosely": (str, "{'x': 'a', 'x': 'b'}"),
    "an apostrophe that ends the text": (str, "{'x': 'it's'}"),
    "no comma": (list[int], '{"x": [1 2]}'),
    "one in place of a list": (list[str], '{"x": "ann"}'),
    "a list in place of one": (str, '{"x": ["a"]}'),
    "an object for text": (str, '{"x": {"a": 1}}'),
    "null without a default": (str, '{"x": null}'),
    "null in a mapping": (dict[str, int], '{"x": {"a": null}}'),
    "a number with separators": (int, '{"x": "1,000"}'),
    "an unknown name": (str, '{"x": "a", "y": null}'),
    "a word": (str, '{"x": yes}'),
    "words before it": (str, 'Here: {"x": "a"}'),
    "a list of arguments": (str, '[{"x": "a"}]'),
    "not a number": (float, "{'x': nan}"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_ambiguous_or_truncated_text_is_rejected(case: str) -> None:
    """Nothing is completed or guessed: the LLM reads the fault in its own text."""
    kind, written = REFUSED[case]
    with pytest.raises(ArgumentsInvalid):
        tool_with(kind).read(written)


def test_results_are_read_like_arguments() -> None:
    """A typed result written as text, or with text for a number, is read as that result."""
    catalog = Catalog(agents=[Agent(name="a", instructions="", result=Item)])
    gives = catalog.readers("a")[FINAL_RESULT]
    written = json.dumps({"result": json.dumps({"name": 7, "count": None})})
    assert json.loads(gives.read(written).text) == {"result": {"name": "7", "count": 1}}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=examples(40, 5_000))
@given(value=JSON, cut=st.integers(min_value=1), python=st.booleans())
def test_json_is_read_whole_or_not_at_all(value: Any, cut: int, python: bool) -> None:
    """JSON and Python's spelling of it give the same value; a part of an object or a list gives none."""
    text = repr(value) if python else json.dumps(value)
    strict = strict_json(text)
    if strict is not None or not python:  # some of Python's escapes are not JSON
        assert strict is not None
        assert json.loads(strict) == value
    if isinstance(value, dict | list):
        assert strict_json(text[: cut % len(text)]) is None


@pytest.mark.parametrize("piece", ["[", "{'a':", "'", "```", '{"a" ', "'\\'", '{"a":"\\u', "1 ", "{}", '"a" ', "{a:"])
def test_hostile_text_takes_one_pass(piece: str) -> None:
    """Long runs of brackets, quotes, fences or blanks make reading neither slow nor deep."""
    text = piece * (900_000 // len(piece))
    assert strict_json(text) is None
    with pytest.raises(ArgumentsInvalid):
        tool_with(str).read(text)
