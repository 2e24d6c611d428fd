"""The failed attempts before an LLM's reply or the end of retries; Temporal's history has no event for them. And the
LLMs of a fallback order that were passed over.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Self

from pydantic import AwareDatetime, Field, ValidationError

from holdfast.core.base.models import Frozen
from holdfast.core.llm.names import NAME_CHARS

KEPT = 10
"""Maximum number of failures that an outage keeps, the newest ones."""

CAUSE_CHARS, MESSAGE_CHARS = 100, 300
"""Maximum lengths of a failure's cause and message."""


class LLMFailure(Frozen):
    """One failed attempt."""

    at: AwareDatetime
    """The time at which it began."""
    seconds: float = Field(ge=0)
    cause: str = Field(max_length=CAUSE_CHARS)
    """A short name: `RateLimitError`, `APITimeoutError`, …"""
    message: str = Field(max_length=MESSAGE_CHARS)
    llm: str = Field(default="", max_length=NAME_CHARS)
    """The LLM that was called, as `ENDPOINT/LLM`; empty for a plain name at the default endpoint. Recorded from feature
    level 2 on."""

    @property
    def words(self) -> str:
        """Describe the failure: `InternalServerError: 503: overloaded`, with the LLM if it is one of several."""
        return f"{f'{self.llm}: ' if self.llm else ''}{self.cause}: {self.message}"


class PassedOver(Frozen):
    """An LLM of a fallback order that was not asked for a reply, because it had failed."""

    llm: str = Field(max_length=NAME_CHARS)
    """As `ENDPOINT/LLM`."""
    at: AwareDatetime
    """The time of the failure, which may be one of an earlier call, or of another run on the same worker."""
    cause: str = Field(max_length=CAUSE_CHARS)
    message: str = Field(max_length=MESSAGE_CHARS)
    rejected: bool = False
    """Whether the provider rejected the key or does not have the LLM: it is not asked again in this call."""


class Outage(Frozen):
    """The failed attempts at one LLM call. An attempt whose worker was killed is not recorded; `attempt` counts it."""

    failed: int = Field(ge=1)
    """Number of recorded failures."""
    began: AwareDatetime
    """The time at which the first of them began."""
    last: tuple[LLMFailure, ...] = Field(min_length=1, max_length=KEPT)
    """The newest failures, oldest first."""
    costly: int | None = Field(default=None, ge=0)
    """Number of failures that may have cost something, because the request was sent; None if that was not recorded."""

    @property
    def may_have_cost(self) -> int:
        """Number of failures that may have cost something; if that was not recorded, those that timed out."""
        if self.costly is not None:
            return self.costly
        return sum(failure.cause == "APITimeoutError" for failure in self.last)

    @classmethod
    def of(cls, before: Self | None, failure: LLMFailure, *, costly: bool | None = None) -> Self:
        """Return the outage with one more failure.

        Args:
            before: The outage so far.
            failure: The failure.
            costly: Whether it may have cost something; None if the run does not record that.
        """
        if before is None:
            return cls(failed=1, began=failure.at, last=(failure,), costly=None if costly is None else int(costly))
        total = None if costly is None or before.costly is None else before.costly + costly
        last = (*before.last, failure)[-KEPT:]
        return cls(failed=before.failed + 1, began=before.began, last=last, costly=total)

    @classmethod
    def from_details(cls, details: Sequence[Any]) -> Self | None:
        """Decode the outage in an error's details; None if there is none.

        It is an unverified claim, because anybody with access to Temporal can fail an activity.
        """
        try:
            return cls.model_validate(details[0]) if details else None
        except ValidationError:
            return None

    def words(self, until: datetime) -> str:
        """Describe the outage: `after 3 failed attempts in 42 s: InternalServerError: 503: overloaded`.

        Args:
            until: The time at which it ended.
        """
        attempts = "attempt" if self.failed == 1 else "attempts"
        seconds = max(0, round((until - self.began).total_seconds()))
        return f"after {self.failed:,} failed {attempts} in {seconds:,} s: {self.last[-1].words}"


def attempts_lost(outage: Outage | None, *, attempt: int) -> int:
    """Return the number of earlier attempts that may have cost something: those recorded as such, and those without a
    record, because their worker crashed.

    Args:
        outage: The recorded attempts.
        attempt: Temporal's number of the current attempt.
    """
    recorded, costly = (outage.failed, outage.may_have_cost) if outage else (0, 0)
    return costly + max(0, attempt - 1 - recorded)
