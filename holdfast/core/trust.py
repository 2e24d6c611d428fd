"""Provenance and trust levels: from what a person said down to content from the web.

1. What the LLM writes has at most the lowest trust level of what it has read: a transcript's trust only ever falls.
2. Tainted content keeps its trust level, and needs a person's approval before an agent is shown it unasked, as
   standing memory or as a learned strategy.
"""

from typing import Literal

from holdfast.core.base.models import Frozen

Trust = Literal["person", "agent", "tool", "web"]
"""Said by a person · written by the LLM from what people said · returned by a tool, or written by the LLM after
reading such a result · the same for content that anybody may have written."""

_ORDER: tuple[Trust, ...] = ("person", "agent", "tool", "web")


def least(one: Trust, other: Trust) -> Trust:
    """Return the lower of two trust levels."""
    return max(one, other, key=_ORDER.index)


def is_tainted(trust: Trust) -> bool:
    """Whether no person vouches for content of this trust level."""
    return trust in ("tool", "web")


class Origin(Frozen):
    """Where a tool call comes from; passed to tools with `@tool(origin=True)`."""

    agent: str = ""
    """The agent's name."""
    user: str = ""
    """Who gave the thread its task; empty if unknown."""
    position: int = 0
    """Position of the event that recorded the call's start."""
    trust: Trust = "agent"
    """The trust level of what the LLM writes, given everything it has read."""
    approved: bool = False
    """Whether a person approved this call."""


NO_ORIGIN = Origin()
"""An unknown origin."""
