"""The snapshot of a thread, of bounded size: carried from one Temporal run to the next, and rebuilt from the permanent
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
"""A larger one is not carried, because Temporal allows 2 MB a payload; the run waits until it is smaller."""

PRESSED_BYTES = 1_900_000
"""The limit where staying would end the run."""

TAIL_BYTES = 200_000
"""Bytes of events that a snapshot may carry because the permanent record does not have them yet."""


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
    """Events from `position` on: recorded, and not yet in the permanent record."""

    @field_serializer("tail")
    def _with_types(self, tail: tuple[AgentEvent, ...]) -> list[dict[str, Any]]:
        """Keep the type of each event, which `holdfast.core.temporal.converter` would leave out as a default."""
        return [event_json(event) for event in tail]


def snapshot_of(events: Iterable[AgentEvent], transcript: Transcript | None = None) -> RunSnapshot:
    """Return the snapshot after these events, which are all events of a thread from the first one on.

    Args:
        events: The events.
        transcript: Empty; takes in their messages. None for one that is not needed any more.
    """
    position, head, state = 0, GENESIS, RunState()
    transcript = Transcript() if transcript is None else transcript
    for event in events:
        state = evolve(state, event)
        transcript.add(event)
        position, head = position + 1, event.digest
    return RunSnapshot(position=position, head=head, state=state, transcript=transcript.base)
