"""Why attempts at a tool call failed; Temporal's history has no event for them."""

from typing import Literal, Self

from pydantic import Field

from holdfast.core.base.models import Frozen

FailureKind = Literal["timeout", "connection", "no_response", "error"]
"""It took longer than it may · a connection failed or broke · the worker that ran it died or hung · any other error."""

KEPT = 5
"""How many failures are kept, the newest ones."""

MESSAGE_CHARS = 200
"""Characters of a failure's message that are kept."""


class AttemptFailure(Frozen):
    """One failed attempt."""

    kind: FailureKind
    message: str = Field(max_length=MESSAGE_CHARS)
    seconds: float | None = Field(default=None, ge=0)
    """How long it took; None where the worker could not report that."""


class FailedAttempts(Frozen):
    """The failed attempts at one call, as far as they left a trace."""

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
        """The failures in a few words: `after 3 failed attempts (no_response: the worker died)`."""
        attempts = "attempt" if self.count == 1 else "attempts"
        return f"after {self.count:,} failed {attempts} ({self.last[-1].kind}: {self.last[-1].message})"


def kind_of(error: BaseException) -> FailureKind:
    """Return what an error stands for, or the errors of a group.

    Clients define errors of their own, so names count as well as types.
    """
    if isinstance(error, BaseExceptionGroup):
        kinds = [kind_of(each) for each in error.exceptions]
        return next((kind for kind in kinds if kind != "error"), "error")
    names = {each.__name__ for each in type(error).__mro__}
    if any("Timeout" in name for name in names):
        return "timeout"
    return "connection" if any("Connect" in name or "Network" in name for name in names) else "error"
