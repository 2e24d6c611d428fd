"""The failures of earlier attempts at an LLM call: each attempt that fails hands them on in its last heartbeat.

They go into the reply, which is sealed: so they are sealed, too, and bound to the one call. What somebody else writes
into a heartbeat is dropped.
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
    """What the attempts before this one have left; None for nothing."""
    match activity.info().heartbeat_details:
        case [str(seal), str(data)]:
            # An unknown key or what is no base64 would stay in the heartbeat, and stop every attempt to come.
            with suppress(SealKeyUnknown, ValueError):
                metadata = {"encoding": b"json/plain", SEAL: b64decode(seal)}
                payload = Payload(metadata=metadata, data=data.encode())
                (found,) = activity.payload_converter().from_payloads([payload], [Failures])
                if isinstance(found, Failures) and answers(found, request):
                    return found.outage
            log.warning("heartbeat_not_ours", thread=activity.info().workflow_id)
    return None


def heartbeat_of(outage: Outage | None, request: LLMRequest) -> tuple[Any, ...]:
    """What every heartbeat of this attempt says, so that the next one finds it; empty for nothing."""
    if outage is None:
        return ()
    failures = Failures(answers=request.order, outage=outage)
    (payload,) = activity.payload_converter().to_payloads([failures])
    return b64encode(payload.metadata[SEAL]).decode(), payload.data.decode()


@contextmanager
def leaving_trace(request: LLMRequest, before: Outage | None, secrets: Secrets) -> Iterator[None]:
    """If the block fails, leave that to the next attempt; or, where there is none, in the details of the error.

    Args:
        request: The order.
        before: What failed before.
        secrets: To be redacted: a provider may repeat the key that it refuses.

    Raises:
        ApplicationError: As the block raised it.
    """
    began = datetime.now(UTC)
    try:
        yield
    except ApplicationError as error:
        if error.non_retryable:
            details = () if before is None else (before.model_dump(mode="json"),)
            raise ApplicationError(error.message, *details, type=error.type, non_retryable=True) from None
        seconds = max(0, round((datetime.now(UTC) - began).total_seconds(), 3))
        message = secrets.redact(error.message)[:MESSAGE_CHARS]
        failure = LLMFailure(at=began, seconds=seconds, cause=(error.type or "")[:CAUSE_CHARS], message=message)
        activity.heartbeat(*heartbeat_of(Outage.of(before, failure), request))
        raise
