"""How long a run stays open for a follow-up message after the LLM has answered."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from holdfast.base.replacing import replace

LONGEST_WAIT = 10 * 365 * 86_400
"""Maximum number of seconds of a wait. Anybody can start a run with any limit, and dates end with the year 9999."""


@dataclass(frozen=True)
class Idle:
    """The wait for a follow-up message."""

    awaiting: bool = False
    """The LLM has answered, and the run is open for a follow-up message."""
    limit: float | None = None
    """Seconds that the run stays open; None until its start or its agent sets them."""
    until: datetime | None = None
    """When the wait ends."""

    def begin(self, at: datetime) -> "Idle":
        """Begin to wait."""
        seconds = max(0, min(self.limit or 0, LONGEST_WAIT))
        return replace(self, awaiting=True, until=at + timedelta(seconds=seconds))

    def end(self) -> "Idle":
        """Stop waiting: a message arrived, or the run is over."""
        return replace(self, awaiting=False, until=None) if self.awaiting else self
