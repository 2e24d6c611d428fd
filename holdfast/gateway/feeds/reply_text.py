"""The text of the reply to come, or its reasoning, as clients have it: they can add to a text, and withdraw it as a
whole.

1. An attempt at the reply that begins again with the same text adds nothing until it is longer.
2. An attempt, or the recorded reply, that differs from what is shown withdraws that, and begins another text.
3. A place in the stream carries the length and the checksum of what is shown, not the text itself. So a stream that is
   resumed continues the text, also if the chunks so far are gone.
"""

import zlib
from collections.abc import Iterator, Set
from typing import Literal, NamedTuple

from holdfast.gateway.feeds.steps import Step, TextAdded, TextEnded, TextKind, TextStarted, TextWithdrawn

Phase = Literal["c", "o", "e"]
"""No text is open · a text is open · it has ended, and has yet to be withdrawn."""


class Mark(NamedTuple):
    """How much of the reply to come a client has."""

    generation: int = 0
    """The number of texts that were withdrawn."""
    length: int = 0
    """Characters of the open text."""
    checksum: int = 0
    """CRC-32 of these, in UTF-8."""
    phase: Phase = "c"


class ReplyText:
    """The text of the reply to come. Its state after each step is that of a client that has the step.

    Args:
        kind: What the text is: the beginning of its ids.
    """

    def __init__(self, kind: TextKind = "reply") -> None:
        self._kind = kind
        self._base = -1
        self._restarted = False
        self._draft = ""
        """Its text meanwhile."""
        self.mark = Mark()

    @property
    def catches_up(self) -> bool:
        """Whether the attempt has not caught up with the text that is shown."""
        return self._restarted

    @property
    def text_id(self) -> str:
        """The id of the text: that of the last reply before it, and the number of texts withdrawn since."""
        return self._id_of(self.mark.generation)

    def _id_of(self, generation: int) -> str:
        return f"{self._kind}-{self._base + 1}" + (f"-{generation}" if generation else "")

    def restore(self, mark: Mark, *, within: bool) -> None:
        """Continue for a client that has so much.

        Args:
            mark: What it has.
            within: Whether the next chunk is the one after it; if not, chunks are read again from the first one.
        """
        self.mark = mark
        self._restarted = bool(mark.length) and not within

    def withdraw_claimed(self, ids: Set[str]) -> None:
        """Withdraw the text from a client that says it has a part of it, with the next step of the text."""
        generation = -1
        while self._id_of(generation + 1) in ids:
            generation += 1
        if generation >= 0:
            self.mark = Mark(generation, phase="e")

    def begin_reply(self, position: int) -> None:
        """Begin the reply after the event at a position."""
        self._base, self._draft, self._restarted, self.mark = position, "", False, Mark()

    def begin_attempt(self) -> None:
        """Begin another attempt at the same reply."""
        self._draft, self._restarted = "", bool(self.mark.length)

    def add(self, text: str) -> Iterator[Step]:
        """Add a chunk of the attempt."""
        yield from self._withdraw_ended()
        if self._restarted:
            self._draft += text
            if len(self._draft) < self.mark.length:
                return
            text, self._draft, self._restarted = self._draft, "", False
            if self._continued_by(text):
                text = text[self.mark.length :]
            else:
                yield from self.withdraw()
        yield from self._show(text)

    def record(self, text: str) -> Iterator[Step]:
        """End the text as it was recorded."""
        yield from self._withdraw_ended()
        if not text or not self._continued_by(text):
            yield from self.withdraw()
        yield from self._show(text[self.mark.length :])
        if self.mark.phase == "o":
            self.mark = self.mark._replace(phase="c")
            yield TextEnded(self.text_id, kind=self._kind)

    def withdraw(self) -> Iterator[Step]:
        """Withdraw the text, if one is open."""
        if self.mark.phase == "o":
            self.mark = self.mark._replace(phase="e")
            yield TextEnded(self.text_id, withdrawn=True, kind=self._kind)
        yield from self._withdraw_ended()

    def _withdraw_ended(self) -> Iterator[Step]:
        if self.mark.phase == "e":
            ended, self.mark = self.text_id, Mark(self.mark.generation + 1)
            yield TextWithdrawn(ended)

    def _show(self, text: str) -> Iterator[Step]:
        if not text:
            return
        if self.mark.phase == "c":
            self.mark = self.mark._replace(phase="o")
            yield TextStarted(self.text_id, self._kind)
        generation, length, checksum, phase = self.mark
        self.mark = Mark(generation, length + len(text), _checksum(text, checksum), phase)
        yield TextAdded(self.text_id, text, self._kind)

    def _continued_by(self, text: str) -> bool:
        return len(text) >= self.mark.length and _checksum(text[: self.mark.length]) == self.mark.checksum


def _checksum(text: str, before: int = 0) -> int:
    return zlib.crc32(text.encode("utf-8", "surrogatepass"), before)
