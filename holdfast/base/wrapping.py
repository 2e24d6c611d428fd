"""Wrap lines to a width, so that nothing is cut where a display cuts: code in the Web UI, and small terminals."""

import re
from collections.abc import Callable, Iterator
from unicodedata import east_asian_width

CONTINUED = "┆ "
"""What the second and each further row of a line begins with."""

TAB = "⇥   "
"""How a tab is shown, which is wider than one column."""

_BEGINNING = re.compile(r"[-+ ]*(?:│ )?")


def columns_of(character: str) -> int:
    """Return how many columns a character takes, by Unicode's East Asian width."""
    return 2 if east_asian_width(character) in "WF" else 1


def wrapped(line: str, width: int, *, columns: Callable[[str], int] = columns_of) -> list[str]:
    """Return a line as rows of at most `width` columns: all of it, each further row with a mark at the line's indent.

    Args:
        line: Without a line break.
        width: At least 4.
        columns: Returns how many columns a character takes.
    """
    text = line.replace("\t", TAB)
    found = _BEGINNING.match(text)
    hanging = " " * min(found.end() if found else 0, width // 2)
    return list(_rows(text, width, hanging + CONTINUED, columns))


def _rows(text: str, width: int, mark: str, columns: Callable[[str], int]) -> Iterator[str]:
    row, taken = "", 0
    for character in text:
        needed = columns(character)
        if taken + needed > width:
            yield row
            row, taken = mark, len(mark)
        row += character
        taken += needed
    yield row
