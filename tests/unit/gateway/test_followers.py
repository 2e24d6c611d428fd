"""One follower of a thread serves all of its readers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.client import WorkflowExecutionStatus

from holdfast.client import follow as follow_module
from holdfast.client.threads import JSON, Threads
from holdfast.errors import ThreadNotFound
from holdfast.streaming.followers import TAIL, Followers
from holdfast.streaming.hub import Subscription


class Log:
    """A thread with a log, and the tasks that have polled it."""

    def __init__(self) -> None:
        self.count, self.open, self.known = 0, True, True
        self.polled_by: set[asyncio.Task[Any] | None] = set()
        self.reader = self
        self.runs: Any = None

    async def find(self, thread: str, *, loops: bool = False) -> Any:
        """Describe the run."""
        if not self.known:
            raise ThreadNotFound(thread)
        status = WorkflowExecutionStatus.RUNNING if self.open else WorkflowExecutionStatus.COMPLETED
        return SimpleNamespace(status=status)

    async def events(self, thread: str, *, after: int, **_: Any) -> AsyncIterator[JSON]:
        """Yield the events so far."""
        self.polled_by.add(asyncio.current_task())
        for position in range(after + 1, self.count):
            await asyncio.sleep(0)
            yield {"position": position, "type": "step"}


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    """A thread, which is polled every ten milliseconds."""
    monkeypatch.setattr(follow_module, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(follow_module, "LEAST_SECONDS", 0.001)
    return Log()


async def read(followers: Followers, after: int, into: list[int], *, pause: float = 0.0) -> None:
    """Read a thread to its end."""
    async for event in followers.follow("t", after=after):
        into.append(event["position"])
        await asyncio.sleep(pause)


async def until(followers: Followers, readers: int) -> None:
    """Wait until so many readers share the follower."""
    async with asyncio.timeout(30):
        while not (one := followers._followers.get("t")) or len(one.readers) < readers:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_each_reader_gets_every_event_once_from_its_own_place(log: Log) -> None:
    """Readers that join at any place, slow ones as well, get what comes after it, in order, until the run is over."""
    followers, log.count = Followers(cast(Threads, log)), 3 * TAIL
    places = [-1, 5, log.count - 1, log.count - 1, log.count + 40]
    found: list[list[int]] = [[] for _ in places]
    readers = [
        asyncio.create_task(read(followers, place, into, pause=0.002 * (number == 1)))
        for number, (place, into) in enumerate(zip(places, found, strict=True))
    ]
    await until(followers, 3)
    for _ in range(3):
        log.count += 2 * TAIL
        await asyncio.sleep(0.05)
    log.open = False
    await asyncio.wait_for(asyncio.gather(*readers), 60)
    assert found == [list(range(place + 1, log.count)) for place in places]
    assert not followers._followers


async def test_a_hundred_readers_poll_like_one(log: Log) -> None:
    """Once they have caught up, their follower alone polls for a hundred readers, until the last of them leaves."""
    followers, log.count = Followers(cast(Threads, log)), 10
    found: list[list[int]] = [[] for _ in range(100)]
    readers = [asyncio.create_task(read(followers, -1, into)) for into in found]
    await until(followers, 100)
    log.polled_by.clear()
    log.count = 20
    async with asyncio.timeout(30):
        while any(len(each) < 20 for each in found):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    follower = followers._followers["t"]
    assert log.polled_by == {follower.task}
    for reader in readers[1:]:
        reader.cancel()
    await asyncio.wait(readers[1:])
    assert not follower.task.done()
    readers[0].cancel()
    await asyncio.wait(readers)
    await asyncio.wait({follower.task}, timeout=30)
    assert follower.task.cancelled()
    assert not followers._followers


async def test_news_of_one_reader_wakes_the_follower_of_all(log: Log) -> None:
    """Chunks that wait for events have the shared follower poll at once, whichever reader subscribed to them."""
    followers, hub_reader = Followers(cast(Threads, log)), cast(Subscription, SimpleNamespace(ahead=asyncio.Event()))
    plain = asyncio.create_task(read(followers, -1, []))
    await until(followers, 1)
    with_chunks = followers.follow("t", after=-1, subscription=hub_reader)
    async with aclosing(cast(Any, with_chunks)):
        first = asyncio.ensure_future(anext(with_chunks))
        await until(followers, 2)
        assert hub_reader.ahead is followers._followers["t"].ahead
        first.cancel()
        await asyncio.wait({first})
    plain.cancel()
    await asyncio.wait({plain})


async def test_a_failure_reaches_all_readers(log: Log) -> None:
    """If the thread is gone, every reader learns of it, and none waits for ever."""
    followers, log.count = Followers(cast(Threads, log)), 3
    readers = [asyncio.create_task(read(followers, -1, [])) for _ in range(3)]
    await until(followers, 3)
    log.known = False
    for result in await asyncio.wait_for(asyncio.gather(*readers, return_exceptions=True), 30):
        assert isinstance(result, ThreadNotFound)
    log.known = True
    log.open = False
    found: list[int] = []
    await read(followers, -1, found)
    assert found == [0, 1, 2]
