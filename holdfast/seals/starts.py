"""Starts of workflows: which of them are ours, and what the others may say.

1. A start that our own processes made is sealed. It is good for a short time after it was made, so that a copy of it
   starts nothing later; or for one chain of Temporal runs, where a snapshot continues it.
2. Anybody who reaches Temporal can make a plain start: from the Web UI, the `temporal` command, another language. It
   may carry a task and an agent's name. What gives authority is refused.
"""

from datetime import datetime, timedelta
from typing import ClassVar

from pydantic import Field

from holdfast.base.models import Frozen

START_WITHIN = timedelta(minutes=10)
"""How far the time of a sealed start may be from the time at which it reached Temporal; clocks may differ that much."""


class Start(Frozen):
    """What a workflow's input says of the start itself."""

    SEALED: ClassVar[bool] = True
    OPEN: ClassVar[bool] = True
    PLAIN: ClassVar[frozenset[str]] = frozenset()
    """The fields that a plain start may set; empty where no plain start is taken."""

    sealed: bool = Field(default=False, exclude=True)
    """Whether the input is sealed. The payload converter sets this; what the payload says of it does not count."""
    malformed: str = Field(default="", exclude=True)
    """Why the payload could not be decoded; set like `sealed`."""
    start: str = ""
    """Names a sealed start: a thread takes each once."""
    issued_at: datetime | None = None
    """When a sealed start was made."""
    first_run_id: str = ""
    """The chain of Temporal runs that it continues; empty for the first run of a chain."""
    orders: int = 0
    """Orders to activities that the chain has given so far."""

    @property
    def proven(self) -> bool:
        """Whether our own processes made this start, for this thread and for now."""
        return self.sealed and bool(self.issued_at or self.first_run_id)


def refusal(begin: Start, *, first_run_id: str, started_at: datetime) -> str:
    """Why a workflow must not begin with this input; empty if it may.

    Args:
        begin: The input.
        first_run_id: Temporal's first execution run id.
        started_at: When the start reached Temporal, by the server's clock.
    """
    if begin.malformed:
        return f"the input cannot be read: {begin.malformed}"
    if not begin.proven:
        if not begin.PLAIN:
            return "this workflow takes sealed starts alone; start it with starter.py or the gateway, with a fleet key"
        if claimed := sorted(begin.model_dump(exclude_defaults=True).keys() - begin.PLAIN):
            return (
                f"a plain start may set {', '.join(sorted(begin.PLAIN))}, and not {', '.join(claimed)}; "
                "start it with starter.py or the gateway, with a fleet key"
            )
        return ""
    if begin.first_run_id:
        if begin.first_run_id != first_run_id:
            return "its snapshot belongs to another run; what was approved there is not approved here"
        return ""
    if begin.issued_at and abs(started_at - begin.issued_at) > START_WITHIN:
        return (
            f"it was sealed at {begin.issued_at.isoformat()} and reached Temporal at {started_at.isoformat()}: "
            f"a start is good for {START_WITHIN.total_seconds() / 60:.0f} minutes; check the clocks, and start again"
        )
    return ""
