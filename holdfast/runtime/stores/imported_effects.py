"""Rows of the effect ledger that come from a portable file.

A row that is there already has to agree. What was under way may have an outcome since; what has one keeps it.
"""

from collections.abc import Sequence
from typing import NamedTuple

from psycopg_pool import AsyncConnectionPool

from holdfast.tools.effects import PastEffect

_INSERT = """
    INSERT INTO holdfast.effects
        (key, epoch, thread, tool, number, first_run_id, call_digest, call, outcome, finished_at)
    VALUES (%(key)s, %(epoch)s, %(thread)s, %(tool)s, %(number)s, %(first_run_id)s, %(call_digest)s, %(call)s,
        %(outcome)s, CASE WHEN %(outcome)s::text IS NOT NULL THEN now() END)
    ON CONFLICT (key, epoch) DO UPDATE SET outcome = EXCLUDED.outcome, finished_at = EXCLUDED.finished_at
    WHERE effects.outcome IS NULL AND EXCLUDED.outcome IS NOT NULL
"""
_DIFFERS = """
    SELECT key, epoch FROM holdfast.effects
    WHERE key = %(key)s AND epoch = %(epoch)s AND (
        thread <> %(thread)s OR tool <> %(tool)s OR outcome <> %(outcome)s::text
    )
"""


class ImportedEffect(NamedTuple):
    """An effect of an imported log, and its outcome as the ledger is to have it."""

    effect: PastEffect
    outcome: str | None
    """A `ToolOutcome` as JSON; None for an effect that may have happened."""


async def conflicting(pool: AsyncConnectionPool, thread: str, effects: Sequence[ImportedEffect]) -> str:
    """Return which effect has another row in the ledger; empty if none has."""
    async with pool.connection() as connection:
        for each in effects:
            if row := await (await connection.execute(_DIFFERS, _values(thread, each))).fetchone():
                return f"{row[0]} of {each.effect.tool} (epoch {row[1]})"
    return ""


async def put_effects(pool: AsyncConnectionPool, thread: str, effects: Sequence[ImportedEffect]) -> None:
    """Insert the rows that the ledger lacks, all or none, and give outcomes to those that have none."""
    async with pool.connection() as connection, connection.transaction(), connection.cursor() as cursor:
        if effects:
            await cursor.executemany(_INSERT, [_values(thread, each) for each in effects])


def _values(thread: str, row: ImportedEffect) -> dict[str, object]:
    columns = ("key", "epoch", "tool", "number", "first_run_id", "call_digest", "call")
    return {**{name: getattr(row.effect, name) for name in columns}, "thread": thread, "outcome": row.outcome}
