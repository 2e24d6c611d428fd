"""The event log: the events of a thread in order, as lines of canonical JSON linked by a chain of digests.

A JSON parser and SHA-256 suffice to verify the lines: an event's digest covers the previous digest and the event's
JSON without its own digest.
"""

import copy
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any, TypeVar, cast

from holdfast.core.base.canonical import GENESIS, canonical, chain, plain_json, portable
from holdfast.core.log.events import EVENTS, AgentEvent, Event
from holdfast.core.log.loop_events import STORED_EVENTS, StoredEvent
from holdfast.errors import NotPortable

PAGE_BYTES = 400_000
"""Approximate size of one query reply: Temporal allows payloads of 2 MB and warns from 512 KB."""

EventT = TypeVar("EventT", bound=Event)


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


class EventLog:
    """An append-only list of the events of one thread, with the digest of their chain.

    Args:
        position: Number of events before those kept here.
        head: Digest of the last of those.
    """

    def __init__(self, position: int = 0, head: str = GENESIS) -> None:
        self._lines = Lines()
        self.first = position
        """Position of the first event kept here."""
        self.head = head

    @property
    def length(self) -> int:
        """Number of events of the thread, including those that are not kept here."""
        return self.first + len(self._lines)

    @property
    def events(self) -> list[AgentEvent]:
        """The events kept here, decoded on each access."""
        return self.since(self.first)

    def append(self, event: EventT, *, at: datetime) -> EventT:
        """Stamp `event` with position, time and digest, append it, and return the stamped event.

        The run continues with the event as readers of the log see it: canonical JSON writes 5.0 as 5, and a value
        without canonical JSON, such as a number that a provider sent, becomes the nearest one that has it (`portable`).
        """
        stamped = event.model_copy(update={"position": self.length, "at": at})
        stamped, fields, encoded = _as_read(stamped)
        self.head = chain(self.head, encoded)
        self._lines.append(canonical({**fields, "digest": self.head}))
        return stamped.model_copy(update={"digest": self.head})

    def restore(self, event: AgentEvent) -> None:
        """Append an event that is already stamped."""
        self._lines.append(event_line(event))
        self.head = event.digest

    def since(self, position: int) -> list[AgentEvent]:
        """Return the events from `position` on, as far as they are kept here."""
        lines = self._lines.since(position - self.first)
        return EVENTS.validate_python([json.loads(line) for line in lines])

    def lines_since(self, position: int) -> list[bytes]:
        """Return the lines of the events from `position` on, as far as they are kept here."""
        return list(self._lines.since(max(0, position - self.first)))

    def size_since(self, position: int) -> int:
        """Return the size in bytes of the events from `position` on."""
        return sum(map(len, self._lines.since(position - self.first)))

    def page(self, start: int, stop: int | None = None) -> bytes:
        """Return a page of events from `start` up to `stop`, one JSON text per line; empty if there are none.

        If `start` lies before the first event kept here, the page begins with that event.
        """
        skipped = max(0, start - self.first)
        count = None if stop is None else max(0, stop - self.first - skipped)
        return page(islice(self._lines.since(skipped), count))

    def pages(self) -> Pages:
        """Return the function `page` of the log as it stands."""
        return self._lines.pages(self.first)


LATE = frozenset(
    (
        "signal_rejected",
        "decision_received",
        "authority_delegated",
        "delegation_revoked",
        "rule_revoked",
        "run_unblocked",
        "run_imported",  # of a thread that was closed elsewhere; else `agent_loaded` comes with it
        "events_lost",
    )
)
"""Types of events that may come after `run_finished` without a new run."""


def has_ended(newest_first: Iterable[str]) -> bool:
    """Whether the last run of a thread has finished, ignoring late events.

    Args:
        newest_first: The types of the thread's events, newest first; consumed only as far as needed.
    """
    for kind in newest_first:
        if kind not in LATE:
            return kind == "run_finished"
    return False


def event_line(event: StoredEvent) -> bytes:
    """Encode an event as its line in the log, in canonical JSON."""
    return canonical(event_json(event))


def first_altered(events: Sequence[StoredEvent], *, start: int = 0, head: str = GENESIS) -> int | None:
    """Return the position of the first event that breaks the chain of digests; None if none does.

    Args:
        events: The events from position `start` on, without gaps.
        start: Number of events before them.
        head: Digest of the last of those.
    """
    for position, event in enumerate(events, start):
        head = digest_after(head, event_json(event))
        if event.position != position or event.digest != head:
            return position
    return None


def _as_read(event: EventT) -> tuple[EventT, dict[str, Any], bytes]:
    """Return an event as readers of the log see it, its JSON, and its canonical JSON. Never raises.

    An exception in workflow code would fail the workflow task for ever.
    """
    fields = event_json(event)
    with suppress(NotPortable):  # a lone surrogate
        if (encoded := plain_json(fields)) is not None:
            return event, fields, encoded
    fields = json.loads(canonical(portable(fields)))
    (read,) = cast(list[EventT], STORED_EVENTS.validate_python([fields]))
    return read, fields, canonical(fields)


def event_json(event: StoredEvent | Event) -> dict[str, Any]:
    """Return the event as the JSON that is displayed, exported and digested."""
    header = {"schema_version": event.schema_version, "type": getattr(event, "type", "event")}
    return header | event.model_dump(mode="json", exclude_defaults=True)


def digest_after(previous: str, stored: Mapping[str, Any]) -> str:
    """Compute the digest of an event.

    Args:
        previous: Digest of the event before it.
        stored: The event's JSON; a digest in it is ignored.
    """
    return chain(previous, canonical({name: value for name, value in stored.items() if name != "digest"}))


def digest_of_line(previous: str, stored: Mapping[str, Any], line: bytes) -> str:
    """Compute the digest of an event from its line: like `digest_after`, without encoding the event again.

    Args:
        previous: Digest of the event before it.
        stored: The event's JSON, parsed.
        line: The same in canonical JSON.
    """
    return digest_of_bytes(previous, stored, line) or digest_after(previous, stored)


def digest_of_bytes(previous: str, stored: Mapping[str, Any], line: bytes) -> str | None:
    """Compute the digest from the exact bytes of a line; None if they do not show which digest is the event's own.

    Args:
        previous: Digest of the event before it.
        stored: The event's JSON, parsed.
        line: The same, in any spelling.
    """
    if isinstance(claimed := stored.get("digest"), str) and claimed.isalnum():  # else it is written with escapes
        before, found, after = line.partition(b'"digest":"%b"' % claimed.encode())
        if found and found not in after and after.startswith(b","):  # the only one is the event's own
            return chain(previous, before + after[1:])
    return None


def stamped_line(previous: str, stored: Mapping[str, Any]) -> tuple[str, bytes]:
    """Compute the digest of an event, and its line with that digest; the event is encoded once.

    Args:
        previous: Digest of the event before it.
        stored: The event's JSON; a digest in it is ignored.
    """
    line = canonical({**stored, "digest": GENESIS})
    before, _, after = line.partition(_UNSTAMPED)
    if _UNSTAMPED in after or not after.startswith(b","):  # which of them is the event's own?
        digest = digest_after(previous, stored)
        return digest, canonical({**stored, "digest": digest})
    digest = chain(previous, before + after[1:])
    return digest, b'%b"digest":"%b"%b' % (before, digest.encode(), after)


_UNSTAMPED = b'"digest":"%b"' % GENESIS.encode()
"""How a line represents the digest that is still to be computed."""
