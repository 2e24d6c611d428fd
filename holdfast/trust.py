"""Whose word something is: from a person's own down to what stands on the web.

1. Whatever the LLM writes is worth no more than the least that it has read: its transcript's trust only ever falls.
2. What is tainted is kept as what it is, and needs a person's approval before it is put before an agent unasked, as
   standing memory or as a learnt strategy.
"""

from typing import Literal

from holdfast.base.models import Frozen

Trust = Literal["person", "agent", "tool", "web"]
"""A person said it · the LLM did, of what people said · a tool returned it, or the LLM wrote it after reading such ·
the same, of what anybody may have written."""

_ORDER: tuple[Trust, ...] = ("person", "agent", "tool", "web")


def least(one: Trust, other: Trust) -> Trust:
    """The lower of two."""
    return max(one, other, key=_ORDER.index)


def is_tainted(trust: Trust) -> bool:
    """Whether no person vouches for it."""
    return trust in ("tool", "web")


class Origin(Frozen):
    """Where a tool call comes from: what `@tool(origin=True)` is told of it."""

    agent: str = ""
    """The agent's name."""
    user: str = ""
    """Who gave the thread's task; empty where nobody said."""
    position: int = 0
    """Of the event that recorded the call's start."""
    trust: Trust = "agent"
    """What the LLM's words are worth, after all that it has read."""
    approved: bool = False
    """A person let this very call run."""


NO_ORIGIN = Origin()
"""Nothing is known."""
