"""The failures of attempts at an LLM call, which an attempt leaves in its heartbeat details for the next one.

The failures become part of the reply, which is sealed: so they are sealed too, and bound to the one call.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import openai
from temporalio import activity
from temporalio.exceptions import ApplicationError

from holdfast.activities.heartbeats import sealed_details
from holdfast.activities.llm_calls.fallback import Turn
from holdfast.activities.llm_calls.llm_replies import NotAReply
from holdfast.activities.llm_calls.retry_after import retry_after
from holdfast.core.base.text import one_line, visible
from holdfast.core.llm.messages import Usage
from holdfast.core.llm.names import NAME_CHARS
from holdfast.core.llm.outages import CAUSE_CHARS, MESSAGE_CHARS, LLMFailure, Outage, attempts_lost
from holdfast.core.llm.refusals import REJECTION_CHARS, is_too_long, rejection_message
from holdfast.core.llm.tokens import tokens_of_request
from holdfast.core.run.contracts.error_types import CONTEXT_TOO_LONG, LLM_REJECTED
from holdfast.core.run.contracts.llm_calls import Failures, LLMFailed, LLMRequest
from holdfast.core.run.contracts.table import PATIENT
from holdfast.core.tools.secrets import Secrets


def heartbeat_details(failures: Failures, request: LLMRequest) -> tuple[Any, ...]:
    """Return the details that every heartbeat of this attempt repeats for the next attempt: the failures before it.

    If the next attempt reads these instead of the details that `record_failure` leaves, this one left no trace.
    """
    return sealed_details(failures.model_copy(update={"untraced": True}) if request.budgeted else failures)


def lost_attempts(failures: Failures | None) -> int:
    """Return how many attempts before this one may have cost something.

    Temporal counts attempts anew if somebody resets the activity (`temporal activity reset`). Signs of a reset are more
    recorded failures than attempts, a first attempt that was scheduled again, and heartbeat details of an attempt that
    recorded no failure. The number of attempts that it hides is unknown, but at most one can have cost something,
    because the next one ends the call.
    """
    info, outage = activity.info(), failures.outage if failures else None
    again = info.attempt == 1 and info.current_attempt_scheduled_time > info.scheduled_time
    hidden = again or (failures is not None and (failures.untraced or failures.outage.failed >= info.attempt))
    return max(attempts_lost(outage, attempt=info.attempt), int(hidden))


@dataclass
class Attempt:
    """The progress of an attempt."""

    lost: int = 0
    """Attempts before this one that may have cost something: for a run with a budget, this one ends the call."""
    body: bytes = b""
    """The request."""
    costly: bool = False
    """It may have cost something: its request was sent, and no answer has rejected it."""
    usage: Usage | None = None
    """The usage of the reply that it received."""
    cost: int | None = None
    """The cost of that reply in nano-dollars; None if the run asks for no price, or none is known."""
    status: int = 0
    """The HTTP status of the endpoint's rejection; 0 if there was none."""
    turn: Turn | None = None
    """The LLM that it calls; None before it is chosen."""
    started: datetime = field(default_factory=lambda: datetime.now(UTC))


def record_failure(
    error: Exception, request: LLMRequest, before: Failures | None, attempt: Attempt, secrets: Secrets
) -> None:
    """Record the failure of an attempt for the next one; if none follows, in the details of the error.

    Args:
        error: Why the attempt failed. The caller raises it again, unless this raises another one in its place.
        request: The activity's request.
        before: The failures before this attempt.
        attempt: The attempt, which says whether it may have cost something.
        secrets: Redacted from the error: a provider may repeat the key that it rejects.

    Raises:
        ApplicationError: The same error, with the failures as its details if it is not retryable, or with the delay
            that the run asks for.
    """
    if not isinstance(error, ApplicationError):  # nothing was sent, or the reply could not be stored
        cause = type(error).__name__
        _leave_failure(request, before, attempt, cause=cause, message=secrets.redact(str(error)))
        if attempt.costly and request.lost:
            raise ApplicationError(str(error), type=cause, next_retry_delay=_delay(request)) from error
        return
    message, cause = secrets.redact(error.message), error.type or ""
    if error.non_retryable:
        # Redacted here: `Redacting` would drop the proof together with the message.
        details = _details(request, before, attempt, cause)
        raise ApplicationError(message, *details, type=error.type, non_retryable=True) from None
    _leave_failure(request, before, attempt, cause=cause, message=message)
    if attempt.costly and request.lost and error.next_retry_delay is None:
        raise ApplicationError(error.message, type=error.type, next_retry_delay=_delay(request)) from error


def _delay(request: LLMRequest) -> timedelta:
    """Return the delay before the next attempt: as long as if all lost attempts were of one call."""
    delay, longest = PATIENT.initial_interval * (1 << min(request.lost, 10)), PATIENT.maximum_interval
    return min(delay, longest) if longest else delay


def _details(request: LLMRequest, before: Failures | None, attempt: Attempt, cause: str) -> tuple[Any, ...]:
    """Return the details of the error that ends the call: proof of its cause, if the run has a budget."""
    outage = before.outage if before else None
    if request.budgeted:
        lost = attempt.lost + attempt.costly
        tokens = tokens_of_request(attempt.body) if lost else 0
        reply = _reply_usage(before, attempt) if lost else {}
        return sealed_details(
            LLMFailed(answers=request.order, cause=cause, outage=outage, lost=lost, request_tokens=tokens, **reply)
        )
    return () if outage is None else (outage.model_dump(mode="json"),)


def _reply_usage(before: Failures | None, attempt: Attempt) -> dict[str, Any]:
    """Return usage and cost of the reply that this attempt or an earlier one received; after that, at most one attempt
    follows, which ends the call.
    """
    source = attempt if attempt.usage or before is None else before
    return {"usage": source.usage, "cost": source.cost}


def _leave_failure(request: LLMRequest, before: Failures | None, attempt: Attempt, *, cause: str, message: str) -> None:
    """Leave a failure for the next attempt. The message is redacted before it is cut: half a secret is not found."""
    seconds = max(0, round((datetime.now(UTC) - attempt.started).total_seconds(), 3))
    turn = attempt.turn
    llm = turn.route.reference[:NAME_CHARS] if turn else ""
    failure = LLMFailure(
        at=attempt.started, seconds=seconds, cause=cause[:CAUSE_CHARS], message=message[:MESSAGE_CHARS], llm=llm
    )
    outage = before.outage if before else None
    outage = Outage.of(outage, failure, costly=attempt.costly if request.budgeted else None)
    failures = Failures(answers=request.order, outage=outage)
    if turn and llm:
        failures = failures.model_copy(update={"passed_over": turn.passed, "failing": llm, "failed": turn.failed})
    if request.budgeted:
        failures = failures.model_copy(update={"untraced": attempt.lost > 0, **_reply_usage(before, attempt)})
    activity.heartbeat(*sealed_details(failures))


def provider_error(error: openai.APIStatusError) -> ApplicationError:
    """Convert a provider's error: Temporal retries it, the run compacts its context, or it blocks the run."""
    response, status = error.response, error.status_code
    message = f"{status}: {_provider_message(response)}"
    if is_too_long(status, response.content):
        return ApplicationError(message, type=CONTEXT_TOO_LONG, non_retryable=True)
    if status in (408, 409, 425, 429) or status >= 500:
        delay = retry_after(response.headers, response.text[:REJECTION_CHARS])
        return ApplicationError(message, type=type(error).__name__, next_retry_delay=delay)
    return ApplicationError(message, type=LLM_REJECTED, non_retryable=True)


def not_a_reply(error: NotAReply, response: httpx2.Response, url: httpx2.URL, secrets: Secrets) -> ApplicationError:
    """Convert a response that is no reply into an error that Temporal retries."""
    kind = response.headers.get("content-type") or "no content type"
    # Redacted before it is cut: half a secret would not be found.
    message = secrets.redact(f"{url}: {response.status_code}, {kind}: {error}")
    delay = retry_after(response.headers, f"{error}")
    return ApplicationError(
        one_line(visible(message), MESSAGE_CHARS), type=type(error).__name__, next_retry_delay=delay
    )


def _provider_message(response: httpx2.Response) -> str:
    """Return the endpoint's message, or the host of a redirect, which is not followed: it may be a login page."""
    if response.has_redirect_location:
        try:
            host = response.url.join(response.headers["location"]).host
        except (httpx2.InvalidURL, ValueError):
            host = "an invalid address"
        return (
            f"the endpoint redirects to {one_line(visible(host), 200)}, which is not followed: it may be a login page. "
            "Set the endpoint's address, such as OPENAI_BASE_URL, to that of the API itself"
        )
    return rejection_message(response.content) or f"{response.reason_phrase or 'an error'}, without a message"
