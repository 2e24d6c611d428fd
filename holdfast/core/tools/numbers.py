"""Restores the floats in arguments, for conditions of policies.

Canonical JSON writes 5.0 as 5. A condition may calculate with an argument, but CEL does not mix integers and floats. So
a condition gets a float for each argument whose type in the tool's schema is `number`.
"""

from typing import Any

_REFERENCES = 20
"""Maximum number of references to follow from one place in a schema, which may be recursive."""


def with_floats(value: Any, schema: Any) -> Any:
    """Replace each integer in arguments (JSON) by a float if its type in their JSON schema is `number`.

    Values of an ambiguous type stay unchanged: those that may also be integers, or that the schema does not describe.
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
    """Return the types of numbers that a schema accepts."""
    schema = _resolved(schema, definitions)
    options = schema.get("anyOf")
    resolved = [_resolved(each, definitions) for each in options] if isinstance(options, list) else [schema]
    return {str(each.get("type")) for each in resolved} - {"null", "string", "boolean", "object", "array"}


def _alternative(schema: dict[str, Any], kind: str, definitions: Any) -> dict[str, Any]:
    """Return the schema or, if it has alternatives, the only one of this type; empty if there is not exactly one."""
    options = schema.get("anyOf")
    if not isinstance(options, list):
        return schema
    fit = [option for each in options if (option := _resolved(each, definitions)).get("type") == kind]
    return fit[0] if len(fit) == 1 else {}


def _resolved(schema: Any, definitions: Any) -> dict[str, Any]:
    target = _dict(schema)
    for _ in range(_REFERENCES):
        reference = target.get("$ref")
        if not isinstance(reference, str):
            return target
        target = _dict(_dict(definitions).get(reference.removeprefix("#/$defs/")))
    return {}


def _as_float(value: int) -> float | int:
    try:
        return float(value)
    except OverflowError:
        return value


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
