"""A database that is away is Temporal's business: the activity is tried again until it is back."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from temporalio.exceptions import ApplicationError


@contextmanager
def retried_by_temporal(what: str) -> Iterator[None]:
    """Turn the loss of the database within the block into an error that Temporal retries.

    Args:
        what: Who waits for the database.

    Raises:
        ApplicationError: `DatabaseUnavailable`.
    """
    try:
        yield
    except psycopg.OperationalError as error:  # the pool's timeout is one, too
        reason = f"no connection to the database; {what} waits for one ({str(error).strip()})"
        raise ApplicationError(reason, type="DatabaseUnavailable") from None
