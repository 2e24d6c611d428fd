"""Corrects arguments that a tool's model rejects, if their meaning is unambiguous.

Each validation error has at most one correction, which depends on the expected type:

1. Malformed JSON that `strict_json` can convert; an object encoded as a string, once or twice; `""`, `[]` or `null` for
   no arguments; an object after `{}`, the same object twice, or one with a template's tag after it.
2. A list or an object encoded as a string, for a type that accepts no string.
3. A number or a boolean for a type that expects a string, which gets the digits as the LLM wrote them. A number or a
   boolean encoded as a string, for a type with fixed values.
4. A fixed value in another letter case, or with blanks around it: `Red` for `red`.
5. `null` for a parameter or a field that does not accept it but has a default: the default.
6. All arguments inside of an unknown one that is called `arguments`, `parameters` or the like.

All else stays rejected: unknown names, one element in place of a list, numbers with separators, cut-off text.
"""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from holdfast.core.base.loose_json import strict_json, strict_values, without_end_tags

ROUNDS = 4
"""Maximum number of rounds of corrections: one may reveal the next error, deeper inside."""

_LISTS = ("list_type", "tuple_type", "set_type", "frozen_set_type", "iterable_type")
_OBJECTS = ("dict_type", "mapping_type", "model_type", "model_attributes_type", "dataclass_type", "typed_dict_type")
_NESTED = (*_LISTS, *_OBJECTS)
"""Validation errors for a value that should be a list or an object."""
_FIXED = ("literal_error", "enum")
_QUOTED = re.compile("'([^']*)'")
_WRAPPERS = ("arguments", "args", "parameters", "params", "input", "kwargs", "properties")
_NO_ARGUMENTS = ("null", "[]", '""')
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
            candidate = _corrected(candidate, error.errors(include_url=False), dropped)
        else:
            return parsed if _have_defaults(parsed, dropped) else None
    return None


def _object(text: str) -> str | None:
    """Return the strict JSON of an object, which may be encoded as a string."""
    text = without_end_tags(text)
    for _ in range(3):
        values = strict_values(text)
        different = [value for value in dict.fromkeys(values) if value != "{}"] or values[:1]
        if len(different) != 1:
            return None
        strict = different[0]
        if strict in _NO_ARGUMENTS:
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
    if wrapped := _wrapped(tree, errors):
        return wrapped
    corrections: dict[Path, Any] = {}
    for error in errors:
        path, value = _value_at(tree, error["loc"])
        if not path or not _same(value, error["input"]):
            continue
        new = _correction(value, error["type"], error.get("ctx", {}).get("expected", ""))
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


def _wrapped(tree: Any, errors: Sequence[ErrorDetails]) -> str | None:
    """Return the JSON of the arguments inside of an unknown one, if that is the only one."""
    if not isinstance(tree, dict) or len(tree) != 1:
        return None
    [(name, value)] = tree.items()
    unknown = any(error["type"] == "extra_forbidden" and error["loc"] == (name,) for error in errors)
    if name not in _WRAPPERS or not unknown:
        return None
    return _written(value) if isinstance(value, dict) else _object(value) if isinstance(value, str) else None


def _correction(value: Any, kind: str, expected: str) -> Any:
    """Return the correction of a value that has this validation error; `_NONE` if there is none.

    Args:
        value: The value.
        kind: Pydantic's type of the error.
        expected: Pydantic's list of fixed values, each in quotes.
    """
    expects_string = kind in ("string_type", *_FIXED)
    match value:
        case None:
            return _DEFAULT
        case bool() if expects_string:
            return json.dumps(value)
        case int() | _Float() if expects_string:
            return f"{value}"
        case str() if kind in _FIXED and (same := _in_other_case(value, expected)):
            return same
        case str() if kind in _NESTED or kind in _FIXED:
            strict = strict_json(value)
            if strict is None or (strict[0] in "{[") != (kind in _NESTED) or strict[0] in '"n':
                return _NONE
            return _loaded(strict)
    return _NONE


def _in_other_case(value: str, expected: str) -> str:
    """Return the only fixed value that differs in its letter case alone; empty if there is none, or more than one."""
    alike = [each for each in _QUOTED.findall(expected) if each.casefold() == value.strip().casefold()]
    return alike[0] if len(alike) == 1 else ""


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
