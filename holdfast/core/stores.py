"""Protocols of the permanent stores: threads as append-only lines, and large content as artifacts.

Both outlive Temporal's retention. A store never interprets its content: lines and artifacts come back byte for byte,
and the reader verifies them by the digest chain (`read_lines`) or by the address (`address_of`).
`holdfast.testing.conformance` is the test suite that every implementation must pass.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


class ThreadStore(Protocol):
    """Stores the events of threads permanently, as an append-only list of lines for each thread.

    A line is one event as canonical JSON in UTF-8, without a line break; its index in the list is its position.
    Appends may be repeated and concurrent, from any number of processes: Temporal retries an append whose reply was
    lost. If the store is unavailable, it raises any exception, and Temporal retries.

    The smallest implementation that passes `ThreadStoreConformance` takes about 30 lines.
    """

    async def append(self, thread: str, start: int, lines: Sequence[bytes]) -> None:
        """Store `lines` at the positions `start`, `start + 1`, … durably and atomically.

        Stored lines never change. A position that is already stored must hold the same bytes, so a repeated append
        has no effect, and an overlapping one adds only the new lines.

        Args:
            thread: The workflow id; any text.
            start: At most the number of stored lines.
            lines: Oldest first.

        Raises:
            RecordConflict: A position holds different bytes. The message names the thread and `position 7`.
            RecordGap: `start` is beyond the end. The message names the thread and `start` in the same way.
        """
        ...

    async def read(self, thread: str, start: int = 0) -> list[bytes]:
        """Return the lines from position `start` on, oldest first, at most a page; empty if there are none.

        A page holds up to `holdfast.core.log.event_log.PAGE_BYTES` of lines, or a single longer line. To read
        everything, call repeatedly until the result is empty.
        """
        ...

    async def length(self, thread: str) -> int:
        """Return the number of stored lines; 0 for an unknown thread."""
        ...


@runtime_checkable
class SetsAside(Protocol):
    """A thread store that can archive the events that a reset abandons. With any other one, a reset run is blocked."""

    async def set_aside(self, thread: str, start: int, lines: Sequence[bytes]) -> str:
        """Make room for `lines`, which will be appended at `start`.

        Copy the whole log to a separate thread, then truncate the original at the first event that differs from
        `lines`.

        Returns:
            The id of the copy: an `aside_id` that was not in use.
        """
        ...


_ASIDE = re.compile(r"(.+)~reset-([1-9]\d*)", re.ASCII | re.DOTALL)


def aside_id(thread: str, number: int) -> str:
    """Return the id of a log that a reset archives, with `number` counted from 1. No run has such an id."""
    return f"{thread}~reset-{number}"


def origin_of(thread: str) -> str | None:
    """Return the thread whose log is archived under this `aside_id`; None for the id of a thread."""
    match = _ASIDE.fullmatch(thread)
    return match[1] if match else None


class ArtifactStore(Protocol):
    """Stores content under its own digest: the same content always has the same address, in every store."""

    async def put(self, content: bytes, *, thread: str) -> str:
        """Store `content` durably, once, and return its address (`address_of`).

        Args:
            content: Any bytes, from none to as many as fit in memory.
            thread: The thread that refers to it. A store may remove content that no thread refers to any more.
        """
        ...

    async def get(self, address: str, offset: int = 0, limit: int | None = None) -> bytes:
        """Return the content, or at most `limit` bytes of it from byte `offset` on (neither is negative).

        The result is empty if `offset` is at or beyond the end. The store compares the digest of the content with the
        address before it returns any of it. Reading large content part by part must not cost as much as reading all
        of it each time.

        Raises:
            ArtifactNotFound: There is no content at this address, or the address is malformed.
            ArtifactAltered: The content differs from the stored one.
        """
        ...

    async def size(self, address: str) -> int:
        """Return the size of the content in bytes.

        Raises:
            ArtifactNotFound: There is no content at this address, or the address is malformed.
        """
        ...


@runtime_checkable
class SharesArtifacts(Protocol):
    """An artifact store that can let one thread refer to all artifacts of another without reading them.

    With any other store, a fork stores each artifact of its original again.
    """

    async def share(self, origin: str, thread: str) -> None:
        """Record that `thread` refers to every artifact that `origin` refers to. May be repeated."""
        ...


@dataclass(frozen=True)
class EffectRow:
    """A row of the effect ledger, as stored."""

    key: str
    """The effect key (`holdfast.core.tools.effects.effect_key`)."""
    epoch: int
    tool: str
    outcome: str | None
    """A `ToolOutcome` as JSON; None until the outcome of the effect is recorded."""
    call_digest: str = ""
    """Digest of tool and arguments; empty if it is unknown."""
    mac: str | None = None
    """The MAC of the outcome (`holdfast.core.mac.outcomes`), if there is one."""
    call: tuple[int | None, str | None, str | None] | None = None
    """The number of the call, the first run id of its chain of Temporal runs, and the call on one line; None if the
    source of the row does not have them."""
