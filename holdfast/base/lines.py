"""Lines in order, append-only: kept compressed, and handed out page by page."""

import zlib
from collections.abc import Iterable, Iterator

PAGE_BYTES = 400_000
"""What the reply to one query holds, or little more: Temporal allows a payload 2 MB, and warns of half a megabyte."""


class Lines:
    """Lines in order, append-only, the older ones compressed: runs that wait for weeks are held by the hundred.

    A line is any bytes without a line break.
    """

    BLOCK = 16_000
    """Bytes that are compressed together."""

    def __init__(self) -> None:
        self._packed: list[tuple[int, bytes]] = []
        """How many lines each block has, and the block."""
        self._recent: list[bytes] = []
        self._recent_size = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, line: bytes) -> None:
        """Keep one more line."""
        self._recent.append(line)
        self._recent_size += len(line)
        self._count += 1
        if self._recent_size >= self.BLOCK:
            self._packed.append((len(self._recent), zlib.compress(b"\n".join(self._recent), 1)))
            self._recent, self._recent_size = [], 0

    def since(self, start: int) -> Iterator[bytes]:
        """The lines from number `start` on, oldest first."""
        for count, block in self._packed:
            if start < count:
                yield from zlib.decompress(block).split(b"\n")[max(0, start) :]
            start -= count
        yield from self._recent[max(0, start) :]


def page(lines: Iterable[bytes]) -> bytes:
    """The first of `lines` that fit a page (at least one, if there is one), joined by line breaks."""
    taken: list[bytes] = []
    size = 0
    for line in lines:
        if taken and size + len(line) > PAGE_BYTES:
            break
        taken.append(line)
        size += len(line)
    return b"\n".join(taken)
