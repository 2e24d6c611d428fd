"""What an attempt hands on to the next one: an answer in its heartbeat, sealed and bound to the one call.

Anybody who reaches Temporal can send a heartbeat, so details without a valid seal are dropped.
"""

from base64 import b64decode, b64encode
from contextlib import suppress
from typing import Any, TypeVar

import structlog
from temporalio import activity
from temporalio.api.common.v1 import Payload

from holdfast.seals.orders import Answer, Order, answers
from holdfast.seals.seals import SealKeyUnknown
from holdfast.temporal.converter import SEAL

log = structlog.get_logger(__name__)
AnswerT = TypeVar("AnswerT", bound=Answer)


def handed_on(kind: type[AnswerT], order: Order) -> AnswerT | None:
    """Read what the attempts before this one left for it; None for nothing, and for what none of our processes left."""
    match activity.info().heartbeat_details:
        case [str(seal), str(data)]:
            # The details stay in the heartbeat: raising for an unknown key or bad base64 would fail all later attempts.
            with suppress(SealKeyUnknown, ValueError):
                metadata = {"encoding": b"json/plain", SEAL: b64decode(seal)}
                payload = Payload(metadata=metadata, data=data.encode())
                (found,) = activity.payload_converter().from_payloads([payload], [kind])
                if isinstance(found, kind) and answers(found, order):
                    return found
            log.warning("unsealed_heartbeat_dropped", thread=activity.info().workflow_id)
    return None


def to_hand_on(answer: Answer) -> tuple[Any, ...]:
    """Return the details that every heartbeat of this attempt repeats, for the next attempt to read."""
    (payload,) = activity.payload_converter().to_payloads([answer])
    return b64encode(payload.metadata[SEAL]).decode(), payload.data.decode()
