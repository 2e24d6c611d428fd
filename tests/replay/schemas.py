"""The fields of persisted models as short texts: `integer = 0`, `ToolCall`, `[string] | null = null`.

The source is pydantic's JSON schema, of which only names, types and defaults are kept: titles, descriptions, limits and
the order of keys may change between releases of pydantic or of ours.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode
from pydantic_core import core_schema

from holdfast.core.log.upcasters import EVENT_CLASSES

Fields = dict[str, str]

EVENT_TYPES: Mapping[str, str] = {kind.__name__: kind.model_fields["type"].default for kind in EVENT_CLASSES}
"""Class of an event → its type in the log."""

_REF = "#/$defs/"


class _Defaults(GenerateJsonSchema):
    """Includes the defaults of factories, and leaves out a default's own default values."""

    def get_default_value(self, schema: core_schema.WithDefaultSchema) -> Any:
        """Return the default of a field, made by its factory if it has one."""
        factory = schema.get("default_factory")
        return factory() if factory else super().get_default_value(schema)  # type: ignore[call-arg]

    def encode_default(self, dft: Any) -> Any:
        """Return a default as it is stored."""
        return TypeAdapter(type(dft)).dump_python(dft, mode="json", exclude_defaults=True, warnings=False)


def fields_of(kinds: Iterable[Any]) -> dict[str, Fields]:
    """Return the fields of these models and dataclasses, and of everything that they refer to: class → field → text."""
    inputs: list[tuple[str, JsonSchemaMode, TypeAdapter[Any]]] = [
        (kind.__name__, "validation", TypeAdapter(kind)) for kind in kinds
    ]
    _, schema = TypeAdapter.json_schemas(inputs, schema_generator=_Defaults)
    definitions: dict[str, dict[str, Any]] = schema["$defs"]
    return {
        name: _fields(definition) if "properties" in definition else {"": type_text(definition)}
        for name, definition in sorted(definitions.items())
    }


def _fields(definition: dict[str, Any]) -> Fields:
    required = definition.get("required", ())
    fields = {}
    for name, schema in sorted(definition["properties"].items()):
        text = type_text(schema)
        if name not in required:
            text += f" = {json.dumps(schema['default'], ensure_ascii=False, sort_keys=True)}"
        fields[name] = text
    return fields


def type_text(schema: dict[str, Any]) -> str:
    """Return the JSON type that a schema describes."""
    if "$ref" in schema:
        return str(schema["$ref"]).removeprefix(_REF)
    for union in ("anyOf", "oneOf", "allOf"):
        if union in schema:
            return " | ".join(sorted({type_text(each) for each in schema[union]}))
    if "const" in schema or "enum" in schema:
        values = schema.get("enum") or [schema["const"]]
        return " | ".join(sorted(json.dumps(value) for value in values))
    match schema.get("type"):
        case "array" if "prefixItems" in schema:
            return f"[{', '.join(type_text(each) for each in schema['prefixItems'])}]"
        case "array":
            return f"[{type_text(schema.get('items', {}))}]"
        case "object":
            rest = schema.get("additionalProperties", True)
            return f"{{{type_text({} if rest is True else rest)}}}"
        case "string" if "format" in schema:
            return str(schema["format"])
        case None:
            return "any"
        case kind:
            return str(kind)
