"""Chunks: pieces of a reply that has not been recorded yet, and their ids.

1. An event has the id `POSITION`, a chunk `POSITION.ATTEMPT.CHUNK`, where POSITION is that of the reply to come. Ids
   order both: all chunks of a position come before the event at that position.
2. The reply's event replaces all chunks before it. A chunk `superseded` says that another attempt at the reply has
   begun, which replaces the one before.
3. Chunks are hints: nothing is decided on them, and losing them loses nothing.
"""

import re
from typing import Literal, NamedTuple, Self

from holdfast.core.base.canonical import MAX_INTEGER
from holdfast.core.base.models import Frozen
from holdfast.core.llm.deltas import DeltaKind

ChunkKind = DeltaKind | Literal["superseded"]
"""The kind of a delta; or `superseded`: drop the chunks shown so far."""

CHUNK_CHARS = 16_384
"""The most characters of a chunk."""

_CURSOR = re.compile(r"(-1|\d{1,16})(?:\.(\d{1,9})\.(\d{1,9}))?", re.ASCII)


class Cursor(NamedTuple):
    """The place of a reader in a stream."""

    position: int = -1
    """Of the last event that the reader has; with an attempt, of the reply that the chunks belong to."""
    attempt: int = 0
    """Of the last chunk that the reader has; 0 if the cursor is the id of an event."""
    chunk: int = 0

    @property
    def after(self) -> int:
        """The position of the last event that the reader has; -1 for none."""
        return self.position - 1 if self.attempt else self.position

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read an id: `12` or `13.1.4`.

        Raises:
            ValueError: It is no id of a stream.
        """
        found = _CURSOR.fullmatch(text)
        if found is None:
            raise ValueError(f"{text[:60]!r} is no id of a stream: it is POSITION or POSITION.ATTEMPT.CHUNK")
        position, attempt, chunk = (int(each or 0) for each in found.groups())
        if position > MAX_INTEGER or (found[2] is not None and (not attempt or position < 0)):
            raise ValueError(f"{text[:60]!r} is no id of a stream: its numbers are out of range")
        return cls(position, attempt, chunk)

    def __str__(self) -> str:
        return f"{self.position}.{self.attempt}.{self.chunk}" if self.attempt else f"{self.position}"


class Chunk(Frozen):
    """A piece of a reply that has not been recorded yet."""

    position: int
    """The position of the reply to come."""
    attempt: int
    """The attempt at the reply, from 1."""
    chunk: int
    """Its number within the attempt; 0 for `superseded`, and from 1 for the others."""
    kind: ChunkKind
    text: str = ""
    call: int | None = None
    """For `arguments`: the number of the call in the reply, from 0."""
    tool: str = ""
    """For `arguments`: the tool's name."""

    @property
    def id(self) -> str:
        """`POSITION.ATTEMPT.CHUNK`."""
        return str(Cursor(self.position, self.attempt, self.chunk))
