"""What an agent run records: each event goes into the log, then into the state and the transcript.

1. Nothing else changes what the run knows: state and transcript follow from the snapshot and the events since.
2. Refusals beyond a limit are only counted (`holdfast.run.refusals`). Their number is recorded before the next event
   that is not a refusal, once the thread's past is loaded.
3. An event that people elsewhere should hear of leads to a notice, right after it.
"""

from collections.abc import Callable
from datetime import datetime

from holdfast.log.event_log import EventLog
from holdfast.log.events import AgentEvent, ToolCallFinished
from holdfast.run.contracts import Notice
from holdfast.run.evolve import evolve
from holdfast.run.notices import notice_of
from holdfast.run.refusals import Refusals, is_refused
from holdfast.run.repeats import noted
from holdfast.run.snapshot import RunSnapshot
from holdfast.run.state import RunState
from holdfast.transcript.transcript import Transcript


class Recorder:
    """The log, the state and the transcript of a run, changed by events alone.

    Args:
        refusals: What the chain of Temporal runs has refused and not yet recorded.
        notify: Takes each notice.
        at: The time.
    """

    def __init__(self, refusals: Refusals, notify: Callable[[Notice], None], *, at: datetime) -> None:
        self.at = at
        """The time, which the events get."""
        self.log, self.state, self.transcript = EventLog(), RunState(), Transcript()
        self.refusals = refusals
        self.loaded = True
        """Whether the thread's past is loaded. Not part of the state, because without it there is none yet."""
        self._notify = notify

    def open(self, snapshot: RunSnapshot) -> None:
        """Begin where a snapshot stands, with the events in its tail."""
        self.log = EventLog(snapshot.position, snapshot.head)
        self.state = snapshot.state
        self.transcript = Transcript(snapshot.transcript)
        for event in snapshot.tail:
            self.log.restore(event)
            self._apply(event)

    def record(self, *events: AgentEvent) -> None:
        """Append events to the log, and apply them to the state and the transcript."""
        for event in events:
            if is_refused(event):
                if self.refusals.many:
                    self.refusals.count(event)
                    continue
            else:
                self.record_refusals()
            if isinstance(event, ToolCallFinished):
                event = noted(self.state, event)
            stamped = self.log.append(event, at=self.at)
            if is_refused(stamped):
                self.refusals.keep(stamped)
            notice = notice_of(self.state, stamped) if self.state.notify else None
            self._apply(stamped)
            if notice:
                self._notify(notice)

    def record_refusals(self) -> None:
        """Record how many refusals were only counted, if any were."""
        if self.refusals.counted and self.loaded:
            self.record(self.refusals.take())

    def _apply(self, event: AgentEvent) -> None:
        self.state = evolve(self.state, event)
        self.transcript.add(event)
