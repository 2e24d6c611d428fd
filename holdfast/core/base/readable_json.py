"""JSON formatted for people who have to decide on it: every value in full, multi-line strings as blocks.

1. A multi-line string is a block under its name. Each of its lines begins with `│`, so that no line of a value can pass
   for a name, a heading or the end of the value.
2. Invisible characters are escaped: in JSON strings as JSON escapes them, in blocks with a note that counts them.
"""

import json
from collections.abc import Iterator
from typing import Any

from holdfast.core.base.text import escape_invisible, invisible, visible_json

BAR = "│ "
"""The prefix of each line of a block."""


def readable_json(value: Any) -> str:
    """Format a JSON value for people; a string is shown as it is, line by line."""
    if isinstance(value, str):
        return "\n".join(_lines(value)) if "\n" in value else escape_invisible(value)
    if value == {}:
        return "(no arguments)"
    return "\n".join(_value(value, before="", after="", indent=""))


def readable_call(arguments: Any, context: Any = None) -> str:
    """Format what a call runs with: its arguments, and the typed context that it sees; None for no context."""
    shown = readable_json(arguments)
    return shown if context is None else f"{shown}\n{CONTEXT_HEADING}\n{readable_json(context)}"


CONTEXT_HEADING = "with the context of the run:"
"""The line between the arguments of a call and the context."""


def _value(value: Any, *, before: str, after: str, indent: str) -> Iterator[str]:
    """Yield the lines of a value, with `before` in front of the first one and `after` behind the last one."""
    if isinstance(value, str) and "\n" in value:
        yield f"{indent}{before}{_about(value)}{after}"
        yield from (f"{indent}  {line}" for line in _lines(value))
    elif isinstance(value, dict | list) and value:
        opening, closing = "{}" if isinstance(value, dict) else "[]"
        yield f"{indent}{before}{opening}"
        parts = value.items() if isinstance(value, dict) else ((None, each) for each in value)
        for index, (name, part) in enumerate(parts, start=1):
            key = "" if name is None else f"{_scalar(name)}: "
            yield from _value(part, before=key, after="," if index < len(value) else "", indent=f"{indent}  ")
        yield f"{indent}{closing}{after}"
    else:
        yield f"{indent}{before}{_scalar(value)}{after}"


def _scalar(value: Any) -> str:
    return visible_json(json.dumps(value, ensure_ascii=False))


def _about(text: str) -> str:
    hidden = invisible(text)
    characters = "character" if hidden == 1 else "characters"
    note = f", {hidden:,} invisible {characters} written out as \\r, \\x… or \\u…" if hidden else ""
    return f"text of {text.count(chr(10)) + 1:,} lines{note}"


def _lines(text: str) -> list[str]:
    return [f"{BAR}{line}" if line else BAR.rstrip() for line in escape_invisible(text).split("\n")]
