"""The failures of earlier attempts at an LLM call: each failed attempt hands them on to the next (`handed_on`).

They become part of the reply, which is sealed: so they are sealed too, and bound to the one call.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from holdfast.activities.handed_on import handed_on, to_hand_on
from holdfast.llm.outages import CAUSE_CHARS, MESSAGE_CHARS, LLMFailure, Outage
from holdfast.run.contracts import Failures, LLMRequest
from holdfast.tools.secrets import Secrets


def earlier_failures(request: LLMRequest) -> Outage | None:
    """Read the failures that the attempts before this one left; None if there are none."""
    failures = handed_on(Failures, request)
    return failures.outage if failures else None


def heartbeat_details(outage: Outage | None, request: LLMRequest) -> tuple[Any, ...]:
    """The details that every heartbeat of this attempt repeats, for the next attempt to read; empty for no outage."""
    return () if outage is None else to_hand_on(Failures(answers=request.order, outage=outage))


@contextmanager
def recording_failure(request: LLMRequest, before: Outage | None, secrets: Secrets) -> Iterator[None]:
    """If the block fails, record that for the next attempt; if there is none, in the details of the error.

    Args:
        request: The order.
        before: The failures before this attempt.
        secrets: Redacted from the error: a provider may repeat the key that it refuses.

    Raises:
        ApplicationError: The block's own, with the failures as its details where it is not retryable.
    """
    started = datetime.now(UTC)
    try:
        yield
    except ApplicationError as error:
        if error.non_retryable:
            details = () if before is None else (before.model_dump(mode="json"),)
            raise ApplicationError(error.message, *details, type=error.type, non_retryable=True) from None
        seconds = max(0, round((datetime.now(UTC) - started).total_seconds(), 3))
        message = secrets.redact(error.message)[:MESSAGE_CHARS]
        failure = LLMFailure(at=started, seconds=seconds, cause=(error.type or "")[:CAUSE_CHARS], message=message)
        activity.heartbeat(*heartbeat_details(Outage.of(before, failure), request))
        raise
