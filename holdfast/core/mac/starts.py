"""Workflow starts: proof that our own processes made one, and the fields that a plain start may set.

1. A start that our own processes make is sealed. It is valid for a short time, so that a copy cannot start anything
   later; if it continues from a snapshot, it is valid for one chain of Temporal runs.
2. Anybody with access to Temporal can make a plain start: from the Web UI, the `temporal` command, another language. It
   may carry a task and an agent's name; fields that grant authority are rejected.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import ClassVar, TypeVar

from pydantic import Field

from holdfast.core.base.models import Frozen

START_WITHIN = timedelta(minutes=10)
"""Maximum difference between a sealed start's own time and its arrival at Temporal; allows for clock skew."""

NO_INPUT = "there is none"
"""The reason that a start without input is malformed."""

_HOW = "start it with the command line or the gateway, with a fleet key"
_SAME_KEY = (
    "start it with the fleet key of this worker: where its HOLDFAST_FLEET_KEYS or its stack's state folder "
    "(HOLDFAST_HOME) is used"
)


StartT = TypeVar("StartT", bound="Start")


class Start(Frozen):
    """The part of a workflow's input that describes the start itself."""

    SEALED: ClassVar[bool] = True
    OPEN: ClassVar[bool] = True
    PLAIN: ClassVar[frozenset[str]] = frozenset()
    """The fields that a plain start may set; empty if the workflow accepts no plain start."""

    sealed: bool = Field(default=False, exclude=True)
    """Whether the input is sealed. The payload converter sets this and ignores the payload's own value."""
    malformed: str = Field(default="", exclude=True)
    """The reason that the payload could not be decoded; set like `sealed`."""
    seal_fault: str = Field(default="", exclude=True)
    """The reason that its seal is invalid; set like `sealed`."""
    start: str = ""
    """The id of a sealed start; a thread accepts each id once."""
    issued_at: datetime | None = None
    """When a sealed start was made."""
    first_run_id: str = ""
    """The chain of Temporal runs that this start continues; empty for the first run of a chain."""
    orders: int = 0
    """Number of activity requests that the chain has issued so far."""

    @property
    def proven(self) -> bool:
        """Whether our own processes made this start for this thread."""
        return self.sealed and bool(self.issued_at or self.first_run_id)


def only(begin: StartT, more: Sequence[object], kind: type[StartT]) -> StartT:
    """Return the input of a workflow; a malformed one if the workflow was started with more than one argument.

    Args:
        begin: The first argument. It is not a `kind` if there are more, because the SDK uses the type hints only if
            their number matches.
        more: The other arguments.
        kind: The type of the workflow's input.
    """
    return kind(malformed=f"{1 + len(more)} arguments, not one") if more else begin


def refusal(begin: Start, *, first_run_id: str, started_at: datetime) -> str:
    """Return the reason to reject a workflow's input; empty if the workflow may begin.

    Args:
        begin: The input.
        first_run_id: Temporal's first execution run id.
        started_at: When the start reached Temporal, by the server's clock.
    """
    if begin.malformed:
        return f"the input cannot be read: {begin.malformed}"
    if not begin.proven:
        claimed = sorted(begin.model_dump(exclude_defaults=True).keys() - begin.PLAIN)
        if begin.seal_fault and (claimed or not begin.PLAIN):
            return f"the start is sealed, but {begin.seal_fault}; {_SAME_KEY}"
        if not begin.PLAIN:
            return f"this workflow accepts only sealed starts; {_HOW}"
        if claimed:
            return f"a plain start may set {', '.join(sorted(begin.PLAIN))}, but not {', '.join(claimed)}; {_HOW}"
        return ""
    if begin.first_run_id:
        if begin.first_run_id != first_run_id:
            return "its snapshot belongs to another run, whose approvals do not apply here"
        return ""
    if begin.issued_at and abs(started_at - begin.issued_at) > START_WITHIN:
        return (
            f"it was sealed at {begin.issued_at.isoformat()} and reached Temporal at {started_at.isoformat()}: "
            f"a start is valid for {START_WITHIN.total_seconds() / 60:.0f} minutes; check the clocks and start again"
        )
    return ""
