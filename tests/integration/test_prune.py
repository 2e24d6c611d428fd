"""Pruning the permanent record: which threads are listed, and what is deleted with them."""

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from psycopg_pool import AsyncConnectionPool

from holdfast.core.log.event_log import EventLog, event_line
from holdfast.core.log.events import RunFinished, RunStarted, SignalRejected, UserMessageReceived
from holdfast.errors import ArtifactNotFound
from holdfast.storage.artifacts import PostgresArtifacts
from holdfast.storage.prune import Prunable, prunable, prune
from holdfast.storage.threads import PostgresThreads

DAY = timedelta(days=1)
NOW = datetime.now(UTC)


@pytest.fixture
def thread() -> str:
    """A new thread id."""
    return f"prune-{uuid4().hex}"


async def record(pool: AsyncConnectionPool, thread: str, *, age: timedelta, finished: bool = True) -> None:
    """Record a thread of two events, the last of which is that old."""
    log = EventLog()
    log.append(UserMessageReceived(content="task"), at=NOW - 2 * age)
    last = RunFinished(outcome="completed") if finished else UserMessageReceived(content="more")
    log.append(last, at=NOW - age)
    await PostgresThreads(pool).append(thread, 0, [event_line(event) for event in log.events])


async def listed(pool: AsyncConnectionPool, thread: str, older_than: timedelta) -> list[Prunable]:
    """Return the listed entries of one thread; other tests have their own."""
    return [one for one in await prunable(pool, older_than) if one.thread == thread]


async def test_a_thread_that_ended_long_ago_is_listed(pool: AsyncConnectionPool, thread: str) -> None:
    """The thread is listed with its size, including its rows for SQL, and the time of its last event."""
    await record(pool, thread, age=30 * DAY)
    (one,) = await listed(pool, thread, 29 * DAY)
    assert (one.events, one.last_position, one.last_at) == (2, 1, NOW - 30 * DAY)
    assert 500 < one.bytes < 750


async def test_a_thread_that_ended_recently_is_not_listed(pool: AsyncConnectionPool, thread: str) -> None:
    """The age of a thread is that of its last event, not of its first."""
    await record(pool, thread, age=30 * DAY)
    assert await listed(pool, thread, 31 * DAY) == []


async def test_a_thread_that_has_not_ended_is_not_listed(pool: AsyncConnectionPool, thread: str) -> None:
    """An unfinished run stays, however old its last event is."""
    await record(pool, thread, age=300 * DAY, finished=False)
    assert await listed(pool, thread, DAY) == []


@pytest.mark.parametrize("late", [1, 250])
@pytest.mark.parametrize("finished", [True, False])
async def test_late_signals_do_not_keep_a_thread_forever(
    pool: AsyncConnectionPool, thread: str, late: int, finished: bool
) -> None:
    """A thread has ended with its last run, even if later events were recorded; a re-opened one has not ended."""
    log = EventLog()
    log.append(UserMessageReceived(content="task"), at=NOW - 40 * DAY)
    log.append(RunFinished(outcome="completed"), at=NOW - 40 * DAY)
    if not finished:
        log.append(RunStarted(thread=thread, run_id="r", first_run_id="r", agent=None), at=NOW - 35 * DAY)
    for _ in range(late):
        log.append(SignalRejected(signal="retry", explanation="the run is completed"), at=NOW - 30 * DAY)
    await PostgresThreads(pool).append(thread, 0, [event_line(event) for event in log.events])
    assert [one.last_at for one in await listed(pool, thread, DAY)] == [NOW - 30 * DAY] * finished
    assert await listed(pool, thread, 31 * DAY) == [], "what counts is the last event"


async def test_a_thread_whose_end_cannot_be_read_is_not_listed(pool: AsyncConnectionPool, thread: str) -> None:
    """If the last event cannot be read, it is unknown whether the thread has ended."""
    for number, line in enumerate([b"\xff", b"[]", b'{"type":"run_finished"}', b'{"type":"run_finished","at":"1999"}']):
        await PostgresThreads(pool).append(f"{thread}-{number}", 0, [line])
    assert [one for one in await prunable(pool, DAY) if one.thread.startswith(thread)] == []


async def test_the_oldest_comes_first(pool: AsyncConnectionPool, thread: str) -> None:
    """Threads are listed in the order of their last events."""
    for days in (20, 40, 30):
        await record(pool, f"{thread}-{days}", age=days * DAY)
    threads = [one.thread for one in await prunable(pool, DAY) if one.thread.startswith(thread)]
    assert threads == [f"{thread}-40", f"{thread}-30", f"{thread}-20"]


async def test_pruning_removes_only_the_thread(pool: AsyncConnectionPool, thread: str) -> None:
    """Events, effects and artifacts of the thread are deleted; those of other threads stay."""
    threads, artifacts, other = PostgresThreads(pool), PostgresArtifacts(pool), f"{thread}-other"
    for name in (thread, other):
        await record(pool, name, age=30 * DAY)
        async with pool.connection() as connection:
            await connection.execute(
                "INSERT INTO holdfast.effects (key, epoch, thread, tool) VALUES (%s, 0, %s, 'act')", [name, name]
            )
    own = await artifacts.put(f"own {thread}".encode(), thread=thread)
    shared = await artifacts.put(f"shared {thread}".encode(), thread=thread)
    await artifacts.put(f"shared {thread}".encode(), thread=other)

    assert await prune(pool, thread, last_position=1)

    assert await threads.length(thread) == 0
    assert await threads.length(other) == 2
    with pytest.raises(ArtifactNotFound):
        await artifacts.get(own)
    assert await artifacts.get(shared) == f"shared {thread}".encode()
    async with pool.connection() as connection:
        left = await connection.execute("SELECT thread FROM holdfast.effects WHERE thread LIKE %s", [f"{thread}%"])
        assert await left.fetchall() == [(other,)]
    assert await prune(pool, other, last_position=1)
    with pytest.raises(ArtifactNotFound):
        await artifacts.get(shared)


async def test_an_archived_branch_is_pruned_with_its_thread(pool: AsyncConnectionPool, thread: str) -> None:
    """A branch is not listed by itself, keeps its artifacts while it exists, and is deleted with its thread."""
    threads, artifacts = PostgresThreads(pool), PostgresArtifacts(pool)
    await record(pool, thread, age=30 * DAY)
    lines = await threads.read(thread)
    address = await artifacts.put(thread.encode(), thread=thread)
    aside = await threads.set_aside(thread, 0, [b"{}"])
    await threads.append(thread, 0, lines)
    assert [one.thread for one in await prunable(pool, 29 * DAY) if one.thread.startswith(thread)] == [thread]
    assert await artifacts.get(address) == thread.encode()
    assert await prune(pool, thread, last_position=1)
    assert (await threads.length(aside), await threads.asides(thread)) == (0, [])
    with pytest.raises(ArtifactNotFound):
        await artifacts.get(address)


async def test_a_thread_that_has_grown_is_not_pruned(pool: AsyncConnectionPool, thread: str) -> None:
    """If a message arrives after the thread was listed, nothing of it is deleted."""
    await record(pool, thread, age=30 * DAY)
    (one,) = await listed(pool, thread, DAY)
    await PostgresThreads(pool).append(thread, one.events, [b"{}"])
    assert not await prune(pool, thread, last_position=one.last_position)
    assert await PostgresThreads(pool).length(thread) == 3


async def test_a_thread_is_pruned_once(pool: AsyncConnectionPool, thread: str) -> None:
    """Two concurrent prunes delete a thread once; an unknown thread is not an error."""
    await record(pool, thread, age=30 * DAY)
    ends = await asyncio.gather(*(prune(pool, thread, last_position=1) for _ in range(3)))
    assert sorted(ends) == [False, False, True]
    assert not await prune(pool, f"{thread}-unknown", last_position=0)


async def test_an_artifact_stored_during_a_prune_is_kept(pool: AsyncConnectionPool, thread: str) -> None:
    """An artifact that a thread stores is kept, even while the last other thread that refers to it is pruned."""
    artifacts, content = PostgresArtifacts(pool), f"shared {thread}".encode()
    for number in range(10):
        name = f"{thread}-{number}"
        await record(pool, name, age=30 * DAY)
        address = await artifacts.put(content, thread=name)
        pruned, _ = await asyncio.gather(
            prune(pool, name, last_position=1), artifacts.put(content, thread=f"{thread}-keeps-{number}")
        )
        assert pruned
        assert await artifacts.get(address) == content
        await record(pool, f"{thread}-keeps-{number}", age=30 * DAY)
        assert await prune(pool, f"{thread}-keeps-{number}", last_position=1)
        with pytest.raises(ArtifactNotFound):
            await artifacts.get(address)
