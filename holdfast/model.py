"""The base of every model that is persisted or crosses a process boundary, and its canonical encoding."""

import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

GENESIS = "0" * 64
"""The digest before the first entry of any chain."""

PAGE_BYTES = 400_000
"""What the reply to one query holds, or little more: Temporal allows a payload 2 MB, and warns of half a megabyte."""


class Frozen(BaseModel):
    """An immutable pydantic model.

    Unknown fields are ignored on decoding, so that an older worker can read what a newer one wrote.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")


class Sealed(Frozen):
    """A model that only our own processes may have made: what is not sealed with a fleet key is not decoded as one."""

    SEALED: ClassVar[bool] = True


def canonical(value: Any) -> bytes:
    """Encode `value` (JSON types only) as the one JSON text that digests are computed over.

    Keys sorted, no white space, UTF-8 without escapes: RFC 8785 in spirit, with Python's number format.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


def digest(value: Any) -> str:
    """SHA-256 of `canonical(value)`, in hex."""
    return hashlib.sha256(canonical(value)).hexdigest()


def chain(previous: str, encoded: bytes) -> str:
    """The digest of a chain after one more entry: SHA-256 of the previous digest (hex) and the entry's bytes."""
    return hashlib.sha256(previous.encode() + encoded).hexdigest()


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
