"""A reply that is being written, as the page shows it: bounded, and with invisible characters written out."""

from collections import Counter
from typing import Any

from holdfast.core.streams.chunks import Chunk
from holdfast.gateway.page.views.text import pieces
from holdfast.gateway.page.views.timeline import SHOWN_CHARS

_SHOWN = {"text": "text", "refusal": "text", "reasoning": "reasoning"}
"""Kinds of chunks → where the page shows them. Calls are shown when they are recorded."""


class DraftView:
    """What one page is sent of the reply to come."""

    def __init__(self) -> None:
        self._chars: Counter[str] = Counter()
        self._ends_with_return: set[str] = set()

    def add(self, chunk: Chunk) -> tuple[str, dict[str, Any]] | None:
        """Return the name and the content of the frame for a chunk; None if the page shows nothing of it."""
        if chunk.kind == "superseded":
            self.clear()
            return "superseded", {}
        if chunk.chunk == 1:
            self.clear()
        kind = _SHOWN.get(chunk.kind)
        if kind is None or self._chars[kind] > SHOWN_CHARS:
            return None
        left = SHOWN_CHARS - self._chars[kind]
        self._chars[kind] += len(chunk.text)
        shown = [[each.text, each.written_out] for each in pieces(self._joined(kind, chunk.text[:left]))]
        cut = self._chars[kind] > SHOWN_CHARS
        return "draft", {"kind": kind, "pieces": shown} | ({"cut": f"{SHOWN_CHARS:,}"} if cut else {})

    def clear(self) -> None:
        """Begin another attempt, or another reply."""
        self._chars.clear()
        self._ends_with_return.clear()

    def _joined(self, kind: str, text: str) -> str:
        """Join a line end that two chunks divide; a carriage return at the end waits for the next chunk."""
        text = "\r" * (kind in self._ends_with_return) + text
        self._ends_with_return.discard(kind)
        if text.endswith("\r"):
            self._ends_with_return.add(kind)
            text = text[:-1]
        return text
