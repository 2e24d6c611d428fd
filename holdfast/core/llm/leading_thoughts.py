"""Tells thoughts from text while a reply arrives, if an LLM begins its text with them (`holdfast.core.llm.thoughts`).

It recognises the common form, `<think>…</think>` before the answer. Other forms appear as text until the reply is
complete: only then is it certain what was a thought.
"""

import re
from collections.abc import Iterator

from holdfast.core.llm.deltas import Delta

_OPEN = re.compile(r"\s*<(think(?:ing)?|thought)>", re.IGNORECASE)
_TAGS = ("<think>", "<thinking>", "<thought>")
_CLOSES = ("</think>", "</thinking>", "</thought>")
_CLOSE = re.compile("|".join(_CLOSES), re.IGNORECASE)


class LeadingThoughts:
    """Splits the text of one reply."""

    def __init__(self) -> None:
        self._held = ""
        self._state = "start"
        """`start`, `thought`, `gap` (white space between thought and text) or `text`."""

    def feed(self, text: str) -> Iterator[Delta]:
        """Yield deltas for the next text; a piece that may be a part of a tag comes with the text after it."""
        if self._state == "text":
            yield Delta("text", text)
            return
        self._held += text
        if self._state == "start":
            if opened := _OPEN.match(self._held):
                self._held, self._state = self._held[opened.end() :], "thought"
            elif not _may_open(self._held):
                self._state = "text"
        if self._state == "thought":
            yield from self._thought()
        if self._state == "gap":
            self._held = self._held.lstrip()
            self._state = "text" if self._held else "gap"
        if self._state == "text" and self._held:
            text, self._held = self._held, ""
            yield Delta("text", text)

    def end(self) -> Iterator[Delta]:
        """Yield what was held back at the end of the text."""
        held, self._held = self._held, ""
        if held:
            yield Delta("reasoning" if self._state == "thought" else "text", held)

    def _thought(self) -> Iterator[Delta]:
        closed = _CLOSE.search(self._held)
        end = closed.start() if closed else len(self._held) - _partial(self._held.lower())
        if thought := self._held[:end]:
            yield Delta("reasoning", thought)
        self._held = self._held[closed.end() if closed else end :]
        if closed:
            self._state = "gap"


def _may_open(text: str) -> bool:
    begun = text.lstrip().lower()
    return len(text) <= 200 and any(tag.startswith(begun) for tag in _TAGS)


def _partial(text: str) -> int:
    """Return how many characters at the end of a text may be the beginning of a closing tag."""
    lengths = range(min(len(text), max(map(len, _CLOSES)) - 1), 0, -1)
    return next((length for length in lengths if any(tag.startswith(text[-length:]) for tag in _CLOSES)), 0)
