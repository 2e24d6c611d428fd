"""Conformance suites for `ThreadStore` and `ArtifactStore`: test classes to subclass in your own pytest suite.

    import pytest
    from holdfast import ThreadStore
    from holdfast.testing import ThreadStoreConformance
    from mycompany.stores import MyThreads

    class TestMyThreads(ThreadStoreConformance):
        @pytest.fixture
        def store(self) -> ThreadStore:
            return MyThreads()

The tests are `async`: pytest-asyncio runs them in automatic mode, or with `pytest.mark.asyncio` on the class.
They create new threads and content each time, so they can share a database and run repeatedly.
"""

import asyncio
import unittest
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from uuid import uuid4

from holdfast.core.base.canonical import address_of, canonical
from holdfast.core.log.event_log import PAGE_BYTES, EventLog, event_line
from holdfast.core.log.events import UserMessageReceived
from holdfast.core.log.stored_lines import read_lines
from holdfast.core.stores import ArtifactStore, ThreadStore
from holdfast.errors import ArtifactAltered, ArtifactNotFound, HoldfastError, RecordConflict, RecordGap

AWKWARD = (
    "",
    "\x00 and \x1f",
    'quotes " and \\ backslashes',
    "\n\r\u2028",
    "naïve 😀 日本語",
    "half a pair: \ud800",
    "% %s {} $1",
)
"""Texts that have broken stores."""


class ThreadStoreConformance:
    """The rules of `holdfast.core.stores.ThreadStore`. Subclasses provide the fixture `store`."""

    async def test_appended_lines_are_read_back(self, store: ThreadStore) -> None:
        """Lines are returned in order and byte for byte, from any position on."""
        thread, lines = a_thread(), record(*AWKWARD)
        await store.append(thread, 0, lines[:2])
        await store.append(thread, 2, lines[2:])
        assert await store.length(thread) == len(lines)
        assert await store.read(thread) == lines
        assert await store.read(thread, 3) == lines[3:]
        assert read_lines(thread, 0, await store.read(thread))

    async def test_lines_are_opaque(self, store: ThreadStore) -> None:
        """An event of a type that only a newer release has is returned byte for byte."""
        events = (
            {"schema_version": 2, "type": "of_tomorrow", "position": 0, "at": "2026-01-02T03:04:05Z", "digest": "ab"},
            {"schema_version": 1, "type": "run_finished", "position": 1, "at": "yesterday", "digest": "00" * 32},
            {"schema_version": 1.0, "type": "of_tomorrow", "position": 7, "share": 0.1, "none": None, "deep": [[{}]]},
        )
        thread, lines = a_thread(), [canonical(event) for event in events]
        await store.append(thread, 0, lines)
        assert await store.read(thread) == lines

    async def test_an_unknown_thread_is_empty(self, store: ThreadStore) -> None:
        """A thread without appends has length 0 and no lines; reading it is not an error."""
        thread = a_thread()
        assert await store.length(thread) == 0
        assert await store.read(thread) == []

    async def test_reading_beyond_the_end_returns_nothing(self, store: ThreadStore) -> None:
        """A reader that reads until nothing is returned has reached the end."""
        thread = a_thread()
        await store.append(thread, 0, record("a"))
        assert await store.read(thread, 1) == []
        assert await store.read(thread, 9) == []

    async def test_threads_are_isolated(self, store: ThreadStore) -> None:
        """A thread id is any text, and different ids are different threads."""
        base = a_thread()
        names = [base, f"{base} ", f"{base}/../x", f"{base.upper()}", f"{base}ä", f"{base}%", base * 20]
        for name in names:
            await store.append(name, 0, record(name))
        for name in names:
            assert await store.read(name) == record(name), name

    async def test_append_is_idempotent(self, store: ThreadStore) -> None:
        """An append that is repeated, as after a lost answer, changes nothing."""
        thread, lines = a_thread(), record("a", "b", "c")
        await store.append(thread, 0, lines)
        await store.append(thread, 0, lines)
        await store.append(thread, 1, lines[1:2])
        await store.append(thread, 3, [])
        assert await store.read(thread) == lines

    async def test_an_overlapping_append_adds_the_new_lines(self, store: ThreadStore) -> None:
        """Lines at stored positions are compared; the rest are added."""
        thread, lines = a_thread(), record("a", "b", "c", "d")
        await store.append(thread, 0, lines[:2])
        await store.append(thread, 1, lines[1:])
        assert await store.read(thread) == lines

    async def test_different_bytes_at_a_stored_position_conflict(self, store: ThreadStore) -> None:
        """The error names thread and position, and nothing of the append is kept."""
        thread, lines, other = a_thread(), record("a", "b", "c"), record("a", "b", "different c", "d")
        await store.append(thread, 0, lines)
        with expect_error(RecordConflict, thread, "position 2"):
            await store.append(thread, 0, other)
        with expect_error(RecordConflict, thread, "position 2"):
            await store.append(thread, 2, other[2:])
        assert await store.read(thread) == lines
        assert await store.length(thread) == len(lines)

    async def test_a_start_beyond_the_length_is_a_gap(self, store: ThreadStore) -> None:
        """The error names thread and position, and nothing of the append is kept."""
        thread, lines = a_thread(), record("a", "b", "c")
        with expect_error(RecordGap, thread, "position 1"):
            await store.append(thread, 1, lines[1:])
        assert await store.length(thread) == 0
        await store.append(thread, 0, lines[:1])
        with expect_error(RecordGap, thread, "position 2"):
            await store.append(thread, 2, lines[2:])
        assert await store.read(thread) == lines[:1]

    async def test_identical_concurrent_appends_all_succeed(self, store: ThreadStore) -> None:
        """If several workers append the same lines at once, all succeed, and the lines are stored once."""
        thread, lines = a_thread(), record(*AWKWARD)
        for start, stop in ((0, 1), (1, len(lines))):  # a thread that is new, and one that is not
            await asyncio.gather(*(store.append(thread, start, lines[start:stop]) for _ in range(4)))
            assert await store.read(thread) == lines[:stop]

    async def test_one_of_different_concurrent_appends_succeeds(self, store: ThreadStore) -> None:
        """If several appends are at the same positions, one succeeds completely; the others conflict."""
        for before in ([], ["a"]):  # a thread that is new, and one that is not
            thread, start = a_thread(), len(before)
            if before:
                await store.append(thread, 0, record(*before))
            attempts = [record(*before, f"{number}", "b", "c") for number in range(4)]
            ends = await asyncio.gather(
                *(store.append(thread, start, lines[start:]) for lines in attempts), return_exceptions=True
            )
            assert sorted(type(end).__name__ for end in ends) == ["NoneType"] + 3 * ["RecordConflict"], ends
            assert await store.read(thread) == attempts[ends.index(None)]

    async def test_a_long_thread_is_read_in_pages(self, store: ThreadStore) -> None:
        """A page has at most `PAGE_BYTES`; reading page after page returns every line once."""
        thread, lines = a_thread(), record(*("x" * (PAGE_BYTES // 3 - 1000) for _ in range(5)), *map(str, range(3000)))
        await store.append(thread, 0, lines)
        read: list[bytes] = []
        while page := await store.read(thread, len(read)):
            assert sum(map(len, page)) <= PAGE_BYTES
            read += page
        assert read == lines

    async def test_a_line_longer_than_a_page_is_read_alone(self, store: ThreadStore) -> None:
        """Reading gets past a line of any length."""
        thread, lines = a_thread(), record("a", "x" * (PAGE_BYTES + 1), "b")
        await store.append(thread, 0, lines)
        assert [await store.read(thread, start) for start in range(3)] == [lines[:1], lines[1:2], lines[2:]]


class ArtifactStoreConformance:
    """The rules of `holdfast.core.stores.ArtifactStore`. Subclasses provide the fixture `store`."""

    async def test_content_is_returned_unchanged(self, store: ArtifactStore) -> None:
        """Content is returned byte for byte, from the address that its digest gives."""
        for content in (b"", b"\x00", b"a\r\nb\x1a\xff", f"text {uuid4()}".encode(), bytes(range(256))):
            address = await store.put(content, thread=a_thread())
            assert address == address_of(content)
            assert await store.get(address) == content
            assert await store.size(address) == len(content)

    async def test_a_range_of_content_is_returned(self, store: ArtifactStore) -> None:
        """Offset and limit are in bytes; a range beyond the end is empty."""
        content = large_content()
        address = await store.put(content, thread=a_thread())
        ends = (0, 1, 999_999, 1_000_000, 1_048_576, len(content) - 1, len(content), len(content) + 1, 2**40)
        for offset in ends:
            assert await store.get(address, offset) == content[offset:]
            for limit in (0, 1, 10, 1_500_000, 2**40):
                assert await store.get(address, offset, limit) == content[offset : offset + limit], (offset, limit)

    async def alter(self, store: ArtifactStore, address: str, content: bytes) -> None:
        """Replace the stored content at an address without the store's interface.

        Override this to enable `test_altered_content_is_never_returned`, which is skipped otherwise.
        """
        raise unittest.SkipTest("override `alter` to test that altered content is detected")

    async def test_altered_content_is_never_returned(self, store: ArtifactStore) -> None:
        """Reading it, whole or in part, raises an error that names the address, even if it was read before."""
        for read_before in (False, True):
            content = large_content()
            address = await store.put(content, thread=a_thread())
            if read_before:
                assert await store.get(address, 0, 10) == content[:10]
            await self.alter(store, address, content[:-1] + bytes([content[-1] ^ 1]))
            with expect_error(ArtifactAltered, address):
                await store.get(address)
            with expect_error(ArtifactAltered, address):
                await store.get(address, len(content) - 10, 10)

    async def test_the_same_content_has_the_same_address(self, store: ArtifactStore) -> None:
        """Storing the same content again, from any thread or concurrently, gives the same address."""
        content = large_content()
        addresses = await asyncio.gather(*(store.put(content, thread=a_thread()) for _ in range(4)))
        addresses.append(await store.put(content, thread=a_thread()))
        assert set(addresses) == {address_of(content)}
        assert await store.get(addresses[0]) == content

    async def test_an_unused_address_is_not_found(self, store: ArtifactStore) -> None:
        """The error names the address."""
        address = address_of(uuid4().bytes)
        with expect_error(ArtifactNotFound, address):
            await store.get(address)
        with expect_error(ArtifactNotFound, address):
            await store.size(address)

    async def test_an_invalid_address_is_not_found(self, store: ArtifactStore) -> None:
        """Addresses may come from an LLM: an invalid one never leads outside the store."""
        real = await store.put(b"real", thread=a_thread())
        for address in ("", "real", "sha256:", f"{real}\n", real.upper(), real[:-1], "sha256:../../etc/passwd", "/"):
            with expect_error(ArtifactNotFound):
                await store.get(address)
            with expect_error(ArtifactNotFound):
                await store.size(address)


def a_thread() -> str:
    """Return an unused thread id."""
    return f"conformance-{uuid4().hex}"


def record(*texts: str) -> list[bytes]:
    """Return the log lines of a run that receives these messages."""
    log, at = EventLog(), datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    for text in texts:
        log.append(UserMessageReceived(content=text), at=at)
    return [event_line(event) for event in log.events]


def large_content() -> bytes:
    """Return a few megabytes without short repetitions, so that no store can compress them away."""
    return uuid4().bytes + b"".join(number.to_bytes(4, "big") for number in range(700_000))


@contextmanager
def expect_error(error: type[HoldfastError], *named: str) -> Iterator[None]:
    """Expect the block to raise `error` with a message that contains each of `named` (works without pytest)."""
    message = None
    try:
        yield
    except error as raised:
        message = str(raised)
    assert message is not None, f"{error.__name__} was not raised"
    missing = [name for name in named if name not in message]
    assert not missing, f"{error.__name__} does not name {missing}: {message}"
