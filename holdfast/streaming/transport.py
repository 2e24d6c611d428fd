"""The protocol of transports, which carry chunks between processes."""

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, Protocol

from holdfast.core.streams.batches import Piece
from holdfast.core.streams.chunks import Chunk

EVERYTHING = ""
"""In place of a thread id: any thread may have news, because some may have been missed before."""

PAGE = 200
"""The most chunks of one thread that are read at a time."""


class Attempt(NamedTuple):
    """One attempt at a reply."""

    thread: str
    position: int
    """The position of the next event when the LLM was called: the reply's, unless others are recorded before it."""
    since: int
    """A position between the thread's last reply and this one: chunks up to there are obsolete."""
    number: int
    """From 1."""


class Wanted(NamedTuple):
    """What a process needs of a thread."""

    thread: str
    after: int
    """Only chunks of positions after this one."""
    upto: int
    """Only chunks of positions up to this one."""
    attempt: int
    chunk: int
    """Only chunks after this one of `attempt`, and those of later attempts."""


class Transport(Protocol):
    """Carries chunks. Every method may raise or be cancelled: then only chunks are lost."""

    async def claim(self, wanted: Attempt) -> Attempt:
        """Return the attempt with a number that no other has had since the last reply, and drop obsolete chunks."""

    async def append(self, batches: Sequence[tuple[Attempt, Sequence[Piece]]]) -> None:
        """Store chunks, and tell all processes that read the threads."""

    async def read(self, wanted: Sequence[Wanted]) -> Sequence[tuple[str, Chunk]]:
        """Return chunks with their threads, in the order of attempts and chunks, at most `PAGE` of each thread."""

    def news(self) -> AsyncIterator[str]:
        """Yield the id of each thread that has new chunks; `EVERYTHING` at the beginning. It ends or raises if it is
        interrupted, and is called again then.
        """

    async def close(self) -> None:
        """Release what is open."""
