"""The failed attempts at a tool call; Temporal's history has no event for them."""

from typing import Literal, Self

from pydantic import Field

from holdfast.core.base.models import Frozen

FailureKind = Literal["timeout", "connection", "no_response", "error"]
"""The time limit was exceeded · a connection failed or broke · the worker crashed or hung · any other error."""

KEPT = 5
"""Maximum number of failures that are kept, the newest ones."""

MESSAGE_CHARS = 200
"""Maximum length of a failure's message."""


class AttemptFailure(Frozen):
    """One failed attempt."""

    kind: FailureKind
    message: str = Field(max_length=MESSAGE_CHARS)
    seconds: float | None = Field(default=None, ge=0)
    """Duration; None if the worker could not report it."""


class FailedAttempts(Frozen):
    """The recorded failed attempts at one call."""

    count: int = Field(ge=1)
    last: tuple[AttemptFailure, ...] = Field(min_length=1, max_length=KEPT)
    """The newest ones, oldest first."""

    @classmethod
    def of(cls, before: Self | None, failure: AttemptFailure) -> Self:
        """Return the failures with one more."""
        if before is None:
            return cls(count=1, last=(failure,))
        return cls(count=before.count + 1, last=(*before.last, failure)[-KEPT:])

    @property
    def words(self) -> str:
        """A short description of the failures: `after 3 failed attempts (no_response: the worker died)`."""
        attempts = "attempt" if self.count == 1 else "attempts"
        return f"after {self.count:,} failed {attempts} ({self.last[-1].kind}: {self.last[-1].message})"


def kind_of(error: BaseException) -> FailureKind:
    """Return the kind of an error, or of the errors in a group.

    Client libraries define their own errors, so the names of types count.
    """
    if isinstance(error, BaseExceptionGroup):
        kinds = [kind_of(each) for each in error.exceptions]
        return next((kind for kind in kinds if kind != "error"), "error")
    names = {each.__name__ for each in type(error).__mro__}
    if any("Timeout" in name for name in names):
        return "timeout"
    return "connection" if any("Connect" in name or "Network" in name for name in names) else "error"
