"""What a tool returns, as the LLM reads it: texts and content blocks as they are, everything else as JSON.

1. Values that JSON has are written as `json.dumps` writes them; the result is the same on every worker.
2. Dataclasses and pydantic models are objects, enums their values, tuples and sets lists (a set is sorted), dates and
   times ISO 8601, bytes text (UTF-8) or a `data:` URL, NaN and infinity `null`, as pydantic writes them.
3. Everything else is its `str()`, without memory addresses: `<app.Ticket object>`.
"""

import json
import math
import re
from base64 import b64encode
from collections import deque
from collections.abc import ItemsView, KeysView, Mapping, ValuesView
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time
from enum import Enum
from typing import Any

from pydantic import BaseModel

from holdfast.llm.blocks import AudioBlock, Content, FileBlock, ImageBlock, TextBlock

_MEDIA = ImageBlock | FileBlock | AudioBlock

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
    return text.encode("utf-8", "replace").decode("utf-8")


def error_text(error: BaseException) -> str:
    """Return an error's type and message; the message may fail to be made, and may hold lone surrogates."""
    return result_text(f"{type(error).__name__}: {_message(error)}")


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
        case datetime() | date() | time():
            return value.isoformat()
        case bytes() | bytearray() | memoryview():
            return _bytes_text(bytes(value))
        case BaseException():
            return error_text(value)
        case _ if is_dataclass(value) and not isinstance(value, type):
            return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
        case _:
            return _ADDRESS.sub("", str(value))


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
