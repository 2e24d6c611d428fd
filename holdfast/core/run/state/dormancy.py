"""The dormancy of an agent: its open waits, and events that arrived before a call waited for them.

Everything is bounded. A wait keeps only as much of its polls as determines the time of the next one. A buffered event
is removed only by the wait that it ends, never to make room: an event that does not fit is refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Self

from holdfast.core.base.models import Frozen, replace
from holdfast.core.log.events import PollKind, WaitPolled, WakeReceived
from holdfast.core.tools.triggers import COUNTED, EventTrigger, TaskTrigger, WakeTrigger, deadline
from holdfast.errors import EventOutOfPlace

WAITS = 50
"""Calls of one step that may wait at the same time."""

BUFFERED = 50
"""Events that a thread keeps until a call waits for them; more are refused."""

BUFFERED_BYTES = 200_000
"""Bytes of the buffered events, as JSON."""

COUNTED_CHARS = 200
"""Characters of each counted event's data that are kept."""

SEEN = 500
"""Ids of accepted events that are kept: a later event with such an id is refused as a duplicate."""


_RESULT_TEXTS: Mapping[PollKind, str] = {
    "news": "a new result",
    "same": "the same result",
    "partial": "a part of the result",
    "timeout": "a time-out",
    "no_response": "a failure",
    "error": "an error",
}


def polls_text(count: int, result: PollKind | None) -> str:
    """Return a short description of the polls of a wait: `12 looks so far; the last: the same result`."""
    if result is None:
        return "no look so far"
    return f"{count:,} look{'' if count == 1 else 's'} so far; the last: {_RESULT_TEXTS[result]}"


class Polls(Frozen):
    """The polls of a wait so far."""

    count: int = 0
    again: datetime
    """When the next poll is due. A poll that is due is under way, or starts as soon as nothing holds the run."""
    delay: float = 0
    """Seconds from the last poll to the next."""
    first: str = ""
    """Digest of the first complete result."""
    last: str = ""
    """Digest of the last complete result."""
    result: PollKind | None = None
    """The result of the last poll."""
    news: int = 0
    """How often the result differed from the one before."""
    failures: int = 0
    """How many polls failed since the last result."""

    def after(self, event: WaitPolled) -> Self:
        """Return the polls with one more."""
        ok, again = event.status == "ok", event.again or event.at
        complete = ok and event.result != "partial"
        return type(self)(
            count=event.poll,
            again=again,
            delay=(again - event.at).total_seconds(),
            first=self.first or event.seen if complete else self.first,
            last=event.seen if complete else self.last,
            result=event.result,
            news=self.news + (1 if self.last and event.result == "news" else 0),
            failures=0 if ok else self.failures + 1,
        )


class CountedEvent(Frozen):
    """An event that a wait has counted."""

    at: datetime
    data: str = ""
    """The beginning of its data."""


class Tally(Frozen):
    """The events that a wait which counts has seen."""

    counted: tuple[CountedEvent, ...] = ()
    """The matching events, oldest first; of a wait with a time span, those within it."""
    others: int = 0
    """Events of the same name that did not match."""

    def add(self, trigger: EventTrigger, data: str, *, at: datetime) -> Self:
        """Return the tally with an event of the trigger's name."""
        if not trigger.fits(trigger.event, data):
            return self.model_copy(update={"others": min(self.others + 1, COUNTED)})
        since = at - timedelta(seconds=trigger.within) if trigger.within is not None else None
        recent = tuple(each for each in self.counted if since is None or each.at >= since)
        return self.model_copy(update={"counted": (*recent, CountedEvent(at=at, data=data[:COUNTED_CHARS]))})

    def ends(self, trigger: EventTrigger) -> bool:
        """Return whether the wait is over: enough events have matched, or they no longer can."""
        out_of_reach = trigger.of is not None and self.others > trigger.of - trigger.count
        return len(self.counted) >= trigger.count or out_of_reach


class Wait(Frozen):
    """A call that sleeps."""

    number: int
    """The number of the call."""
    trigger: WakeTrigger
    since: datetime
    polls: Polls | None = None
    """The polls so far; None for a wait that does not poll."""
    tally: Tally = Tally()
    """The events so far, of a wait that counts."""

    @property
    def until(self) -> datetime | None:
        """When the wait ends even if nothing arrives; None for never."""
        return deadline(self.trigger)

    @property
    def due(self) -> datetime | None:
        """When the run has to act even if nothing arrives; None for never. A wait that polls ends with a poll."""
        return self.polls.again if self.polls else self.until

    @property
    def words(self) -> str:
        """The trigger that the call waits for, and the time of the next poll if it polls."""
        if isinstance(self.trigger, EventTrigger) and self.trigger.counts:
            others = f", {self.tally.others} others" if self.tally.others else ""
            return f"{self.trigger.words} ({len(self.tally.counted)} so far{others})"
        if self.polls is None:
            return self.trigger.words
        looks = polls_text(self.polls.count, self.polls.result)
        return f"{self.trigger.words}; looks again at {self.polls.again:%H:%M:%S} UTC ({looks})"

    @property
    def for_task(self) -> bool:
        """Whether the call waits for a task of its server, which no event and no message ends."""
        return isinstance(self.trigger, TaskTrigger)

    def fits(self, event: str, data: str) -> bool:
        """Return whether the call waits for this event."""
        return isinstance(self.trigger, EventTrigger) and self.trigger.fits(event, data)

    def counts(self, event: str) -> bool:
        """Return whether the call counts events of this name."""
        return isinstance(self.trigger, EventTrigger) and self.trigger.counts and self.trigger.event == event

    def with_event(self, data: str, *, at: datetime) -> Self:
        """Return the wait with one more event of the name that it counts."""
        assert isinstance(self.trigger, EventTrigger)
        return self.model_copy(update={"tally": self.tally.add(self.trigger, data, at=at)})

    def ends_with(self, event: str, data: str, *, at: datetime) -> bool:
        """Return whether this event ends the wait."""
        if not self.counts(event):
            return self.fits(event, data)
        assert isinstance(self.trigger, EventTrigger)
        return self.tally.add(self.trigger, data, at=at).ends(self.trigger)

    def view(self) -> dict[str, Any]:
        """Return the wait as `show` presents it."""
        waits = self.trigger.model_dump(mode="json") | {"until": self.until.isoformat() if self.until else None}
        shown = {"call": self.number, **waits, "since": self.since.isoformat()}
        if self.tally != Tally():
            shown["counted"] = len(self.tally.counted)
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
    hops: int = 0
    """How many agents in a row led to it."""
    at: datetime

    @classmethod
    def of(cls, event: WakeReceived) -> Self:
        """Return the buffered form of an event."""
        kept = {name: getattr(event, name) for name in ("event", "id", "data", "by", "reason", "hops", "at")}
        return cls(wake=event.position, **kept)


@dataclass(frozen=True)
class Dormancy:
    """Open waits, buffered events and the ids of events."""

    waits: tuple[Wait, ...] = ()
    """The open waits, oldest first."""
    buffered: tuple[BufferedEvent, ...] = ()
    """The buffered events, oldest first."""
    seen: tuple[str, ...] = ()
    """Ids of the last accepted events."""
    hops: int = 0
    """How many agents in a row led to the event that woke the run last; 0 since a person's message."""

    @property
    def until(self) -> datetime | None:
        """When the first wait ends even if nothing arrives; None for never."""
        return min((wait.until for wait in self.waits if wait.until), default=None)

    def due(self, *, after: datetime | None = None) -> datetime | None:
        """Return when the next poll is due, or the first wait ends even if nothing arrives; None for never.

        Args:
            after: Leave out polls that are due by this time.
        """
        waits = (wait for wait in self.waits if not (after and wait.polls and wait.polls.again <= after))
        return min((wait.due for wait in waits if wait.due), default=None)

    @property
    def wakeable(self) -> tuple[Wait, ...]:
        """The waits that an event, a message or `wake` may end."""
        return tuple(wait for wait in self.waits if not wait.for_task)

    @property
    def events(self) -> tuple[str, ...]:
        """The names of the events for which calls wait, each once."""
        names = (wait.trigger.event for wait in self.waits if isinstance(wait.trigger, EventTrigger))
        return tuple(dict.fromkeys(names))

    @property
    def words(self) -> str:
        """The triggers that the agent waits for, on one line."""
        return "; ".join(wait.words for wait in self.waits)

    def is_asleep(self, number: int) -> bool:
        """Return whether this call sleeps."""
        return self.find(number) is not None

    def find(self, number: int) -> Wait | None:
        """Return the wait of this call; None if it does not sleep."""
        return next((wait for wait in self.waits if wait.number == number), None)

    def find_buffered(self, trigger: WakeTrigger) -> BufferedEvent | None:
        """Return the oldest buffered event that this trigger waits for; None if there is none."""
        if not isinstance(trigger, EventTrigger) or trigger.counts:
            return None
        return next((each for each in self.buffered if trigger.fits(each.event, each.data)), None)

    def count_buffered(self, wait: Wait) -> Wait:
        """Return a wait that counts with the buffered events of its name."""
        for each in self.buffered:
            if wait.counts(each.event):
                wait = wait.with_event(each.data, at=each.at)
        return wait

    def count(self, event: WakeReceived) -> "Dormancy":
        """Count an event in every wait that counts such events."""
        waits = tuple(
            wait.with_event(event.data, at=event.at)
            if event.call in (None, wait.number) and wait.counts(event.event)
            else wait
            for wait in self.waits
        )
        return replace(self, waits=waits)

    def has_room(self, event: BufferedEvent) -> bool:
        """Return whether another event can be buffered."""
        size = sum(map(_size, self.buffered)) + _size(event)
        return len(self.buffered) < BUFFERED and size <= BUFFERED_BYTES

    def begin(self, wait: Wait, *, wake: int) -> "Dormancy":
        """Let a call sleep. A buffered event that ends the wait at once is used up."""
        left = tuple(each for each in self.buffered if each.wake != wake and not wait.counts(each.event))
        wait = self.count_buffered(wait)
        hops = next((each.hops for each in self.buffered if each.wake == wake), self.hops)
        return replace(self, waits=(*self.waits, wait), buffered=left, hops=hops)

    def record_poll(self, event: WaitPolled) -> "Dormancy":
        """Record a poll.

        Raises:
            EventOutOfPlace: It is not the next poll of a wait that polls.
        """
        wait = self.find(event.number)
        if wait is None or wait.polls is None or event.poll != wait.polls.count + 1:
            raise EventOutOfPlace(f"poll {event.poll} of call {event.number} is not the next one of a wait that polls")
        changed = wait.model_copy(update={"polls": wait.polls.after(event)})
        return replace(self, waits=tuple(changed if each is wait else each for each in self.waits))

    def buffer(self, event: BufferedEvent) -> "Dormancy":
        """Keep an event for which no call waits yet."""
        return replace(self, buffered=(*self.buffered, event))

    def record_hops(self, hops: int) -> "Dormancy":
        """Record how many agents in a row led to what the run now does."""
        return self if self.hops == hops else replace(self, hops=hops)

    def record_id(self, event_id: str) -> "Dormancy":
        """Record the id of an accepted event."""
        return replace(self, seen=(*self.seen, event_id)[-SEEN:]) if event_id else self

    def end(self, number: int) -> "Dormancy":
        """End the wait of a call that has its result."""
        if not self.is_asleep(number):
            return self
        return replace(self, waits=tuple(wait for wait in self.waits if wait.number != number))

    def view(self) -> dict[str, Any]:
        """Return the dormancy as `show` presents it."""
        buffered = [{"event": each.event, "id": each.id, "at": each.at.isoformat()} for each in self.buffered]
        until = self.until.isoformat() if self.until else None
        return {"until": until, "waits": [wait.view() for wait in self.waits], "buffered": buffered}


def _size(event: BufferedEvent) -> int:
    return len(event.model_dump_json().encode())
