"""Where a thread is kept for good, and where large content is: two protocols that anybody can implement.

Both outlive Temporal's retention. What a store keeps it never interprets: lines and content come back byte for byte,
and whoever reads them checks them, by the digest chain (`read_lines`) or by the address (`address_of`).
`holdfast.testing.conformance` is the test suite that every implementation must pass.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


class ThreadStore(Protocol):
    """Keeps the events of threads for good: per thread a list of lines that only ever grows.

    A line is one event as canonical JSON in UTF-8, without a line break; its place in the list is its position.
    Appends may come twice and at the same time, from any number of processes: Temporal retries an append whose answer
    got lost. A store that cannot be reached raises whatever says so; Temporal tries again.

    The smallest implementation that passes `ThreadStoreConformance` takes about 30 lines.
    """

    async def append(self, thread: str, start: int, lines: Sequence[bytes]) -> None:
        """Keep `lines` at the positions `start`, `start + 1`, …: all of them, durably, or none.

        Nothing that is kept ever changes. Positions that are kept already must hold the very same bytes, so
        the same append twice is the same as once, and one that overlaps adds what is new.

        Args:
            thread: Any text: the workflow id.
            start: At most the length of what is kept.
            lines: Oldest first.

        Raises:
            RecordConflict: A position holds other bytes. The message names the thread and that place: `position 7`.
            RecordGap: `start` is beyond the length. The message names the thread and `start`, in the same way.
        """
        ...

    async def read(self, thread: str, start: int = 0) -> list[bytes]:
        """The lines from position `start` on, oldest first, at most a page; empty when there are none.

        A page is `holdfast.base.models.PAGE_BYTES` of lines, or one longer line. It may hold less: whoever wants
        everything reads on until nothing comes.
        """
        ...

    async def length(self, thread: str) -> int:
        """How many lines are kept; 0 for an unknown thread."""
        ...


@runtime_checkable
class SetsAside(Protocol):
    """A thread store that keeps what a run has left behind which was reset. Without it, such runs are blocked."""

    async def set_aside(self, thread: str, start: int, lines: Sequence[bytes]) -> str:
        """Make room for `lines`, which are to be appended at `start`: the log as it is becomes a thread of its own,
        whole, and the thread loses the events from the first one on that is not that of `lines`.

        Returns:
            The id that the log is kept under: an `aside_id` that no thread had.
        """
        ...


_ASIDE = re.compile(r"(.+)~reset-([1-9]\d*)", re.ASCII | re.DOTALL)


def aside_id(thread: str, number: int) -> str:
    """The id for the log that a thread's reset leaves behind, `number` counted from 1. No run has such an id."""
    return f"{thread}~reset-{number}"


def origin_of(thread: str) -> str | None:
    """The thread that a log set aside is of (`aside_id`); None for the id of a thread."""
    match = _ASIDE.fullmatch(thread)
    return match[1] if match else None


class ArtifactStore(Protocol):
    """Keeps content under its own digest: the same content has the same address, in every store and for ever."""

    async def put(self, content: bytes, *, thread: str) -> str:
        """Keep `content` durably, and return its address (`address_of`). Content that is kept already is kept once.

        Args:
            content: Any bytes, from none to as many as fit memory.
            thread: Who refers to it. A store may remove content that no thread refers to any more.
        """
        ...

    async def get(self, address: str, offset: int = 0, limit: int | None = None) -> bytes:
        """The content, or the part of it from byte `offset` on, `limit` bytes at the most (neither is negative).

        Empty where `offset` is at the end or beyond. What is given is what was put: the digest of the content is
        compared with the address before any of it is. Reading one part after the other of large content must not cost
        as much as all of it each time.

        Raises:
            ArtifactNotFound: There is nothing at this address, or it is none.
            ArtifactAltered: What is kept there is not what was put.
        """
        ...

    async def size(self, address: str) -> int:
        """How many bytes the content has.

        Raises:
            ArtifactNotFound: There is nothing at this address, or it is none.
        """
        ...


@dataclass(frozen=True)
class EffectRow:
    """A row of the effect ledger, as it is kept."""

    key: str
    """Names the effect (`holdfast.tools.effects.effect_key`)."""
    epoch: int
    tool: str
    outcome: str | None
    """A `ToolOutcome` as JSON; None while nobody has written down what the effect came to."""
