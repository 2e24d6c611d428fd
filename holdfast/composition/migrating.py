"""Migrates the database as a separate step."""

from dataclasses import dataclass

import psycopg

from holdfast.errors import StackError
from holdfast.storage.missing_rows import fill_rows
from holdfast.storage.pool import migrate, schema_of


@dataclass(frozen=True)
class Migration:
    """The result of a migration."""

    before: str
    """The last migration that the database had; empty for none."""
    after: str
    applied: tuple[str, ...]
    """The migrations that were applied now."""
    rows: int
    """Rows for SQL that were added for events of an older release."""
    missing: tuple[str, ...]
    """The migrations that the database lacks."""
    advice: str
    """Advice for the operator; empty if there is nothing to do."""


async def bring_up_to_date(url: str | None, *, check: bool = False) -> Migration:
    """Apply the migrations of this release, and add the rows for SQL that are missing.

    Args:
        url: The database; its role has to own the schema.
        check: Change nothing.

    Raises:
        StackError: There is no database, or it cannot be migrated.
    """
    if url is None:
        raise StackError("no database is known here: set DATABASE_URL to that of the workers")
    try:
        before = await schema_of(url)
        applied = [] if check else await migrate(url)
        rows = 0 if check else await fill_rows(url)
        after = await schema_of(url)
    except psycopg.Error as error:
        raise StackError(f"the database cannot be migrated: {str(error).strip()}. Check DATABASE_URL.") from None
    return Migration(before.version, after.version, tuple(applied), rows, after.missing, after.advice())
