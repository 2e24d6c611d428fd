"""The event of a thread after which another thread was forked from it."""

from pydantic import Field

from holdfast.core.base.models import Frozen


class ForkPoint(Frozen):
    """The last event that a fork shares with its source thread: the fork's log begins with the lines up to it."""

    thread: str = Field(min_length=1)
    """The id of the source thread."""
    position: int = Field(ge=1)
    """The position of the last shared event."""
    head: str = Field(min_length=64, max_length=64)
    """The digest of that event, which covers all events before it."""
