"""Whether a run is being moved to another place, and how it came to this one."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.log.import_point import ImportPoint


@dataclass(frozen=True)
class Move:
    """A person has asked for the run to be moved."""

    by: str
    """Who asked; only a claim."""
    reason: str = ""
    to: str = ""
    """The id of the only place that may import it; empty for any."""


@dataclass(frozen=True)
class Import:
    """The last import in a thread's log: a thread can be moved again."""

    point: ImportPoint
    by: str
    """Who imported it; a claim, unless the start was sealed with the person's proof."""
    at: datetime
    spec_hash: str
    """Digest of the agent that the thread had before."""
    entered: bool = False
    """The agent of this place is loaded."""

    def view(self) -> dict[str, Any]:
        """Return the import as `show` presents it."""
        return {
            "position": self.point.position,
            "head": self.point.head,
            "signer": self.point.signer or None,
            "by": self.by,
            "at": self.at.isoformat(),
        }
