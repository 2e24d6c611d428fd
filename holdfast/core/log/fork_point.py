"""The event of a thread after which another thread was forked from it."""

from pydantic import Field

from holdfast.core.base.models import Frozen


class ForkPoint(Frozen):
    """Where a fork leaves the thread that it was forked from: the fork's log begins with the lines up to there."""

    thread: str = Field(min_length=1)
    """The id of that thread."""
    position: int = Field(ge=1)
    """The position of its last event that the fork has, too."""
    head: str = Field(min_length=64, max_length=64)
    """The digest of that event, which vouches for all events before it."""
