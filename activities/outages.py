"""The failures of earlier attempts at an LLM call: each failed attempt passes them to the next in its last heartbeat.

They become part of the reply, which is sealed: so they are sealed too, and bound to the one call. Heartbeat details
without a valid seal are dropped.
"""

from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import structlog
from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.exceptions import ApplicationError

from holdfast.llm.outages import CAUSE_CHARS, MESSAGE_CHARS, LLMFailure, Outage
from holdfast.run.contracts import Failures, LLMRequest
from holdfast.seals.orders import answers
from holdfast.seals.seals import SealKeyUnknown
from holdfast.temporal.converter import SEAL
from holdfast.tools.secrets import Secrets

log = structlog.get_logger(__name__)


def earlier_failures(request: LLMRequest) -> Outage | None:
    """Read the failures that the attempts before this one left; None if there are none."""
    match activity.info().heartbeat_details:
        case [str(seal), str(data)]:
            # The details stay in the heartbeat: raising for an unknown key or bad base64 would fail all later attempts.
            with suppress(SealKeyUnknown, ValueError):
                metadata = {"encoding": b"json/plain", SEAL: b64decode(seal)}
                payload = Payload(metadata=metadata, data=data.encode())
                (found,) = activity.payload_converter().from_payloads([payload], [Failures])
                if isinstance(found, Failures) and answers(found, request):
                    return found.outage
            log.warning("unsealed_heartbeat_dropped", thread=activity.info().workflow_id)
    return None


def heartbeat_details(outage: Outage | None, request: LLMRequest) -> tuple[Any, ...]:
    """The details that every heartbeat of this attempt repeats, for the next attempt to read; empty for no outage."""
    if outage is None:
        return ()
    failures = Failures(answers=request.order, outage=outage)
    (payload,) = activity.payload_converter().to_payloads([failures])
    return b64encode(payload.metadata[SEAL]).decode(), payload.data.decode()


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
