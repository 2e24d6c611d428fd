"""Edits of texts with mixed line endings: an edit matches every kind of line ending, and keeps the one of each line.

`read_file` and people show line feeds, so an LLM writes its edits with them. Text outside an edit stays byte for byte.
"""

from bisect import bisect_left
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class LineEndings:
    """A text with line feeds alone, and the positions at which the original has CR LF."""

    text: str
    original: str
    pairs: list[int]
    """Positions in `text` of the line feeds that are CR LF in the original."""

    @classmethod
    def of(cls, original: str) -> Self:
        """Read a text."""
        pairs: list[int] = []
        at = original.find("\r\n")
        while at >= 0:
            pairs.append(at - len(pairs))
            at = original.find("\r\n", at + 2)
        return cls(original.replace("\r\n", "\n"), original, pairs)

    def replaced(self, old: str, new: str) -> str:
        """Return the original with every `old` in its text replaced by `new`.

        Each line of `new` gets the line ending of the line of `old` that it replaces; further lines get the last one.
        """
        parts: list[str] = []
        done, at = 0, self.text.find(old)
        while at >= 0:
            end = at + len(old)
            parts += [self._slice(done, at), self._with_ends(new, at, end)]
            done, at = end, self.text.find(old, end)
        return "".join([*parts, self._slice(done, len(self.text))])

    def _with_ends(self, new: str, start: int, end: int) -> str:
        ends = [self._end(at) for at in range(start, end) if self.text[at] == "\n"]
        if not ends:
            near = self.text.find("\n", end)
            near = self.text.rfind("\n", 0, start) if near < 0 else near
            ends = [self._end(near) if near >= 0 else "\n"]
        lines = new.split("\n")
        return lines[0] + "".join(ends[min(k, len(ends) - 1)] + line for k, line in enumerate(lines[1:]))

    def _end(self, at: int) -> str:
        index = bisect_left(self.pairs, at)
        return "\r\n" if index < len(self.pairs) and self.pairs[index] == at else "\n"

    def _slice(self, start: int, end: int) -> str:
        """Return the part of the original that corresponds to a part of the text."""
        return self.original[start + bisect_left(self.pairs, start) : end + bisect_left(self.pairs, end)]
