"""Writing a run's events into the permanent record: how far it has come, and when it is due.

1. Events are written when the run pauses, once for each pause; before it continues as new; and before it ends. Where a
   person has paused it while calls are under way, they are written then and again when those have ended. Where it
   sleeps after it has waited for people in the same step, they are written again, too.
2. What is written continues the record at `recorded`, a snapshot of the run at that position. The next Temporal run
   begins from there.
3. A record that refuses the run's events for good is not written to again.
"""

from holdfast.run.contracts import AgentRequest, Archived, ArchiveRequest, LLMRequest, ToolRequest
from holdfast.run.open_calls import OpenCalls
from holdfast.run.recorder import Recorder
from holdfast.run.snapshot import RunSnapshot

_NO_PAUSE = (-1, 0, False, False)


class Archiving:
    """Where the permanent record stands. Not part of `RunState`, because the state has to follow from the events, and
    those do not record how far they are written.

    Args:
        run: What was recorded.
        calls: Makes the calls.
    """

    def __init__(self, run: Recorder, calls: OpenCalls) -> None:
        self.recorded = RunSnapshot()
        """The run where the permanent record ends."""
        self.refused = False
        """The permanent record refuses this run's events for good."""
        self.features = 0
        """The feature level of the worker that wrote last: the next Temporal run may have it."""
        self._run = run
        self._calls = calls
        self._next = RunSnapshot()
        """The run where the permanent record will end when the write under way has succeeded."""
        self._paused_at = _NO_PAUSE
        """The pause at which the events were last written."""

    def open(self, snapshot: RunSnapshot) -> None:
        """Begin where a snapshot stands; the events in its tail are not in the record."""
        self.recorded = snapshot.model_copy(update={"tail": ()})

    @property
    def under_way(self) -> bool:
        """Whether events are being written."""
        return bool(self._calls.under_way(ArchiveRequest))

    @property
    def expected(self) -> RunSnapshot:
        """The run where the permanent record ends, or will when the write under way has succeeded."""
        return self._next if self.under_way else self.recorded

    @property
    def due(self) -> bool:
        """Whether the record lacks events, and takes them."""
        return self.recorded.position < self._run.log.length and not self.refused

    @property
    def _begins_fork(self) -> bool:
        """Whether the record ends where the thread was forked: it has nothing of this thread yet."""
        fork = self._run.state.fork
        return fork is not None and self.recorded.position == fork.point.position + 1

    @property
    def fork_due(self) -> bool:
        """Whether the record has to take a fork, with the events before it, before anything else happens."""
        return self._begins_fork and self.due

    @property
    def unwritten(self) -> int:
        """Bytes of the events that the record lacks."""
        return self._run.log.size_since(self.recorded.position)

    def write(self, *, pausing: bool = False) -> None:
        """Write all events that the record lacks.

        Args:
            pausing: The run pauses: it waits for nothing but what arrives.
        """
        run = self._run
        run.record_refusals()
        log, start, base = run.log, self.recorded.position, self.recorded.head
        self._next = RunSnapshot(position=log.length, head=log.head, state=run.state, transcript=run.transcript.base)
        request = ArchiveRequest(start=start, stop=log.length, base=base, head=log.head, pausing=pausing)
        if self._begins_fork and run.state.fork:
            request = request.model_copy(update={"fork": run.state.fork.point})
        self._calls.call(request, run.state)

    def write_at_pause(self) -> None:
        """Write the events where the run pauses, if it has not written them at this pause."""
        state = self._run.state
        pausing = state.status in ("waiting_approval", "waiting_message", "dormant", "paused", "blocked")
        if any(call.own and call.phase != "finished" for call in state.calls.current):
            return  # the run's own note on this pause is written with it
        busy = state.pause is not None and bool(self._calls.under_way(AgentRequest, LLMRequest, ToolRequest))
        pause = state.steps.count, state.pauses, busy, state.status == "dormant"
        if pausing and not self._calls.verifying and self._paused_at != pause and self.due and not self.under_way:
            self._paused_at = pause
            self.write(pausing=not busy)

    def on_written(self, answer: Archived) -> None:
        """Note that the write under way has succeeded."""
        self.recorded = self._next
        self.features = answer.features

    def on_unsettled(self) -> None:
        """Note that the write under way failed, and is worth another attempt at this pause."""
        self._paused_at = _NO_PAUSE
