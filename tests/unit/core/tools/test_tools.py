"""`@tool`: the schema an LLM sees, the arguments it may send, and the functions that cannot become tools."""

import json
import math
import re
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, SecretStr
from typing_extensions import Doc

from holdfast import Tool, ToolContext, tool
from holdfast.core.llm.blocks import ImageBlock, TextBlock, ToolCall
from holdfast.core.run.contracts.tool_calls import ToolOutcome
from holdfast.core.tools.arguments import ArgumentsInvalid
from holdfast.core.tools.decorator import bind
from holdfast.core.tools.effects import Effect
from holdfast.core.tools.results import error_text, result_content, result_text
from holdfast.errors import ToolSignatureError

CONTEXT = ToolContext(thread="t", workspace=Path("/w"), key="k", attempt=1)


@tool(effect="read")
def search(  # noqa: D417  # `tag` is described by its annotation, `context` is hidden
    query: str,
    limit: int = 10,
    mode: Literal["fast", "deep"] = "fast",
    tag: Annotated[str, Field(description="a tag")] = "",
    *,
    context: ToolContext,
) -> str:
    """Search the archive.

    Slower with `deep`.

    Args:
        query: What to look for.
        limit: How many to return.
        mode: How thoroughly.
    """
    return f"{query} {limit} {mode} {tag} {context.thread}"


def test_signature_and_docstring_become_the_schema() -> None:
    """The schema has names, types, defaults, choices and descriptions; it omits the context."""
    assert search.spec.description == "Search the archive.\n\nSlower with `deep`."
    assert search.spec.parameters == {
        "type": "object",
        "additionalProperties": False,
        "required": ["query"],
        "properties": {
            "query": {"type": "string", "description": "What to look for."},
            "limit": {"type": "integer", "default": 10, "description": "How many to return."},
            "mode": {"type": "string", "enum": ["fast", "deep"], "default": "fast", "description": "How thoroughly."},
            "tag": {"type": "string", "default": "", "description": "a tag"},
        },
    }


def test_arguments_arrive_typed_and_with_the_context() -> None:
    """The function gets parsed arguments and its context."""
    arguments = search.parse('{"query": "x", "limit": 3}')
    assert search(**bind(search.function, arguments, CONTEXT)) == "x 3 fast  t"


def test_empty_text_means_no_arguments() -> None:
    """Some LLMs send empty text for a tool without parameters."""

    @tool
    def ping() -> str:
        """Ping."""
        return "pong"

    assert ping.parse("") == {}
    assert ping.spec.effect is Effect.UNSAFE, "a tool without a declared effect has the strictest class"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ('{"limit": 3}', "query: Field required"),
        ('{"query": ["x"]}', "query: Input should be a valid string"),
        ('{"query": "x", "colour": "red"}', "colour: Extra inputs are not permitted"),
        ('{"query": "x", "mode": "slow"}', "mode: Input should be 'fast' or 'deep'"),
        ('{"query": ', "Invalid JSON"),
        ("[]", "should be an object"),
    ],
)
def test_invalid_arguments_are_explained(arguments: str, words: str) -> None:
    """The error tells the LLM which argument is wrong and why."""
    with pytest.raises(ArgumentsInvalid, match=words.replace("(", r"\(")):
        search.parse(arguments)


@given(st.text())
def test_any_text_is_parsed_or_explained(text: str) -> None:
    """Any text gives valid arguments or an explanation."""
    with suppress(ArgumentsInvalid):
        search.parse(text)


def test_parameter_names_cannot_collide_with_pydantic() -> None:
    """A tool may use any parameter names."""

    @tool(effect="read")
    def odd(schema: str, model_config: int, copy: bool, _x: str, self: str) -> str:
        """Be odd."""
        return f"{schema}{model_config}{copy}{_x}{self}"

    arguments = odd.parse('{"schema": "a", "model_config": 1, "copy": true, "_x": "b", "self": "c"}')
    assert odd(**bind(odd.function, arguments, CONTEXT)) == "a1Truebc"


class Order(BaseModel):
    """A nested model."""

    item: str
    count: int = 1


def test_nested_models_work_as_parameters_and_results() -> None:
    """Pydantic models are read from and written as JSON."""

    @tool(effect="read")
    def double(order: Order) -> Order:
        """Double it."""
        return Order(item=order.item, count=order.count * 2)

    arguments = double.parse('{"order": {"item": "tea", "count": 2}}')
    assert result_text(double(**arguments)) == '{"item":"tea","count":4}'


@pytest.mark.parametrize(
    ("value", "text"),
    [("as it is", "as it is"), (None, "null"), ({"a": [1]}, '{"a": [1]}'), (Path("x"), '"x"'), ("\ud800", "?")],
)
def test_results_become_text(value: Any, text: str) -> None:
    """Text is kept verbatim, other values become JSON, and every result can be encoded."""
    assert result_text(value) == text
    assert result_content(value) == text


class Colour(Enum):
    """An enum of texts."""

    RED = "red"


@dataclass
class Point:
    """A dataclass, with a set in it."""

    x: Decimal
    tags: set[str]


UTC_NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"c": Colour.RED, Colour.RED: 1}, '{"c": "red", "red": 1}'),
        ([UTC_NOON, UTC_NOON.date(), UTC_NOON.time()], '["2026-01-02T12:00:00+00:00", "2026-01-02", "12:00:00"]'),
        ((Decimal("1.50"), UUID(int=7), Path("a/b")), '["1.50", "00000000-0000-0000-0000-000000000007", "a/b"]'),
        (Point(Decimal(1), {"b", "a"}), '{"x": "1", "tags": ["a", "b"]}'),
        ({"orders": [Order(item="tea")]}, '{"orders": [{"item": "tea", "count": 1}]}'),
        ({3, 1, 2}, "[1, 2, 3]"),
        (frozenset({("b", 1), "a"}), '["a", ["b", 1]]'),
        ({(1, 2): date(2026, 1, 2), None: 0, 1: 1, date(2026, 1, 2): 2}, None),
        ([b"caf\xc3\xa9", b"\xff\x00"], '["café", "data:application/octet-stream;base64,/wA="]'),
        ([math.nan, math.inf, -math.inf, 1.5], "[null, null, null, 1.5]"),
        (Decimal("NaN"), '"NaN"'),
        ({"a": 1}.keys(), '["a"]'),
        (MappingProxyType({"a": deque([1])}), '{"a": [1]}'),
        ([ValueError("no"), TimeoutError()], '["ValueError: no", "TimeoutError: "]'),
        ({"\ud800": {1}}, '{"?": [1]}'),
    ],
)
def test_results_that_json_lacks_have_a_form_in_it(value: Any, text: str | None) -> None:
    """At any depth, common Python values are written as a reader of JSON expects them, always in the same way."""
    text = text or '{"[1, 2]": "2026-01-02", "null": 0, "1": 1, "2026-01-02": 2}'
    assert result_text(value) == text


def test_a_value_without_a_form_is_named_by_its_type() -> None:
    """Objects without a text of their own are named by their type, without an address that differs each time."""

    def numbers() -> int:
        return 1

    assert re.fullmatch(r'\["<object object>"\]', result_text([object()]))
    assert "0x" not in result_text({"f": numbers})


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers() | st.none(), inner),
    ).filter(lambda value: not isinstance(value, str))
)
def test_plain_results_are_written_as_json_writes_them(value: Any) -> None:
    """The text of a JSON value depends neither on how other values are written nor on whether one is beside it."""
    text = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace").decode()
    assert result_text(value) == text
    assert result_text([value, {1}]) == f"[{text}, [1]]"


class Spiteful(Exception):
    """An error without a message."""

    def __str__(self) -> str:
        raise KeyboardInterrupt


def test_an_error_without_a_message_is_described() -> None:
    """The error's type is reported, even if its message cannot be computed."""
    assert error_text(ValueError("card \ud800")) == "ValueError: card ?"
    assert error_text(Spiteful()) == "Spiteful: (no message: its __str__ raised KeyboardInterrupt)"


def test_results_keep_their_content_blocks() -> None:
    """Images and files stay blocks, among texts; a block that has no form in a result becomes text."""
    image = ImageBlock(url="https://example.com/a.png")
    call = ToolCall(id="1", name="pay", arguments="{}")
    assert result_content(image) == (image,)
    assert result_content(["look:\ud800", image]) == (TextBlock(text="look:?"), image)
    assert ToolOutcome(status="ok", content=result_content(TextBlock(text="a"))).content == "a"
    assert result_content([image, call]) == (image, TextBlock(text=result_text(call)))
    assert result_content([call]) == result_text([call])


class NotJSON:
    """A value that JSON cannot represent."""


def untyped(x) -> None:  # type: ignore[no-untyped-def]
    """Have a parameter without a type."""


def starred(*x: int) -> None:
    """Take any number of arguments."""


def keywords(**x: int) -> None:
    """Take any keyword."""


def positional(x: int, /) -> None:
    """Take no argument by name."""


def opaque(x: NotJSON) -> None:
    """Take a value that JSON cannot represent."""


def callback(x: Callable[[], int]) -> None:
    """Take a function."""


def default(x: Any = NotJSON()) -> None:  # noqa: B008  # the point of the test
    """Have a default that JSON cannot represent."""


def unresolved(x: "Missing") -> None:  # type: ignore[name-defined]  # noqa: F821  # the point of the test
    """Name a type that does not exist."""


def generator(x: int) -> Any:
    """Yield more than one value."""
    yield x


@pytest.mark.parametrize(
    "function", [untyped, starred, keywords, positional, opaque, callback, default, unresolved, generator]
)
def test_a_function_that_cannot_be_a_tool_is_named_with_the_reason(function: Callable[..., Any]) -> None:
    """The error names the function and the reason."""
    with pytest.raises(ToolSignatureError, match=f"tool '{function.__name__}'"):
        tool(function)


def test_an_error_about_a_tool_has_file_line_and_parameter() -> None:
    """The message gives the location in the user's source, of the function and of the faulty parameter."""

    def pay(iban: str, sender: SecretStr, amount: int) -> None:
        """Pay."""

    line = pay.__code__.co_firstlineno
    message = f"{__file__}:{line}: tool 'transfer', parameter 'sender': the type is a secret"
    with pytest.raises(ToolSignatureError, match=f"^{re.escape(message)}"):
        tool(name="transfer")(pay)


def check_of_another_tool(recipient: str, context: ToolContext) -> None:
    """Need a parameter that the tool does not have."""


def check_without_annotation(context) -> None:  # type: ignore[no-untyped-def]
    """Take a context that cannot be recognised."""


def check_by_position(iban: str, /) -> None:
    """Take by position what is passed by name."""


def check_unresolved(context: "Missing") -> None:  # type: ignore[name-defined]  # noqa: F821  # the point of the test
    """Name a type that does not exist."""


def check_generator(context: ToolContext) -> Any:
    """Yield more than one value."""
    yield


class Desk:
    """A class with a check among its methods."""

    def find(self, context: ToolContext, iban: str, tries: int = 3, **more: Any) -> None:
        """Take any keyword."""


@pytest.mark.parametrize("role", ["check", "undo"])
@pytest.mark.parametrize(
    ("function", "words"),
    [
        (check_of_another_tool, "parameter 'recipient' is not a parameter of the tool (iban)"),
        (check_without_annotation, "parameter 'context' is not a parameter of the tool (iban); the context is recog"),
        (check_by_position, "parameter 'iban' cannot be passed by name"),
        (check_unresolved, "'Missing' is not defined"),
        (check_generator, "is a generator"),
        (search, "is not a function"),
        ("find", "is not a function"),
    ],
)
def test_a_check_or_undo_that_cannot_be_called_is_rejected(role: str, function: Any, words: str) -> None:
    """The error comes where the tool is defined: the function runs only after a crash, and would always fail."""
    options = {"effect": "verifiable" if role == "check" else "unsafe", role: function}

    def pay(iban: str, context: ToolContext) -> None:
        """Pay."""

    with pytest.raises(ToolSignatureError) as refused:
        tool(**options)(pay)
    assert f"tool 'pay': {role}=" in str(refused.value)
    assert words in str(refused.value)
    if hasattr(function, "__code__"):
        assert f"({__file__}:{function.__code__.co_firstlineno})" in str(refused.value)
    assert tool(**options | {role: Desk().find})(pay).spec.name == "pay"


@pytest.mark.parametrize("options", [{"effect": "harmless"}, {"effect": "verifiable"}, {"check": lambda: None}])
def test_effect_and_check_must_match(options: dict[str, Any]) -> None:
    """An unknown effect class, `verifiable` without a check, and a check without `verifiable` are rejected."""
    with pytest.raises(ToolSignatureError, match="tool 'act'"):
        tool(name="act", **options)(lambda: None)


@pytest.mark.parametrize("name", ["with space", "dotted.name", "x" * 65, "größe"])
def test_a_name_that_the_api_rejects_is_rejected(name: str) -> None:
    """An invalid name is rejected on definition, before the provider would reject it during a run."""
    with pytest.raises(ToolSignatureError, match="up to 64 letters"):
        tool(name=name)(lambda: None)


@pytest.mark.parametrize(
    "options",
    [
        {"effect": "unsafe", "settles_within": -1},
        {"effect": "unsafe", "settles_within": float("nan")},
        {"effect": "unsafe", "settles_within": float("inf")},
        {"effect": "unsafe", "settles_within": True},
        {"effect": "unsafe", "settles_within": "5"},
        {"effect": "read", "settles_within": 5},
        {"effect": "read", "not_done_on": (ValueError,)},
        {"effect": "unsafe", "not_done_on": ValueError},
        {"effect": "unsafe", "not_done_on": (ValueError("one"),)},
        {"effect": "unsafe", "not_done_on": ("ValueError",)},
    ],
)
def test_the_settings_for_unknown_outcomes_are_checked(options: dict[str, Any]) -> None:
    """A settling time is a number of seconds, `not_done_on` a tuple of exception types, and a read has neither."""
    with pytest.raises(ToolSignatureError, match=r"settles_within|not_done_on"):
        tool(**options)(double)


def test_a_tool_settles_within_its_time_limit_by_default() -> None:
    """A spec recorded before settling times existed has the same default."""
    assert tool(effect="unsafe", timeout=7)(double).spec.settling_seconds == 7
    assert tool(effect="unsafe", timeout=7, settles_within=0)(double).spec.settling_seconds == 0
    recorded = tool(effect="unsafe", timeout=7)(double).spec.model_dump(exclude_defaults=True)
    assert "settles_within" not in recorded


def test_a_tool_can_be_called_as_a_function() -> None:
    """Users can call their tools directly in their own tests."""
    assert isinstance(search, Tool)
    assert search("a", context=CONTEXT) == "a 10 fast  t"


def double(number: int) -> int:
    """Double a number."""
    return 2 * number


@pytest.mark.parametrize(
    "docstring",
    [
        "Args:\n    a: The first summand.\n    b: The second one.",
        "\n    Args:\n        a: The first summand.\n        b: The second one.\n    ",
        "Args:\n        a: The first summand.\n        b: The second one.\n    ",
        "Parameters:\n    a: The first summand.\n    b: The second one.",
        "Parameters\n----------\na : int\n    The first summand.\nb : int\n    The second one.",
        ":param a: The first summand.\n:param int b: The second one.",
    ],
)
def test_a_docstring_may_have_parameters_alone(docstring: str) -> None:
    """Parameters are described in any common style, and the section is not taken for the tool's description."""

    def add(a: int, b: int) -> int:
        return a + b

    add.__doc__ = docstring
    made = tool(effect="read", description="Add.")(add)
    described = {name: each["description"] for name, each in made.spec.parameters["properties"].items()}
    assert described == {"a": "The first summand.", "b": "The second one."}
    with pytest.raises(ToolSignatureError, match="no description"):
        tool(effect="read")(add)


def test_a_text_in_an_annotation_describes_the_parameter() -> None:
    """A bare text or `Doc` counts, also within a union; the docstring and pydantic's `Field` take precedence."""

    @tool(effect="read")
    def add(  # noqa: D417  # the others are described by their annotations
        a: Annotated[int, "the first"],
        b: Annotated[int | None, "the second"] = None,
        c: Annotated[int, "the third"] | None = None,
        d: Annotated[int, Field(ge=0), Doc("the fourth")] = 0,
        e: Annotated[int, Field(description="the fifth"), "no"] = 0,
        f: Annotated[int, "no"] = 0,
    ) -> int:
        """Add.

        Args:
            a: The first summand.
            f: The sixth.
        """  # the others are described by their annotations
        return a

    described = {name: each["description"] for name, each in add.spec.parameters["properties"].items()}
    assert list(described.values()) == [
        "The first summand.", "the second", "the third", "the fourth", "the fifth", "The sixth."
    ]  # fmt: skip


class Spot(NamedTuple):
    """A place."""

    x: int
    name: str


def test_every_array_has_a_schema_of_its_items() -> None:
    """Providers reject arrays without `items`: those of fixed length have one schema for all positions."""

    @tool(effect="read")
    def draw(a: tuple[int, int], b: tuple[int, str] = (1, "x"), c: Spot = Spot(1, "x"), d: list[Any] = []) -> str:  # noqa: B006, B008  # defaults are in the schema
        """Draw."""
        return f"{a}{b}{c}{d}"

    schema = draw.spec.parameters
    either = {"anyOf": [{"type": "integer"}, {"type": "string"}]}
    lengths = {"minItems": 2, "maxItems": 2}
    assert schema["properties"]["a"] == {"type": "array", "items": {"type": "integer"}, **lengths}
    assert schema["properties"]["b"] == {"type": "array", "items": either, "default": [1, "x"], **lengths}
    assert schema["$defs"]["Spot"]["items"] == either
    assert schema["properties"]["d"]["items"] == {}
    assert draw.parse('{"a": [1, 2], "c": [3, "z"]}')["c"] == Spot(3, "z")


def test_a_parameter_may_have_the_name_of_a_keyword() -> None:
    """Only schemas are changed, and neither names of parameters nor defaults."""

    @tool(effect="read")
    def draw(prefixItems: list[int], items: dict[str, Any] = {"prefixItems": [1]}) -> str:  # noqa: B006, N803  # these names are what is tested
        """Draw."""
        return f"{prefixItems}{items}"

    properties = draw.spec.parameters["properties"]
    assert properties["prefixItems"] == {"type": "array", "items": {"type": "integer"}}
    assert properties["items"]["default"] == {"prefixItems": [1]}


@pytest.mark.parametrize("docstring", [None, "", "  ", "Args:\n    at: Where."])
def test_a_tool_without_description_is_rejected(docstring: str | None) -> None:
    """The LLM decides by the description; the error names the tool and its line, and says what to write."""

    def gaze(at: str) -> str:
        return at

    gaze.__doc__ = docstring
    with pytest.raises(
        ToolSignatureError, match=r"test_tools.py:\d+: tool 'gaze' has no description.*description="
    ) as e:
        tool(effect="read")(gaze)
    assert "write a docstring" in str(e.value)


def test_a_description_replaces_the_docstrings_summary() -> None:
    """The parameters keep the docstring's descriptions; an empty description is rejected, too."""

    @tool(effect="read", description="  For the LLM.\n    More.  ")
    def gaze(at: str) -> str:
        """For programmers.

        Args:
            at: Where.
        """
        return at

    assert gaze.spec.description == "For the LLM.\nMore."
    assert gaze.spec.parameters["properties"]["at"]["description"] == "Where."
    with pytest.raises(ToolSignatureError, match="has no description"):
        tool(effect="read", description=" ")(gaze.function)
