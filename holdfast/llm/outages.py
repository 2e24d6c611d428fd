"""What came before an LLM answered, or was given up: attempts that failed. Temporal's history has no event of them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Self

from pydantic import AwareDatetime, Field, ValidationError

from holdfast.base.models import Frozen

KEPT = 10
"""The failures that are kept, the newest."""

CAUSE_CHARS, MESSAGE_CHARS = 100, 300
"""What is kept of each."""


class LLMFailure(Frozen):
    """One attempt that failed."""

    at: AwareDatetime
    """When it began."""
    seconds: float = Field(ge=0)
    cause: str = Field(max_length=CAUSE_CHARS)
    """A short name: `RateLimitError`, `APITimeoutError`, …"""
    message: str = Field(max_length=MESSAGE_CHARS)


class Outage(Frozen):
    """The attempts at one LLM call that failed. One whose worker was killed left nothing: `attempt` counts it."""

    failed: int = Field(ge=1)
    """How many have left a trace."""
    began: AwareDatetime
    """When the first of them began."""
    last: tuple[LLMFailure, ...] = Field(min_length=1, max_length=KEPT)
    """The newest, oldest first."""

    @classmethod
    def of(cls, before: Self | None, failure: LLMFailure) -> Self:
        """An outage with one more failure."""
        if before is None:
            return cls(failed=1, began=failure.at, last=(failure,))
        return cls(failed=before.failed + 1, began=before.began, last=(*before.last, failure)[-KEPT:])

    @classmethod
    def told(cls, details: Sequence[Any]) -> Self | None:
        """The outage that an error's details hold; None if they hold none. Anybody can fail an activity: a claim."""
        try:
            return cls.model_validate(details[0]) if details else None
        except ValidationError:
            return None

    def words(self, until: datetime) -> str:
        """`after 3 failed attempts in 42 s: InternalServerError: 503: overloaded`.

        Args:
            until: When it was over.
        """
        attempts = "attempt" if self.failed == 1 else "attempts"
        seconds = max(0, round((until - self.began).total_seconds()))
        failure = self.last[-1]
        return f"after {self.failed:,} failed {attempts} in {seconds:,} s: {failure.cause}: {failure.message}"
