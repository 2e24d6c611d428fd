"""The log: the events of a thread in order, as lines of canonical JSON, in a chain of digests.

Whoever has the lines can check them with a JSON parser and SHA-256: the digest of an event is that of the previous
digest and the event's JSON without its own.
"""

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import islice
from typing import Any, TypeVar

from holdfast.base.digests import GENESIS, canonical, chain
from holdfast.base.lines import Lines, page
from holdfast.log.events import EVENTS, AgentEvent, Event

EventT = TypeVar("EventT", bound=Event)


class EventLog:
    """The events of one thread in order, append-only, and the digest of their chain.

    Args:
        position: How many events came before the ones kept here.
        head: The digest of the last of those.
    """

    def __init__(self, position: int = 0, head: str = GENESIS) -> None:
        self._lines = Lines()
        self.first = position
        """Position of the first event kept here."""
        self.head = head

    @property
    def length(self) -> int:
        """How many events the thread has, those that are not kept here included."""
        return self.first + len(self._lines)

    @property
    def events(self) -> list[AgentEvent]:
        """The events kept here, decoded anew each time."""
        return self.since(self.first)

    def append(self, event: EventT, *, at: datetime) -> EventT:
        """Stamp `event` with position, time and digest, keep it, and return it as kept."""
        stamped = event.model_copy(update={"position": self.length, "at": at})
        told = event_json(stamped)
        self.head = chain(self.head, canonical(told))
        self._lines.append(canonical({**told, "digest": self.head}))
        return stamped.model_copy(update={"digest": self.head})

    def restore(self, event: AgentEvent) -> None:
        """Keep an event that is stamped already."""
        self._lines.append(event_line(event))
        self.head = event.digest

    def since(self, position: int) -> list[AgentEvent]:
        """The events from `position` on, as far as they are kept here."""
        lines = self._lines.since(position - self.first)
        return EVENTS.validate_python([json.loads(line.decode("utf-8", "surrogatepass")) for line in lines])

    def size_since(self, position: int) -> int:
        """Bytes of the events from `position` on."""
        return sum(map(len, self._lines.since(position - self.first)))

    def page(self, start: int, stop: int | None = None) -> bytes:
        """Events from position `start` up to `stop`, one JSON text a line, a page of them; empty without any.

        Where `start` lies before the first event kept here, the page begins with that one.
        """
        skipped = max(0, start - self.first)
        count = None if stop is None else max(0, stop - self.first - skipped)
        return page(islice(self._lines.since(skipped), count))


LATE = frozenset(
    (
        "signal_rejected",
        "decision_received",
        "authority_delegated",
        "delegation_revoked",
        "rule_revoked",
        "run_unblocked",
    )
)
"""The types of events that a run may still record after it has finished: what reaches it while it is written down."""


def has_ended(newest_first: Iterable[str]) -> bool:
    """Whether the last run of a thread has finished, whatever was recorded after it.

    Args:
        newest_first: The types of the thread's events, the last one first. No more of them are taken than are needed.
    """
    for kind in newest_first:
        if kind not in LATE:
            return kind == "run_finished"
    return False


def event_line(event: AgentEvent) -> bytes:
    """The event as its line in the log: canonical JSON."""
    return canonical(event_json(event))


def first_altered(events: list[AgentEvent], *, start: int = 0, head: str = GENESIS) -> int | None:
    """The position of the first event whose digest does not follow from the ones before it; None if all do.

    Args:
        events: From position `start` on, without gaps.
        start: How many events came before them.
        head: The digest of the last of those.
    """
    for position, event in enumerate(events, start):
        head = digest_after(head, event_json(event))
        if event.position != position or event.digest != head:
            return position
    return None


def event_json(event: AgentEvent | Event) -> dict[str, Any]:
    """The event as it is shown, exported and digested: whoever has this JSON needs only SHA-256 to check the chain."""
    told = {"schema_version": event.schema_version, "type": getattr(event, "type", "event")}
    return told | event.model_dump(mode="json", exclude_defaults=True)


def digest_after(previous: str, stored: Mapping[str, Any]) -> str:
    """The digest that an event has to have.

    Args:
        previous: The digest of the event before it.
        stored: Its JSON; whatever digest that gives is left out.
    """
    return chain(previous, canonical({name: value for name, value in stored.items() if name != "digest"}))
