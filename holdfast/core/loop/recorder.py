"""Records the events of a loop, each in its log and then in its state, and sends the log to the permanent record.

1. A loop keeps the events that the record lacks. It sends them inside activity requests: with each survey, and in a
   request of their own (`archive_loop`) if the loop waits for people or ends. So Temporal's history has every event
   that was written, and these events continue the record even if a replay computes others.
2. Written events are dropped here. The activity's result has the length of the record and its last digest.
3. If the record permanently rejects the loop's events, the loop is blocked; after `retry`, it writes again.
4. Below feature level 1, nothing is written. The log then begins in the Temporal run that reaches the level.
5. Rejections beyond a limit are only counted, as in a run (`holdfast.core.run.rules.refusals`).
"""

import json
from collections.abc import Sequence
from datetime import datetime

from holdfast.core.base.models import replace
from holdfast.core.log.event_log import EventLog
from holdfast.core.log.events import RunContinued, RunUnblocked, SignalRejected
from holdfast.core.log.loop_events import LOOP_EVENTS, Logged, LogPart, LoopEvent, LoopStarted
from holdfast.core.loop.evolve import evolve, level_0_state, state_json
from holdfast.core.loop.state import LoopInput, LoopState
from holdfast.core.run.rules.refusals import RejectionCounter
from holdfast.core.run.state.features import UNATTENDED


class LoopRecorder:
    """The log and the state of a loop, which only events change.

    Args:
        loop: The loop's input.
        thread: The loop's id.
        run_id: Temporal's id of this run.
        first_run_id: Temporal's first execution run id.
        at: The time.
    """

    def __init__(self, loop: LoopInput, *, thread: str, run_id: str, first_run_id: str, at: datetime) -> None:
        self.state = replace(loop.state or LoopState(thread=thread), limits=loop.limits)
        self.log = EventLog()
        self._base = self.log.head
        """The digest of the last event in the permanent record."""
        self.refused = ""
        """The reason that the permanent record permanently rejects the loop's events; empty if it does not."""
        self._refusals = RejectionCounter()
        if loop.state and (loop.log.start or loop.log.events):
            self._restore(loop.log.start, loop.log.base, LOOP_EVENTS.validate_python(loop.log.events))
            self.record(RunContinued(run_id=run_id, features=self.state.features), at=at)
            return
        started = LoopStarted(
            thread=thread,
            run_id=run_id,
            first_run_id=first_run_id,
            workspace=loop.workspace,
            task=loop.task,
            agent=loop.agent,
            initializer=loop.initializer,
            by=loop.by,
            user_proven=loop.by_proven,
            start=loop.start,
            unattended=loop.when_blocked == "fail" and loop.features >= UNATTENDED,
            limits=loop.limits,
            before=state_json(loop.state) if loop.state else None,
        )
        self.record(started, at=at)

    def record(self, *events: LoopEvent, at: datetime) -> None:
        """Append events to the log and apply them to the state."""
        for event in events:
            if isinstance(event, SignalRejected):
                if self._refusals.over_limit:
                    self._refusals.count(event)
                    continue
            else:
                self.record_refusals(at=at)
            if isinstance(event, RunUnblocked):
                self.refused = ""
            stamped = self.log.append(event, at=at)
            if isinstance(stamped, SignalRejected):
                self._refusals.keep(stamped)
            self.state = evolve(self.state, stamped)

    def record_refusals(self, *, at: datetime) -> None:
        """Record the number of rejections that were only counted, if there are any."""
        if self._refusals.counted:
            self.record(self._refusals.take(), at=at)

    @property
    def unwritten(self) -> bool:
        """Whether there are events that the record lacks and does not reject."""
        return self.state.logged and not self.refused and self.log.length > self.log.first

    def next_part(self) -> LogPart | None:
        """Return the next events to write; None if there are none, or if the record rejects them."""
        if not self.unwritten:
            return None
        return self._tail(self.log.page(self.log.first).split(b"\n"))

    def on_written(self, part: LogPart, logged: Logged) -> None:
        """Process the result of writing a part: drop the events that the record has."""
        self.refused = self.refused or logged.refused
        if not logged.refused and logged.length == part.start + len(part.events) > self.log.first:
            later = self.log.lines_since(logged.length)
            self._restore(logged.length, logged.head, LOOP_EVENTS.validate_python([json.loads(line) for line in later]))

    def next_input(self, loop: LoopInput, *, first_run_id: str, at: datetime) -> LoopInput:
        """Return the input with which the next Temporal run continues this one."""
        self.record_refusals(at=at)
        state = self.state
        following = {"state": level_0_state(state), "features": state.features}
        if state.logged:
            following |= {"state": state, "log": self._tail(self.log.lines_since(self.log.first))}
        return loop.model_copy(update={**following, "first_run_id": first_run_id, "issued_at": None})

    def _tail(self, lines: Sequence[bytes]) -> LogPart:
        return LogPart(start=self.log.first, base=self._base, events=tuple(json.loads(line) for line in lines))

    def _restore(self, position: int, head: str, events: Sequence[LoopEvent]) -> None:
        """Continue the log from a position, with the events that follow it."""
        self.log, self._base = EventLog(position, head), head
        for event in events:
            self.log.append(event.model_copy(update={"digest": ""}), at=event.at)
