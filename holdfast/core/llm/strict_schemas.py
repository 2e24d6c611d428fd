"""Strict schemas: those that a provider enforces while its LLM writes a call's arguments.

Providers support a part of JSON Schema. Within it, a schema is narrowed: no object has further properties, and for
OpenAI's APIs every property is given. Arguments that fit the narrow schema fit the tool's own, by which a worker checks
them anyway. A schema outside of that part is sent as it is, and not enforced.

References: https://platform.openai.com/docs/guides/structured-outputs and
https://platform.claude.com/docs/en/build-with-claude/structured-outputs.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from holdfast.core.llm.names import Api

MAX_PARTS = 2_000
"""The most parts of a schema; a larger one is not enforced."""

_NOWHERE: Final = frozenset(
    {"dependentRequired", "dependentSchemas", "else", "if", "not", "oneOf", "patternProperties", "then"}
)
_UNSUPPORTED: Final[Mapping[Api, Collection[str]]] = {
    "chat": _NOWHERE | {"allOf"},
    "responses": _NOWHERE | {"allOf"},
    "messages": _NOWHERE
    | {
        "exclusiveMaximum",
        "exclusiveMinimum",
        "maxItems",
        "maxLength",
        "maximum",
        "minLength",
        "minimum",
        "multipleOf",
    },
}
_MAPS: Final = ("$defs", "properties")
"""Keywords that hold schemas by name."""
_LISTS: Final = ("anyOf", "allOf", "prefixItems")


def strict_problem(schema: Mapping[str, Any], api: Api) -> str:
    """Return the first part of a schema that an API cannot enforce; empty if it can enforce all of it."""
    for count, (path, part) in enumerate(_parts(schema, "")):
        if count == MAX_PARTS:
            return f"it has more than {MAX_PARTS:,} parts"
        where = path.removeprefix(".") or "the schema"
        if found := sorted(_UNSUPPORTED[api] & part.keys()):
            return f"{where} has `{found[0]}`"
        if part.get("type") == "object" and (part.get("additionalProperties") or "properties" not in part):
            return f"{where} is an object with any properties"
        if not part.keys() & {"type", "enum", "const", "anyOf", "allOf", "$ref"}:
            return f"{where} has no type"
        if api == "messages" and "$ref" in part and _recursive(schema, str(part["$ref"])):
            return f"{where} is recursive"
    return ""


def strict_schema(schema: Any, api: Api) -> Any:
    """Return a schema without a problem as an API requires it."""
    if not isinstance(schema, dict):
        return schema
    narrow = {name: value for name, value in schema.items() if api == "messages" or name != "default"}
    for name in _MAPS:
        if isinstance(narrow.get(name), dict):
            narrow[name] = {key: strict_schema(each, api) for key, each in narrow[name].items()}
    for name in _LISTS:
        if isinstance(narrow.get(name), list):
            narrow[name] = [strict_schema(each, api) for each in narrow[name]]
    if "items" in narrow:
        narrow["items"] = strict_schema(narrow["items"], api)
    if narrow.get("type") == "object":
        narrow["additionalProperties"] = False
        if api != "messages":
            narrow["required"] = list(narrow["properties"])
    return narrow


def _parts(schema: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a schema and every schema within it, with its path."""
    if not isinstance(schema, dict):
        return
    yield path, schema
    for name in _MAPS:
        for key, each in (schema.get(name) or {}).items():
            yield from _parts(each, f"{path}.{key}")
    for name in _LISTS:
        for each in schema.get(name) or ():
            yield from _parts(each, path)
    yield from _parts(schema.get("items"), f"{path}[]")


def _recursive(schema: Mapping[str, Any], reference: str) -> bool:
    """Whether a definition refers to itself, by way of others or not."""
    definitions, due = schema.get("$defs") or {}, [reference]
    seen: set[str] = set()
    while due:
        definition = definitions.get(due.pop().removeprefix("#/$defs/"), {})
        for found in {str(part["$ref"]) for _, part in _parts(definition, "") if "$ref" in part} - seen:
            if found == reference:
                return True
            seen.add(found)
            due.append(found)
    return False
