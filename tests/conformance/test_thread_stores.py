"""The permanent record: PostgreSQL, and a minimal store that passes."""

import hashlib
import json
import random
import shutil
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg_pool import AsyncConnectionPool
from temporalio.exceptions import ApplicationError

from holdfast.core.base.canonical import GENESIS, canonical, portable
from holdfast.core.log.event_log import PAGE_BYTES, EventLog, event_line
from holdfast.core.log.events import ToolCallFinished, UserMessageReceived
from holdfast.core.log.stored_lines import read_lines
from holdfast.core.stores import ThreadStore
from holdfast.errors import RecordConflict, RecordGap, RecordUnreadable
from holdfast.storage import blocks
from holdfast.storage import pool as stores_pool
from holdfast.storage.blocks import BLOCK_BYTES, Block, events_reversed, pack, pack_like, unpack
from holdfast.storage.pool import open_pool
from holdfast.storage.threads import PostgresThreads
from holdfast.testing import ThreadStoreConformance


class FileThreads:
    """A file of JSON lines per thread, for one process: an example of a custom store."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def append(self, thread: str, start: int, lines: Sequence[bytes]) -> None:
        kept = self._kept(thread)
        if start > len(kept):
            raise RecordGap(f"{thread} has no event before position {start}; append from position {len(kept)} on")
        for position, (old, new) in enumerate(zip(kept[start:], lines, strict=False), start):
            if old != new:
                raise RecordConflict(f"{thread} has another event at position {position}; nothing was appended")
        unfinished = self._file(thread).with_suffix(".unfinished")
        unfinished.write_bytes(b"".join(line + b"\n" for line in [*kept[:start], *lines, *kept[start + len(lines) :]]))
        unfinished.replace(self._file(thread))

    async def read(self, thread: str, start: int = 0) -> list[bytes]:
        page: list[bytes] = []
        for line in self._kept(thread)[start:]:
            if page and sum(map(len, page)) + len(line) > PAGE_BYTES:
                break
            page.append(line)
        return page

    async def length(self, thread: str) -> int:
        return len(self._kept(thread))

    def _kept(self, thread: str) -> list[bytes]:
        file = self._file(thread)
        return file.read_bytes().split(b"\n")[:-1] if file.exists() else []

    def _file(self, thread: str) -> Path:
        return self._folder / hashlib.sha256(thread.encode()).hexdigest()


class TestFileThreads(ThreadStoreConformance):
    @pytest.fixture
    def store(self, tmp_path: Path) -> ThreadStore:
        """Return a store for this test."""
        return FileThreads(tmp_path)


class TestPostgresThreads(ThreadStoreConformance):
    @pytest.fixture
    def store(self, pool: AsyncConnectionPool) -> ThreadStore:
        """Return the database that all tests share."""
        return PostgresThreads(pool)

    async def test_lines_of_any_bytes(self, store: ThreadStore) -> None:
        """Lines that are not events, or not JSON, are also returned byte for byte."""
        lines = [b"", b"\x00", b"\n", b'{"a": 1}', b"[]", b"null", bytes(range(256)), b"\xff" * 3000]
        await store.append("any bytes", 0, lines)
        await store.append("any bytes", 0, lines)
        assert await store.read("any bytes") == lines

    async def test_a_position_is_stored_once(self, store: ThreadStore, pool: AsyncConnectionPool) -> None:
        """The schema itself rejects a second block at a position."""
        await store.append("once", 0, [b"{}"])
        with pytest.raises(psycopg.errors.UniqueViolation):
            async with pool.connection() as connection:
                await connection.execute(
                    "INSERT INTO holdfast.events (thread, position, stop, size, body) "
                    "SELECT id, 0, 1, 0, '' FROM holdfast.threads WHERE thread = 'once'"
                )

    async def test_a_damaged_block_is_named(self, store: ThreadStore, pool: AsyncConnectionPool) -> None:
        """A block that does not decode is an error that names its events."""
        await store.append("damaged", 0, [b"{}"])
        await store.append("damaged", 1, [b"{}", b"{}"])
        async with pool.connection() as connection:
            undamaged = await (
                await connection.execute(
                    "SELECT body FROM holdfast.events WHERE position = 1 "
                    "AND thread = (SELECT id FROM holdfast.threads WHERE thread = 'damaged')"
                )
            ).fetchone()
            await connection.execute(
                "UPDATE holdfast.events SET body = %s WHERE position = 1 "
                "AND thread = (SELECT id FROM holdfast.threads WHERE thread = 'damaged')",
                [b"\x01no"],
            )
        try:
            with pytest.raises(
                RecordUnreadable, match="event 1 of thread damaged, or one up to event 2, was altered or damaged"
            ):
                await store.read("damaged")
        finally:
            async with pool.connection() as connection:
                await connection.execute(
                    "UPDATE holdfast.events SET body = %s WHERE body = %s", [*(undamaged or ()), b"\x01no"]
                )
        assert await store.read("damaged") == [b"{}"] * 3

    async def test_a_fork_has_the_lines_that_were_read(
        self, store: ThreadStore, pool: AsyncConnectionPool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A fork shares those of its original's blocks that hold its lines; if one was altered, the fork keeps the
        lines that it read.
        """
        monkeypatch.setattr(blocks, "BLOCK_BYTES", 700)
        origin, forks = f"origin-{uuid4().hex}", [f"fork-{uuid4().hex}" for _ in range(2)]
        lines = chained_lines([f"{number}" * 100 for number in range(20)], position=0)
        await store.append(origin, 0, lines)
        point = {"thread": origin, "position": 16, "head": json.loads(lines[16])["digest"]}
        forked = [*lines[:17], canonical({"type": "run_forked", "position": 17, "point": point})]
        await store.append(forks[0], 0, forked)
        assert await store.read(forks[0]) == forked
        own, shared = await self._bodies(pool, forks[0]), await self._bodies(pool, origin)
        assert own[:3] == shared[:3]
        assert own[-1] not in shared
        (other,) = pack(0, chained_lines(["other", "events"], position=0))
        async with pool.connection() as connection:
            await connection.execute("UPDATE holdfast.events SET body = %s WHERE body = %s", [other.body, shared[1]])
        await store.append(forks[1], 0, forked)
        assert await store.read(forks[1]) == forked

    async def _bodies(self, pool: AsyncConnectionPool, thread: str) -> list[bytes]:
        async with pool.connection() as connection:
            rows = await connection.execute(
                "SELECT body FROM holdfast.events JOIN holdfast.threads ON threads.id = events.thread "
                "WHERE threads.thread = %s ORDER BY position",
                [thread],
            )
            return [bytes(body) for (body,) in await rows.fetchall()]

    @pytest.mark.parametrize("seed", [0, *(pytest.param(each, marks=pytest.mark.extended) for each in (1, 2, 3))])
    async def test_wherever_blocks_begin_and_end(
        self, store: ThreadStore, pool: AsyncConnectionPool, monkeypatch: pytest.MonkeyPatch, seed: int
    ) -> None:
        """At any block boundary, appends, pages and archived branches behave as if lines were stored one by one."""
        monkeypatch.setattr(blocks, "BLOCK_BYTES", 700)
        chance, thread, log = random.Random(seed), f"blocks-{uuid4().hex}", EventLog()
        kept: list[bytes] = []
        asides: dict[str, list[bytes]] = {}
        assert isinstance(store, PostgresThreads)
        for _ in range(30):
            if kept and chance.random() < 0.3:  # a reset: a different continuation from some event on
                start = chance.randint(0, len(kept))
                same = chance.randint(0, len(kept) - start)
                lines = [*kept[start : start + same], *(b"another %d" % n for n in range(chance.randint(0, 3)))]
                asides[await store.set_aside(thread, start, lines)] = kept
                kept = kept[: start + same]
            for number in range(chance.randint(1, 12)):
                log.append(UserMessageReceived(content=chance.choice(["x" * 900, "short"])), at=at_second(number))
            fresh = [event_line(event) for event in log.events[-chance.randint(1, 12) :]]
            start = chance.randint(0, len(kept))
            await store.append(thread, start, [*kept[start:], *fresh])
            kept += fresh
            with pytest.raises(RecordConflict, match=f"position {start} "):
                await store.append(thread, start, [b"no such line", *kept[start + 1 :]])
            assert await store.length(thread) == len(kept)
            assert await store.read(thread, start) == kept[start:]
            position = chance.randrange(len(kept))
            assert (await store.read(thread, position))[0] == kept[position]
        for aside, lines in asides.items():
            assert await store.read(aside) == lines
        assert await store.asides(thread) == list(asides)


async def test_a_record_with_one_event_per_row_is_migrated(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database from before blocks is migrated; its old events stay in it, and new ones can be stored."""
    name = f"rows_{uuid4().hex}"
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
        await connection.execute(f"CREATE DATABASE {name}")
    url = psycopg.conninfo.make_conninfo(database_url, dbname=name)
    for file in sorted(stores_pool.MIGRATIONS.glob("000[1-4]*.sql")):
        shutil.copy(file, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(stores_pool, "MIGRATIONS", tmp_path)
        await stores_pool.migrate(url)
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute("INSERT INTO holdfast.threads (thread) VALUES ('old')")
        await connection.execute("INSERT INTO holdfast.events (thread, position, body) VALUES (1, 0, '')")
        assert "0005_blocks" in await stores_pool.migrate(url)
        kept = await connection.execute("SELECT count(*) FROM holdfast.events_before_blocks")
        assert await kept.fetchone() == (1,)
    async with open_pool(url, size=1) as pool:
        await PostgresThreads(pool).append("old", 0, [b"{}"])
        assert await PostgresThreads(pool).read("old") == [b"{}"]


async def test_without_a_database_the_record_waits() -> None:
    """Every method fails with an error that Temporal retries."""
    pool = open_pool("postgresql://postgres@127.0.0.1:1/postgres", size=1)
    pool.timeout = 0.2
    await pool.open(wait=False)
    try:
        store = PostgresThreads(pool)
        for call in (store.append("t", 0, [b"{}"]), store.read("t"), store.length("t")):
            with pytest.raises(ApplicationError, match="no connection to the database; the record of t waits") as error:
                await call
            assert error.value.type == "DatabaseUnavailable"
            assert not error.value.non_retryable
    finally:
        await pool.close()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(codec=None)), inner, max_size=3),
    max_leaves=8,
)
TIMES = st.datetimes(timezones=st.just(UTC)).map(lambda at: at.isoformat().replace("+00:00", "Z"))
EVENTS = st.fixed_dictionaries(
    {},
    optional={
        "schema_version": st.sampled_from([1, 2, True, 1.0, None]),
        "position": st.sampled_from([7, 7.0, True, "7"]),
        "at": TIMES | st.datetimes().map(str) | JSON,
        "digest": st.binary(min_size=32, max_size=32).map(bytes.hex) | st.sampled_from(["AB", "a b", ""]) | JSON,
        "type": JSON,
    },
)


LINES = (
    st.binary()
    | (JSON | EVENTS).map(portable).map(canonical)
    | (JSON | EVENTS).map(lambda value: json.dumps(value).encode())
)


def at_second(number: int) -> datetime:
    """Return a time."""
    return datetime(2026, 1, 2, tzinfo=UTC) + timedelta(seconds=number)


def chained_lines(contents: Sequence[str], *, position: int = 7) -> list[bytes]:
    """Return lines of events as a run writes them."""
    log = EventLog(position=position)
    for number, content in enumerate(contents):
        log.append(ToolCallFinished(number=number, status="ok", content=content), at=at_second(number // 2))
    return [event_line(event) for event in log.events]


@given(st.lists(LINES, min_size=1, max_size=6), st.integers(0, 9))
def test_any_lines_fit_blocks(lines: list[bytes], position: int) -> None:
    """Blocks return the bytes of their lines: events, other JSON or any other bytes."""
    packed = pack(position, lines)
    assert [line for block in packed for line in unpack(block)] == lines
    for block in packed:
        assert len(list(events_reversed(block))) == block.length


@given(st.lists(st.text(st.characters(codec=None)), min_size=1, max_size=6), st.lists(LINES, max_size=2))
def test_events_are_condensed(contents: list[str], others: list[bytes]) -> None:
    """Fields that follow from the event before are not stored; lines that are not events are unaffected."""
    lines = chained_lines(contents)
    (block,) = pack(7, lines)
    assert (block.position, block.stop, block.size) == (7, 7 + len(lines), sum(map(len, lines)))
    assert unpack(block) == lines
    assert [event["type"] for event in events_reversed(block)] == ["tool_call_finished"] * len(lines)
    assert block.at == (datetime.fromisoformat(json.loads(lines[-1])["at"]) - blocks.EPOCH) // timedelta(microseconds=1)
    results = [{"content": each, "number": number, "status": "ok"} for number, each in enumerate(contents)]
    rest = [canonical(portable({"type": "tool_call_finished", "at": 1_000_000} | each)) for each in results]
    assert len(block.body) <= 1 + 64 + sum(map(len, rest)) + len(rest)
    assert [line for part in pack(7, [*lines, *others, *lines]) for line in unpack(part)] == [*lines, *others, *lines]


@given(st.lists(st.integers(0, 3 * BLOCK_BYTES), min_size=1, max_size=9))
def test_blocks_are_of_about_equal_size(sizes: list[int]) -> None:
    """Lines are stored in order in as few blocks as hold them; a line longer than a block gets its own."""
    lines = [b"x" * size for size in sizes]
    packed = pack(0, lines)
    assert [(block.position, block.stop) for block in packed] == list(pairwise([0, *(block.stop for block in packed)]))
    assert packed[-1].stop == len(lines)
    assert len(packed) <= -(-sum(sizes) // BLOCK_BYTES) or len(packed) == 1
    assert max(block.size for block in packed) <= BLOCK_BYTES + max(sizes)


def test_blocks_are_shared_only_where_they_hold_the_same_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines are packed byte for byte, for any existing blocks; a block that lacks them, is damaged, or has another time
    than their last line is not shared.
    """
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 700)
    lines = [
        *chained_lines([f"{number}" * 100 for number in range(12)], position=0),
        *(b"%d" % n * 400 for n in range(4)),
    ]
    stored = pack(0, lines)
    assert pack_like(stored, lines) == stored
    altered = [*lines[:5], b"another", *lines[6:], b"more"]
    packed = pack_like(stored, altered)
    assert [line for block in packed for line in unpack(block)] == altered
    assert set(packed) & set(stored) == {block for block in stored if not block.position <= 5 < block.stop}
    broken = [stored[0]._replace(body=stored[0].body[:-1]), *stored[1:-1], stored[-1]._replace(at=7)]
    packed = pack_like(broken, lines)
    assert [line for block in packed for line in unpack(block)] == lines
    assert not set(packed) & {broken[0], broken[-1]}
    overlapping = sorted([*stored, *pack(1, lines[1:])])
    assert [line for block in pack_like(overlapping, lines) for line in unpack(block)] == lines
    huge = [block._replace(size=2**40) for block in stored]
    monkeypatch.setattr(blocks, "unpack", pytest.fail)  # it may take as much memory as the block claims
    assert [block.size for block in pack_like(huge, lines)] == [block.size for block in stored]


@given(st.integers(0, 3), st.data())
def test_an_event_altered_within_a_block_is_detected(place: int, data: st.DataObject) -> None:
    """A reader of the block detects changed content, order, time or position."""
    lines = chained_lines(["one", "two", "three", "four"])
    (block,) = pack(7, lines)
    content = blocks._content(block)[1]
    digests, parts = content[:64], content[64:].split(b"\n")
    assert len(parts) == len(lines)
    block = block._replace(body=b"\x02" + content)
    parts[place] = data.draw(st.sampled_from([parts[place].replace(b"o", b"0"), parts[0], parts[-1]]))
    altered = block._replace(body=b"\x02" + digests + b"\n".join(parts))
    if altered != block:
        with pytest.raises((ValueError, RecordUnreadable)):  # the first one's digest is stored, and does not follow
            read_lines("thread", 7, unpack(altered), head=GENESIS)
    with pytest.raises(ValueError, match="does not follow"):
        unpack(block._replace(at=(block.at or 0) + 1))
    with pytest.raises(ValueError, match="does not follow"):
        unpack(block._replace(position=8, stop=block.stop + 1))


@given(
    st.integers(0, 3) | st.none(),
    st.binary(max_size=99),
    st.integers(0, 3),
    st.integers(0, 99),
    st.none() | st.just(0) | st.integers(-(2**63), 2**63 - 1),
)
def test_a_block_that_was_damaged_is_a_value_error(
    form: int | None, body: bytes, length: int, size: int, at: int | None
) -> None:
    """Any content of a block gives lines or a ValueError."""
    block = Block(0, length, size, at, body if form is None else bytes([form]) + body)
    assert all(isinstance(event, dict) for event in events_reversed(block))
    with suppress(ValueError):
        unpack(block)


def test_a_damaged_block_takes_no_memory() -> None:
    """Decompression stops once the content is larger than the block should be."""
    (block,) = pack(0, [b" " * 10_000_000])
    with pytest.raises(ValueError, match="ends too early or too late"):
        unpack(block._replace(size=1000))


def test_the_form_of_a_block_never_changes() -> None:
    """Blocks of an earlier release stay readable in all four forms."""
    lines = [
        b'{"at":"2026-01-02T03:04:05.000600Z","by":"a",'
        b'"digest":"ce5fd8dc7041fc589111cc3fecac386ba0b8e587199fa8d9044052f1691b6401",'
        b'"position":3,"schema_version":1,"type":"run_unblocked"}',
        b'{"at":"2026-01-02T03:04:05.000600Z","by":"a",'
        b'"digest":"0b52404f0dcad31efa3e3c0f3710c0184691d46396b2848f3ff29507c8c34791",'
        b'"position":4,"schema_version":1,"type":"run_unblocked"}',
        b'{"at":"2026-01-02T03:04:06Z","by":"a",'
        b'"digest":"79c3921ad1a82d9370d0dfca177a6277d82f24dc5a93bc0d732314247bb4fe08",'
        b'"position":5,"schema_version":1,"type":"run_unblocked"}',
    ]
    digests = [bytes.fromhex(json.loads(line)["digest"]) for line in lines]
    rest = b'{"by":"a","type":"run_unblocked"}'
    compressed = bytes.fromhex(
        "e00070003403003d88cd724b9f2f67babcbf380cdfce2f849f988f4dd057a5186cb92e52f0e039527d8f168c2cf04a49c9c013aee2017d988afae000"
    )
    at = 1_767_323_046_000_000
    assert unpack(Block(0, 2, 2, None, b"\x00\x00\x00\x00\x01\x00\x00\x00\x01a\n")) == [b"a", b"\n"]
    again = bytes.fromhex("01e0007a001303000068da17911ea848ba36ccc39e261de223300000")
    assert unpack(Block(0, 2, 115, None, again)) == [b"again " * 19, b"\n"]
    assert unpack(Block(5, 6, 169, at, b"\x02" + digests[2] * 2 + rest)) == lines[2:]
    assert unpack(Block(3, 6, 521, at, b"\x03" + digests[0] + digests[2] + compressed)) == lines


async def test_the_pool_never_returns_a_connection_that_the_server_has_closed(database_url: str) -> None:
    """The pool detects it without a round trip, even if the server's last message has not been read yet."""
    pool = open_pool(database_url, size=3)
    async with pool:
        await pool.wait()
        for _ in range(3):
            async with pool.connection() as connection, pool.connection() as other:
                mine = connection.info.backend_pid
                await other.execute("SELECT 1")
            async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as killer:
                await killer.execute("SELECT pg_terminate_backend(%s, 10_000)", [mine])
            for _ in range(4):
                async with pool.connection() as connection:
                    await connection.execute("SELECT 1")
