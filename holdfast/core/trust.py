"""Provenance and trust levels: from a person's own words down to content from the web.

1. Text that the LLM writes has at most the lowest trust level of anything it has read: a transcript's trust level only
   ever falls.
2. Tainted content keeps its trust level. A person must approve it before an agent is shown it unasked, as standing
   memory or as a learned strategy.
"""

from typing import Literal

from holdfast.core.base.models import Frozen

Trust = Literal["person", "agent", "tool", "web"]
"""Said by a person · written by the LLM, which had read only what people said · returned by a tool, or written by the
LLM after it read such a result · the same for content that anybody may have written."""

_ORDER: tuple[Trust, ...] = ("person", "agent", "tool", "web")


def least(one: Trust, other: Trust) -> Trust:
    """Return the lower of two trust levels."""
    return max(one, other, key=_ORDER.index)


def is_tainted(trust: Trust) -> bool:
    """Whether no person vouches for content of this trust level."""
    return trust in ("tool", "web")


class Origin(Frozen):
    """The origin of a tool call; passed to tools with `@tool(origin=True)`."""

    agent: str = ""
    """The agent's name."""
    user: str = ""
    """The person who gave the thread its task; empty if unknown."""
    position: int = 0
    """Position of the event that recorded the call's start."""
    trust: Trust = "agent"
    """The trust level of text that the LLM writes, after everything it has read."""
    approved: bool = False
    """Whether a person approved this call."""
    hops: int = 0
    """How many agents in a row led to this call by events that woke one another; 0 if a person or the world did."""


NO_ORIGIN = Origin()
"""An unknown origin."""
