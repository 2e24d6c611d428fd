"""How long a run stays open for a follow-up message after the LLM has answered."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from holdfast.base.replacing import replace


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
        return replace(self, awaiting=True, until=at + timedelta(seconds=self.limit or 0))

    def end(self) -> "Idle":
        """Stop waiting: a message arrived, or the run is over."""
        return replace(self, awaiting=False, until=None) if self.awaiting else self
