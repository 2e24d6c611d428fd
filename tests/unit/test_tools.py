"""`@tool`: the schema an LLM sees, the arguments it may send, and the functions that cannot become tools."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from holdfast import Tool, ToolContext, tool
from holdfast.errors import ToolSignatureError
from holdfast.llm.blocks import ImageBlock, TextBlock, ToolCall
from holdfast.run.contracts import ToolOutcome
from holdfast.tools.arguments import ArgumentsInvalid
from holdfast.tools.decorator import bind, result_content, result_text
from holdfast.tools.effects import Effect

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
        ('{"query": 3}', "query: Input should be a valid string"),
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


def test_results_keep_their_content_blocks() -> None:
    """Images and files stay blocks, among texts; what has no place in a result becomes text."""
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
    """Lack a type."""


def starred(*x: int) -> None:
    """Take any number."""


def keywords(**x: int) -> None:
    """Take any name."""


def positional(x: int, /) -> None:
    """Take no name."""


def opaque(x: NotJSON) -> None:
    """Take a value that JSON cannot represent."""


def callback(x: Callable[[], int]) -> None:
    """Take a function."""


def default(x: Any = NotJSON()) -> None:  # noqa: B008  # the point of the test
    """Have a default that JSON cannot represent."""


def unresolved(x: "Missing") -> None:  # type: ignore[name-defined]  # noqa: F821  # the point of the test
    """Name a type that does not exist."""


def generator(x: int) -> Any:
    """Return more than once."""
    yield x


@pytest.mark.parametrize(
    "function", [untyped, starred, keywords, positional, opaque, callback, default, unresolved, generator]
)
def test_a_function_that_cannot_be_a_tool_is_named_with_the_reason(function: Callable[..., Any]) -> None:
    """The error names the function and the reason."""
    with pytest.raises(ToolSignatureError, match=f"tool '{function.__name__}'"):
        tool(function)


@pytest.mark.parametrize("options", [{"effect": "harmless"}, {"effect": "verifiable"}, {"check": lambda: None}])
def test_effect_and_check_must_match(options: dict[str, Any]) -> None:
    """An unknown effect class, `verifiable` without a check, and a check without `verifiable` are refused."""
    with pytest.raises(ToolSignatureError, match="tool 'act'"):
        tool(name="act", **options)(lambda: None)


@pytest.mark.parametrize("name", ["with space", "dotted.name", "x" * 65, "größe"])
def test_a_name_that_the_api_rejects_is_refused(name: str) -> None:
    """An invalid name is refused on definition, before the provider would reject it during a run."""
    with pytest.raises(ToolSignatureError, match="up to 64 letters"):
        tool(name=name)(lambda: None)


def test_a_tool_can_be_called_as_a_function() -> None:
    """Users can call their tools directly in their own tests."""
    assert isinstance(search, Tool)
    assert search("a", context=CONTEXT) == "a 10 fast  t"
