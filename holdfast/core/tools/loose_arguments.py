"""Corrects arguments that a tool's model rejects, if their meaning is unambiguous.

Each validation error has at most one correction, which depends on the expected type:

1. Malformed JSON that `strict_json` can convert; an object encoded as a string, once or twice.
2. A list or an object encoded as a string, for a type that accepts no string.
3. A number or a boolean for a type that expects a string, which gets the digits as the LLM wrote them. A number or a
   boolean encoded as a string, for a type with fixed values.
4. `null` for a parameter or a field that does not accept it but has a default: the default.

All else stays rejected: unknown names, one element in place of a list, numbers with separators, cut-off text.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from holdfast.core.base.loose_json import strict_json

ROUNDS = 4
"""Maximum number of rounds of corrections: one may reveal the next error, deeper inside."""

_LISTS = ("list_type", "tuple_type", "set_type", "frozen_set_type", "iterable_type")
_OBJECTS = ("dict_type", "mapping_type", "model_type", "model_attributes_type", "dataclass_type", "typed_dict_type")
_NESTED = (*_LISTS, *_OBJECTS)
"""Validation errors for a value that should be a list or an object."""
_FIXED = ("literal_error", "enum")
_NONE, _DEFAULT = object(), object()


class _Float(str):
    """A number with a decimal point, in the LLM's own digits: the version `1.10` is not 1.1."""


Path = tuple[str | int, ...]


def parse_loosely(text: str, validate: Callable[[str], BaseModel]) -> BaseModel | None:
    """Correct and parse arguments; None if there is no correction, or more than one.

    Args:
        text: The LLM's text.
        validate: Validates JSON text.
    """
    candidate, dropped = _object(text), list[Path]()
    for _ in range(ROUNDS):
        if candidate is None:
            return None
        try:
            parsed = validate(candidate)
        except ValidationError as error:
            candidate = _corrected(candidate, error.errors(include_url=False, include_context=False), dropped)
        else:
            return parsed if _have_defaults(parsed, dropped) else None
    return None


def _object(text: str) -> str | None:
    """Return the strict JSON of an object, which may be encoded as a string; `null` means no arguments."""
    for _ in range(3):
        strict = strict_json(text)
        if strict is None:
            return None
        if strict == "null":
            return "{}"
        if not strict.startswith('"'):
            return strict if strict.startswith("{") else None
        text = json.loads(strict)
    return None


def _corrected(text: str, errors: Sequence[ErrorDetails], dropped: list[Path]) -> str | None:
    """Correct the errors in JSON; None if there are no corrections, or two for one value.

    Args:
        text: The JSON.
        errors: The validation errors.
        dropped: Paths of values that are removed to get the default; appended to.
    """
    try:
        tree = _loaded(text)
    except (ValueError, RecursionError):
        return None
    corrections: dict[Path, Any] = {}
    for error in errors:
        path, value = _value_at(tree, error["loc"])
        if not path or not _same(value, error["input"]):
            continue
        new = _correction(value, error["type"])
        if new is _NONE:
            continue
        if path in corrections and corrections[path] != new:
            return None
        corrections[path] = new
    for path, new in corrections.items():
        parent = _value_at(tree, path[:-1])[1]
        if new is not _DEFAULT:
            parent[path[-1]] = new
        elif isinstance(parent, dict):
            del parent[path[-1]]
            dropped.append(path)
    return _written(tree) if corrections else None


def _correction(value: Any, kind: str) -> Any:
    """Return the correction of a value that has this validation error; `_NONE` if there is none."""
    expects_string = kind in ("string_type", *_FIXED)
    match value:
        case None:
            return _DEFAULT
        case bool() if expects_string:
            return json.dumps(value)
        case int() | _Float() if expects_string:
            return f"{value}"
        case str() if kind in _NESTED or kind in _FIXED:
            strict = strict_json(value)
            if strict is None or (strict[0] in "{[") != (kind in _NESTED) or strict[0] in '"n':
                return _NONE
            return _loaded(strict)
    return _NONE


def _loaded(strict: str) -> Any:
    return json.loads(strict, parse_float=_Float)


def _written(value: Any) -> str:
    match value:
        case _Float():
            return f"{value}"
        case dict():
            return "{" + ",".join(f"{json.dumps(key)}:{_written(each)}" for key, each in value.items()) + "}"
        case list():
            return "[" + ",".join(map(_written, value)) + "]"
    return json.dumps(value)


def _same(value: Any, reported: Any) -> bool:
    """Whether a validation error is about this value, and not about one derived from it or a part of its location."""
    if isinstance(value, _Float):
        return isinstance(reported, float) and float(value) == reported
    if isinstance(value, dict | list):
        return type(value) is type(reported) and len(value) == len(reported)
    return type(value) is type(reported) and bool(value == reported)


def _value_at(tree: Any, location: Sequence[str | int]) -> tuple[Path, Any]:
    """Return the path and the value at a location, which may end with the names of a union's alternatives."""
    path: Path = ()
    for part in location:
        inside = isinstance(tree, dict) and part in tree
        if not inside and not (isinstance(tree, list) and isinstance(part, int) and part < len(tree)):
            break
        tree, path = tree[part], (*path, part)
    return path, tree


def _have_defaults(parsed: BaseModel, dropped: Sequence[Path]) -> bool:
    """Whether every removed `null` was replaced by a default: a mapping has none for its key."""
    if not dropped:
        return True
    try:
        dumped = parsed.model_dump(mode="json", by_alias=True, round_trip=True, warnings=False)
    except Exception:  # a serializer may raise anything
        return False
    return all(_value_at(dumped, path)[0] == path for path in dropped)
