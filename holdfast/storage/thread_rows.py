"""The rows of `holdfast.threads`, one per thread: locked while its record changes, and rejected once it is forgotten.

An archived branch is a separate thread, whose id names its origin.
"""

import itertools
from datetime import UTC, datetime
from typing import Literal

import psycopg

from holdfast.core.stores import aside_id, origin_of
from holdfast.errors import ThreadForgotten


async def lock_thread(
    connection: psycopg.AsyncConnection, thread: str, *, lock: Literal["NO KEY UPDATE", "KEY SHARE"]
) -> int:
    """Lock a thread's row until the transaction ends, inserting it if it is new, and return its number.

    Args:
        connection: A connection in a transaction.
        thread: The thread's id.
        lock: `NO KEY UPDATE` to exclude other appends, `KEY SHARE` to exclude pruning.

    Raises:
        ThreadForgotten: The thread's content was removed, and nothing may be added.
    """
    while True:
        query = f"SELECT id, forgotten_at FROM holdfast.threads WHERE thread = %s FOR {lock}"  # noqa: S608  # constants
        found = await connection.execute(query, [thread])
        if row := await found.fetchone():
            if row[1] is not None:
                raise forgotten_error(thread, row[1])
            return int(row[0])
        # Not "ON CONFLICT DO UPDATE", which would leave a dead row behind on every append.
        inserted = await connection.execute(
            "INSERT INTO holdfast.threads (thread) VALUES (%s) ON CONFLICT DO NOTHING RETURNING id", [thread]
        )
        if row := await inserted.fetchone():
            return int(row[0])  # nobody else sees the row before the transaction ends


async def refuse_forgotten(connection: psycopg.AsyncConnection, thread: str) -> None:
    """Raise `ThreadForgotten` for a thread whose content was removed."""
    found = await connection.execute("SELECT forgotten_at FROM holdfast.threads WHERE thread = %s", [thread])
    row = await found.fetchone()
    if row and row[0] is not None:
        raise forgotten_error(thread, row[0])


def forgotten_error(thread: str, at: datetime) -> ThreadForgotten:
    """Return the error for a thread whose content was removed at that time."""
    return ThreadForgotten(
        f"thread {thread!r} was forgotten on {at.astimezone(UTC):%Y-%m-%d at %H:%M} UTC: its content was removed, and "
        "the digests of its events remain. `verify` says who did so. It cannot be continued: use another id."
    )


async def list_asides(connection: psycopg.AsyncConnection, thread: str) -> list[tuple[int, str]]:
    """Return the numbers and ids of a thread's archived branches, oldest first."""
    rows = await connection.execute(
        "SELECT id, thread FROM holdfast.threads WHERE starts_with(thread, %s) ORDER BY id", [f"{thread}~"]
    )
    return [(int(number), aside) for number, aside in await rows.fetchall() if origin_of(aside) == thread]


async def new_aside(connection: psycopg.AsyncConnection, thread: str) -> tuple[str, int]:
    """Insert a new thread for an archived branch; return its id and number. An existing thread is never reused."""
    for count in itertools.count(1):
        inserted = await connection.execute(
            "INSERT INTO holdfast.threads (thread) VALUES (%s) ON CONFLICT DO NOTHING RETURNING id",
            [aside_id(thread, count)],
        )
        if row := await inserted.fetchone():
            return aside_id(thread, count), int(row[0])
    raise AssertionError("unreachable: the count has no end")
