"""Lets Temporal retry activities while the database is unavailable."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from temporalio.exceptions import ApplicationError


@contextmanager
def retried_by_temporal(what: str) -> Iterator[None]:
    """Convert connection errors within the block into an error that Temporal retries.

    Args:
        what: What needs the database, for the message.

    Raises:
        ApplicationError: `DatabaseUnavailable`.
    """
    try:
        yield
    except psycopg.OperationalError as error:  # the pool's timeout is one, too
        reason = f"no connection to the database; {what} waits for one ({str(error).strip()})"
        raise ApplicationError(reason, type="DatabaseUnavailable") from None
