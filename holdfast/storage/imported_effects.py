"""Rows of the effect ledger that come from a portable file.

An existing row must agree with the imported one. An effect without an outcome may get one; an existing outcome stays.
The outcomes get MACs with the fleet key of this cluster, because the importer has checked who vouches for them. An
effect without an outcome starts a new settling time: its attempt may have been made on another cluster.
"""

from collections.abc import Sequence
from typing import NamedTuple

from psycopg_pool import AsyncConnectionPool

from holdfast.core.mac.outcomes import OutcomeMACs
from holdfast.core.mac.seals import FleetKeys
from holdfast.core.tools.effects import PastEffect
from holdfast.storage.ledger import recorded

_INSERT = """
    INSERT INTO holdfast.effects
        (key, epoch, thread, tool, number, first_run_id, call_digest, call, outcome, mac, finished_at)
    VALUES (%(key)s, %(epoch)s, %(thread)s, %(tool)s, %(number)s, %(first_run_id)s, %(call_digest)s, %(call)s,
        %(outcome)s, %(mac)s, CASE WHEN %(outcome)s::text IS NOT NULL THEN now() END)
    ON CONFLICT (key, epoch) DO UPDATE SET outcome = EXCLUDED.outcome, mac = EXCLUDED.mac,
        finished_at = coalesce(effects.finished_at, EXCLUDED.finished_at), settling_since = NULL, settling_by = NULL
    WHERE effects.thread = EXCLUDED.thread AND (
        effects.outcome IS NULL OR effects.outcome = EXCLUDED.outcome AND effects.mac IS DISTINCT FROM EXCLUDED.mac
    )
"""
_DIFFERS = """
    SELECT key, epoch FROM holdfast.effects
    WHERE key = %(key)s AND epoch = %(epoch)s AND (
        thread <> %(thread)s OR tool <> %(tool)s OR outcome <> %(outcome)s::text
    )
"""


class ImportedEffect(NamedTuple):
    """An effect of an imported log, and its outcome for the ledger."""

    effect: PastEffect
    outcome: str | None
    """A `ToolOutcome` as JSON; None for an effect that may have happened."""


async def conflicting(pool: AsyncConnectionPool, thread: str, effects: Sequence[ImportedEffect]) -> str:
    """Describe the first effect that differs from its row in the ledger; empty if none does."""
    async with pool.connection() as connection:
        for each in effects:
            if row := await (await connection.execute(_DIFFERS, _values(thread, each, None))).fetchone():
                return f"{row[0]} of {each.effect.tool} (epoch {row[1]})"
    return ""


async def put_effects(
    pool: AsyncConnectionPool, thread: str, effects: Sequence[ImportedEffect], *, seals: FleetKeys
) -> int:
    """Insert missing ledger rows and outcomes, in one transaction; return the number of rows that changed.

    Args:
        pool: Connections to the database.
        thread: The thread.
        effects: Its effects.
        seals: The fleet keys, for the MACs of the outcomes.
    """
    macs, rows = OutcomeMACs(seals), list[dict[str, object]]()
    for each in effects:
        mac = macs.make(recorded(each.effect, each.outcome, thread=thread)) if each.outcome is not None else None
        rows.append(_values(thread, each, mac))
    async with pool.connection() as connection, connection.transaction(), connection.cursor() as cursor:
        if not rows:
            return 0
        await cursor.executemany(_INSERT, rows)
        return cursor.rowcount


def _values(thread: str, row: ImportedEffect, mac: str | None) -> dict[str, object]:
    columns = ("key", "epoch", "tool", "number", "first_run_id", "call_digest", "call")
    fields = {name: getattr(row.effect, name) for name in columns}
    return {**fields, "thread": thread, "outcome": row.outcome, "mac": mac}
