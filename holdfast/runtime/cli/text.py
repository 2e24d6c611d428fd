"""Text for people: what a model, a tool or a user wrote, made safe to show on a terminal; times and commands."""

import json
import re
from datetime import datetime
from typing import Any

from holdfast.base.text import one_line

# Control characters (escape sequences begin with one) and those that reorder text: on a screen where people approve
# tool calls, no text of a model or a tool may move the cursor, hide a line or reverse one.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def visible(text: str) -> str:
    """`text` with every character that could act on the terminal written out, as Python escapes it."""
    return _UNSAFE.sub(lambda found: found.group().encode("unicode_escape").decode(), text.replace("\r\n", "\n"))


def brief(text: str, limit: int = 160) -> str:
    """`text` on one line, safe to show, cut to `limit` characters."""
    return visible(one_line(text, limit))


def arguments_text(arguments: Any) -> str:
    """All arguments of a tool call: a person decides on all of them."""
    if isinstance(arguments, str):
        return visible(arguments)
    if arguments == {}:
        return "(no arguments)"
    return visible(json.dumps(arguments, indent=2, ensure_ascii=False))


def clock(at: str) -> str:
    """An event's time on this machine's clock."""
    return datetime.fromisoformat(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def count(number: int, thing: str) -> str:
    """`1 step`, `2 steps`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def indented(text: str, by: str = "  ") -> str:
    """`text` with each line moved in."""
    return "\n".join(f"{by}{line}" for line in text.splitlines())
