"""The log of an agent run: its events, and how many of them the permanent record has.

1. Each event is appended to the log, then applied to the state and the transcript. Nothing else changes those.
2. Rejections beyond a limit are only counted (`holdfast.core.run.rules.refusals`). Their number is recorded before the
   next event of another kind, once the thread's past is loaded.
3. If people are notified of an event, the notice follows directly after it.
4. Until the thread's past is loaded, signals and updates are held in order, within limits of number and size. Those
   beyond the limits are rejected and counted. If the run continues as new before its past is loaded, the next run's
   input carries the held ones.
5. Events are written to the permanent record once for each pause, before the run continues as new, and before it ends.
   If a person pauses the run while calls are under way, events are written at once and again after those calls. If the
   run sleeps after it has waited for people in the same step, events are written again, too.
6. A write appends to the end of the record (`archived`), from which the next Temporal run begins.
7. After the record has rejected the run's events for good, the run does not write to it again.
"""

from datetime import datetime
from typing import Any

from holdfast.core.log.event_log import EventLog
from holdfast.core.log.events import AgentEvent, DecisionReceived, SignalRejected, ToolCallFinished
from holdfast.core.run.contracts.llm_calls import LLMRequest
from holdfast.core.run.contracts.loading import AgentRequest, EffectsRequest
from holdfast.core.run.contracts.record import Archived, ArchiveRequest
from holdfast.core.run.contracts.runs import RunInput
from holdfast.core.run.contracts.snapshot import RunSnapshot
from holdfast.core.run.contracts.tool_calls import ToolRequest
from holdfast.core.run.fold.evolve import evolve
from holdfast.core.run.machine.open_calls import OpenCalls
from holdfast.core.run.rules.loop_guard import with_repeats
from holdfast.core.run.rules.refusals import RejectionCounter, bound_refusals, is_refused, payload_bytes
from holdfast.core.run.state.state import RunState
from holdfast.core.run.views.notices import notice_of
from holdfast.core.transcript.transcript import Transcript

HELD = 150
"""Maximum number of signals and updates that are held until the thread's past is loaded."""

HELD_BYTES = 200_000
"""Their maximum total size in bytes, as JSON."""

_PAUSES = ("waiting_approval", "waiting_message", "dormant", "paused", "blocked")
_NO_PAUSE = (-1, 0, False, False)


class RunLog:
    """The events, the state and the transcript of a run, changed by events alone.

    The end of the permanent record and the held inputs are not part of `RunState`: the state has to follow from the
    events, which record neither.

    Args:
        begin: The run's input, with the held inputs and the counted rejections of earlier Temporal runs.
        calls: Makes the calls.
        at: The time.
    """

    def __init__(self, begin: RunInput, calls: OpenCalls, *, at: datetime) -> None:
        self.at = at
        """The time for new events."""
        self.events, self.state, self.transcript = EventLog(), RunState(), Transcript()
        self.refusals = RejectionCounter.after(begin.refusals) if begin.refusals else RejectionCounter()
        self.loaded = True
        """Whether the thread's past is loaded. Until then, there is no state."""
        self.archived = RunSnapshot()
        """The run's snapshot at the end of the permanent record."""
        self.archive_refuses = False
        """The permanent record has rejected this run's events for good."""
        self.archive_features = 0
        """The feature level of the worker that wrote last: the next Temporal run may adopt it."""
        self._calls = calls
        self._held = list(begin.held)
        self._held_bytes = sum(len(payload_bytes(payload)) for _, payload in begin.held)
        self._next = RunSnapshot()
        """The run's snapshot at the end of the permanent record once the write under way has succeeded."""
        self._paused_at = _NO_PAUSE
        """The pause at which the events were last written."""

    def open(self, snapshot: RunSnapshot) -> None:
        """Begin from a snapshot. The events in its tail are in the log, and not yet in the permanent record."""
        self.archived = snapshot.model_copy(update={"tail": ()})
        self.events = EventLog(snapshot.position, snapshot.head)
        self.state = snapshot.state
        self.transcript = Transcript(snapshot.transcript)
        for event in snapshot.tail:
            self.events.restore(event)
            self._apply(event)

    def record(self, *events: AgentEvent) -> None:
        """Append events to the log, and apply them to the state and the transcript."""
        for event in events:
            refused = isinstance(event, DecisionReceived | SignalRejected) and is_refused(event)
            if not refused:
                self.record_refusals()
            elif self.refusals.over_limit:
                self.refusals.count(event)
                continue
            if isinstance(event, ToolCallFinished):
                event = with_repeats(self.state, event)
            before, stamped = self.state, self.events.append(event, at=self.at)
            if refused:
                self.refusals.keep(stamped)
            self._apply(stamped)
            if before.notify and (notice := notice_of(before, stamped)):
                self._calls.call(notice, self.state)

    def record_refusals(self) -> None:
        """Record how many rejections were only counted, if any were."""
        if self.refusals.counted and self.loaded:
            self.record(self.refusals.take())

    @property
    def session(self) -> dict[str, Any]:
        """The agent and the position of the first message, which a worker needs before it reads the transcript; and the
        positions of the next event and of the last reply, or an event before it.
        """
        base = self.transcript.base
        return {
            "spec": self.state.spec,
            "compactions": base.compactions,
            "first": self.transcript.first,
            "since": base.since,
            "pinned": list(base.pinned),
            "position": self.events.first,
            "next": self.events.length,
            "reply": base.reply,
        }

    def _apply(self, event: AgentEvent) -> None:
        self.state = evolve(self.state, event)
        self.transcript.add(event)

    def reconcile(self) -> None:
        """Ask the ledger for the effects after the last call that is finished for good."""
        archived = self._next if self.archiving else self.archived
        first = min((call.number for call in self.state.calls.current), default=self.state.calls.count + 1)
        request = EffectsRequest(after=first - 1, position=archived.position, head=archived.head)
        self._calls.call(request, self.state)

    # Before the thread's past is loaded.

    @property
    def held(self) -> tuple[tuple[str, Any], ...]:
        """The signals and updates that wait for the thread's past: names and payloads, oldest first."""
        return tuple(self._held)

    def hold(self, name: str, payload: Any) -> None:
        """Hold a signal or update, or reject it if there is no room."""
        if not self._has_room(payload):
            why = "too much came before the thread was loaded"
            for event in bound_refusals([SignalRejected(signal=name, explanation=why, outcome="too_many")], payload):
                self.refusals.count(event)
            return
        if not isinstance(payload, dict | list | str):
            payload = None  # it is invalid anyway, and a snapshot may have to carry it as JSON
        self._held.append((name, payload))
        self._held_bytes += len(payload_bytes(payload))

    def _has_room(self, payload: Any) -> bool:
        """Whether this payload can be held as well."""
        return len(self._held) < HELD and self._held_bytes + len(payload_bytes(payload)) <= HELD_BYTES

    def refuse_held(self, name: str, payload: Any) -> dict[str, str] | None:
        """Return the outcome and the explanation of an update that cannot be held; None if it can."""
        if name != "say":
            return {"outcome": "unknown_request", "explanation": "the thread is being loaded; nothing is open yet"}
        if not self._has_room(payload):
            return {"outcome": "too_many", "explanation": "too much waits until the thread is loaded; say it then"}
        return None

    def release(self) -> tuple[tuple[str, Any], ...]:
        """Return and clear the held signals and updates, oldest first, once the thread's past is loaded."""
        if not self.loaded:
            return ()
        held, self._held, self._held_bytes = self.held, [], 0
        return held

    # The permanent record.

    @property
    def archiving(self) -> bool:
        """Whether events are being written."""
        return bool(self._calls.under_way(ArchiveRequest))

    @property
    def archive_due(self) -> bool:
        """Whether the record lacks events and accepts them."""
        return self.archived.position < self.events.length and not self.archive_refuses

    @property
    def fork_due(self) -> bool:
        """Whether the run first has to write its fork to the record, with the events before the fork."""
        return self._begins_fork and self.archive_due

    @property
    def _begins_fork(self) -> bool:
        """Whether the record ends at the event of the fork: it has none of this thread's own events yet."""
        fork = self.state.fork
        return fork is not None and self.archived.position == fork.point.position + 1

    @property
    def unarchived_bytes(self) -> int:
        """Size in bytes of the events that the record lacks."""
        return self.events.size_since(self.archived.position)

    def archive(self, *, pausing: bool = False) -> None:
        """Write all events that the record lacks.

        Args:
            pausing: The run pauses: it waits only for inputs.
        """
        self.record_refusals()
        log, start, base = self.events, self.archived.position, self.archived.head
        self._next = RunSnapshot(position=log.length, head=log.head, state=self.state, transcript=self.transcript.base)
        request = ArchiveRequest(start=start, stop=log.length, base=base, head=log.head, pausing=pausing)
        if self._begins_fork and self.state.fork:
            request = request.model_copy(update={"fork": self.state.fork.point})
        self._calls.call(request, self.state)

    def archive_at_pause(self) -> None:
        """Write the events if the run pauses and has not written them at this pause."""
        state, calls = self.state, self._calls
        if calls.verifying or (status := state.status) not in _PAUSES or not self.archive_due or self.archiving:
            return
        if any(call.own and call.phase != "finished" for call in state.calls.current):
            return  # written together with the run's own note on this pause
        busy = state.pause is not None and bool(calls.under_way(AgentRequest, LLMRequest, ToolRequest))
        pause = state.steps.count, state.pauses, busy, status == "dormant"
        if self._paused_at != pause:
            self._paused_at = pause
            self.archive(pausing=not busy)

    def on_archived(self, answer: Archived) -> None:
        """Record that the write under way has succeeded."""
        self.archived = self._next
        self.archive_features = answer.features

    def on_archive_failed(self) -> None:
        """Let the run retry, at this pause, the write that has failed."""
        self._paused_at = _NO_PAUSE
