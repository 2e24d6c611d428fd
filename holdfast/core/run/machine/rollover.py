"""The rollover of an agent run into a new Temporal run, by Temporal's continue-as-new: when it is due, and its input.

1. When Temporal's history has grown enough, the run starts nothing more, waits for the calls under way, writes its
   events into the permanent record, and continues as new from a snapshot: at any boundary between calls.
2. Long before Temporal would end the run for the length of its history, it no longer waits for anything. A flood of
   signals costs the calls that are under way, and never the run.
3. A few unwritten events travel in the snapshot if writing them would take time in which more signals arrive.
4. A run stays where it is, for one more step, when its snapshot is too large; and for as long as possible, when the
   permanent record refuses its events.
5. All inputs of the workflow task in which the run leaves are taken in first, so that none is lost.
6. The next Temporal run has the feature level of the worker that wrote last, if it is higher
   (`holdfast.core.run.state.features`).
"""

from dataclasses import dataclass
from typing import Literal

from holdfast.core.agents.agent import Limits
from holdfast.core.run.contracts.loading import EffectsRequest
from holdfast.core.run.contracts.record import ArchiveRequest, Notice
from holdfast.core.run.contracts.runs import RunInput
from holdfast.core.run.contracts.snapshot import MAX_BYTES, PRESSED_BYTES, TAIL_BYTES
from holdfast.core.run.machine.open_calls import OpenCalls
from holdfast.core.run.machine.run_log import RunLog

SIGNAL_LIMIT = 200
"""Signals from which a run continues as new. Our servers accept 400 (`history.maximumSignalsPerExecution`), so that a
run can still continue as new while they refuse more; Temporal's default is 10,000.
"""

URGENT_EVENTS = 30_000
"""Events of Temporal's history from which the run waits for nothing: Temporal ends a run at 51,200."""

URGENT_BYTES = 16_000_000
"""Bytes of Temporal's history from which the run waits for nothing: Temporal ends a run at 50 MB."""


@dataclass(frozen=True)
class HistorySize:
    """How large Temporal's history of this run is, as the current workflow task sees it."""

    events: int = 0
    bytes: int = 0
    suggested: bool = False
    """Temporal suggests to continue as new."""


class Rollover:
    """When this Temporal run ends and a new one continues. Not part of `RunState`, because it concerns this Temporal
    run only: the history of the next one is short.

    Args:
        log: The run's log, and how much of it the permanent record has.
        calls: The run's open calls.
    """

    def __init__(self, log: RunLog, calls: OpenCalls) -> None:
        self.history = HistorySize()
        self.signals = 0
        """Signals that this Temporal run has received."""
        self.leaving = False
        """The run continues as new, with all that this workflow task brings."""
        self._log = log
        self._calls = calls
        self._written = False
        """Events were written in order to continue as new."""
        self._stay_until = 0
        """The step until which the run stays in this Temporal run, for its snapshot was too large."""
        self._measured = log.archived, 0
        """A snapshot and its bytes, so that each is measured once."""

    @property
    def due(self) -> bool:
        """Whether the run should continue as new."""
        state = self._log.state
        if state.steps.count < self._stay_until or (self._log.archive_refuses and not self.near_limit):
            return False
        limits = state.spec.limits if state.spec else Limits()
        history = self.history
        return history.suggested or history.events >= limits.history_events or self.signals >= SIGNAL_LIMIT

    @property
    def near_limit(self) -> bool:
        """Whether Temporal will soon end the run for the length of its history."""
        return self.history.bytes >= URGENT_BYTES or self.history.events >= URGENT_EVENTS

    @property
    def urgent(self) -> bool:
        """Whether the run should continue as new although calls are under way."""
        return self.near_limit and self.due

    def stop_waiting(self) -> None:
        """Stop tools and give up other calls if it is urgent to continue as new. The next Temporal run repeats them.

        A write of many events is waited for all the same: they are too many to travel in the snapshot.
        """
        if self.urgent:
            self._calls.abandon(archiving=self._log.unarchived_bytes <= TAIL_BYTES)

    def continue_as_new(self) -> bool:
        """Continue as new, or prepare that; return True if the run stays in this Temporal run."""
        if self._calls.under_way(ArchiveRequest, Notice):
            return False
        for call in self._calls.under_way(EffectsRequest):
            self._calls.give_up(call.id)  # the next Temporal run looks back itself
        match self._next():
            case "archive":
                self._written = True
                self._log.archive()
            case "stay":
                self._stay_until, self._written = self._log.state.steps.count + 1, False
                return True
            case "leave":
                self.leaving = True
        return False

    def _next(self) -> Literal["archive", "stay", "leave"]:
        unwritten, refused = self._log.unarchived_bytes, self._log.archive_refuses
        # In a flood, few events travel unwritten: each moment that writing takes brings more signals.
        carries = self._written or self._log.refusals.over_limit or refused or self.urgent
        if unwritten and not (carries and unwritten <= TAIL_BYTES) and not refused:
            return "archive"
        if self._measured[0] is not self._log.archived:
            snapshot = self._log.archived
            self._measured = snapshot, len(snapshot.model_dump_json(exclude_defaults=True).encode())
        if self._measured[1] + unwritten > (PRESSED_BYTES if self.urgent else MAX_BYTES):
            return "stay"
        return "leave"

    def next_input(self, begin: RunInput) -> RunInput:
        """Return the input with which the next Temporal run continues this one.

        Args:
            begin: The input of this one, with the agent to load if none is loaded yet.
        """
        log, calls = self._log, self._calls
        chain = {"sealed": True, "first_run_id": calls.first_run_id, "orders": calls.orders}
        if not log.loaded:
            refusals = log.refusals.take() if log.refusals.counted else None
            return begin.model_copy(update={**chain, "held": log.held, "refusals": refusals})
        log.record_refusals()
        tail = tuple(log.events.since(log.archived.position))
        loaded = log.state.spec is not None
        following = RunInput(
            idle_limit=begin.idle_limit,
            agent=None if loaded else begin.agent,
            workspace=None if loaded else begin.workspace,
            snapshot=log.archived.model_copy(update={"tail": tail}),
            features=max(log.state.features, log.archive_features),
        )
        return following.model_copy(update=chain)
