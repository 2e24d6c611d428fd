"""The failed attempts that preceded an LLM's reply or the end of retries; Temporal's history has no event for them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Self

from pydantic import AwareDatetime, Field, ValidationError

from holdfast.core.base.models import Frozen

KEPT = 10
"""How many failures are kept, the newest ones."""

CAUSE_CHARS, MESSAGE_CHARS = 100, 300
"""Maximum lengths of what is kept of each failure."""


class LLMFailure(Frozen):
    """One failed attempt."""

    at: AwareDatetime
    """When it began."""
    seconds: float = Field(ge=0)
    cause: str = Field(max_length=CAUSE_CHARS)
    """A short name: `RateLimitError`, `APITimeoutError`, …"""
    message: str = Field(max_length=MESSAGE_CHARS)


class Outage(Frozen):
    """The failed attempts at one LLM call. An attempt whose worker was killed is not recorded; `attempt` counts it."""

    failed: int = Field(ge=1)
    """How many were recorded."""
    began: AwareDatetime
    """When the first of them began."""
    last: tuple[LLMFailure, ...] = Field(min_length=1, max_length=KEPT)
    """The newest failures, oldest first."""
    costly: int | None = Field(default=None, ge=0)
    """How many of them may have cost something, because the request was sent; None where that was not recorded."""

    @property
    def may_have_cost(self) -> int:
        """How many of them may have cost something; where they did not say so, those that timed out."""
        if self.costly is not None:
            return self.costly
        return sum(failure.cause == "APITimeoutError" for failure in self.last)

    @classmethod
    def of(cls, before: Self | None, failure: LLMFailure, *, costly: bool | None = None) -> Self:
        """Return the outage with one more failure.

        Args:
            before: The failures before that.
            failure: The failure.
            costly: Whether it may have cost something; None where the run does not ask for that.
        """
        if before is None:
            return cls(failed=1, began=failure.at, last=(failure,), costly=None if costly is None else int(costly))
        total = None if costly is None or before.costly is None else before.costly + costly
        last = (*before.last, failure)[-KEPT:]
        return cls(failed=before.failed + 1, began=before.began, last=last, costly=total)

    @classmethod
    def from_details(cls, details: Sequence[Any]) -> Self | None:
        """Read the outage in an error's details; None if there is none.

        It is an unverified claim: anybody with access to Temporal can fail an activity.
        """
        try:
            return cls.model_validate(details[0]) if details else None
        except ValidationError:
            return None

    def words(self, until: datetime) -> str:
        """Describe the outage: `after 3 failed attempts in 42 s: InternalServerError: 503: overloaded`.

        Args:
            until: When it ended.
        """
        attempts = "attempt" if self.failed == 1 else "attempts"
        seconds = max(0, round((until - self.began).total_seconds()))
        failure = self.last[-1]
        return f"after {self.failed:,} failed {attempts} in {seconds:,} s: {failure.cause}: {failure.message}"


def attempts_lost(outage: Outage | None, *, attempt: int) -> int:
    """Return how many attempts before this one may have cost something: those that said so, and those that left no
    trace, because their worker died.

    Args:
        outage: The recorded attempts.
        attempt: Temporal's number of this one.
    """
    recorded, costly = (outage.failed, outage.may_have_cost) if outage else (0, 0)
    return costly + max(0, attempt - 1 - recorded)
