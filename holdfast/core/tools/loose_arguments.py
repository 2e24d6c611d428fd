"""Arguments that a tool's model refuses, and that mean one thing all the same.

Each mistake that validation finds has at most one correction, which the type at its place decides:

1. No JSON, but what `strict_json` reads; an object within a text, once or twice.
2. A list or an object as text, where the type takes no text.
3. A number or a boolean where the type takes text: the text has its digits, as the LLM wrote them. A number or a
   boolean as text, where the type has fixed values.
4. `null` for a parameter or a field that has a default and takes no `null`: the default.

Anything else stays refused: an unknown name, one element in place of a list, a number with separators, what is cut off.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from holdfast.core.base.loose_json import strict_json

ROUNDS = 4
"""How often arguments are corrected: a correction may show the next mistake, further inside."""

_LISTS = ("list_type", "tuple_type", "set_type", "frozen_set_type", "iterable_type")
_OBJECTS = ("dict_type", "mapping_type", "model_type", "model_attributes_type", "dataclass_type", "typed_dict_type")
_NESTED = (*_LISTS, *_OBJECTS)
"""Errors of a place that takes a list or an object."""
_FIXED = ("literal_error", "enum")
_NONE, _DEFAULT = object(), object()


class _Float(str):
    """A number with a point, in the LLM's own digits: `1.10` is a version, and 1.1 another one."""


Path = tuple[str | int, ...]


def loosened(text: str, validate: Callable[[str], BaseModel]) -> BaseModel | None:
    """Return what arguments mean; None if they mean nothing, or more than one thing.

    Args:
        text: What the LLM wrote.
        validate: Validates JSON text.
    """
    written, dropped = _object(text), list[Path]()
    for _ in range(ROUNDS):
        if written is None:
            return None
        try:
            read = validate(written)
        except ValidationError as error:
            written = _corrected(written, error.errors(include_url=False, include_context=False), dropped)
        else:
            return read if _have_defaults(read, dropped) else None
    return None


def _object(text: str) -> str | None:
    """Return the JSON of an object, which may be written as text; `null` is no arguments."""
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


def _corrected(written: str, errors: Sequence[ErrorDetails], dropped: list[Path]) -> str | None:
    """Return JSON with the errors' corrections; None if there are none, or two for one place.

    Args:
        written: The JSON.
        errors: What validation found.
        dropped: Gets the paths that are left out, for the default.
    """
    try:
        tree = _loaded(written)
    except (ValueError, RecursionError):
        return None
    corrections: dict[Path, Any] = {}
    for error in errors:
        path, value = _found(tree, error["loc"])
        if not path or not _same(value, error["input"]):
            continue
        new = _correction(value, error["type"])
        if new is _NONE:
            continue
        if path in corrections and corrections[path] != new:
            return None
        corrections[path] = new
    for path, new in corrections.items():
        parent = _found(tree, path[:-1])[1]
        if new is not _DEFAULT:
            parent[path[-1]] = new
        elif isinstance(parent, dict):
            del parent[path[-1]]
            dropped.append(path)
    return _written(tree) if corrections else None


def _correction(value: Any, kind: str) -> Any:
    """Return the one thing that a value means where validation finds this error; `_NONE` if there is none."""
    takes_text = kind in ("string_type", *_FIXED)
    match value:
        case None:
            return _DEFAULT
        case bool() if takes_text:
            return json.dumps(value)
        case int() | _Float() if takes_text:
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


def _same(value: Any, given: Any) -> bool:
    """Whether validation means this value, and not one that it made of it or a part of its place."""
    if isinstance(value, _Float):
        return isinstance(given, float) and float(value) == given
    if isinstance(value, dict | list):
        return type(value) is type(given) and len(value) == len(given)
    return type(value) is type(given) and bool(value == given)


def _found(tree: Any, place: Sequence[str | int]) -> tuple[Path, Any]:
    """Return the path and the value at a place, which may end with the names of a union's alternatives."""
    path: Path = ()
    for part in place:
        inside = isinstance(tree, dict) and part in tree
        if not inside and not (isinstance(tree, list) and isinstance(part, int) and part < len(tree)):
            break
        tree, path = tree[part], (*path, part)
    return path, tree


def _have_defaults(read: BaseModel, dropped: Sequence[Path]) -> bool:
    """Whether there is a value now wherever `null` was left out: a mapping has none for the key."""
    if not dropped:
        return True
    try:
        dumped = read.model_dump(mode="json", by_alias=True, round_trip=True, warnings=False)
    except Exception:  # a serializer may raise anything
        return False
    return all(_found(dumped, path)[0] == path for path in dropped)
