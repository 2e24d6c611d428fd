"""Strict schemas: which a provider can enforce, and that they only narrow the tool's own."""

import json
from typing import Annotated, Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field

from holdfast import tool
from holdfast.core.llm.names import Api
from holdfast.core.llm.strict_schemas import strict_problem, strict_schema


class Place(BaseModel):
    """A place."""

    city: str
    floor: int | None = None


class Node(BaseModel):
    """A tree."""

    children: list["Node"] = []


@tool(effect="read")
def find(place: Place, tags: list[str] = [], limit: int = 3) -> str:  # noqa: B006
    """Find something."""
    return ""


@tool(effect="read")
def grow(tree: Node) -> str:
    """Grow a tree."""
    return ""


@tool(effect="read")
def fill(values: dict[str, str]) -> str:
    """Fill a form."""
    return ""


@tool(effect="read")
def buy(number: Annotated[int, Field(ge=1)]) -> str:
    """Buy something."""
    return ""


def test_a_strict_schema_accepts_less_and_nothing_else() -> None:
    """Whatever fits the schema that is sent fits the tool's own; the API's requirements hold at every level."""
    own = find.spec.parameters
    for api in ("chat", "responses", "messages"):
        assert strict_problem(own, api) == ""
        narrow = strict_schema(own, api)
        place = narrow["$defs"]["Place"]
        assert place["additionalProperties"] is narrow["additionalProperties"] is False
        if api != "messages":
            assert place["required"] == ["city", "floor"]
            assert "default" not in json.dumps(narrow)
        good = {"place": {"city": "Ulm", "floor": None}, "tags": [], "limit": 2}
        for schema in (own, narrow):
            assert Draft202012Validator(schema).is_valid(good)
        assert not Draft202012Validator(narrow).is_valid({**good, "place": {"city": "Ulm", "x": 1}})
    assert own == find.spec.parameters


@pytest.mark.parametrize(
    ("schema", "api", "words"),
    [
        (grow.spec.parameters, "messages", "recursive"),
        (fill.spec.parameters, "chat", "values is an object with any properties"),
        (fill.spec.parameters, "messages", "values is an object with any properties"),
        (buy.spec.parameters, "messages", "number has `minimum`"),
        ({"type": "object", "properties": {"a": {}}}, "responses", "a has no type"),
        ({"type": "object", "properties": {"a": {"type": "string", "not": {}}}}, "chat", "a has `not`"),
        ({"anyOf": [{"type": "string"}] * 3_000}, "chat", "parts"),
    ],
)
def test_the_part_that_a_provider_cannot_enforce_is_named(schema: dict[str, Any], api: Api, words: str) -> None:
    """A schema outside of what an API supports is reported with its first such part."""
    assert words in strict_problem(schema, api)


def test_what_one_provider_lacks_another_may_have() -> None:
    """OpenAI enforces bounds of numbers and recursive schemas."""
    assert strict_problem(buy.spec.parameters, "responses") == strict_problem(grow.spec.parameters, "chat") == ""
