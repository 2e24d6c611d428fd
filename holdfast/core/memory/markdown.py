"""Shared functions for memory files: headings outside code fences, and sanitising text to one line."""

import re
from bisect import bisect_right
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

TITLE = 200
"""Maximum length of a written title; a longer one is clipped."""
TEXT = 2_000
"""Maximum length of any other text on one line."""

_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, line and paragraph separators, bidirectional controls, and surrogates."""
_HEADING = re.compile(r"(?:^|(?<=\A\ufeff))(#{1,6})[ \t]+([^\r\n]*)\r?(?:\n|\Z)", re.MULTILINE)
_DATED = re.compile(r"(\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d)?)\s*[-–—:]?\s*(.*)")
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})([^\n]*)", re.MULTILINE)


class Heading(NamedTuple):
    """A line that begins with `#`; its position is in characters."""

    level: int
    title: str
    start: int
    end: int
    """The position after its line break."""


def flat(text: str, limit: int = TEXT) -> str:
    """Put `text` on one line of at most `limit` characters, so that it cannot begin another item or heading."""
    line = " ".join(_UNPRINTABLE.sub(" ", text[: 10 * limit]).split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def stamp(at: datetime) -> str:
    """Format an aware time as in the memory files: to the minute, in UTC."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M")


def read_stamp(title: str) -> tuple[str, str]:
    """Split the title of a heading into its time, as `stamp` formats it (empty for none), and the rest."""
    dated = _DATED.fullmatch(title)
    return (dated[1].replace("T", " "), dated[2]) if dated else ("", title)


def line_break(text: str) -> str:
    """Return the prevailing line break of `text`."""
    return "\r\n" if text.count("\r\n") * 2 > text.count("\n") else "\n"


def headings(text: str) -> list[Heading]:
    """Return the headings of `text` in order, except those within code fences."""
    fenced = list(_fenced(text))
    starts = [start for start, _ in fenced]
    marks = []
    for match in _HEADING.finditer(text):
        before = bisect_right(starts, match.start()) - 1
        if before < 0 or match.start() >= fenced[before][1]:
            marks.append(Heading(len(match[1]), match[2].strip(), match.start(), match.end()))
    return marks


def _fenced(text: str) -> Iterator[tuple[int, int]]:
    """Yield the span of each fenced code block. A fence that is never closed is plain text."""
    fences = list(_FENCE.finditer(text))
    longest = {"`": 0, "~": 0}  # longest closing fence from here on, by its character
    closable = []
    for fence in reversed(fences):
        mark = fence[1]
        closable.append(longest[mark[0]] >= len(mark) and not (mark[0] == "`" and "`" in fence[2]))
        if not fence[2].strip():
            longest[mark[0]] = max(longest[mark[0]], len(mark))
    opening: re.Match[str] | None = None
    for fence, may_open in zip(fences, reversed(closable), strict=True):
        if opening is None:
            opening = fence if may_open else None
        elif fence[1].startswith(opening[1]) and not fence[2].strip():
            yield opening.start(), fence.end()
            opening = None
