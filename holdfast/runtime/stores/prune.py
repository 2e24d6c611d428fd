"""Removes threads from the permanent record that ended long ago. Nothing else ever removes anything.

The record does not know Temporal: the caller makes sure that no run of a thread is open before it prunes the thread.
"""

from datetime import UTC, datetime, timedelta

import psycopg
from psycopg_pool import AsyncConnectionPool

from holdfast.base.models import Frozen
from holdfast.log.event_log import LATE, has_ended
from holdfast.runtime.stores.blocks import EPOCH, Block, types_back
from holdfast.runtime.stores.threads import asides_of
from holdfast.stores import origin_of

_LAST_BLOCKS = """
    SELECT threads.id, threads.thread, last.position, last.stop, last.size, last.at, last.body
    FROM holdfast.threads
    CROSS JOIN LATERAL (
        SELECT * FROM holdfast.events WHERE thread = threads.id ORDER BY position DESC LIMIT 1
    ) AS last
    WHERE last.at BETWEEN 0 AND %s
"""

_BLOCK_BEFORE = """
    SELECT position, stop, size, at, body FROM holdfast.events
    WHERE thread = %s AND position < %s ORDER BY position DESC LIMIT 1
"""

_ROW_BYTES = 100
"""What a block takes beside its body: header, columns, index entry."""
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

    What reached the run while it closed may follow its end (`holdfast.log.event_log.has_ended`). A thread is left
    out where an event that says whether it ended does not decode.

    Raises:
        psycopg.OperationalError: The database is away.
    """
    before = datetime.now(UTC) - older_than
    cutoff = (before - EPOCH) // timedelta(microseconds=1)
    ended: dict[int, Prunable] = {}
    late: dict[int, tuple[Prunable, Block]] = {}
    async with pool.connection() as connection:
        async for number, thread, *columns in connection.cursor(binary=True).stream(_LAST_BLOCKS, [cutoff]):
            if origin_of(thread):
                continue
            block = Block(*columns)
            last_at = EPOCH + timedelta(microseconds=columns[3])
            one = Prunable(thread=thread, events=block.stop, bytes=0, last_at=last_at)
            ends = _has_ended(block)
            if ends is None:
                late[number] = one, block
            elif ends:
                ended[number] = one
        for number, (one, block) in late.items():
            if await _ended_before(connection, number, block):
                ended[number] = one
        sizes = await connection.execute(_SIZES, [_ROW_BYTES, list(ended)])
        taken: dict[int, int] = dict(await sizes.fetchall())
    found = [one.model_copy(update={"bytes": taken.get(number, 0)}) for number, one in ended.items()]
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
        last = await connection.execute("SELECT max(stop) - 1 FROM holdfast.events WHERE thread = %s", [number])
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


async def _ended_before(connection: psycopg.AsyncConnection, number: int, block: Block) -> bool:
    """Whether the blocks before `block` have the end of the last run, and only late events after it."""
    while True:
        found = await connection.execute(_BLOCK_BEFORE, [number, block.position], binary=True)
        row = await found.fetchone()
        if row is None:
            return False
        block = Block(*row)
        ends = _has_ended(block)
        if ends is not None:
            return ends


def _has_ended(block: Block) -> bool | None:
    """Whether the last run of a thread has finished, by its last block; None where all events in it came late."""
    kind = next((kind for kind in types_back(block) if kind not in LATE), None)
    return None if kind is None else has_ended([kind])
