"""What the agent has put itself to sleep for: the open waits, and events that arrived before a call waited for them.

Everything is bounded. Of its polls, a wait keeps what sets the time of the next one. An event is dropped only by a wait
that it ends, never to make room: one that does not fit is refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from holdfast.core.base.models import Frozen, replace
from holdfast.core.log.events import PollKind, WaitPolled, WakeReceived
from holdfast.core.tools.triggers import EventTrigger, WakeTrigger, deadline
from holdfast.errors import EventOutOfPlace

WAITS = 50
"""Calls of one step that may wait at the same time."""

BUFFERED = 50
"""Events that a thread keeps until a call waits for them; more are refused."""

BUFFERED_BYTES = 200_000
"""Bytes of them, as JSON."""

SEEN = 500
"""Ids of the last events that were accepted: one of the same id is refused as a duplicate."""


_BROUGHT: Mapping[PollKind, str] = {
    "news": "a new result",
    "same": "the same result",
    "partial": "a part of the result",
    "timeout": "a time-out",
    "no_response": "a failure",
}


def looks_words(count: int, result: PollKind | None) -> str:
    """Return the polls of a wait in a few words: `12 looks so far; the last: the same result`."""
    if result is None:
        return "no look so far"
    return f"{count:,} look{'' if count == 1 else 's'} so far; the last: {_BROUGHT[result]}"


class Polls(Frozen):
    """The polls of a wait so far."""

    count: int = 0
    again: datetime
    """When the next one is due. One that is due is under way, or will be as soon as nothing holds the run."""
    delay: float = 0
    """Seconds from the last one to the next."""
    first: str = ""
    """Digest of the first result."""
    last: str = ""
    """Digest of the last result."""
    result: PollKind | None = None
    """The result of the last one."""
    news: int = 0
    """How often the result was another one than before."""
    failures: int = 0
    """How many failed since the last result."""

    def after(self, event: WaitPolled) -> Self:
        """Return them with one more."""
        ok, again = event.status == "ok", event.again or event.at
        return type(self)(
            count=event.poll,
            again=again,
            delay=(again - event.at).total_seconds(),
            first=self.first or event.seen if ok else self.first,
            last=event.seen if ok else self.last,
            result=event.result,
            news=self.news + (1 if self.last and event.result == "news" else 0),
            failures=0 if ok else self.failures + 1,
        )


class Wait(Frozen):
    """A call that sleeps."""

    number: int
    """The call's."""
    trigger: WakeTrigger
    since: datetime
    polls: Polls | None = None
    """Of a wait that polls."""

    @property
    def until(self) -> datetime | None:
        """When it ends though nothing arrives; None for never."""
        return deadline(self.trigger)

    @property
    def due(self) -> datetime | None:
        """When something follows though nothing arrives; None for never. A wait that polls ends with a poll."""
        return self.polls.again if self.polls else self.until

    @property
    def words(self) -> str:
        """What it waits for, and when it looks again if it polls."""
        if self.polls is None:
            return self.trigger.words
        looks = looks_words(self.polls.count, self.polls.result)
        return f"{self.trigger.words}; looks again at {self.polls.again:%H:%M:%S} UTC ({looks})"

    def fits(self, event: str, data: str) -> bool:
        """Return whether it waits for this event."""
        return isinstance(self.trigger, EventTrigger) and self.trigger.fits(event, data)

    def view(self) -> dict[str, Any]:
        """Return the wait as `show` presents it."""
        waits = self.trigger.model_dump(mode="json") | {"until": self.until.isoformat() if self.until else None}
        shown = {"call": self.number, **waits, "since": self.since.isoformat()}
        if self.polls:
            shown["polls"] = self.polls.model_dump(mode="json", include={"count", "again", "result"})
        return shown


class BufferedEvent(Frozen):
    """An event that arrived before a call waited for it."""

    wake: int
    """The position of its `wake_received`."""
    event: str
    id: str = ""
    data: str = ""
    by: str = ""
    reason: str = ""
    at: datetime

    @classmethod
    def of(cls, event: WakeReceived) -> Self:
        """Return the buffered form of an event."""
        kept = {name: getattr(event, name) for name in ("event", "id", "data", "by", "reason", "at")}
        return cls(wake=event.position, **kept)


@dataclass(frozen=True)
class Dormancy:
    """Open waits, buffered events and the ids of events."""

    waits: tuple[Wait, ...] = ()
    """Oldest first."""
    buffered: tuple[BufferedEvent, ...] = ()
    """Oldest first."""
    seen: tuple[str, ...] = ()
    """Ids of accepted events, the last ones."""

    @property
    def until(self) -> datetime | None:
        """When the first wait ends though nothing arrives; None for never."""
        return min((wait.until for wait in self.waits if wait.until), default=None)

    def due(self, *, after: datetime | None = None) -> datetime | None:
        """Return when the next poll is due, or the first wait ends though nothing arrives; None for never.

        Args:
            after: Leave out the polls that are due by then.
        """
        waits = (wait for wait in self.waits if not (after and wait.polls and wait.polls.again <= after))
        return min((wait.due for wait in waits if wait.due), default=None)

    @property
    def events(self) -> tuple[str, ...]:
        """The names of the events that are waited for, each once."""
        names = (wait.trigger.event for wait in self.waits if isinstance(wait.trigger, EventTrigger))
        return tuple(dict.fromkeys(names))

    @property
    def words(self) -> str:
        """What the agent has put itself to sleep for, in a line."""
        return "; ".join(wait.words for wait in self.waits)

    def waits_of(self, number: int) -> bool:
        """Return whether that call sleeps."""
        return self.find(number) is not None

    def find(self, number: int) -> Wait | None:
        """Return the wait of that call; None if it does not sleep."""
        return next((wait for wait in self.waits if wait.number == number), None)

    def first(self, trigger: WakeTrigger) -> BufferedEvent | None:
        """Return the oldest buffered event that this trigger waits for; None if there is none."""
        if not isinstance(trigger, EventTrigger):
            return None
        return next((each for each in self.buffered if trigger.fits(each.event, each.data)), None)

    def has_room(self, event: BufferedEvent) -> bool:
        """Return whether another event can be buffered."""
        size = sum(map(_size, self.buffered)) + _size(event)
        return len(self.buffered) < BUFFERED and size <= BUFFERED_BYTES

    def began(self, wait: Wait, *, wake: int) -> "Dormancy":
        """Let a call sleep; the buffered event that ends it at once, if any, is used up."""
        left = tuple(each for each in self.buffered if each.wake != wake)
        return replace(self, waits=(*self.waits, wait), buffered=left)

    def polled(self, event: WaitPolled) -> "Dormancy":
        """Note a poll.

        Raises:
            EventOutOfPlace: It is not the next one of a wait that polls.
        """
        wait = self.find(event.number)
        if wait is None or wait.polls is None or event.poll != wait.polls.count + 1:
            raise EventOutOfPlace(f"poll {event.poll} of call {event.number} is not the next one of a wait that polls")
        changed = wait.model_copy(update={"polls": wait.polls.after(event)})
        return replace(self, waits=tuple(changed if each is wait else each for each in self.waits))

    def buffer(self, event: BufferedEvent) -> "Dormancy":
        """Keep an event for which nothing waits yet."""
        return replace(self, buffered=(*self.buffered, event))

    def note(self, event_id: str) -> "Dormancy":
        """Note the id of an accepted event."""
        return replace(self, seen=(*self.seen, event_id)[-SEEN:]) if event_id else self

    def ended(self, number: int) -> "Dormancy":
        """End the wait of a call that has its result."""
        if not self.waits_of(number):
            return self
        return replace(self, waits=tuple(wait for wait in self.waits if wait.number != number))

    def view(self) -> dict[str, Any]:
        """Return it as `show` presents it."""
        buffered = [{"event": each.event, "id": each.id, "at": each.at.isoformat()} for each in self.buffered]
        until = self.until.isoformat() if self.until else None
        return {"until": until, "waits": [wait.view() for wait in self.waits], "buffered": buffered}


def _size(event: BufferedEvent) -> int:
    return len(event.model_dump_json().encode())
