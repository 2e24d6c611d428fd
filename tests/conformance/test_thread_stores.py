"""The permanent record: PostgreSQL, and the smallest store that passes."""

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg_pool import AsyncConnectionPool
from temporalio.exceptions import ApplicationError

from activities.stores.postgres import open_pool
from activities.stores.record import PostgresThreads
from activities.stores.rows import Row, pack, unpack
from holdfast.errors import RecordConflict, RecordGap, RecordUnreadable
from holdfast.events import ToolCallFinished
from holdfast.log import EventLog, event_line
from holdfast.model import PAGE_BYTES, canonical
from holdfast.stores import ThreadStore
from holdfast.testing import ThreadStoreConformance


class FileThreads:
    """A file of JSON lines per thread, for one process: the example of a store of one's own."""

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
        """A store of the test's own."""
        return FileThreads(tmp_path)


class TestPostgresThreads(ThreadStoreConformance):
    @pytest.fixture
    def store(self, pool: AsyncConnectionPool) -> ThreadStore:
        """The database that all tests share."""
        return PostgresThreads(pool)

    async def test_lines_of_any_bytes(self, store: ThreadStore) -> None:
        """What is no event, or no JSON, comes back byte for byte, too."""
        lines = [b"", b"\x00", b"\n", b'{"a": 1}', b"[]", b"null", bytes(range(256)), b"\xff" * 3000]
        await store.append("any bytes", 0, lines)
        await store.append("any bytes", 0, lines)
        assert await store.read("any bytes") == lines

    async def test_a_position_is_taken_once(self, store: ThreadStore, pool: AsyncConnectionPool) -> None:
        """The schema itself refuses a second event at a position."""
        await store.append("once", 0, [b"{}"])
        with pytest.raises(psycopg.errors.UniqueViolation):
            async with pool.connection() as connection:
                await connection.execute(
                    "INSERT INTO holdfast.events (thread, position, body) "
                    "SELECT id, 0, '' FROM holdfast.threads WHERE thread = 'once'"
                )

    async def test_a_damaged_row_is_named(self, store: ThreadStore, pool: AsyncConnectionPool) -> None:
        """A row that does not decode is an error that says which."""
        await store.append("damaged", 0, [b"{}", b"{}"])
        async with pool.connection() as connection:
            await connection.execute(
                "UPDATE holdfast.events SET body = %s WHERE position = 1 "
                "AND thread = (SELECT id FROM holdfast.threads WHERE thread = 'damaged')",
                [b"\x01no"],
            )
        try:
            with pytest.raises(RecordUnreadable, match="event 1 of thread damaged does not decode"):
                await store.read("damaged")
        finally:
            async with pool.connection() as connection:
                await connection.execute("UPDATE holdfast.events SET body = %s WHERE body = %s", [b"\x00{}", b"\x01no"])


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


@given(st.binary() | (JSON | EVENTS).map(canonical) | (JSON | EVENTS).map(lambda value: json.dumps(value).encode()))
def test_any_line_fits_a_row(line: bytes) -> None:
    """A row gives back the bytes of its line, whether it is an event, other JSON or anything else."""
    assert unpack(pack(7, line)) == line


@given(st.text(st.characters(codec=None)), st.datetimes(timezones=st.just(UTC)))
def test_an_event_is_taken_apart(text: str, at: datetime) -> None:
    """Whatever an event of ours holds, what is a column is not in the body, too."""
    log = EventLog(position=7)
    log.append(ToolCallFinished(number=1, status="ok", content=text), at=at)
    row = pack(7, event_line(log.events[0]))
    assert row.digest == bytes.fromhex(log.head)
    rest = {"content": text, "number": 1, "status": "ok", "type": "tool_call_finished"}
    assert len(row.body) <= 1 + len(canonical(rest))
    assert unpack(row) == event_line(log.events[0])


@given(st.integers(0, 3) | st.none(), st.binary(max_size=9), st.none() | st.binary(max_size=3), st.none() | st.just(0))
def test_a_row_that_was_damaged_is_a_value_error(
    form: int | None, body: bytes, digest: bytes | None, at: int | None
) -> None:
    """Whatever a row holds, it gives a line or a ValueError."""
    with suppress(ValueError):
        unpack(Row(0, at, digest, body if form is None else bytes([form]) + body))


def test_the_form_of_a_row_never_changes() -> None:
    """Rows that an earlier release wrote stay readable: these are its four forms."""
    digest, at = bytes(range(32)), 1_767_323_045_000_600
    line = (
        b'{"at":"2026-01-02T03:04:05.000600Z",'
        b'"digest":"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",'
        b'"position":3,"schema_version":1,"type":"run_unparked"}'
    )
    assert unpack(Row(0, None, None, b"\x00again ")) == b"again "
    assert unpack(Row(0, None, None, bytes.fromhex("014b4c4fcccc534824910400"))) == b"again " * 9
    assert unpack(Row(3, at, digest, b'\x02{"type":"run_unparked"}')) == line
    assert unpack(Row(3, at, digest, bytes.fromhex("03ab562aa92c4855b2522a2acd8b2fcd2b482cca4e4d51aa0500"))) == line
