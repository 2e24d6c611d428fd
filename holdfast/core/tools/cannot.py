"""`Cannot`: a tool's result which says that a call cannot be made, for how long, and whether others can."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, get_args

from holdfast.core.base.models import Frozen

Scope = Literal["here", "everywhere"]
"""What cannot be done: the very same call, with the same arguments · every call of the tool."""

LONGEST = timedelta(days=3_650)
"""The longest time that `until` can give; None stands for no end."""


class HandedConstraint(Frozen):
    """What a tool said cannot be done, as a parent run and its sub-agents hand it to one another."""

    tool: str
    call_digest: str = ""
    """Digest of tool and arguments; empty for every call of the tool."""
    arguments: str = ""
    reason: str
    until: datetime | None = None


@dataclass(frozen=True)
class Cannot:
    """A tool's result: it has done nothing, and cannot.

    The LLM reads the reason. From then on, the run refuses such calls with that reason, without making them, until the
    time is over or a person lifts the constraint (`holdfast lift`).
    """

    reason: str
    """Why, for the LLM and for people; `holdfast.core.run.state.constraints` says how much of it is kept."""
    scope: Scope = "here"
    """`here`: the very same call, with the same arguments; `everywhere`: every call of the tool."""
    until: datetime | timedelta | None = None
    """When it may work again, or in how long; None for as long as no person lifts it."""

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            ValueError: One of them has no meaning; the message names it.
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
        """Return when it may work again, in UTC, for a result that is returned at that time; None for no end."""
        if self.until is None:
            return None
        return (now + self.until if isinstance(self.until, timedelta) else self.until).astimezone(UTC)
