"""Threads in memory."""

import itertools
from collections.abc import Sequence

from holdfast.core.base.lines import PAGE_BYTES
from holdfast.core.stores import aside_id
from holdfast.errors import RecordConflict, RecordGap


class InMemoryThreads:
    """A `holdfast.core.stores.ThreadStore` for one worker process, and for runs that must leave no traces.

    It is empty when the process starts. A run that started before its worker is blocked if it needs earlier events
    (after continue-as-new, or to reopen a closed thread). Other processes, such as the command line, can read these
    threads only from Temporal's history.
    """

    def __init__(self) -> None:
        self._threads: dict[str, list[bytes]] = {}

    async def append(self, thread: str, start: int, lines: Sequence[bytes]) -> None:
        """Store `lines` at the positions from `start` on, atomically and idempotently."""
        stored = self._threads.get(thread, [])
        if start > len(stored):
            raise RecordGap(
                f"thread {thread} has {len(stored)} events in memory, so none can follow at position {start}; "
                f"append from position {len(stored)} on"
            )
        differs = start + _common(stored[start:], lines)
        if differs < min(len(stored), start + len(lines)):
            raise RecordConflict(
                f"thread {thread} has another event at position {differs} in memory; nothing was appended"
            )
        self._threads[thread] = stored + list(lines[len(stored) - start :])

    async def read(self, thread: str, start: int = 0) -> list[bytes]:
        """Read a page of lines from position `start` on."""
        page: list[bytes] = []
        size = 0
        for line in itertools.islice(self._threads.get(thread, ()), start, None):
            size += len(line)
            if page and size > PAGE_BYTES:
                break
            page.append(line)
        return page

    async def length(self, thread: str) -> int:
        """Return the number of stored lines."""
        return len(self._threads.get(thread, ()))

    async def set_aside(self, thread: str, start: int, lines: Sequence[bytes]) -> str:
        """Copy the log to an archived branch, and truncate it at the first event that differs from `lines`."""
        stored = self._threads.get(thread, [])
        aside = next(name for count in itertools.count(1) if (name := aside_id(thread, count)) not in self._threads)
        self._threads[aside] = stored
        self._threads[thread] = stored[: start + _common(stored[start:], lines)]
        return aside


def _common(one: Sequence[bytes], other: Sequence[bytes]) -> int:
    """Return the length of the common prefix of two lists."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
