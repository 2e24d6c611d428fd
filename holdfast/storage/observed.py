"""What operators observe in the record: numbers over some threads and all feeds, from the rows for SQL."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from psycopg_pool import AsyncConnectionPool

LAST_BLOCKS = 20
"""The most blocks of a thread, the newest ones, in which its open requests are looked for."""

_OLDEST = """
    SELECT coalesce(max(extract(epoch FROM now() - asked.at)), 0)::float8
    FROM holdfast.threads
    CROSS JOIN LATERAL (
        SELECT carried FROM holdfast.events WHERE thread = threads.id ORDER BY position DESC LIMIT 1
    ) AS last
    CROSS JOIN LATERAL (
        SELECT log_rows FROM holdfast.events WHERE thread = threads.id ORDER BY position DESC LIMIT %s
    ) AS newest
    CROSS JOIN LATERAL jsonb_to_recordset(newest.log_rows) AS asked (at timestamptz, type text, request text)
    WHERE threads.thread = ANY(%s) AND asked.type IN ('approval_requested', 'reconcile_requested')
    AND last.carried -> 'requests' ? asked.request
"""
_BUDGETS = """
    SELECT count(*) FROM holdfast.threads
    CROSS JOIN LATERAL (
        SELECT log_rows FROM holdfast.events WHERE thread = threads.id ORDER BY position DESC LIMIT 1
    ) AS last
    WHERE threads.thread = ANY(%s)
    AND jsonb_path_exists(last.log_rows, '$[*] ? (@.type == "run_blocked" && @.body.cause == "BudgetSpent")')
"""
_BACKLOGS = """
    SELECT name, (SELECT count(*) FROM holdfast.events WHERE events.number > feeds.number) FROM holdfast.feeds
"""


@dataclass(frozen=True)
class Observed:
    """Numbers over the record."""

    oldest_request_seconds: float
    """0 if none is open."""
    budgets_spent: int
    backlogs: Mapping[str, int]
    """Blocks that each feed has not passed, by its name."""


async def observe_record(pool: AsyncConnectionPool, *, asking: Sequence[str], blocked: Sequence[str]) -> Observed:
    """Compute numbers over the record.

    Args:
        pool: Open, to a migrated database.
        asking: The threads with open requests.
        blocked: The threads that are blocked.

    Raises:
        psycopg.Error: The database is unavailable.
    """
    async with pool.connection() as connection:
        oldest = await (await connection.execute(_OLDEST, [LAST_BLOCKS, list(asking)])).fetchone()
        spent = await (await connection.execute(_BUDGETS, [list(blocked)])).fetchone()
        backlogs = await (await connection.execute(_BACKLOGS)).fetchall()
    assert oldest is not None
    assert spent is not None
    return Observed(float(oldest[0]), int(spent[0]), {str(name): int(blocks) for name, blocks in backlogs})
