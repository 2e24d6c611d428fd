"""The positions of fields in features.json, so that an edit can replace one value and keep every other byte.

Python's own decoder parses the values; this module only walks the two levels around them.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from json import JSONDecodeError, JSONDecoder
from typing import Any, NoReturn

from holdfast.core.memory.errors import FeaturesInvalid
from holdfast.core.memory.markdown import flat

_BLANK = re.compile(r"[ \t\n\r]*")


def _reject_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_DECODER = JSONDecoder(parse_constant=_reject_constant)


@dataclass
class JsonField:
    """A field of an object, with its position."""

    key_end: int
    value: Any
    value_start: int
    end: int


@dataclass
class JsonObject:
    """An object in the list, with its fields by name."""

    start: int
    members: dict[str, JsonField] = field(default_factory=dict)
    gap: str = ""
    """The white space before the last key."""


def listed_objects(text: str) -> Iterator[JsonObject]:
    """Yield the objects of a list of features, with the positions of their fields.

    Raises:
        FeaturesInvalid: The text is not such a list.
    """
    objects: list[JsonObject] | None = None
    at = _blank(text, 0)
    if text[at : at + 1] == "[":
        objects, at = _list(text, at)
    elif text[at : at + 1] == "{":
        top, at = _object(text, at)
        if member := top.members.get("features"):
            objects, _ = _list(text, member.value_start)
    else:
        _value(text, at)
    if objects is None:
        raise invalid(text, 0, 'write a list of features here, or {"features": [...]}')
    if (end := _blank(text, at)) < len(text):
        raise invalid(text, end, "unexpected text after the end")
    yield from objects


def _list(text: str, at: int) -> tuple[list[JsonObject], int]:
    """Parse the list at `at`; return its objects and its end."""
    if text[at : at + 1] != "[":
        raise invalid(text, at, '"features" must be a list')
    objects: list[JsonObject] = []
    at = _blank(text, at + 1)
    while text[at : at + 1] != "]":
        if objects:
            at = _past(text, at, ",")
        if text[at : at + 1] != "{":
            _value(text, at)
            raise invalid(text, at, "a feature must be an object")
        member, at = _object(text, at)
        objects.append(member)
        at = _blank(text, at)
    return objects, at + 1


def _object(text: str, at: int) -> tuple[JsonObject, int]:
    """Parse the object at `at`; return it and its end."""
    result = JsonObject(at)
    after = at + 1
    at = _blank(text, after)
    while text[at : at + 1] != "}":
        if result.members:
            after = at + 1
            at = _past(text, at, ",")
        result.gap = text[after:at]
        if text[at : at + 1] != '"':
            raise invalid(text, at, "expected a field name in double quotes")
        key, key_end = _value(text, at)
        if key in result.members:
            raise invalid(text, at, f"duplicate field {flat(key, 80)!r}")
        value_start = _past(text, _blank(text, key_end), ":")
        value, end = _value(text, value_start)
        result.members[key] = JsonField(key_end, value, value_start, end)
        at = _blank(text, end)
    return result, at + 1


def _past(text: str, at: int, sign: str) -> int:
    if text[at : at + 1] != sign:
        raise invalid(text, at, f"expected {sign!r}")
    return _blank(text, at + 1)


def _blank(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return match.end() if match else at


def _value(text: str, at: int) -> tuple[Any, int]:
    try:
        return _DECODER.raw_decode(text, at)
    except JSONDecodeError as error:
        raise invalid(text, error.pos, error.msg) from None
    except RecursionError:
        raise invalid(text, at, "it is nested too deeply") from None
    except ValueError as error:  # NaN or infinity, or more digits than Python parses
        raise invalid(text, at, str(error).partition(";")[0]) from None


def invalid(text: str, position: int, problem: str) -> FeaturesInvalid:
    """Make the error for a problem at a position of the text."""
    line, column = text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position)
    return FeaturesInvalid(f"features.json, line {line}, column {column}: {problem}; correct it there")
