"""The failures of earlier attempts at an LLM call: each failed attempt hands them on to the next (`handed_on`).

They become part of the reply, which is sealed: so they are sealed too, and bound to the one call.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from holdfast.activities.handed_on import handed_on, to_hand_on
from holdfast.llm.outages import CAUSE_CHARS, MESSAGE_CHARS, LLMFailure, Outage
from holdfast.run.contracts import Failures, LLMRefused, LLMRequest
from holdfast.tools.secrets import Secrets


def earlier_failures(request: LLMRequest) -> Outage | None:
    """Read the failures that the attempts before this one left; None if there are none."""
    failures = handed_on(Failures, request)
    return failures.outage if failures else None


def heartbeat_details(outage: Outage | None, request: LLMRequest) -> tuple[Any, ...]:
    """The details that every heartbeat of this attempt repeats, for the next attempt to read; empty for no outage."""
    return () if outage is None else to_hand_on(Failures(answers=request.order, outage=outage))


@dataclass
class Attempt:
    """What an attempt has done."""

    costly: bool = False
    """It may have cost something: its request was sent, and no answer has refused it."""


@contextmanager
def recording_failure(request: LLMRequest, before: Outage | None, secrets: Secrets) -> Iterator[Attempt]:
    """If the block fails, record that for the next attempt; if there is none, in the details of the error.

    Args:
        request: The order.
        before: The failures before this attempt.
        secrets: Redacted from the error: a provider may repeat the key that it refuses.

    Yields:
        The attempt, in which the block notes whether it may have cost something.

    Raises:
        ApplicationError: The block's own, with the failures as its details where it is not retryable.
    """
    started, attempt = datetime.now(UTC), Attempt()
    try:
        yield attempt
    except ApplicationError as error:
        if error.non_retryable:
            # Redacted here: `Redacting` would drop the proof together with the message.
            message, details = secrets.redact(error.message), _details(request, before, error.type or "")
            raise ApplicationError(message, *details, type=error.type, non_retryable=True) from None
        _leave(request, before, attempt, started=started, cause=error.type or "", message=secrets.redact(error.message))
        raise
    except Exception as error:  # nothing was sent, or the reply could not be kept: either is an attempt like others
        cause, message = type(error).__name__, secrets.redact(str(error))
        _leave(request, before, attempt, started=started, cause=cause, message=message)
        raise


def _details(request: LLMRequest, before: Outage | None, cause: str) -> tuple[Any, ...]:
    """The details of the error that ends the call: where the run has a budget, proof that it was refused."""
    if request.budgeted:
        return to_hand_on(LLMRefused(answers=request.order, cause=cause, outage=before))
    return () if before is None else (before.model_dump(mode="json"),)


def _leave(
    request: LLMRequest, before: Outage | None, attempt: Attempt, *, started: datetime, cause: str, message: str
) -> None:
    """Leave a failure for the next attempt. The message is redacted before it is cut: half a secret is not found."""
    seconds = max(0, round((datetime.now(UTC) - started).total_seconds(), 3))
    failure = LLMFailure(at=started, seconds=seconds, cause=cause[:CAUSE_CHARS], message=message[:MESSAGE_CHARS])
    outage = Outage.of(before, failure, costly=attempt.costly if request.budgeted else None)
    activity.heartbeat(*heartbeat_details(outage, request))
