"""Signed statements that steer a run: pause, resume, retry, move.

A statement is bound to the run and to the state that its sender saw: the number of times that the run was paused,
resumed, blocked, unblocked or moved so far. Each statement therefore counts at most once, and one sent for an earlier
pause, even if it was rejected then, cannot end a later one.
"""

from typing import ClassVar

from pydantic import AwareDatetime, Field

from holdfast.core.authority.statements import Reasoned


class Steering(Reasoned):
    """The common fields of the four statements."""

    run: str = Field(default="", max_length=200)
    """The id of the thread's current chain of Temporal runs, as shown by `show`; required for a signed statement."""
    seen: int = Field(default=0, ge=0)
    """How often the run had been paused, resumed, blocked, unblocked or moved when its sender last read it."""


class Pause(Steering):
    """A person's pause of a run, or a change of it; the JSON of the signal and update `pause`, if it is signed."""

    FORMAT: ClassVar[str] = "pause/1"

    until: AwareDatetime | None = None
    """When it ends automatically; None for never."""


class Resume(Steering):
    """A person's end of a pause; the JSON of the signal and update `resume`, if it is signed."""

    FORMAT: ClassVar[str] = "resume/1"


class Retry(Steering):
    """A person's permission for a blocked run to continue; the JSON of the signal and update `retry`, if it is
    signed.
    """

    FORMAT: ClassVar[str] = "retry/1"


class Move(Steering):
    """A person's request to move a run to another cluster; the JSON of the signal and update `move`, if it is
    signed.
    """

    FORMAT: ClassVar[str] = "move/1"

    to: str = Field(default="", max_length=36)
    """The id of the only cluster that may import the run; empty for any."""
