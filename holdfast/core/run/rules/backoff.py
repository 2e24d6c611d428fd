"""The delay before the next poll: a pure function of the results of the polls before.

1. Repeated results lengthen the delay, up to a ceiling. News resets it.
2. A time-out or no response lengthens it most: the other side is overloaded, or down. An error is an answer, however
   short, and lengthens it less.
3. A partial result halves it: the rest is on its way.
4. No delay is shorter than the last poll took, up to the ceiling.
5. There is no randomness, so a replay waits as long as the run.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

PollResult = Literal["news", "same", "partial", "timeout", "no_response", "error"]
"""The result of a poll: a new one · the same as before · a part · nothing in time · no response at all · an error as
the answer."""


@dataclass(frozen=True)
class PollOutcome:
    """The recorded outcome of one poll."""

    result: PollResult
    seconds: float = 0
    """How long the poll took."""


@dataclass(frozen=True)
class Pace:
    """How delays grow. All delays are in seconds."""

    start: float = 2
    """The shortest delay, and the first."""
    ceiling: float = 300
    """The longest delay."""
    growth: float = 1.5
    """Factor after the same result."""
    failure_growth: float = 3
    """Factor after a time-out or no response."""
    error_growth: float = 2
    """Factor after an error."""


def next_delay(outcomes: Iterable[PollOutcome], pace: Pace, *, remaining: float | None = None) -> float:
    """Return the seconds to wait before the next poll.

    Args:
        outcomes: The polls so far, oldest first.
        pace: How delays grow.
        remaining: Seconds until a deadline, at which a last poll is due; None for none.
    """
    delay = pace.start
    for outcome in outcomes:
        match outcome.result:
            case "news":
                delay = pace.start
            case "same":
                delay *= pace.growth
            case "partial":
                delay /= 2
            case "error":
                delay *= pace.error_growth
            case "timeout" | "no_response":
                delay *= pace.failure_growth
        delay = min(max(delay, outcome.seconds, pace.start), pace.ceiling)
    return delay if remaining is None else max(0.0, min(delay, remaining))


@dataclass
class Backoff:
    """When to repeat an activity request that failed for good: anybody who reaches Temporal can make it fail."""

    until: datetime | None = None
    """The end of the pause; None if the last request did not fail."""
    _failed: int = 0
    """Failures in a row."""

    def failed(self, at: datetime) -> None:
        """Record that the request failed: each pause is longer than the one before, up to five minutes."""
        self._failed += 1
        pause = next_delay([PollOutcome("no_response")] * self._failed, Pace())
        self.until = at + timedelta(seconds=pause)

    def succeeded(self) -> None:
        """Record that the request succeeded."""
        self.until, self._failed = None, 0

    def pauses(self, at: datetime) -> bool:
        """Return whether the request failed so recently that it is not repeated yet."""
        return self.until is not None and self.until > at
