"""What the record of a fork has in common with that of its original: the database has it already."""

from collections.abc import Sequence
from typing import NamedTuple

import psycopg

from holdfast.runtime.stores.event_rows import COLUMNS, event_of, fit

_FORKED = f"""
    WITH copied AS (
        INSERT INTO holdfast.event_rows (thread, {COLUMNS})
        SELECT %(fork)s, {COLUMNS} FROM holdfast.event_rows
        WHERE thread = (
            SELECT threads.id FROM holdfast.threads JOIN holdfast.event_rows AS last ON last.thread = threads.id
            WHERE threads.thread = %(origin)s AND last.position = %(last)s AND last.body->>'digest' = %(head)s
        ) AND position <= %(last)s
        RETURNING position
    )
    SELECT count(*) FROM copied
"""  # noqa: S608  # constants
"""Rows begin with the first event and have no gap; the digest of the last vouches for those before."""


class Original(NamedTuple):
    """The thread that another one was forked from."""

    thread: str
    events: int
    """How many events the fork has of it."""
    head: str
    """The digest of the last of them."""


def original_of(lines: Sequence[bytes]) -> Original | None:
    """Return the thread that another one was forked from, by its lines from the first one on; None if it was not."""
    for place in range(len(lines) - 1, 0, -1):
        if b'"type":"run_forked"' not in lines[place] or (event := event_of(lines[place])).get("type") != "run_forked":
            continue
        point, head = event.get("point"), event_of(lines[place - 1]).get("digest")
        thread = point.get("thread") if isinstance(point, dict) else None
        return Original(fit(thread), place, fit(head)) if isinstance(thread, str) and isinstance(head, str) else None
    return None


async def copy_rows(connection: psycopg.AsyncConnection, fork: int, original: Original) -> int:
    """Copy the rows for SQL that a fork has of its original, inside the database; return how many those are: 0 where
    the original's rows are not all there, or do not lead to the same event.

    Args:
        connection: In a transaction that holds the fork's lock.
        fork: The fork's number; it has no rows.
        original: What it has of its original.
    """
    given = {"origin": original.thread, "fork": fork, "last": original.events - 1, "head": original.head}
    row = await (await connection.execute(_FORKED, given)).fetchone()  # a pipeline has no row count before that
    return int(row[0]) if row else 0
