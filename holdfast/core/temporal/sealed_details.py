"""Sealed values in places that Temporal decodes without a type: details of heartbeats and of errors.

Such a value is two texts: its seal in base64, and its JSON. Anybody who reaches Temporal can send a heartbeat or fail
an activity, so details without a valid seal count as none.
"""

from base64 import b64decode, b64encode
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadConverter
from temporalio.exceptions import FailureError

from holdfast.core.mac.seals import Answer
from holdfast.core.run.contracts.commands import Failure
from holdfast.core.run.contracts.llm_calls import LLMFailed
from holdfast.core.temporal.converter import SEAL

AnswerT = TypeVar("AnswerT", bound=Answer)


def to_details(answer: Answer, by: PayloadConverter) -> tuple[str, str]:
    """Encode an answer as details.

    Args:
        answer: The answer.
        by: The converter of the activity, which has a key to seal with.
    """
    (payload,) = by.to_payloads([answer])
    return b64encode(payload.metadata[SEAL]).decode(), payload.data.decode()


def from_details(kind: type[AnswerT], details: Sequence[Any], by: PayloadConverter) -> AnswerT | None:
    """Decode details; None where they hold no sealed answer of that kind.

    Raises:
        SealKeyUnknown: They are sealed with a key that this process does not have.
    """
    match details:
        case [str(seal), str(data)]:
            with suppress(ValueError):
                metadata = {"encoding": b"json/plain", SEAL: b64decode(seal)}
                (found,) = by.from_payloads([Payload(metadata=metadata, data=data.encode())], [kind])
                return found if isinstance(found, kind) else None
    return None


def failure_of(error: FailureError, by: PayloadConverter) -> Failure:
    """Return the failure that an activity's error stands for, with the sealed proof in its details.

    Raises:
        SealKeyUnknown: The proof is sealed with a key that this process does not have.
    """
    failure = Failure.of(error)
    return replace(failure, proof=from_details(LLMFailed, failure.details, by))
