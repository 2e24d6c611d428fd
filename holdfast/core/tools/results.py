"""What a tool returns, as the LLM reads it: texts and content blocks as they are, everything else as JSON.

1. Values that JSON has are written as `json.dumps` writes them; the result is the same on every worker.
2. Dataclasses and pydantic models are objects, enums their values, tuples and sets lists (a set is sorted), dates and
   times ISO 8601, bytes text (UTF-8) or a `data:` URL, NaN and infinity `null`, as pydantic writes them.
3. Rows of databases and of tables are objects, arrays lists, numbers of other libraries numbers. They are recognised by
   what they can do (`holdfast.core.tools.foreign_values`), so none of these libraries is imported.
4. What gives its items one by one is a list of them, up to `MOST_ITEMS`.
5. Everything else is its `str()`, without memory addresses: `<app.Ticket object>`. What is still to be awaited is no
   value: it is refused.
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
"""The most items that are read of what gives them one by one: it may never end."""

NOT_READ = f"… there are more than {MOST_ITEMS:,}; the rest was not read"
"""Stands for the other items."""

MOST_ERRORS = 10
"""The most errors of a group, and notes of an error, that are shown."""

ERROR_CHARS = 2_000
"""A longer message of an error in a group, or note, is left out: cut, it could hold half a secret."""


class NotAwaited(TypeError):
    """A value holds something that is still to be awaited, so what it stands for may never have happened."""


class StandIn(RuntimeError):
    """Stands for its cause, which would end the task that it is raised in, such as CancelledError."""


_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
"""Where Python's own `repr` says that an object lies: different on each worker, and of no use to an LLM."""


def result_content(value: Any) -> Content:
    """Convert a tool's return value to what the LLM reads: content blocks as they are, everything else as text.

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
        Exception: What the value's own methods raise; ValueError or RecursionError if it contains itself.
    """
    if isinstance(value, str):
        text = value
    elif isinstance(value, BaseModel):
        text = value.model_dump_json()
    else:
        text = _json(value)
    return recordable_text(text)


def recordable_text(text: str) -> str:
    """Return a text that can be written as UTF-8, as logs and requests are: a lone surrogate becomes `?`."""
    return text.encode("utf-8", "replace").decode("utf-8")


def error_text(error: BaseException) -> str:
    """Return an error's type and message, its notes, and the errors of a group.

    A message may fail to be made, and may hold lone surrogates.
    """
    text = _described(error)
    if isinstance(error, BaseExceptionGroup):
        inner = [_described(each) for each in errors_in(error)]
        shown = [each for each in inner if len(each) <= ERROR_CHARS][:MOST_ERRORS]
        more = len(inner) - len(shown)
        text += f": {'; '.join([*shown, *([f'and {more:,} more'] if more else [])])}"
    return result_text(text)


def errors_in(error: BaseException) -> list[BaseException]:
    """Return the errors of a group, at any depth; an error that is no group by itself."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [inner for each in error.exceptions for inner in errors_in(each)]


def _described(error: BaseException) -> str:
    notes = getattr(error, "__notes__", None)
    given = [each for each in notes if isinstance(each, str)] if isinstance(notes, list) else []
    shown = [each for each in given if len(each) <= ERROR_CHARS][:MOST_ERRORS]
    named = error.__cause__ if isinstance(error, StandIn) else error
    return "\n".join([f"{type(named).__name__}: {_message(error)}", *shown])


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
    """Return the value in terms that `json.dumps` takes."""
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
    """Return what Python's own types and protocols do not cover: by its protocol, or else as text."""
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
    """Whether a value's text would be Python's own, which names its type alone."""
    defined = {name for kind in type(value).__mro__[:-1] for name in vars(kind)}
    return not defined & {"__str__", "__repr__"}


def _key(key: Any) -> Any:
    """Return a key that JSON has: text, or what `json.dumps` turns into text."""
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
