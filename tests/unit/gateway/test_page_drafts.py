"""The reply that is being written, on the page: bounded, visible, and read no more often than pages refresh."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.core.llm.deltas import DeltaKind
from holdfast.core.streams.chunks import CHUNK_CHARS, Chunk
from holdfast.errors import ServerUnreachable, ThreadNotFound
from holdfast.gateway.page import cached_log
from holdfast.gateway.page.cached_log import CachedLog
from holdfast.gateway.page.state_cache import StateCache
from holdfast.gateway.page.views.drafts import DraftView
from holdfast.gateway.page.views.timeline import SHOWN_CHARS
from holdfast.streaming.hub import Subscription


def chunk(text: str, number: int = 1, kind: DeltaKind = "text", attempt: int = 1) -> Chunk:
    """Return a chunk."""
    return Chunk(position=9, attempt=attempt, chunk=number, kind=kind, text=text)


def shown(view: DraftView, *chunks: Chunk) -> list[list[Any]]:
    """Return the pieces that a page gets for chunks."""
    frames = [frame for each in chunks if (frame := view.add(each))]
    return [piece for _, content in frames for piece in content.get("pieces", ())]


def test_invisible_characters_are_written_out() -> None:
    """Controls and directions are written out and marked, as everywhere on the page; markup stays text."""
    text = "pay <b>\u202e1\x00</b>\r\n\ud83d"
    assert shown(DraftView(), chunk(text)) == [
        ["pay <b>", False],
        ["\\u202e", True],
        ["1", False],
        ["\\x00", True],
        ["</b>\n", False],
        ["\\ud83d", True],
    ]


def test_a_line_end_that_two_chunks_divide_is_one_line_end() -> None:
    """A carriage return waits for what follows it; alone, it is written out."""
    view = DraftView()
    assert shown(view, chunk("a\r"), chunk("\nb\r", 2), chunk("c", 3)) == [
        ["a", False],
        ["\nb", False],
        ["\\r", True],
        ["c", False],
    ]


def test_a_huge_reply_is_cut_where_the_timeline_cuts_it() -> None:
    """Of text and of thinking, the first characters are sent, and then nothing more until another attempt begins."""
    view = DraftView()
    numbers = range(1, 4 + SHOWN_CHARS // CHUNK_CHARS)
    for kind in ("text", "reasoning"):
        frames = [
            view.add(chunk("x" * CHUNK_CHARS, number, kind)) for number in numbers if kind == "text" or number > 1
        ]
        sent = [content for frame in frames if frame for _, content in [frame]]
        assert sum(len(text) for content in sent for text, _ in content["pieces"]) == SHOWN_CHARS
        assert [bool(content.get("cut")) for content in sent] == [False] * (len(sent) - 1) + [True]
    assert view.add(chunk("arguments", 9, "arguments")) is None
    assert view.add(Chunk(position=9, attempt=2, chunk=0, kind="superseded")) == ("superseded", {})
    assert shown(view, chunk("y", 2)) == [["y", False]]


class Run:
    """A run that is read through a cache, and counts how often."""

    def __init__(self) -> None:
        self.count, self.status, self.reads, self.now = 3, "running", 0, 0.0
        self.failure: Exception | None = None
        self.cache = StateCache(self._state, now=lambda: self.now)
        self.log = CachedLog(self.cache, self._events)

    async def _state(self, thread: str) -> dict[str, Any]:
        self.reads += 1
        await asyncio.sleep(0)
        if self.failure:
            raise self.failure
        return {"events": self.count, "status": self.status}

    async def _events(self, thread: str, after: int) -> list[dict[str, Any]]:
        return [{"position": each} for each in range(after + 1, min(self.count, after + 3))]

    async def follow(self, into: list[int], subscription: Any, after: int = -1) -> None:
        """Follow the run to its end."""
        async for event in self.log.follow("t", after=after, subscription=subscription):
            into.append(event["position"])


class Pauses:
    """The pauses of all who follow: each ends when the test says so."""

    def __init__(self, run: Run) -> None:
        self.run, self.waiting = run, list[tuple[asyncio.Event, float, asyncio.Future[bool]]]()

    async def wait(self, event: asyncio.Event, *, within: float) -> bool:
        """Wait as the follower does."""
        ended = asyncio.get_running_loop().create_future()
        self.waiting.append((event, within, ended))
        return cast(bool, await ended)

    async def settle(self, count: int) -> list[float]:
        """Wait until so many wait; return how long they would."""
        async with asyncio.timeout(30):
            while len(self.waiting) < count:  # noqa: ASYNC110
                await asyncio.sleep(0)
        return [within for _, within, _ in self.waiting]

    def end(self, *, claimed: bool, seconds: float = 0.0) -> None:
        """End all pauses after a time; those that listen hear a claim if there is one."""
        self.run.now += seconds
        waiting, self.waiting = self.waiting, []
        for event, _, ended in waiting:
            ended.set_result(claimed and event in LISTENED)


LISTENED = set[asyncio.Event]()


def subscription(*, attempts: bool = False) -> Subscription:
    """Return a reader's subscription; with attempts, a reply is being written."""
    reader = SimpleNamespace(ahead=asyncio.Event(), attempts={1: {}} if attempts else {})
    LISTENED.add(reader.ahead)
    return cast(Subscription, reader)


@pytest.fixture
async def pauses(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pauses]:
    """A run, and the pauses of its followers."""
    held = Pauses(Run())
    monkeypatch.setattr(cached_log, "_is_set", held.wait)
    yield held
    LISTENED.clear()


async def test_two_hundred_pages_read_a_run_like_one(pauses: Pauses) -> None:
    """Pages of a run share each reading: of a quiet run, of one with news, and of one whose reply is written; each gets
    every event once, and all end with the run.
    """
    run, found = pauses.run, [list[int]() for _ in range(200)]
    readers = [
        asyncio.create_task(run.follow(into, subscription(attempts=number > 0))) for number, into in enumerate(found)
    ]
    assert set(await pauses.settle(200)) == {cached_log.QUIET_SECONDS, cached_log.LIVE_SECONDS}
    assert run.reads == 1
    run.count = 8
    pauses.end(claimed=True, seconds=0.5)
    await pauses.settle(200)
    assert run.reads == 2
    pauses.end(claimed=False, seconds=1.5)
    await pauses.settle(200)
    assert run.reads == 3
    run.count, run.status = 9, "completed"
    pauses.end(claimed=False, seconds=3.0)
    await asyncio.wait_for(asyncio.gather(*readers), 30)
    assert (run.reads, found) == (4, [list(range(9))] * 200)


async def test_a_false_claim_costs_one_reading(pauses: Pauses) -> None:
    """Whoever claims again and again that there is news has a run read once a second, not at each claim."""
    run, found = pauses.run, list[int]()
    reader = asyncio.create_task(run.follow(found, subscription()))
    for _ in range(3):
        await pauses.settle(1)
        pauses.end(claimed=True, seconds=0.5)
    (pause,) = await pauses.settle(1)
    assert (run.reads, found) == (3, [0, 1, 2])
    reader.cancel()
    with suppress(asyncio.CancelledError):
        await reader
    assert pause in (cached_log.LIVE_SECONDS, cached_log.QUIET_SECONDS)


async def test_a_stream_waits_while_nothing_answers_and_ends_with_an_unknown_thread(pauses: Pauses) -> None:
    """While no worker answers, a page waits and then continues; an unknown thread is an error."""
    run, found = pauses.run, list[int]()
    run.failure = ServerUnreachable("localhost:7233")
    reader = asyncio.create_task(run.follow(found, subscription()))
    await pauses.settle(1)
    run.failure = None
    pauses.end(claimed=False, seconds=20)
    await pauses.settle(1)
    assert found == [0, 1, 2]
    run.failure = ThreadNotFound("t")
    pauses.end(claimed=False, seconds=20)
    with pytest.raises(ThreadNotFound):
        await asyncio.wait_for(reader, 30)
