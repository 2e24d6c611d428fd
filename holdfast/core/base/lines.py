"""An append-only list of lines, compressed in memory and read page by page."""

import copy
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

PAGE_BYTES = 400_000
"""Approximate size of one query reply: Temporal allows payloads of 2 MB and warns from 512 KB."""


class Lines:
    """An append-only list of lines, any bytes without a line break.

    Older lines are compressed, because a worker holds hundreds of runs that wait for weeks.
    """

    BLOCK = 16_000
    """Bytes of lines that are compressed as one block."""

    def __init__(self) -> None:
        self._packed: list[tuple[int, bytes]] = []
        """Compressed blocks, each with its number of lines."""
        self._recent: list[bytes] = []
        self._recent_size = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def size(self) -> int:
        """Size of the lines in memory, in bytes."""
        return self._recent_size + sum(len(block) for _, block in self._packed)

    def copy(self) -> "Lines":
        """Return an independent copy: later appends do not change it."""
        copied = copy.copy(self)
        copied._packed, copied._recent = list(self._packed), list(self._recent)
        return copied

    def append(self, line: bytes) -> None:
        """Append a line."""
        self._recent.append(line)
        self._recent_size += len(line)
        self._count += 1
        if self._recent_size >= self.BLOCK:
            self._packed.append((len(self._recent), zlib.compress(b"\n".join(self._recent), 1)))
            self._recent, self._recent_size = [], 0

    def since(self, start: int) -> Iterator[bytes]:
        """Yield the lines from index `start` on, oldest first."""
        for count, block in self._packed:
            if start < count:
                yield from zlib.decompress(block).split(b"\n")[max(0, start) :]
            start -= count
        yield from self._recent[max(0, start) :]

    def pages(self, first: int) -> "Pages":
        """Return a reader of pages over a copy of the current lines.

        Args:
            first: The position of the first line.
        """
        return Pages(self.copy(), first)


@dataclass(frozen=True)
class Pages:
    """A callable that returns one page of a fixed list of lines, from a position on."""

    lines: Lines
    first: int
    """The position of the first line."""

    def __call__(self, start: int) -> bytes:
        """Return a page; empty if there are no more lines."""
        return page(self.lines.since(start - self.first))


def page(lines: Iterable[bytes]) -> bytes:
    """Return as many of the first `lines` as fit a page, but at least one if there is one, joined by line breaks."""
    selected: list[bytes] = []
    size = 0
    for line in lines:
        if selected and size + len(line) > PAGE_BYTES:
            break
        selected.append(line)
        size += len(line)
    return b"\n".join(selected)
