"""The failures of earlier attempts at a tool call: a failed attempt leaves its error, sealed, in its last heartbeat.

They become part of the outcome. An attempt whose worker died leaves nothing; `worker_deaths` adds those. An attempt
that waits for a lost one (EFFECT_SETTLING) has not failed.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from temporalio import activity
from temporalio.exceptions import ApplicationError

from holdfast.activities.handed_on import to_hand_on
from holdfast.run.contracts import EFFECT_SETTLING, EarlierAttempts, InDoubt, ToolRequest
from holdfast.tools.failures import MESSAGE_CHARS, AttemptFailure, FailedAttempts, kind_of
from holdfast.tools.results import error_text
from holdfast.tools.secrets import Secrets


class AttemptNotes:
    """What this attempt leaves for the next one.

    Args:
        request: The order.
        before: What the attempts before this one have left; None for nothing.
    """

    def __init__(self, request: ToolRequest, before: EarlierAttempts | None) -> None:
        self._request = request
        self.left = before

    @property
    def in_doubt(self) -> InDoubt | None:
        """How the call ended, while it is not known yet whether its effect has happened."""
        return self.left.in_doubt if self.left else None

    @in_doubt.setter
    def in_doubt(self, end: InDoubt) -> None:
        self.left = _of(self.left, self._request).model_copy(update={"in_doubt": end})

    def count_raised(self) -> int:
        """Count one more call of an idempotent tool that raised; return how many there are."""
        left = _of(self.left, self._request)
        self.left = left.model_copy(update={"raised": left.raised + 1})
        return self.left.raised

    @contextmanager
    def recording_failure(self, secrets: Secrets) -> Iterator[None]:
        """If the block fails, record that for the next attempt.

        Args:
            secrets: Redacted from the error.
        """
        started = time.monotonic()
        try:
            yield
        except Exception as error:
            if not activity.info().is_local:
                seconds = round(time.monotonic() - started, 3)
                if not (isinstance(error, ApplicationError) and error.type == EFFECT_SETTLING):
                    # Redacted before it is cut: half a secret would not be found.
                    message = secrets.redact(error_text(error))[:MESSAGE_CHARS]
                    failure = AttemptFailure(kind=kind_of(error), message=message, seconds=seconds)
                    self.left = with_failure(self.left, failure, self._request)
                if self.left:
                    activity.heartbeat(*to_hand_on(self.left))
            raise


def with_failure(before: EarlierAttempts | None, failure: AttemptFailure, request: ToolRequest) -> EarlierAttempts:
    """Return what is handed on after one more failed attempt."""
    left = _of(before, request)
    return left.model_copy(update={"failures": FailedAttempts.of(left.failures, failure)})


def _of(before: EarlierAttempts | None, request: ToolRequest) -> EarlierAttempts:
    return before or EarlierAttempts(answers=request.order)
