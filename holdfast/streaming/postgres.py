"""The transport through PostgreSQL: an unlogged table, and `NOTIFY` with the thread's id alone.

1. Its connections are its own: `NOTIFY` locks the whole instance while it commits, so it is never a part of a
   transaction of the ledger or the record. A process has at most three, and only as many as it uses.
2. `LISTEN` needs a connection to PostgreSQL itself. PgBouncer in transaction mode loses it without an error: give a
   direct URL (`HOLDFAST_STREAM_URL`).
3. A notification and a row are claims of any process with access to the database: a notification only says where to
   look, and a row that is not a chunk is skipped. See `holdfast.core.streams.following` for what readers show.
"""

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import psycopg
from pydantic import ValidationError

from holdfast.core.streams.batches import Piece
from holdfast.core.streams.chunks import Chunk
from holdfast.streaming.transport import EVERYTHING, PAGE, Attempt, Wanted

PRUNE_SECONDS = 60.0
"""The least time between two removals of old chunks by one process."""

_CLAIM = """
    WITH obsolete AS (DELETE FROM holdfast.streams WHERE thread = %(thread)s AND position <= %(since)s)
    SELECT greatest(%(number)s, 1 + max(attempt)) FROM holdfast.streams
    WHERE thread = %(thread)s AND position > %(since)s
"""
_PRUNE = "DELETE FROM holdfast.streams WHERE at < now() - interval '1 hour'"
_APPEND = """
    WITH stored AS (
        INSERT INTO holdfast.streams (thread, position, attempt, chunk, kind, text, call, tool)
        SELECT * FROM unnest(
            %s::text[], %s::bigint[], %s::int[], %s::int[], %s::text[], %s::bytea[], %s::int[], %s::bytea[])
        ON CONFLICT DO NOTHING RETURNING thread
    )
    SELECT pg_notify('holdfast_streams', thread) FROM (SELECT DISTINCT thread FROM stored) AS news
"""
_READ = f"""
    SELECT wanted.thread, found.* FROM
    unnest(%s::text[], %s::bigint[], %s::bigint[], %s::int[], %s::int[]) AS wanted (thread, low, high, attempt, chunk)
    CROSS JOIN LATERAL (
        SELECT position, attempt, chunk, kind, text, call, tool FROM holdfast.streams AS stored
        WHERE stored.thread = wanted.thread AND position > low AND position <= high
            AND (stored.attempt, stored.chunk) > (wanted.attempt, wanted.chunk)
        ORDER BY attempt, chunk LIMIT {PAGE}
    ) AS found
"""  # noqa: S608  # a constant of ours


class PostgresStreams:
    """See `Transport`.

    Args:
        url: The database, migrated.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._writer = _Connection(url)
        self._reader = _Connection(url)
        self._pruned = 0.0

    async def claim(self, wanted: Attempt) -> Attempt:
        """See `Transport`."""
        rows = await self._writer.execute(_CLAIM, {**wanted._asdict()})
        if time.monotonic() - self._pruned > PRUNE_SECONDS:
            self._pruned = time.monotonic()
            await self._writer.execute(_PRUNE)
        return wanted._replace(number=rows[0][0] or wanted.number)

    async def append(self, batches: Sequence[tuple[Attempt, Sequence[Piece]]]) -> None:
        """See `Transport`."""
        rows = [
            (attempt.thread, attempt.position, attempt.number, *_stored(piece))
            for attempt, pieces in batches
            for piece in pieces
        ]
        if rows:
            await self._writer.execute(_APPEND, [list(column) for column in zip(*rows, strict=True)])

    async def read(self, wanted: Sequence[Wanted]) -> Sequence[tuple[str, Chunk]]:
        """See `Transport`."""
        if not wanted:
            return []
        rows = await self._reader.execute(_READ, [list(column) for column in zip(*wanted, strict=True)])
        return [(thread, chunk) for thread, *columns in rows if (chunk := _chunk(*columns))]

    async def news(self) -> AsyncIterator[str]:
        """See `Transport`."""
        async with await _connect(self._url) as connection:
            await connection.execute("LISTEN holdfast_streams")
            yield EVERYTHING
            async for notification in connection.notifies():
                yield notification.payload

    async def close(self) -> None:
        """See `Transport`."""
        await self._writer.close()
        await self._reader.close()


class _Connection:
    """One connection, opened at its first use and again after an error."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: psycopg.AsyncConnection | None = None

    async def execute(
        self, query: str, parameters: Sequence[Any] | Mapping[str, Any] | None = None
    ) -> list[tuple[Any, ...]]:
        """Execute a statement, and return its rows."""
        if self._connection is None or self._connection.closed:
            self._connection = await _connect(self._url)
        try:
            cursor = await self._connection.execute(query, parameters, binary=True)
            return await cursor.fetchall() if cursor.description else []
        except BaseException:  # also on cancellation: its state is unknown then
            await self.close()
            raise

    async def close(self) -> None:
        """Close the connection, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


async def _connect(url: str) -> psycopg.AsyncConnection:
    # A host that vanishes is noticed after a minute, and not after hours.
    return await psycopg.AsyncConnection.connect(
        url, autocommit=True, connect_timeout=5, keepalives_idle=30, keepalives_interval=10, keepalives_count=3
    )


def _stored(piece: Piece) -> tuple[int, str, bytes, int | None, bytes]:
    return piece.chunk, piece.kind, piece.text.encode("utf-8", "replace"), piece.call, piece.tool.encode()


def _chunk(
    position: int, attempt: int, chunk: int, kind: str, text: bytes, call: int | None, tool: bytes
) -> Chunk | None:
    """Return the chunk in a row; None if the row holds none."""
    try:
        return Chunk.model_validate(
            {
                "position": position,
                "attempt": attempt,
                "chunk": chunk,
                "kind": kind,
                "text": text.decode("utf-8", "replace"),
                "call": call,
                "tool": tool.decode("utf-8", "replace"),
            }
        )
    except ValidationError:
        return None
