"""Collects the deltas of one attempt at a reply into chunks: redacted, joined by kind, and bounded. Pure."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from holdfast.core.llm.deltas import Delta
from holdfast.core.streams.chunks import CHUNK_CHARS
from holdfast.core.tools.redactor import Redactor
from holdfast.core.tools.secrets import Secrets

MOST_CHARS = 1_000_000
"""The most characters of one attempt: after that, readers wait for the recorded reply."""

_Key = tuple[str, int | None]


class Piece(NamedTuple):
    """A chunk of an attempt, without the ids of the thread and the reply."""

    chunk: int
    kind: str
    text: str
    call: int | None
    tool: str


class Batches:
    """The deltas of one attempt.

    Args:
        secrets: Redacted, also across the borders of deltas and chunks.
    """

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._redactors: dict[_Key, Redactor] = {}
        self._tools: dict[_Key, str] = {}
        self._order: list[tuple[_Key, list[str]]] = []
        """The text that no chunk has yet, in the order of its arrival."""
        self._chunks = 0
        self._total = 0
        self.pending = 0
        """The characters that no chunk has yet."""
        self._shown: dict[_Key, list[str]] = {}
        """The redacted text of each kind so far, without reasoning; not kept beyond `MOST_CHARS`."""

    @property
    def full(self) -> bool:
        """Whether the attempt has more characters than are streamed."""
        return self._total > MOST_CHARS

    def add(self, delta: Delta) -> None:
        """Add a delta."""
        key = (delta.kind, delta.call)
        redactor = self._redactors.get(key) or self._redactors.setdefault(key, Redactor(self._secrets))
        named = delta.tool and self._tools.get(key) != delta.tool
        if named:
            self._tools[key] = delta.tool
        self._append(key, redactor.feed(delta.text), empty=bool(named))

    def finish(self) -> None:
        """Add the text that was held back, because it might have been the beginning of a secret."""
        for key, redactor in self._redactors.items():
            self._append(key, redactor.end())

    def showed(self, whole: Iterable[Delta]) -> bool:
        """Whether the joined deltas so far are those of the whole reply. Reasoning does not count: how it is divided
        differs.
        """
        texts: dict[_Key, list[str]] = {}
        for delta in whole:
            if delta.kind != "reasoning":
                texts.setdefault((delta.kind, delta.call), []).append(delta.text)
        expected = {key: self._secrets.redact("".join(parts)) for key, parts in texts.items()}
        shown = {key: "".join(parts) for key, parts in self._shown.items()}
        return all(shown.get(key, "") == expected.get(key, "") for key in shown.keys() | expected.keys())

    def take(self) -> Sequence[Piece]:
        """Return the chunks of what has been added since."""
        order, self._order, self.pending = self._order, [], 0
        pieces: list[Piece] = []
        for (kind, call), texts in order:
            text = "".join(texts)
            for start in range(0, len(text) or 1, CHUNK_CHARS):
                self._chunks += 1
                tool = self._secrets.redact(self._tools.get((kind, call), ""))[:100]
                pieces.append(Piece(self._chunks, kind, text[start : start + CHUNK_CHARS], call, tool))
        return pieces

    def _append(self, key: _Key, text: str, *, empty: bool = False) -> None:
        self._total += len(text)
        if self.full or not (text or empty):
            return
        if key[0] != "reasoning":
            self._shown.setdefault(key, []).append(text)
        if not self._order or self._order[-1][0] != key:
            self._order.append((key, []))
        self._order[-1][1].append(text)
        self.pending += len(text)
