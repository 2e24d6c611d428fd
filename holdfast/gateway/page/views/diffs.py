"""The difference that an edit makes to the arguments of a call, line by line."""

from difflib import SequenceMatcher
from typing import Any, NamedTuple

from holdfast.core.base.readable_json import readable_json

LINES = 2_000
"""The most lines on each side that are compared; longer values are shown one after the other."""


class Row(NamedTuple):
    """A line of a difference."""

    sign: str
    """`+`: only after the edit; `-`: only before it; a space: in both."""
    text: str


def difference(before: Any, after: Any) -> tuple[Row, ...]:
    """Return the lines of both values, marked; invisible characters are escaped."""
    old, new = readable_json(before).split("\n"), readable_json(after).split("\n")
    if max(len(old), len(new)) > LINES:
        return (*(Row("-", each) for each in old), *(Row("+", each) for each in new))
    rows: list[Row] = []
    for kind, a, b, c, d in SequenceMatcher(None, old, new, autojunk=True).get_opcodes():
        if kind == "equal":
            rows += [Row(" ", each) for each in old[a:b]]
        else:
            rows += [Row("-", each) for each in old[a:b]] + [Row("+", each) for each in new[c:d]]
    return tuple(rows)
