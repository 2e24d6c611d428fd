"""The snapshot: where a thread stands, bounded whatever its length. Carried from one Temporal run to the next, and
rebuilt from the permanent record when a closed thread is continued.
"""

from collections.abc import Iterable
from typing import Any

from pydantic import field_serializer

from holdfast.base.digests import GENESIS
from holdfast.base.models import Frozen
from holdfast.log.event_log import event_json
from holdfast.log.events import AgentEvent
from holdfast.run.evolve import evolve
from holdfast.run.state import RunState
from holdfast.transcript.transcript import Transcript, TranscriptBase

VERSION = 1

MAX_BYTES = 1_500_000
"""A larger one is not carried: Temporal allows 2 MB a payload. The run goes on where it is until it is smaller."""

PRESSED_BYTES = 1_900_000
"""What is carried at the most where staying would be the end of the run."""

TAIL_BYTES = 200_000
"""What a snapshot may carry of events that the permanent record does not have yet."""


class RunSnapshot(Frozen):
    """A thread at one position, and the events since. Fields are only added, with a default."""

    version: int = VERSION
    position: int = 0
    """How many events led to `state`."""
    head: str = GENESIS
    """The digest of the last of them."""
    state: RunState = RunState()
    transcript: TranscriptBase = TranscriptBase()
    tail: tuple[AgentEvent, ...] = ()
    """Events from `position` on: recorded, and not yet in the permanent record."""

    @field_serializer("tail")
    def _with_types(self, tail: tuple[AgentEvent, ...]) -> list[dict[str, Any]]:
        """Whoever leaves out defaults, as `holdfast.temporal.converter` does, would leave out what an event is known
        by.
        """
        return [event_json(event) for event in tail]


def snapshot_of(events: Iterable[AgentEvent]) -> RunSnapshot:
    """Where all events of a thread, from the first one on, lead to."""
    position, head, state, transcript = 0, GENESIS, RunState(), Transcript()
    for event in events:
        state = evolve(state, event)
        transcript.add(event)
        position, head = position + 1, event.digest
    return RunSnapshot(position=position, head=head, state=state, transcript=transcript.base)
