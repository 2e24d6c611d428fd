"""Where a forked thread comes from, and whether its effects still ask first."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.log.fork_point import ForkPoint

FORK = 0
"""What `lift` names to let effects after a fork run as the policy says: constraints are numbered from 1."""


@dataclass(frozen=True)
class Fork:
    """The last fork in a thread's log: a fork can be forked again."""

    point: ForkPoint
    by: str
    """Who forked it; a claim, unless the start was sealed with the person's proof."""
    at: datetime
    """When the event was recorded after which it was forked: the files belong to that time."""
    workspace: str = ""
    """The folder of the thread that it was forked from."""
    lifted_by: str | None = None
    """The approver who let effects run as the policy says; None as long as they ask first."""
    llm: str = ""
    """The LLM of its agents; empty for their own."""
    policies: tuple[str, ...] = ()
    """Digests of the policies that were given with this fork or with one that it is a fork of."""

    def view(self) -> dict[str, Any]:
        """Return the fork as `show` presents it."""
        point = self.point
        return {
            "thread": point.thread,
            "position": point.position,
            "head": point.head,
            "by": self.by,
            "effects_ask": self.lifted_by is None,
            "lifted_by": self.lifted_by,
            **({"llm": self.llm} if self.llm else {}),
            **({"policies": list(self.policies)} if self.policies else {}),
        }
