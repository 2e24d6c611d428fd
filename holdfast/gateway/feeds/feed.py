"""Gives the events of a protocol their ids, and continues after any of them. Pure.

A client that sends the last id it has gets everything after it, once: cut anywhere and resumed, a feed is the same
feed. What an attempt at a reply adds may come in other pieces.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from holdfast.core.log.events import AgentEvent
from holdfast.core.streams.chunks import Chunk, Cursor
from holdfast.gateway.feeds.conversation import Conversation
from holdfast.gateway.feeds.place import Place
from holdfast.gateway.feeds.steps import Step

JSON = dict[str, Any]


class Encoder(Protocol):
    """Writes steps as events of a protocol."""

    headers: dict[str, str]
    """HTTP headers of the stream."""
    last: str
    """The frame that ends the stream; empty for none."""

    def encode(self, step: Step) -> Sequence[JSON]:
        """Return the events for a step."""

    def failed(self, detail: str, code: str) -> Sequence[JSON]:
        """Return the events that say that the stream ends, and why."""


class Sent(NamedTuple):
    """An event of the protocol, and its id."""

    id: str
    event: JSON


class Feed:
    """The feed of one client.

    Args:
        encoder: The protocol.
        place: The last event that the client has.
        past: The events of the thread from one that `resumes_from` returned up to that place.
    """

    def __init__(self, encoder: Encoder, place: Place = Place(), past: Sequence[AgentEvent] = ()) -> None:  # noqa: B008
        self.encoder = encoder
        self.conversation = Conversation()
        self.conversation.replay(past)
        within = place.cursor.attempt > 0
        self.conversation.text.restore(place.mark, within=within)
        self.conversation.reasoning.restore(place.reasoning, within=within)
        self._cursor = place.cursor
        self._seen = place.seen
        """Events of the protocol that the client has of the next event of the thread."""

    @property
    def closed(self) -> bool:
        """Whether the conversation is closed, and the client has all of it."""
        return not self.conversation.open and not self._seen

    def chunk(self, chunk: Chunk) -> Iterator[Sent]:
        """Yield the events for a chunk."""
        if self._seen:
            return  # the event that the client has a part of is recorded, so this chunk is obsolete
        written = [
            (event, self.conversation.marks)
            for step in self.conversation.chunk(chunk)
            for event in self.encoder.encode(step)
        ]
        for event, marks in written[:-1]:
            yield Sent(str(Place(self._cursor, *marks)), event)
        for event, marks in written[-1:]:
            if not self.conversation.catches_up:
                self._cursor = Cursor(chunk.position, chunk.attempt, chunk.chunk)
            yield Sent(str(Place(self._cursor, *marks)), event)

    def event(self, event: AgentEvent) -> Iterator[Sent]:
        """Yield the events for an event of the thread."""
        before = Place(Cursor(event.position - 1), *self.conversation.marks)
        written = self._encoded(self.conversation.event(event))
        self._cursor, seen, self._seen = Cursor(event.position), self._seen, 0
        place = Place(self._cursor, *self.conversation.marks)
        for number, each in list(enumerate(written, start=1))[seen:]:
            yield Sent(str(place if number == len(written) else before._replace(seen=number)), each)

    def _encoded(self, steps: Iterable[Step]) -> list[JSON]:
        return [event for step in steps for event in self.encoder.encode(step)]
