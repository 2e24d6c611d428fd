"""Sealed values that Temporal decodes without a type: the details of heartbeats and errors.

Such a value is encoded as two strings: its seal in base64, and its JSON. Anybody with access to Temporal can send a
heartbeat or fail an activity, so details without a valid seal are ignored.
"""

from base64 import b64decode, b64encode
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadConverter
from temporalio.exceptions import FailureError

from holdfast.core.mac.seals import ActivityResult
from holdfast.core.run.contracts.commands import Failure
from holdfast.core.run.contracts.llm_calls import LLMFailed
from holdfast.core.temporal.converter import SEAL

ResultT = TypeVar("ResultT", bound=ActivityResult)


def to_details(answer: ActivityResult, by: PayloadConverter) -> tuple[str, str]:
    """Encode an activity's result as details.

    Args:
        answer: The result.
        by: The converter of the activity, which has a key to seal with.
    """
    (payload,) = by.to_payloads([answer])
    return b64encode(payload.metadata[SEAL]).decode(), payload.data.decode()


def from_details(kind: type[ResultT], details: Sequence[Any], by: PayloadConverter) -> ResultT | None:
    """Decode details; None if they hold no sealed result of that kind.

    Raises:
        SealKeyUnknown: They are sealed with a key that this process does not have.
    """
    match details:
        case [str(seal), str(data)]:
            with suppress(ValueError):
                metadata = {"encoding": b"json/plain", SEAL: b64decode(seal)}
                (value,) = by.from_payloads([Payload(metadata=metadata, data=data.encode())], [kind])
                return value if isinstance(value, kind) else None
    return None


def failure_of(error: FailureError, by: PayloadConverter) -> Failure:
    """Convert an activity's error to a failure, with the sealed proof from its details.

    Raises:
        SealKeyUnknown: The proof is sealed with a key that this process does not have.
    """
    failure = Failure.of(error)
    return replace(failure, proof=from_details(LLMFailed, failure.details, by))
