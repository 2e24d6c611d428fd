"""One reading of a run serves all open pages that show it."""

import asyncio

import pytest

from holdfast.client.threads import JSON
from holdfast.errors import ServerUnreachable
from holdfast.gateway.page.state_cache import MOST, OLDEST, TAILS, YOUNGEST, StateCache


class Run:
    """A run, a clock, and how often it was read."""

    def __init__(self) -> None:
        self.time, self.reads, self.events, self.fails = 0.0, 0, 1, False
        self.gate = asyncio.Event()
        self.gate.set()
        self.cache = StateCache(self.read, now=lambda: self.time)

    async def read(self, thread: str) -> JSON:
        """Read the state as it is now, and return it when the gate opens."""
        self.reads += 1
        state = {"thread": thread, "events": self.events, "status": "running"}
        await self.gate.wait()
        if self.fails:
            raise ServerUnreachable("it does not answer")
        return state


async def test_two_hundred_pages_read_a_run_once() -> None:
    """Pages that ask at once share a reading, and so do those that ask soon after; who leaves takes it from nobody."""
    run = Run()
    run.gate.clear()
    pages = [asyncio.create_task(run.cache.state("t")) for _ in range(200)]
    await asyncio.sleep(0)
    pages.pop(0).cancel()
    run.gate.set()
    assert len(await asyncio.gather(*pages)) == 199
    run.time = YOUNGEST / 2
    await run.cache.state("t")
    assert run.reads == 1


async def test_a_quiet_run_is_read_less_often_and_a_busy_one_at_once_again() -> None:
    """The age that serves grows with the time without a change, up to a limit, and falls with the next change."""
    run, gaps, last = Run(), list[float](), 0.0
    for _ in range(1_200):
        before = run.reads
        await run.cache.state("t")
        if run.reads > before:
            gaps.append(run.time - last)
            last = run.time
        run.time += 0.1
    assert max(gaps[:3]) <= YOUNGEST + 0.2
    assert OLDEST - 0.2 <= gaps[-1] <= OLDEST + 0.2
    run.events, run.time = 2, run.time + OLDEST
    assert (await run.cache.state("t"))["events"] == 2
    run.events, run.time = 3, run.time + YOUNGEST + 0.1
    assert (await run.cache.state("t"))["events"] == 3


async def test_no_reading_from_before_a_change_outlives_it() -> None:
    """A reading that began before somebody changed the run, or before a page read it, is not kept."""
    run = Run()
    for read in (False, True):
        run.cache.forget("t")
        run.events = 1
        run.gate.clear()
        old = asyncio.create_task(run.cache.state("t"))
        for _ in range(3):
            await asyncio.sleep(0)
        run.events = 2
        if read:
            run.cache.put("t", {"events": 2, "status": "running"})
        else:
            run.cache.forget("t")
        run.gate.set()
        assert (await old)["events"] == 1
        assert (await run.cache.state("t"))["events"] == 2


async def test_a_failure_is_not_kept() -> None:
    """All who wait for a reading that fails learn of it, and the next one reads again."""
    run = Run()
    run.fails = True
    for _ in range(2):
        with pytest.raises(ServerUnreachable):
            await run.cache.state("t")
    run.fails = False
    assert (await run.cache.state("t"))["events"] == 1


async def test_what_is_kept_is_bounded() -> None:
    """However many runs and positions somebody asks for, only so many are kept; equal ones are read once."""
    run = Run()
    for number in range(MOST + 50):
        await run.cache.state(f"t-{number}")
    assert len(run.cache._runs) == MOST
    reads: list[int] = []

    async def read(after: int) -> list[JSON]:
        reads.append(after)
        return [{"position": after + 1}]

    for after in range(1_000):
        await run.cache.events("t-500", after, lambda after=after: read(after))  # type: ignore[misc]
    assert len(run.cache._tails) == TAILS
    await run.cache.events("t-500", 999, lambda: read(999))
    assert len(reads) == 1_000
