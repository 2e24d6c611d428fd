"""Converts the return value of a tool for the LLM: strings and content blocks as they are, everything else as JSON.

1. JSON values are written as `json.dumps` writes them; the result is the same on every worker.
2. Dataclasses and pydantic models become objects, enums their values, tuples and sets lists (sets are sorted), dates
   and times ISO 8601, bytes text (UTF-8) or a `data:` URL, NaN and infinity `null`, as in pydantic.
3. Rows of databases and data frames become objects, arrays lists, numbers of other libraries numbers. They are
   recognised by their methods (`holdfast.core.tools.foreign_values`), so none of these libraries is imported.
4. Iterators and other iterables become lists of up to `MOST_ITEMS` items.
5. Everything else becomes its `str()`, without memory addresses: `<app.Ticket object>`. Awaitables are rejected.
"""

import json
import math
import re
from base64 import b64encode
from collections import UserString, deque
from collections.abc import (
    AsyncIterable,
    Awaitable,
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    Sequence,
    Set,
    ValuesView,
)
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time
from enum import Enum
from itertools import islice
from typing import Any

from pydantic import BaseModel

from holdfast.core.llm.blocks import AudioBlock, Content, FileBlock, ImageBlock, TextBlock
from holdfast.core.tools.foreign_values import NO_VALUE, native

_MEDIA = ImageBlock | FileBlock | AudioBlock

MOST_ITEMS = 10_000
"""Maximum number of items to read from an iterable, which may never end."""

NOT_READ = f"… there are more than {MOST_ITEMS:,}; the rest was not read"
"""The last item, in place of those that were not read."""

MOST_ERRORS = 10
"""Maximum number of shown errors of a group, and of shown notes of an error."""

ERROR_CHARS = 2_000
"""A longer note, or message of an error in a group, is left out: if it were cut, half a secret could remain in it."""


class NotAwaited(TypeError):
    """A value contains an awaitable that was not awaited, so its effect may never have happened."""


class StandIn(RuntimeError):
    """Raised in place of its cause, such as CancelledError, which would end the task in which it is raised."""


_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
"""The memory address in Python's own `repr`: different on each worker, and useless to an LLM."""


def result_content(value: Any) -> Content:
    """Convert a tool's return value to content for the LLM: content blocks as they are, everything else as text.

    Args:
        value: A content block, a list of blocks and texts with at least one block, or anything for `result_text`.
    """
    parts = value if isinstance(value, list | tuple) else [value]
    if not any(isinstance(part, TextBlock | _MEDIA) for part in parts):
        return result_text(value)
    return tuple(part if isinstance(part, _MEDIA) else TextBlock(text=_block_text(part)) for part in parts)


def _block_text(part: Any) -> str:
    return result_text(part.text if isinstance(part, TextBlock) else part)


def result_text(value: Any) -> str:
    """Convert a tool's return value to the text that the LLM reads: strings verbatim, everything else as JSON.

    Raises:
        Exception: The value's own methods may raise anything; ValueError or RecursionError if it contains itself.
    """
    if isinstance(value, str):
        text = value
    elif isinstance(value, BaseModel):
        text = value.model_dump_json()
    else:
        text = _json(value)
    return recordable_text(text)


def recordable_text(text: str) -> str:
    """Return a text that UTF-8 can represent, as logs and requests require: lone surrogates become `?`."""
    return text.encode("utf-8", "replace").decode("utf-8")


def error_text(error: BaseException) -> str:
    """Describe an error: its type and message, its notes, and the errors of a group.

    Safe for messages that raise or have lone surrogates.
    """
    text = _described(error)
    if isinstance(error, BaseExceptionGroup):
        inner = [_described(each) for each in errors_in(error)]
        shown = [each for each in inner if len(each) <= ERROR_CHARS][:MOST_ERRORS]
        more = len(inner) - len(shown)
        text += f": {'; '.join([*shown, *([f'and {more:,} more'] if more else [])])}"
    return result_text(text)


def errors_in(error: BaseException) -> list[BaseException]:
    """Return the errors of a group, at any depth; an error that is not a group as the only one."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [inner for each in error.exceptions for inner in errors_in(each)]


def _described(error: BaseException) -> str:
    notes = getattr(error, "__notes__", None)
    texts = [each for each in notes if isinstance(each, str)] if isinstance(notes, list) else []
    shown = [each for each in texts if len(each) <= ERROR_CHARS][:MOST_ERRORS]
    original = error.__cause__ if isinstance(error, StandIn) else error
    return "\n".join([f"{type(original).__name__}: {_message(error)}", *shown])


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as second:  # the method is the user's, and may raise anything
        return f"(no message: its __str__ raised {type(second).__name__})"


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError):  # it holds something that JSON lacks
        return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    """Convert a value to types that `json.dumps` accepts."""
    match value:
        case Enum():
            return _plain(value.value)
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case BaseModel():
            return json.loads(value.model_dump_json())
        case Mapping():
            return {_key(key): _plain(each) for key, each in value.items()}
        case set() | frozenset():
            return _sorted([_plain(each) for each in value])
        case list() | tuple() | deque() | KeysView() | ValuesView() | ItemsView():
            return [_plain(each) for each in value]
        case UserString():
            return str(value)
        case datetime() | date() | time():
            return value.isoformat()
        case bytes() | bytearray() | memoryview():
            return _bytes_text(bytes(value))
        case BaseException():
            return error_text(value)
        case _ if is_dataclass(value) and not isinstance(value, type):
            return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
        case _:
            return _other(value)


def _other(value: Any) -> Any:
    """Convert a value of any other type: by the protocols that it supports, or else to text."""
    if isinstance(value, Awaitable | AsyncIterable):
        raise NotAwaited(f"it holds {type(value).__name__}, which is still to be awaited; return what it gives")
    if hasattr(type(value), "__fspath__"):
        return _plain(value.__fspath__())
    if (plain := native(value)) is not NO_VALUE:
        return _plain(plain)
    if isinstance(value, Set):
        return _sorted(_items(value))
    if isinstance(value, Iterator | Sequence) or (isinstance(value, Iterable) and _has_no_text(value)):
        return _items(value)
    return _ADDRESS.sub("", str(value))


def _items(value: Iterable[Any]) -> list[Any]:
    items = [_plain(each) for each in islice(value, MOST_ITEMS + 1)]
    return items if len(items) <= MOST_ITEMS else [*items[:MOST_ITEMS], NOT_READ]


def _has_no_text(value: Any) -> bool:
    """Whether a value's text would be Python's default, which has only its type."""
    defined = {name for kind in type(value).__mro__[:-1] for name in vars(kind)}
    return not defined & {"__str__", "__repr__"}


def _key(key: Any) -> Any:
    """Convert a key to a string, or to a type that `json.dumps` turns into one."""
    if key is None or isinstance(key, str | int):
        return key
    if isinstance(key, float):
        return key if math.isfinite(key) else str(key)
    plain = _plain(key)
    return plain if isinstance(plain, str) else _json(plain)


def _sorted(values: list[Any]) -> list[Any]:
    """Sort the elements of a set: by value if they can be compared, otherwise by their JSON."""
    try:
        return sorted(values)
    except TypeError:
        return sorted(values, key=_json)


def _bytes_text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"data:application/octet-stream;base64,{b64encode(value).decode()}"
