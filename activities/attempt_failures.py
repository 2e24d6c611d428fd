"""The failures of earlier attempts at a tool call: a failed attempt leaves its error, sealed, in its last heartbeat.

They become part of the outcome. An attempt whose worker died leaves nothing; `worker_deaths` adds those.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from temporalio import activity

from holdfast.activities.handed_on import to_hand_on
from holdfast.run.contracts import EarlierAttempts, ToolRequest
from holdfast.tools.failures import MESSAGE_CHARS, AttemptFailure, FailedAttempts, kind_of
from holdfast.tools.results import error_text
from holdfast.tools.secrets import Secrets


@contextmanager
def recording_failure(request: ToolRequest, before: EarlierAttempts | None, secrets: Secrets) -> Iterator[None]:
    """If the block fails, record that for the next attempt.

    Args:
        request: The order.
        before: How the attempts before this one failed; None for none.
        secrets: Redacted from the error.
    """
    started = time.monotonic()
    try:
        yield
    except Exception as error:
        if not activity.info().is_local:
            # Redacted before it is cut: half a secret would not be found.
            message = secrets.redact(error_text(error))[:MESSAGE_CHARS]
            seconds = round(time.monotonic() - started, 3)
            failure = AttemptFailure(kind=kind_of(error), message=message, seconds=seconds)
            activity.heartbeat(*to_hand_on(with_failure(before, failure, request)))
        raise


def with_failure(before: EarlierAttempts | None, failure: AttemptFailure, request: ToolRequest) -> EarlierAttempts:
    """Return what is handed on after one more failed attempt."""
    deaths, failures = (before.deaths, before.failures) if before else (0, None)
    return EarlierAttempts(answers=request.order, deaths=deaths, failures=FailedAttempts.of(failures, failure))
