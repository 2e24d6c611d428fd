"""Arguments of tools that a JSON schema describes: what is judged is what is sent."""

from typing import Any

import pytest

from holdfast import MCP, Effect
from holdfast.core.tools.arguments import ArgumentsInvalid
from holdfast.core.tools.schema_tools import SchemaTool
from holdfast.errors import CatalogError
from holdfast.mcp.pins import PinnedServer, PinnedTool
from holdfast.mcp.tools import tools_of


def tool_of(properties: dict[str, Any], **schema: Any) -> SchemaTool:
    """Return a tool with these parameters."""
    whole = {"type": "object", "properties": properties, **schema}
    server = PinnedServer(source=("x",), name="s", tools=(PinnedTool(name="t", input_schema=whole),))
    return tools_of(MCP("s", command=["x"]), server)[0]


def test_arguments_are_canonical_with_the_defaults_of_the_schema() -> None:
    """Missing parameters get the defaults, keys are sorted, and the recorded form reads as itself."""
    tool = tool_of({"b": {"type": "integer"}, "a": {"type": "string", "default": "x"}})
    read = tool.read('{ "b": 12345678901234567890 }')
    assert read.text == '{"a":"x","b":12345678901234567890}'
    assert read.values == {"arguments": {"a": "x", "b": 12345678901234567890}}
    assert tool.read(read.text) == read


def test_arguments_that_do_not_fit_are_invalid() -> None:
    """The message has the path; what is no JSON object never reaches the server."""
    tool = tool_of({"to": {"type": "object", "required": ["street"]}}, required=["to"], additionalProperties=False)
    for text, why in (
        ('{"to": {}}', r"arguments\.to"),
        ("{}", "to"),
        ('{"to": {"street": ""}, "more": 1}', "more"),
        ("[]", "object"),
        ("{", "JSON"),
        ('{"to": NaN}', "JSON"),
        ('{"to": ' + "[" * 150 + "]" * 150 + "}", "nested"),
    ):
        with pytest.raises(ArgumentsInvalid, match=why):
            tool.read(text)


def test_a_default_that_the_schema_rejects_is_not_sent() -> None:
    """Such a default would make every call invalid."""
    tool = tool_of({"a": {"type": "integer", "default": "many"}, "b": True, "c": False})
    assert tool.read("{}").text == "{}"
    with pytest.raises(ArgumentsInvalid):
        tool.read('{"c": 1}')


def test_effects_are_the_operators() -> None:
    """The first matching pattern counts; `verifiable` takes a check, which no server has."""
    server = MCP("s", command=["x"], effects={"get_secret": "unsafe", "get_*": "read"})
    assert [server.effect_of(name) for name in ("get_secret", "get_it", "put")] == [
        Effect.UNSAFE,
        Effect.READ,
        Effect.UNSAFE,
    ]
    with pytest.raises(CatalogError, match="verifiable"):
        MCP("s", command=["x"], effects={"*": "verifiable"})


def test_declarations_are_checked() -> None:
    """A mistake is an error where the catalog is made."""
    for fields in (
        {},
        {"command": ["x"], "url": "https://x"},
        {"command": "python server.py"},
        {"command": ["x"], "headers": {"A": "b"}},
        {"url": "https://x", "env": {"A": "b"}},
        {"command": ["x"], "timeout": 0},
        {"command": ["x"], "trust": "friend"},
    ):
        with pytest.raises(CatalogError):
            MCP("s", **fields)
    with pytest.raises(CatalogError, match="name"):
        MCP("my_server", command=["x"])
