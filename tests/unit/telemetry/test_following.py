"""Following the record: what a receiver is delivered while an activation is in progress."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, cast

import pytest

from holdfast.storage.feeds import BEGINNING, Feed, Growing, News, Place
from holdfast.storage.in_memory.record import InMemoryThreads
from holdfast.telemetry.activations import traces_of
from holdfast.telemetry.following import Part, Taken, look
from holdfast.telemetry.news import Ahead
from holdfast.telemetry.traces.spans import Span
from holdfast.telemetry.traces.tracer import spans_of
from tests.support.logs import WrittenLog, three_weeks


@dataclass
class OneThread:
    """A feed of one thread that has always grown."""

    thread: str
    place: Place = BEGINNING

    async def news(self) -> News:
        """Return the thread."""
        return News([Growing(1, self.thread, self.place)], more=False)

    def stay(self) -> None:
        """Keep nothing: there is no cursor."""

    async def move(self, moved: Sequence[tuple[Growing, Place]]) -> None:
        """Record the new place."""
        for _, place in moved:
            self.place = place


@dataclass
class Spans:
    """A receiver that keeps spans, and the positions of the events that it was delivered."""

    content: bool = False
    made: list[Span] = field(default_factory=list)
    delivered: list[int] = field(default_factory=list)
    broken: bool = False

    async def deliver(self, threads: Sequence[Part]) -> Sequence[Taken]:
        """Take events of threads."""
        self.delivered += [event.position for part in threads for event in part.events]
        spans, taken = traces_of(threads, content=self.content)
        if self.broken:
            raise ConnectionError
        self.made += spans
        return taken


def whole(log: WrittenLog, *, content: bool = False) -> list[Span]:
    """Return the spans of a log that is exported at once."""
    return [span for trace in spans_of(log.events, log.thread, content=content) for span in trace.spans]


async def follow(feed: OneThread, spans: Spans, threads: InMemoryThreads, ahead: dict[int, Ahead]) -> None:
    """Deliver what is new."""
    await look(cast(Feed, feed), spans, threads, ahead)


@pytest.mark.parametrize("content", [False, True])
async def test_each_event_is_delivered_once_however_slowly_an_activation_grows(content: bool) -> None:
    """A run that is exported event by event costs no more than one that is exported at once, and has the same spans."""
    log, threads, ahead = three_weeks(waits=2), InMemoryThreads(), dict[int, Ahead]()
    feed, spans = OneThread(log.thread), Spans(content)
    tasks = [event.position for before, event in pairwise(log.events) if event.at != before.at]
    for start, stop in pairwise([0, *tasks, len(log.lines)]):
        await threads.append(log.thread, start, log.lines[start:stop])
        await follow(feed, spans, threads, ahead)
    assert spans.made == whole(log, content=content)
    assert spans.delivered == list(range(len(log.lines)))
    assert not ahead, "nothing is kept of a run that has ended"
    assert feed.place[:2] == (len(log.lines), log.events[-1].digest)


async def test_without_what_was_kept_an_activation_is_delivered_again_from_its_place() -> None:
    """After a crash or a failed delivery, the events since the last whole activation are delivered again."""
    log, threads, ahead = three_weeks(waits=1), InMemoryThreads(), dict[int, Ahead]()
    feed, spans = OneThread(log.thread), Spans()
    await threads.append(log.thread, 0, log.lines[:6])
    await follow(feed, spans, threads, ahead)
    assert (feed.place, ahead[1].place.position) == (BEGINNING, 6)
    spans.broken = True
    await threads.append(log.thread, 6, log.lines[6:])
    with pytest.raises(ConnectionError):
        await follow(feed, spans, threads, ahead)
    spans.broken, spans.delivered = False, []
    await follow(feed, spans, threads, {})
    assert spans.delivered == list(range(len(log.lines)))
    assert spans.made == whole(log)


async def test_a_run_that_was_reset_is_read_anew_whatever_was_kept_of_its_old_branch() -> None:
    """Spans of the new branch come from its own events, even if it is as long as the old one."""
    old, new = three_weeks(waits=1, run="r-1"), three_weeks(waits=1, run="r-2")
    threads, ahead, feed, spans = InMemoryThreads(), dict[int, Ahead](), OneThread(old.thread), Spans()
    await threads.append(old.thread, 0, old.lines[:6])
    await follow(feed, spans, threads, ahead)
    await threads.set_aside(new.thread, 0, new.lines)
    await threads.append(new.thread, 0, new.lines)
    await follow(feed, spans, threads, ahead)
    assert spans.made == whole(new)


async def test_what_is_kept_of_all_threads_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound, threads are read again from their places: slower, with the same spans."""
    monkeypatch.setattr("holdfast.telemetry.following.AHEAD_BYTES", 10)
    log, threads, ahead = three_weeks(waits=1), InMemoryThreads(), dict[int, Any]()
    feed, spans = OneThread(log.thread), Spans()
    await threads.append(log.thread, 0, log.lines[:6])
    await follow(feed, spans, threads, ahead)
    assert not ahead
    await threads.append(log.thread, 6, log.lines[6:])
    await follow(feed, spans, threads, ahead)
    assert spans.made == whole(log)
