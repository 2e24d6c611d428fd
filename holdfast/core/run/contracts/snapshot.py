"""The snapshot of a thread, of bounded size: passed from one Temporal run to the next, and rebuilt from the permanent
record when a closed thread is continued.
"""

from collections.abc import Iterable
from typing import Any

from pydantic import Field, field_serializer

from holdfast.core.base.canonical import GENESIS
from holdfast.core.base.models import Frozen
from holdfast.core.log.event_log import event_json
from holdfast.core.log.events import AgentEvent
from holdfast.core.run.fold.evolve import evolve
from holdfast.core.run.state.state import RunState
from holdfast.core.transcript.transcript import Transcript, TranscriptBase

VERSION = 1

MAX_BYTES = 1_500_000
"""Maximum size of a snapshot in bytes: Temporal allows 2 MB a payload. The run waits until its snapshot is smaller."""

PRESSED_BYTES = 1_900_000
"""The maximum if Temporal would otherwise terminate the run."""

TAIL_BYTES = 200_000
"""Maximum size in bytes of the events in a snapshot that the permanent record lacks."""


class RunSnapshot(Frozen):
    """A thread at one position, and the events since. Fields are only added, with a default."""

    version: int = VERSION
    position: int = 0
    """How many events led to `state`."""
    head: str = GENESIS
    """The digest of the last of them."""
    state: RunState = Field(default_factory=RunState)
    transcript: TranscriptBase = TranscriptBase()
    tail: tuple[AgentEvent, ...] = ()
    """Events from `position` on that are not yet in the permanent record."""

    @field_serializer("tail")
    def _with_types(self, tail: tuple[AgentEvent, ...]) -> list[dict[str, Any]]:
        """Keep the type of each event, which `holdfast.core.temporal.converter` would omit as a default."""
        return [event_json(event) for event in tail]


def snapshot_of(events: Iterable[AgentEvent], transcript: Transcript | None = None) -> RunSnapshot:
    """Return the snapshot after these events.

    Args:
        events: All events of a thread from the first one on.
        transcript: An empty transcript, to which their messages are added; None if the caller does not need it.
    """
    position, head, state = 0, GENESIS, RunState()
    transcript = Transcript() if transcript is None else transcript
    for event in events:
        state = evolve(state, event)
        transcript.add(event)
        position, head = position + 1, event.digest
    return RunSnapshot(position=position, head=head, state=state, transcript=transcript.base)
