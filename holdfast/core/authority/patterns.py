"""Patterns of tools' and agents' names in rules: whether any name can match one, and how a useless one is corrected.

A rule that can match nothing protects nothing, and is easily overlooked, so policies with one are rejected. Recorded
policies are decoded without this check (`holdfast.core.base.models.DEFINING`).
"""

import re
import string
import unicodedata
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Literal

NAME_CHARS = 64
"""The longest name of a tool or an agent."""

Named = Literal["tool", "agent"]

_ALPHABETS: dict[Named, str] = {
    "tool": string.ascii_letters + string.digits + "_-",
    "agent": string.ascii_letters + string.digits + "_-.",
}
_GRAMMAR: dict[Named, str] = {
    "tool": "a tool's name has up to 64 ASCII letters, digits, '_' or '-'",
    "agent": "an agent's name has up to 64 ASCII letters, digits, '_', '-' or '.'",
}

_TOKEN = re.compile(r"\[!?\]?[^\]]*\]|.", re.DOTALL)
"""One element of an `fnmatch` pattern: a set in brackets, or a character."""

_QUOTES = "\"'`\u00b4\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f\u00ab\u00bb\u2039\u203a"
_AROUND = _QUOTES + " \t\r\n^$(){}<>/\\.,;:"
"""Characters that people write around names, as in other pattern languages or in text."""

_BETWEEN = re.compile(r"\s*[|,;&/]+\s*|\s+(?:or|and)\s+|\s+", re.IGNORECASE)
"""Separators that people write between names in one pattern."""

SHOWN = 60
"""Characters of a pattern that a message shows."""
MOST_SUGGESTED = 6


def check_pattern(pattern: str, kind: Named) -> str:
    """Return a pattern unchanged if some name can match it.

    Raises:
        ValueError: No name can; the message shows the pattern and suggests a replacement.
    """
    if can_match(pattern, kind):
        return pattern
    shown = ascii(pattern[:SHOWN]) + ("…" if len(pattern) > SHOWN else "")
    raise ValueError(f"no {kind} can match the pattern {shown}: {_GRAMMAR[kind]}; {_instead(pattern, kind)}")


def can_match(pattern: str, kind: Named) -> bool:
    """Whether a shell pattern matches any name that a tool (or an agent) can have."""
    pieces = [piece for piece in _TOKEN.findall(pattern) if piece != "*"]
    if not pattern or len(pieces) > NAME_CHARS:
        return False
    return all(any(fnmatchcase(char, piece) for char in _ALPHABETS[kind]) for piece in pieces)


def _instead(pattern: str, kind: Named) -> str:
    """Return a suggestion of the author's most probable intention."""
    if not pattern.strip(_AROUND):
        return f"write '*' for every {kind}, or leave it out"
    names = list(_meant(pattern, kind))
    if not names:
        return "write one name, or a shell pattern of them, such as 'pay' or 'pay_*'"
    if len(names) == 1:
        return f"write {names[0]!r}"
    listed = ", ".join(map(repr, names[:MOST_SUGGESTED])) + (", …" if len(names) > MOST_SUGGESTED else "")
    return f"write a rule for each of {listed}"


def _meant(pattern: str, kind: Named) -> Iterator[str]:
    text = unicodedata.normalize("NFKC", pattern[:1_000])
    text = "".join(char for char in text if char.isprintable())  # such as zero-width characters
    text = text.replace(".*", "*").replace(".+", "?*")  # of a regular expression
    for part in _BETWEEN.split(text.strip(_AROUND)):
        name = re.sub(r"(?<=[\w*?\]])\(.*$", "", part.strip(_AROUND)).strip(_AROUND)  # a call: `pay()`
        if not can_match(name, kind):
            return
        yield name
