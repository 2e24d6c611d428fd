"""What a loop records: each event goes into its log, then into its state. And how its log reaches the permanent record.

1. A loop keeps the events that the record lacks. They travel to the record with the orders to activities: with each
   survey, and in an order of their own (`archive_loop`) where the loop waits for people, or ends. So Temporal's history
   has every event that was written, and what was written continues the record, whatever a replay computes.
2. What is written is dropped here. The answer of the activity says how far the record leads, and its last digest.
3. A record that refuses the loop's events for good blocks the loop; it is written to again after `retry`.
4. Below feature level 1 nothing is written. The log then begins in the Temporal run in which the level is reached.
5. Refusals beyond a limit are only counted, as in a run (`holdfast.core.run.rules.refusals`).
"""

import json
from collections.abc import Sequence
from datetime import datetime

from holdfast.core.base.models import replace
from holdfast.core.log.event_log import EventLog
from holdfast.core.log.events import RunContinued, RunUnblocked, SignalRejected
from holdfast.core.log.loop_events import LOOP_EVENTS, Logged, LogPart, LoopEvent, LoopStarted
from holdfast.core.loop.evolve import evolve, state_json, uncounted
from holdfast.core.loop.state import LoopInput, LoopState
from holdfast.core.run.rules.refusals import Refusals


class LoopRecorder:
    """The log and the state of a loop, changed by events alone.

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
        """The digest of the last event that the record has."""
        self.refused = ""
        """Why the permanent record refuses the loop's events for good; empty if it does not."""
        self._refusals = Refusals()
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
            limits=loop.limits,
            before=state_json(loop.state) if loop.state else None,
        )
        self.record(started, at=at)

    def record(self, *events: LoopEvent, at: datetime) -> None:
        """Append events to the log, and apply them to the state."""
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
        """Record how many refusals were only counted, if any were."""
        if self._refusals.counted:
            self.record(self._refusals.take(), at=at)

    @property
    def unwritten(self) -> bool:
        """Whether the record lacks events, and takes them."""
        return self.state.logged and not self.refused and self.log.length > self.log.first

    def part(self) -> LogPart | None:
        """Return the next events to write; None if there are none, or the record takes none."""
        if not self.unwritten:
            return None
        return self._tail(self.log.page(self.log.first).split(b"\n"))

    def written(self, part: LogPart, logged: Logged) -> None:
        """Note what became of a part: drop the events that the record has."""
        self.refused = self.refused or logged.refused
        if not logged.refused and logged.length == part.start + len(part.events) > self.log.first:
            later = self.log.lines_since(logged.length)
            self._restore(logged.length, logged.head, LOOP_EVENTS.validate_python([json.loads(line) for line in later]))

    def next_input(self, loop: LoopInput, *, first_run_id: str, at: datetime) -> LoopInput:
        """Return the input with which the next Temporal run continues this one."""
        self.record_refusals(at=at)
        state = self.state
        following = {"state": uncounted(state), "features": state.features}
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
