"""Writing a run's events into the permanent record: how far it has come, and when it is due.

1. Events are written when the run pauses, once for each pause; before it continues as new; and before it ends.
2. What is written continues the record at `recorded`, a snapshot of the run at that position. The next Temporal run
   begins from there.
3. A record that refuses the run's events for good is not written to again.
"""

from holdfast.run.contracts import ArchiveRequest
from holdfast.run.recorder import Recorder
from holdfast.run.snapshot import RunSnapshot


class Archiving:
    """Where the permanent record stands. Not part of `RunState`, because the state has to follow from the events, and
    those do not record how far they are written.
    """

    def __init__(self) -> None:
        self.recorded = RunSnapshot()
        """The run where the permanent record ends."""
        self.next = RunSnapshot()
        """The run where the permanent record will end when the write under way has succeeded."""
        self.refused = False
        """The permanent record refuses this run's events for good."""
        self._paused_at = -1
        """The step at whose pause the events were last written."""

    def open(self, snapshot: RunSnapshot) -> None:
        """Begin where a snapshot stands; the events in its tail are not in the record."""
        self.recorded = snapshot.model_copy(update={"tail": ()})

    def due(self, run: Recorder) -> bool:
        """Whether the record lacks events, and takes them."""
        return self.recorded.position < run.log.length and not self.refused

    def due_at_pause(self, run: Recorder) -> bool:
        """Whether the run pauses, and has not written its events at this pause."""
        pausing = run.state.status in ("waiting_approval", "waiting_message", "blocked")
        return pausing and self._paused_at != run.state.steps.count and self.due(run)

    def unwritten(self, run: Recorder) -> int:
        """Bytes of the events that the record lacks."""
        return run.log.size_since(self.recorded.position)

    def request(self, run: Recorder, *, pausing: bool = False) -> ArchiveRequest:
        """Return the request to write all events that the record lacks.

        Args:
            run: What was recorded.
            pausing: The run pauses; it waits for nothing but what arrives.
        """
        if pausing:
            self._paused_at = run.state.steps.count
        log = run.log
        self.next = RunSnapshot(position=log.length, head=log.head, state=run.state, transcript=run.transcript.base)
        start, base = self.recorded.position, self.recorded.head
        return ArchiveRequest(start=start, stop=log.length, base=base, head=log.head, pausing=pausing)

    def on_written(self) -> None:
        """Note that the write under way has succeeded."""
        self.recorded = self.next

    def on_unsettled(self) -> None:
        """Note that the write under way failed, and is worth another attempt at this pause."""
        self._paused_at = -1
