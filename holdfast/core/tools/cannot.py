"""`Cannot`: a tool's result for a call that cannot be made now, with the time and the calls that this applies to."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, get_args

from holdfast.core.base.models import Frozen

Scope = Literal["here", "everywhere"]
"""The calls that cannot be made: the same call, with the same arguments · every call of the tool."""

LONGEST = timedelta(days=3_650)
"""The longest time for `until`; None means no end."""


class InheritedConstraint(Frozen):
    """A constraint that a tool reported, in the form in which a parent run and its sub-agents pass it to each other."""

    tool: str
    call_digest: str = ""
    """Digest of tool and arguments; empty for every call of the tool."""
    arguments: str = ""
    reason: str
    until: datetime | None = None


@dataclass(frozen=True)
class Cannot:
    """A tool's result: it has done nothing, because the call cannot be made.

    The LLM reads the reason. From then on, the run rejects such calls with that reason, without making them, until the
    time is over or a person removes the constraint (`holdfast lift`).
    """

    reason: str
    """The reason, for the LLM and for people; `holdfast.core.run.state.constraints` defines its maximum length."""
    scope: Scope = "here"
    """`here`: the same call, with the same arguments; `everywhere`: every call of the tool."""
    until: datetime | timedelta | None = None
    """The time at which it may work again, or the time until then; None until a person removes the constraint."""

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            ValueError: A field is invalid; the message names it.
        """
        if not isinstance(self.reason, str) or not self.reason.strip():
            raise ValueError(f"Cannot(reason={self.reason!r}): say why, in a sentence that the LLM reads")
        if self.scope not in get_args(Scope):
            raise ValueError(f"Cannot(scope={self.scope!r}) is not one of {', '.join(get_args(Scope))}")
        if isinstance(self.until, datetime):
            if self.until.utcoffset() is None:
                raise ValueError(f"Cannot(until={self.until!r}) has no time zone; write datetime(…, tzinfo=UTC)")
            try:
                self.until.astimezone(UTC)
            except OverflowError:
                raise ValueError(f"Cannot(until={self.until!r}) is no time in UTC; None has no end") from None
        if isinstance(self.until, timedelta) and abs(self.until) > LONGEST:
            raise ValueError(f"Cannot(until={self.until!r}) is longer than {LONGEST.days:,} days; None has no end")
        if self.until is not None and not isinstance(self.until, datetime | timedelta):
            raise ValueError(f"Cannot(until={self.until!r}) is neither a datetime nor a timedelta")

    def ends_at(self, now: datetime) -> datetime | None:
        """Return the time at which it may work again, in UTC, for a result returned at `now`; None for no end."""
        if self.until is None:
            return None
        return (now + self.until if isinstance(self.until, timedelta) else self.until).astimezone(UTC)
