"""Texts of people, tools and LLMs for display: invisible characters are written out, and marked as written out."""

import json
import re
from datetime import datetime
from typing import Any, NamedTuple

from holdfast.core.base.durations import rounded_span
from holdfast.core.base.readable_json import readable_json
from holdfast.core.base.text import INVISIBLE, escape_invisible, one_line

_QUOTED = re.compile(r'("(?:[^"\\]|\\.)*")')
"""A quoted value in a sentence of `holdfast.core.tools.consequences`."""


class Piece(NamedTuple):
    """A part of a text."""

    text: str
    written_out: bool
    """It stands for one character, which would be invisible or move others."""


class Block(NamedTuple):
    """A value with its name, shown in full."""

    name: str
    pieces: tuple[Piece, ...]
    about: str
    """Its extent, and the number of characters written out; empty for a short, plain value."""


class When(NamedTuple):
    """A time, for people and for machines."""

    words: str
    """`in 3h 20m`, or `5m 2s ago`."""
    exact: str
    """`2026-01-02 03:04:05 UTC`."""
    iso: str


def pieces(text: str) -> tuple[Piece, ...]:
    """Split a text into what can be shown as it is, and the characters that are written out."""
    text = text.replace("\r\n", "\n")
    found: list[Piece] = []
    end = 0
    for match in INVISIBLE.finditer(text):
        if match.start() > end:
            found.append(Piece(text[end : match.start()], False))
        found.append(Piece(escape_invisible(match.group()), True))
        end = match.end()
    return (*found, *([Piece(text[end:], False)] if end < len(text) else []))


def line(text: object, limit: int = 200) -> str:
    """Return a text in one visible line of at most `limit` characters."""
    return escape_invisible(one_line(str(text), limit))


def block(name: str, value: Any) -> Block:
    """Return a value as a block: a text as it is, anything else as JSON."""
    shown = value if isinstance(value, str) else readable_json(value)
    parts = pieces(shown)
    hidden, lines = sum(each.written_out for each in parts), shown.count("\n") + 1
    counted = "1 line" if lines == 1 else f"{lines:,} lines"
    about = [f"{counted}, {len(shown):,} characters"] if lines > 1 or len(shown) > 200 else []
    about += [f"{hidden:,} invisible or controlling characters written out"] if hidden else []
    return Block(escape_invisible(name), parts or (Piece("(empty)", False),), "; ".join(about))


def blocks(arguments: Any) -> tuple[Block, ...]:
    """Return arguments as blocks, one for each: all of them, in full."""
    if isinstance(arguments, dict):
        return tuple(block(name, value) for name, value in arguments.items())
    return (block("arguments that are not an object", arguments),)


def sentence(text: str) -> tuple[Piece, ...]:
    """Split a sentence about a call into the words of its author, and the quoted values (`written_out`), which a
    browser lays out apart: a value that is written from right to left must not move other words.
    """
    return tuple(Piece(part, part.startswith('"')) for part in _QUOTED.split(escape_invisible(text)) if part)


def when(time: str | datetime | None, now: datetime) -> When | None:
    """Return a time in words; None for no time, or for a text that is none."""
    try:
        at = datetime.fromisoformat(time) if isinstance(time, str) else time
    except ValueError:
        return None
    if at is None or at.tzinfo is None:
        return None
    seconds = (at - now).total_seconds()
    words = f"in {rounded_span(seconds)}" if seconds >= 0 else f"{rounded_span(-seconds)} ago"
    return When(words, f"{at:%Y-%m-%d %H:%M:%S} UTC", at.isoformat())


def editable(arguments: Any) -> str:
    """Return arguments as JSON to edit, with invisible characters escaped as JSON does."""
    text = json.dumps(arguments, indent=2, ensure_ascii=False)
    return INVISIBLE.sub(lambda match: json.dumps(match.group())[1:-1], text)
