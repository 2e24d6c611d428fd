"""What every `ThreadStore` and every `ArtifactStore` must do, as tests to subclass in a pytest suite of your own.

    class TestMyThreads(ThreadStoreConformance):
        @pytest.fixture
        async def store(self) -> AsyncIterator[ThreadStore]:
            yield MyThreads(...)

The tests are `async`: pytest-asyncio runs them (in its automatic mode, or with `pytest.mark.asyncio` on the class).
They use threads and content of their own, so one database serves all of them, run after run.
"""

import asyncio
import unittest
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from uuid import uuid4

from holdfast.base.digests import address_of, canonical
from holdfast.base.lines import PAGE_BYTES
from holdfast.errors import ArtifactAltered, ArtifactNotFound, HoldfastError, RecordConflict, RecordGap
from holdfast.log.event_log import EventLog, event_line
from holdfast.log.events import UserMessageReceived
from holdfast.log.stored_lines import read_lines
from holdfast.stores import ArtifactStore, ThreadStore

AWKWARD = (
    "",
    "\x00 and \x1f",
    'quotes " and \\ backslashes',
    "\n\r\u2028",
    "naïve 😀 日本語",
    "half a pair: \ud800",
    "% %s {} $1",
)
"""Texts that stores have stumbled over."""


class ThreadStoreConformance:
    """The rules of `holdfast.stores.ThreadStore`. Give a fixture `store`."""

    async def test_what_is_appended_is_read(self, store: ThreadStore) -> None:
        """Lines come back in order and byte for byte, from any position on."""
        thread, lines = a_thread(), record(*AWKWARD)
        await store.append(thread, 0, lines[:2])
        await store.append(thread, 2, lines[2:])
        assert await store.length(thread) == len(lines)
        assert await store.read(thread) == lines
        assert await store.read(thread, 3) == lines[3:]
        assert read_lines(thread, 0, await store.read(thread))

    async def test_a_line_is_not_interpreted(self, store: ThreadStore) -> None:
        """An event that only a newer release knows comes back byte for byte, too."""
        events = (
            {"schema_version": 2, "type": "of_tomorrow", "position": 0, "at": "2026-01-02T03:04:05Z", "digest": "ab"},
            {"schema_version": 1, "type": "run_finished", "position": 1, "at": "yesterday", "digest": "00" * 32},
            {"schema_version": 1.0, "type": "of_tomorrow", "position": 7, "share": 0.1, "none": None, "deep": [[{}]]},
        )
        thread, lines = a_thread(), [canonical(event) for event in events]
        await store.append(thread, 0, lines)
        assert await store.read(thread) == lines

    async def test_an_unknown_thread_is_empty(self, store: ThreadStore) -> None:
        """Nothing is kept of a thread that nobody has appended to; asking for it is no error."""
        thread = a_thread()
        assert await store.length(thread) == 0
        assert await store.read(thread) == []

    async def test_reading_beyond_the_end_gives_nothing(self, store: ThreadStore) -> None:
        """Whoever reads on until nothing comes gets to the end."""
        thread = a_thread()
        await store.append(thread, 0, record("a"))
        assert await store.read(thread, 1) == []
        assert await store.read(thread, 9) == []

    async def test_threads_are_kept_apart(self, store: ThreadStore) -> None:
        """A thread's id is any text, and no two ids are the same thread."""
        base = a_thread()
        names = [base, f"{base} ", f"{base}/../x", f"{base.upper()}", f"{base}ä", f"{base}%", base * 20]
        for name in names:
            await store.append(name, 0, record(name))
        for name in names:
            assert await store.read(name) == record(name), name

    async def test_the_same_append_twice_is_the_same_as_once(self, store: ThreadStore) -> None:
        """An append whose answer got lost is made again, and changes nothing."""
        thread, lines = a_thread(), record("a", "b", "c")
        await store.append(thread, 0, lines)
        await store.append(thread, 0, lines)
        await store.append(thread, 1, lines[1:2])
        await store.append(thread, 3, [])
        assert await store.read(thread) == lines

    async def test_an_append_that_overlaps_adds_what_is_new(self, store: ThreadStore) -> None:
        """Positions that are kept already are compared; the rest is added."""
        thread, lines = a_thread(), record("a", "b", "c", "d")
        await store.append(thread, 0, lines[:2])
        await store.append(thread, 1, lines[1:])
        assert await store.read(thread) == lines

    async def test_other_bytes_at_a_kept_position_are_a_conflict(self, store: ThreadStore) -> None:
        """The error names thread and position, and nothing of the append is kept."""
        thread, lines, other = a_thread(), record("a", "b", "c"), record("a", "b", "another c", "d")
        await store.append(thread, 0, lines)
        with refused(RecordConflict, thread, "position 2"):
            await store.append(thread, 0, other)
        with refused(RecordConflict, thread, "position 2"):
            await store.append(thread, 2, other[2:])
        assert await store.read(thread) == lines
        assert await store.length(thread) == len(lines)

    async def test_a_start_beyond_the_length_is_a_gap(self, store: ThreadStore) -> None:
        """The error names thread and position, and nothing of the append is kept."""
        thread, lines = a_thread(), record("a", "b", "c")
        with refused(RecordGap, thread, "position 1"):
            await store.append(thread, 1, lines[1:])
        assert await store.length(thread) == 0
        await store.append(thread, 0, lines[:1])
        with refused(RecordGap, thread, "position 2"):
            await store.append(thread, 2, lines[2:])
        assert await store.read(thread) == lines[:1]

    async def test_the_same_append_at_the_same_time(self, store: ThreadStore) -> None:
        """Several workers that append the same lines at once all succeed, and the lines are kept once."""
        thread, lines = a_thread(), record(*AWKWARD)
        for start, stop in ((0, 1), (1, len(lines))):  # a thread that is new, and one that is not
            await asyncio.gather(*(store.append(thread, start, lines[start:stop]) for _ in range(4)))
            assert await store.read(thread) == lines[:stop]

    async def test_different_appends_at_the_same_time(self, store: ThreadStore) -> None:
        """Of several that want the same positions one succeeds, whole; the others are conflicts."""
        for before in ([], ["a"]):  # a thread that is new, and one that is not
            thread, start = a_thread(), len(before)
            if before:
                await store.append(thread, 0, record(*before))
            wanted = [record(*before, f"{number}", "b", "c") for number in range(4)]
            ends = await asyncio.gather(
                *(store.append(thread, start, lines[start:]) for lines in wanted), return_exceptions=True
            )
            assert sorted(type(end).__name__ for end in ends) == ["NoneType"] + 3 * ["RecordConflict"], ends
            assert await store.read(thread) == wanted[ends.index(None)]

    async def test_a_long_thread_is_read_in_pages(self, store: ThreadStore) -> None:
        """A page holds no more than `PAGE_BYTES`; reading on gives every line once."""
        thread, lines = a_thread(), record(*("x" * (PAGE_BYTES // 3 - 1000) for _ in range(5)), *map(str, range(3000)))
        await store.append(thread, 0, lines)
        read: list[bytes] = []
        while page := await store.read(thread, len(read)):
            assert sum(map(len, page)) <= PAGE_BYTES
            read += page
        assert read == lines

    async def test_a_line_longer_than_a_page_is_read_alone(self, store: ThreadStore) -> None:
        """However long a line is, reading comes past it."""
        thread, lines = a_thread(), record("a", "x" * (PAGE_BYTES + 1), "b")
        await store.append(thread, 0, lines)
        assert [await store.read(thread, start) for start in range(3)] == [lines[:1], lines[1:2], lines[2:]]


class ArtifactStoreConformance:
    """The rules of `holdfast.stores.ArtifactStore`. Give a fixture `store`."""

    async def test_what_is_put_is_got(self, store: ArtifactStore) -> None:
        """Content comes back byte for byte, from the address that its digest gives."""
        for content in (b"", b"\x00", b"a\r\nb\x1a\xff", f"text {uuid4()}".encode(), bytes(range(256))):
            address = await store.put(content, thread=a_thread())
            assert address == address_of(content)
            assert await store.get(address) == content
            assert await store.size(address) == len(content)

    async def test_a_part_of_it_is_got(self, store: ArtifactStore) -> None:
        """Offset and limit are in bytes; beyond the end there is nothing."""
        content = large_content()
        address = await store.put(content, thread=a_thread())
        ends = (0, 1, 999_999, 1_000_000, 1_048_576, len(content) - 1, len(content), len(content) + 1, 2**40)
        for offset in ends:
            assert await store.get(address, offset) == content[offset:]
            for limit in (0, 1, 10, 1_500_000, 2**40):
                assert await store.get(address, offset, limit) == content[offset : offset + limit], (offset, limit)

    async def alter(self, store: ArtifactStore, address: str, content: bytes) -> None:
        """Put other content at an address, behind the store's back; override it to have that tried."""
        raise unittest.SkipTest("the test class does not say how to alter what the store keeps: override `alter`")

    async def test_altered_content_is_not_given(self, store: ArtifactStore) -> None:
        """Neither the whole nor a part, whether it was read before or not; the error names the address."""
        for read_before in (False, True):
            content = large_content()
            address = await store.put(content, thread=a_thread())
            if read_before:
                assert await store.get(address, 0, 10) == content[:10]
            await self.alter(store, address, content[:-1] + bytes([content[-1] ^ 1]))
            with refused(ArtifactAltered, address):
                await store.get(address)
            with refused(ArtifactAltered, address):
                await store.get(address, len(content) - 10, 10)

    async def test_the_same_content_has_the_same_address(self, store: ArtifactStore) -> None:
        """Content is put any number of times, by any thread, and at the same time, and stays what it is."""
        content = large_content()
        addresses = await asyncio.gather(*(store.put(content, thread=a_thread()) for _ in range(4)))
        addresses.append(await store.put(content, thread=a_thread()))
        assert set(addresses) == {address_of(content)}
        assert await store.get(addresses[0]) == content

    async def test_an_address_with_nothing_is_not_found(self, store: ArtifactStore) -> None:
        """The error names the address."""
        address = address_of(uuid4().bytes)
        with refused(ArtifactNotFound, address):
            await store.get(address)
        with refused(ArtifactNotFound, address):
            await store.size(address)

    async def test_what_is_no_address_is_not_found(self, store: ArtifactStore) -> None:
        """Addresses may come from an LLM: whatever they hold, they lead nowhere else."""
        real = await store.put(b"real", thread=a_thread())
        for address in ("", "real", "sha256:", f"{real}\n", real.upper(), real[:-1], "sha256:../../etc/passwd", "/"):
            with refused(ArtifactNotFound):
                await store.get(address)
            with refused(ArtifactNotFound):
                await store.size(address)


def a_thread() -> str:
    """The id of a thread that nobody has used."""
    return f"conformance-{uuid4().hex}"


def record(*texts: str) -> list[bytes]:
    """The lines of a run in which somebody says these texts."""
    log, at = EventLog(), datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    for text in texts:
        log.append(UserMessageReceived(content=text), at=at)
    return [event_line(event) for event in log.events]


def large_content() -> bytes:
    """A few megabytes that repeat nowhere near."""
    return uuid4().bytes + b"".join(number.to_bytes(4, "big") for number in range(700_000))


@contextmanager
def refused(error: type[HoldfastError], *named: str) -> Iterator[None]:
    """Expect the block to raise `error`, and its message to name these (`pytest.raises`, without pytest)."""
    message = None
    try:
        yield
    except error as raised:
        message = str(raised)
    assert message is not None, f"{error.__name__} was not raised"
    missing = [name for name in named if name not in message]
    assert not missing, f"{error.__name__} does not name {missing}: {message}"
