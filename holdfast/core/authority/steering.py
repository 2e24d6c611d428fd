"""Signed statements that steer a run: pause, resume, retry, move.

A statement is bound to the run and to what its sender saw of it: the number of times that the run was paused, resumed,
blocked, unblocked or moved so far. So each counts at most once, and one that was sent for an earlier pause, or was
refused then, ends no later one.
"""

from typing import ClassVar

from pydantic import AwareDatetime, Field

from holdfast.core.authority.statements import Reasoned


class Steering(Reasoned):
    """What the four statements have in common."""

    run: str = Field(default="", max_length=200)
    """The id of the thread's current chain of Temporal runs, as `show` has it; required for a signed statement."""
    seen: int = Field(default=0, ge=0)
    """How often the run had been paused, resumed, blocked, unblocked or moved when its sender looked."""


class Pause(Steering):
    """A person's pause of a run, or a change of it; the JSON of the signal and update `pause`, if it is signed."""

    FORMAT: ClassVar[str] = "pause/1"

    until: AwareDatetime | None = None
    """When it ends by itself; None for never."""


class Resume(Steering):
    """A person's end of a pause; the JSON of the signal and update `resume`, if it is signed."""

    FORMAT: ClassVar[str] = "resume/1"


class Retry(Steering):
    """A person's word that a blocked run may continue; the JSON of the signal and update `retry`, if it is signed."""

    FORMAT: ClassVar[str] = "retry/1"


class Move(Steering):
    """A person's move of a run to another place; the JSON of the signal and update `move`, if it is signed."""

    FORMAT: ClassVar[str] = "move/1"

    to: str = Field(default="", max_length=36)
    """The id of the only place that may import the run; empty for any."""
