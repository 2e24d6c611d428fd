"""Numbers of arguments as the tool receives them.

Canonical JSON writes 5.0 as 5. A condition of a policy may calculate with an argument, and CEL does not mix integers
and floats; so it sees a float wherever the tool's schema has a number that is not an integer.
"""

from typing import Any

_REFERENCES = 20
"""How many references are followed from one place in a schema, which may refer to itself."""


def with_floats(value: Any, schema: Any) -> Any:
    """Return arguments (JSON) with a float for each integer in a place where their JSON schema has `number`.

    What the schema leaves open stays as it is: a place that takes integers too, or that it does not describe.
    """
    return _typed(value, schema, schema.get("$defs") if isinstance(schema, dict) else None)


def _typed(value: Any, schema: Any, definitions: Any) -> Any:
    if type(value) is int:
        return _as_float(value) if _kinds(schema, definitions) == {"number"} else value
    if not isinstance(value, dict | list):
        return value
    schema = _alternative(_resolved(schema, definitions), "object" if isinstance(value, dict) else "array", definitions)
    if isinstance(value, dict):
        known, other = _dict(schema.get("properties")), schema.get("additionalProperties")
        return {name: _typed(each, known.get(name, other), definitions) for name, each in value.items()}
    first, rest = schema.get("prefixItems"), schema.get("items")
    places = [*(first if isinstance(first, list) else []), *[rest] * len(value)]
    return [_typed(each, place, definitions) for each, place in zip(value, places, strict=False)]


def _kinds(schema: Any, definitions: Any) -> set[str]:
    """The types of numbers that a place takes."""
    schema = _resolved(schema, definitions)
    options = schema.get("anyOf")
    found = [_resolved(each, definitions) for each in options] if isinstance(options, list) else [schema]
    return {str(each.get("type")) for each in found} - {"null", "string", "boolean", "object", "array"}


def _alternative(schema: dict[str, Any], kind: str, definitions: Any) -> dict[str, Any]:
    """The one alternative of this type, where a place has several."""
    options = schema.get("anyOf")
    if not isinstance(options, list):
        return schema
    fit = [found for each in options if (found := _resolved(each, definitions)).get("type") == kind]
    return fit[0] if len(fit) == 1 else {}


def _resolved(schema: Any, definitions: Any) -> dict[str, Any]:
    found = _dict(schema)
    for _ in range(_REFERENCES):
        reference = found.get("$ref")
        if not isinstance(reference, str):
            return found
        found = _dict(_dict(definitions).get(reference.removeprefix("#/$defs/")))
    return {}


def _as_float(value: int) -> float | int:
    try:
        return float(value)
    except OverflowError:
        return value


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
