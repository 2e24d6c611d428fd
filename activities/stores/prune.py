"""Removes threads from the permanent record that ended long ago. Nothing else ever removes anything.

The record does not know Temporal: the caller makes sure that no run of a thread is open before it prunes the thread.
"""

import json
from datetime import UTC, datetime, timedelta

import psycopg
from psycopg_pool import AsyncConnectionPool

from activities.stores.record import asides_of
from activities.stores.rows import EPOCH, Row, unpack
from holdfast.log import LATE, has_ended
from holdfast.model import Frozen
from holdfast.stores import origin_of

_LAST_EVENTS = """
    SELECT threads.id, threads.thread, last.position, last.at, last.digest, last.body
    FROM holdfast.threads
    CROSS JOIN LATERAL (
        SELECT * FROM holdfast.events WHERE thread = threads.id ORDER BY position DESC LIMIT 1
    ) AS last
    WHERE last.at < %s OR last.at IS NULL
"""

_BEFORE = """
    SELECT position, at, digest, body FROM holdfast.events
    WHERE thread = %s AND position < %s ORDER BY position DESC LIMIT %s
"""
_ROWS = 100
"""How many events before the last one are looked at together, for the end of the run."""

_ROW_BYTES = 100
"""What a row takes beside its body: header, columns, index entry."""
_SIZES = """
    SELECT thread, sum(pg_column_size(body) + %s)::bigint FROM holdfast.events WHERE thread = ANY(%s) GROUP BY thread
"""

# In this order: what refers goes before what is referred to.
_REMOVE_THREAD = (
    "DELETE FROM holdfast.memories WHERE scope = 'thread:' || (SELECT thread FROM holdfast.threads WHERE id = %s)",
    "DELETE FROM holdfast.effects WHERE thread = (SELECT thread FROM holdfast.threads WHERE id = %s)",
    "DELETE FROM holdfast.events WHERE thread = %s",
    "DELETE FROM holdfast.threads WHERE id = %s",
)


class Prunable(Frozen):
    """A thread that ended long enough ago."""

    thread: str
    events: int
    bytes: int
    """What its events take in the database, about; its artifacts come on top."""
    last_at: datetime
    """The time of its last event."""

    @property
    def last_position(self) -> int:
        """The position of its last event: what `prune` compares."""
        return self.events - 1


async def prunable(pool: AsyncConnectionPool, older_than: timedelta) -> list[Prunable]:
    """The threads whose last run has finished, and whose last event is older than that; the oldest first. Logs that
    were set aside go with their thread, and are not listed.

    What reached the run while it closed may follow its end (`holdfast.log.has_ended`). A thread is left out where an
    event that says whether it ended does not decode.

    Raises:
        psycopg.OperationalError: The database is away.
    """
    before = datetime.now(UTC) - older_than
    cutoff = (before - EPOCH) // timedelta(microseconds=1)
    ended: dict[int, tuple[str, Row, datetime]] = {}
    late: dict[int, tuple[str, Row, datetime]] = {}
    async with pool.connection() as connection:
        async for number, thread, *columns in connection.cursor(binary=True).stream(_LAST_EVENTS, [cutoff]):
            row = Row(*columns)
            kind, at = _type_and_time(row)
            if at is None or at >= before or origin_of(thread):
                continue
            if kind in LATE:
                late[number] = thread, row, at
            elif has_ended([kind]):
                ended[number] = thread, row, at
        for number, (thread, row, at) in late.items():
            if await _ended_before(connection, number, row.position):
                ended[number] = thread, row, at
        sizes = await connection.execute(_SIZES, [_ROW_BYTES, list(ended)])
        taken: dict[int, int] = dict(await sizes.fetchall())
    found = [
        Prunable(thread=thread, events=row.position + 1, bytes=taken.get(number, 0), last_at=at)
        for number, (thread, row, at) in ended.items()
    ]
    return sorted(found, key=lambda one: one.last_at)


async def prune(pool: AsyncConnectionPool, thread: str, *, last_position: int) -> bool:
    """Remove a thread: its events, its effects in the ledger, the artifacts that only it refers to, and its logs that
    were set aside.

    Args:
        pool: Open, to a migrated database.
        thread: Its id.
        last_position: As it was listed.

    Returns:
        Whether it was removed: not if it has grown since it was listed, or is gone.

    Raises:
        psycopg.OperationalError: The database is away; nothing was removed.
    """
    async with pool.connection() as connection, connection.transaction():
        held = await connection.execute("SELECT id FROM holdfast.threads WHERE thread = %s FOR UPDATE", [thread])
        row = await held.fetchone()
        if row is None:
            return False
        number = int(row[0])
        last = await connection.execute("SELECT max(position) FROM holdfast.events WHERE thread = %s", [number])
        if await last.fetchone() != (last_position,):
            return False
        for aside, _ in await asides_of(connection, thread):  # what resets left behind goes with its thread
            await _remove(connection, aside)
        await _remove(connection, number)
        return True


async def _remove(connection: psycopg.AsyncConnection, number: int) -> None:
    await _remove_artifacts(connection, number)
    for statement in _REMOVE_THREAD:
        await connection.execute(statement, [number])


async def _remove_artifacts(connection: psycopg.AsyncConnection, number: int) -> None:
    # Locked first, in an order that all prunes share, so that the statements after it see every other reference.
    locked = await connection.execute(
        "SELECT digest FROM holdfast.artifacts "
        "WHERE digest IN (SELECT digest FROM holdfast.artifact_threads WHERE thread = %s) ORDER BY digest FOR UPDATE",
        [number],
    )
    digests = [digest for (digest,) in await locked.fetchall()]
    await connection.execute("DELETE FROM holdfast.artifact_threads WHERE thread = %s", [number])
    await connection.execute(
        "DELETE FROM holdfast.artifacts WHERE digest = ANY(%s) AND NOT EXISTS ("
        "SELECT FROM holdfast.artifact_threads WHERE artifact_threads.digest = artifacts.digest)",
        [digests],
    )


async def _ended_before(connection: psycopg.AsyncConnection, number: int, position: int) -> bool:
    """Whether the events before `position` have the end of the last run, and only late ones after it."""
    while True:
        found = await connection.execute(_BEFORE, [number, position, _ROWS], binary=True)
        rows = [Row(*row) for row in await found.fetchall()]
        kinds = [_type_and_time(row)[0] for row in rows]
        if not rows or any(kind not in LATE for kind in kinds):
            return has_ended(kinds)
        position = rows[-1].position


def _type_and_time(row: Row) -> tuple[str, datetime | None]:
    """The type of an event, and its time; "" and None where they cannot be read."""
    try:
        event = json.loads(unpack(row))
        at = datetime.fromisoformat(event["at"])
        return str(event["type"]), at if at.tzinfo else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return "", None
