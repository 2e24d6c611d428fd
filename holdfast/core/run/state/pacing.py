"""Tools whose calls get no answer: how many in a row, and until when further calls of the tool are delayed.

The list is bounded: the tool whose calls were answered least recently makes room. It has names of the agent's own tools
only.
"""

from dataclasses import dataclass
from datetime import datetime

from holdfast.core.base.models import Frozen

TOOLS = 32
"""Tools that are kept at the same time."""

MAX_COUNT = 1_000
"""Counts stop here."""


class Unanswered(Frozen):
    """A tool whose last calls got no answer."""

    tool: str
    count: int
    """Steps in a row in which a call of the tool got no answer. The calls of one step count once."""
    step: int
    """The last of these steps."""
    delay: float = 0
    """Seconds from the last answer that did not come to the next call; 0 while calls are not delayed."""
    until: datetime | None = None
    """When the next call may start; None for at once."""


@dataclass(frozen=True)
class Pacing:
    """The tools whose last calls got no answer, the most recent one last."""

    tools: tuple[Unanswered, ...] = ()

    def find(self, tool: str) -> Unanswered | None:
        """Return the entry of a tool; None if its last call was answered."""
        return next((each for each in self.tools if each.tool == tool), None)

    def put(self, entry: Unanswered) -> "Pacing":
        """Add a tool, or replace its entry."""
        others = tuple(each for each in self.tools if each.tool != entry.tool)
        return Pacing((*others, entry)[-TOOLS:])

    def remove(self, tool: str) -> "Pacing":
        """Remove a tool, whose call was answered."""
        if self.find(tool) is None:
            return self
        return Pacing(tuple(each for each in self.tools if each.tool != tool))
