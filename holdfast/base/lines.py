"""An append-only list of lines, compressed in memory and read page by page."""

import zlib
from collections.abc import Iterable, Iterator

PAGE_BYTES = 400_000
"""Approximate size of one query reply: Temporal allows payloads of 2 MB and warns from 512 KB."""


class Lines:
    """An append-only list of lines, the older ones compressed: a worker holds hundreds of runs that wait for weeks.

    A line is any bytes without a line break.
    """

    BLOCK = 16_000
    """Bytes that are compressed together."""

    def __init__(self) -> None:
        self._packed: list[tuple[int, bytes]] = []
        """Each block with the number of its lines."""
        self._recent: list[bytes] = []
        self._recent_size = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

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


def page(lines: Iterable[bytes]) -> bytes:
    """Return the first of `lines` that fit a page (at least one, if there is one), joined by line breaks."""
    selected: list[bytes] = []
    size = 0
    for line in lines:
        if selected and size + len(line) > PAGE_BYTES:
            break
        selected.append(line)
        size += len(line)
    return b"\n".join(selected)
