"""Every transport carries chunks alike, and whatever it does, publisher and hub neither fail nor block."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from uuid import uuid4

import psycopg
import pytest

from holdfast.core.llm.deltas import Delta
from holdfast.core.streams.batches import Piece
from holdfast.core.streams.chunks import Chunk, Cursor
from holdfast.core.streams.following import Following
from holdfast.core.tools.secrets import NO_SECRETS
from holdfast.streaming import hub as hub_module
from holdfast.streaming.hub import Hub, Subscription, listening
from holdfast.streaming.postgres import PostgresStreams
from holdfast.streaming.publisher import Publisher, publishing
from holdfast.streaming.transport import EVERYTHING, Attempt, Transport, Wanted
from tests.support.in_memory_streams import InMemoryStreams
from tests.support.rig import PATIENCE, eventually, migrate_once


@pytest.fixture(params=["memory", "postgres"])
async def transport(request: pytest.FixtureRequest, database_url: str) -> AsyncIterator[Transport]:
    """Each transport, closed in the end."""
    await migrate_once(database_url)
    opened: Transport = InMemoryStreams() if request.param == "memory" else PostgresStreams(database_url)
    yield opened
    await opened.close()


@pytest.fixture
def thread() -> str:
    """A new thread's id."""
    return f"streamed-{uuid4().hex[:8]}"


def piece(number: int, text: str) -> Piece:
    """Return a piece of text."""
    return Piece(number, "text", text, None, "")


async def read(transport: Transport, thread: str, *, attempt: int = 0, chunk: int = 0) -> list[tuple[str, str]]:
    """Return the stored chunks of a thread: `ID`, text."""
    found = await transport.read([Wanted(thread, -1, 100, attempt, chunk)])
    assert all(name == thread for name, _ in found)
    return [(each.id, each.text) for _, each in found]


async def test_chunks_are_read_in_order_after_a_place(transport: Transport, thread: str) -> None:
    """They come back as they were, with any text; a repeated one changes nothing; other threads' are not among them."""
    attempt = await transport.claim(Attempt(thread, 7, 3, 1))
    other = await transport.claim(Attempt(f"{thread}-other", 7, 3, 1))
    odd = 'é\x00"\N{GRINNING FACE}\n'
    await transport.append([(attempt, [piece(2, odd), piece(1, "a")]), (other, [piece(1, "not mine")])])
    await transport.append([(attempt, [piece(1, "again"), piece(3, "c")])])
    assert await read(transport, thread) == [("7.1.1", "a"), ("7.1.2", odd), ("7.1.3", "c")]
    assert await read(transport, thread, attempt=1, chunk=2) == [("7.1.3", "c")]
    assert await transport.read([Wanted(thread, 7, 100, 0, 0), Wanted(thread, -1, 6, 0, 0)]) == []


async def test_no_two_attempts_at_a_reply_have_the_same_number(transport: Transport, thread: str) -> None:
    """Temporal counts anew after a reset of the activity, and an interrupted call has no reply: numbers grow until
    the reply is recorded, and obsolete chunks are gone then.
    """
    first = await transport.claim(Attempt(thread, 7, 3, 1))
    await transport.append([(first, [piece(1, "a")])])
    again = await transport.claim(Attempt(thread, 7, 3, 1))
    await transport.append([(again, [piece(1, "b")])])
    later = await transport.claim(Attempt(thread, 9, 3, 1))
    await transport.append([(later, [piece(1, "c")])])
    fifth = await transport.claim(Attempt(thread, 9, 3, 5))
    assert [each.number for each in (first, again, later, fifth)] == [1, 2, 3, 5]
    assert (await transport.claim(Attempt(thread, 12, 9, 1))).number == 1
    assert await read(transport, thread) == []


async def test_readers_hear_of_new_chunks(transport: Transport, thread: str) -> None:
    """Each listener learns which thread has news, and begins with the notice that it may have missed some."""
    news = transport.news()
    assert await anext(news) == EVERYTHING
    attempt = await transport.claim(Attempt(thread, 7, 3, 1))
    await transport.append([(attempt, [piece(1, "a")])])
    async with asyncio.timeout(PATIENCE):
        while await anext(news) != thread:  # other tests share the database
            pass
    await news.aclose()  # type: ignore[attr-defined]


@asynccontextmanager
async def connected(transport: Transport) -> AsyncIterator[tuple[Publisher, Hub]]:
    """Open a publisher and a hub."""
    async with publishing(transport) as publisher, listening(transport) as hub:
        yield publisher, hub


def attempt_at(thread: str, position: int = 1, number: int = 1) -> Attempt:
    """Return an attempt at the reply after the events 0 to `position - 1`."""
    return Attempt(thread, position, 0, number)


async def collect(hub: Hub, thread: str, length: int, cursor: Cursor = Cursor(0)) -> list[Chunk]:  # noqa: B008
    """Read chunks until they have this many characters."""
    chunks: list[Chunk] = []
    following = Following(cursor)
    async with asyncio.timeout(PATIENCE):
        with hub.subscribe(thread) as reader:
            reader.advance(following)
            while True:
                chunks += following.chunks(reader.attempts)
                if sum(len(each.text) for each in chunks) >= length:
                    return chunks
                await reader.news.wait()
                reader.news.clear()


async def test_ten_thousand_deltas_reach_a_hundred_readers_in_few_batches(transport: Transport, thread: str) -> None:
    """The transport gets batches, not deltas; each reader gets every character once, in order; a slow one costs the
    others nothing.
    """
    words = [f"{number} " for number in range(10_000)]
    text = "".join(words)
    async with connected(transport) as (publisher, hub):
        readers = [asyncio.create_task(collect(hub, thread, len(text))) for _ in range(100)]
        with hub.subscribe(thread):  # never reads
            await asyncio.sleep(0)
            reply = publisher.reply(lambda: _found(attempt_at(thread)), NO_SECRETS)
            for number, word in enumerate(words):
                reply.emit(Delta("text", word))
                if not number % 100:
                    await asyncio.sleep(0)
            reply.end([Delta("text", text)])
            for chunks in await asyncio.gather(*readers):
                assert "".join(each.text for each in chunks) == text
                assert len(chunks) < 1_000


async def _found(attempt: Attempt) -> Attempt:
    return attempt


async def test_a_text_that_turns_out_to_differ_is_sent_again(transport: Transport, thread: str) -> None:
    """Joined, the chunks of the last attempt are the recorded text, even if a part of the stream was no text."""
    async with connected(transport) as (publisher, hub):
        reply = publisher.reply(lambda: _found(attempt_at(thread)), NO_SECRETS)
        reply.emit(Delta("text", "hidden</think>shown"))
        assert "".join(chunk.text for chunk in await collect(hub, thread, 19)) == "hidden</think>shown"
        reply.end([Delta("text", "shown")])
        chunks = await eventually(lambda: collect(hub, thread, 5), lambda found: found[-1].text == "shown")
        assert [chunk.id for chunk in chunks][-2:] == ["1.2.0", "1.2.1"]


class Broken(InMemoryStreams):
    """A transport whose methods fail or hang."""

    def __init__(self, *, hangs: bool) -> None:
        super().__init__()
        self.hangs = hangs
        self.tried = 0

    async def claim(self, wanted: Attempt) -> Attempt:
        """Fail."""
        self.tried += 1
        if self.hangs:
            await asyncio.Event().wait()
        raise OSError("no database")

    async def read(self, wanted: Sequence[Wanted]) -> Sequence[tuple[str, Chunk]]:
        """Fail."""
        raise OSError("no database")

    async def news(self) -> AsyncIterator[str]:
        """Fail."""
        for error in (OSError("no database"),):
            raise error
        yield ""


@pytest.mark.parametrize("hangs", [False, True])
async def test_a_transport_that_fails_or_hangs_is_never_waited_for(hangs: bool, thread: str) -> None:
    """Emitting returns at once, what cannot be sent is dropped, and closing ends."""
    transport = Broken(hangs=hangs)
    async with asyncio.timeout(PATIENCE), connected(transport) as (publisher, hub):
        with hub.subscribe(thread) as reader:
            replies = [publisher.reply(lambda: _found(attempt_at(thread)), NO_SECRETS) for _ in range(3)]
            for reply in replies:
                for _ in range(5_000):
                    reply.emit(Delta("text", "word " * 100))
                reply.end([Delta("text", "")])
            await eventually(lambda: _tried(transport), bool)
            assert await hub.first_position(thread) is None
            assert reader.attempts == {}
            assert all(reply.batches.pending <= 1_000_000 for reply in replies)


async def _tried(transport: Broken) -> int:
    return transport.tried


async def test_a_run_that_cannot_be_asked_for_its_place_is_not_streamed(thread: str) -> None:
    """An older worker may hold the workflow: its answer lacks the position."""

    async def find() -> Attempt:
        raise KeyError("next")

    transport = InMemoryStreams()
    async with publishing(transport) as publisher:
        reply = publisher.reply(find, NO_SECRETS)
        reply.emit(Delta("text", "a"))
        await eventually(lambda: _stopped(reply.stopped, lambda: reply.stopped), bool)
        reply.emit(Delta("text", "b"))
        reply.end([Delta("text", "ab")])
    assert await read(transport, thread) == []


async def _stopped(now: bool, later: object) -> bool:
    return bool(later()) if callable(later) else now


async def test_a_reader_sees_chunks_again_after_the_database_was_lost(
    database_url: str, thread: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restart of PostgreSQL ends every connection: the hub listens again, and reads what it has missed."""
    monkeypatch.setattr(hub_module, "RETRY_SECONDS", 0.05)
    await migrate_once(database_url)
    transport = PostgresStreams(database_url)
    async with (
        await psycopg.AsyncConnection.connect(database_url, autocommit=True) as admin,
        connected(transport) as (_, hub),
    ):
        attempt = await transport.claim(attempt_at(thread))
        await transport.append([(attempt, [piece(1, "a")])])
        reading = asyncio.create_task(collect(hub, thread, 2))
        with hub.subscribe(thread) as reader:
            await eventually(lambda: _attempts(reader), bool)
            await admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND query SIMILAR TO 'LISTEN holdfast_streams|%streams AS stored%'"
            )
            await transport.append([(attempt, [piece(2, "b")])])
            assert "".join(chunk.text for chunk in await reading) == "ab"


async def _attempts(reader: Subscription) -> int:
    return len(reader.attempts)


async def test_forged_notifications_and_rows_are_harmless(database_url: str, thread: str) -> None:
    """Whoever can write to the database can show text until the reply is recorded, and no more: a notification is only
    a hint, rows that are no chunks are skipped, and no forged place hides the log.
    """
    await migrate_once(database_url)
    rows = [
        (2**62, 1, 1, "text", b"beyond the log"),
        (1, 1, 7, "text", b"after a gap"),
        (1, 1, 2, "sudo", b"no kind"),
        (1, 9, 2, "text", b"without a beginning"),
        (-1, 5, 1, "text", b"before the log"),
        (1, -3, 1, "text", b"no attempt"),
    ]
    transport = PostgresStreams(database_url)
    async with (
        await psycopg.AsyncConnection.connect(database_url, autocommit=True) as attacker,
        connected(transport) as (publisher, hub),
    ):
        reading = asyncio.create_task(collect(hub, thread, 4))
        for position, attempt, chunk, kind, text in rows:
            await attacker.execute(
                "INSERT INTO holdfast.streams (thread, position, attempt, chunk, kind, text, tool) "
                "VALUES (%s, %s, %s, %s, %s, %s, '')",
                [thread, position, attempt, chunk, kind, text],
            )
        for payload in ("", "x" * 7_000, "'; DROP TABLE holdfast.streams", thread, "\N{GRINNING FACE}"):
            await attacker.execute("SELECT pg_notify('holdfast_streams', %s)", [payload])
        reply = publisher.reply(lambda: _found(attempt_at(thread)), NO_SECRETS)
        reply.emit(Delta("text", "true"))
        reply.end([Delta("text", "true")])
        chunks = await reading
        assert "".join(chunk.text for chunk in chunks) == "true"
        for text in (b"x" * 65_537,):
            with pytest.raises(psycopg.errors.CheckViolation):
                await attacker.execute(
                    "INSERT INTO holdfast.streams (thread, position, attempt, chunk, kind, text, tool) "
                    "VALUES (%s, 1, 1, 99, 'text', %s, '')",
                    [thread, text],
                )
