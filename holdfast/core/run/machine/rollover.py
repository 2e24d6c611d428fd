"""The rollover of an agent run into a new Temporal run, by Temporal's continue-as-new: when it is due, and its input.

1. When Temporal's history has grown enough, the run starts nothing more, waits for the calls under way, writes its
   events into the permanent record, and continues as new from a snapshot: at any boundary between calls.
2. Long before Temporal would terminate the run for the size of its history, it stops waiting for calls. A flood of
   signals costs the calls under way, and never the run.
3. The snapshot carries a few unwritten events if more signals would arrive while they are written.
4. The run stays in the current Temporal run for one more step if its snapshot is too large, and for as long as possible
   if the permanent record rejects its events.
5. All inputs of the workflow task in which the run leaves are handled first, so that none is lost.
6. The next Temporal run has the feature level of the worker that wrote last, if that is higher
   (`holdfast.core.run.state.features`).
"""

from dataclasses import dataclass
from typing import Literal

from holdfast.core.agents.agent import Limits
from holdfast.core.run.contracts.loading import EffectsRequest
from holdfast.core.run.contracts.record import ArchiveRequest, Notice
from holdfast.core.run.contracts.requests import AGENT_FIELDS
from holdfast.core.run.contracts.runs import RunInput
from holdfast.core.run.contracts.snapshot import MAX_BYTES, PRESSED_BYTES, TAIL_BYTES
from holdfast.core.run.machine.open_calls import OpenCalls
from holdfast.core.run.machine.run_log import RunLog

SIGNAL_LIMIT = 200
"""Number of signals at which a run continues as new. Our servers accept 400 (`history.maximumSignalsPerExecution`), so
that a run can still continue as new before they reject more; Temporal's default is 10,000.
"""

URGENT_EVENTS = 30_000
"""Events in Temporal's history at which the run stops waiting for calls: Temporal terminates a run at 51,200."""

URGENT_BYTES = 16_000_000
"""Bytes of Temporal's history at which the run stops waiting for calls: Temporal terminates a run at 50 MB."""


@dataclass(frozen=True)
class HistorySize:
    """The size of Temporal's history of this run, as of the current workflow task."""

    events: int = 0
    bytes: int = 0
    suggested: bool = False
    """Temporal suggests continue-as-new."""


class Rollover:
    """Decides when to continue as new. Not part of `RunState`, because it concerns this Temporal run only:
    the history of the next one is short.

    Args:
        log: The run's log, and how much of it the permanent record has.
        calls: The run's open calls.
    """

    def __init__(self, log: RunLog, calls: OpenCalls) -> None:
        self.history = HistorySize()
        self.signals = 0
        """Signals that this Temporal run has received."""
        self.leaving = False
        """The run continues as new after all inputs of this workflow task."""
        self._log = log
        self._calls = calls
        self._written = False
        """Events were written in order to continue as new."""
        self._stay_until = 0
        """The step until which the run stays in this Temporal run, because its snapshot was too large."""
        self._measured = log.archived, 0
        """A snapshot and its size in bytes, so that each is measured once."""

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
        """Whether Temporal will soon terminate the run for the size of its history."""
        return self.history.bytes >= URGENT_BYTES or self.history.events >= URGENT_EVENTS

    @property
    def urgent(self) -> bool:
        """Whether the run should continue as new although calls are under way."""
        return self.near_limit and self.due

    def stop_waiting(self) -> None:
        """Stop tools and drop other calls if it is urgent to continue as new. The next Temporal run repeats them.

        The run still waits for a write of more events than the snapshot can carry.
        """
        if self.urgent:
            self._calls.abandon(archiving=self._log.unarchived_bytes <= TAIL_BYTES)

    def continue_as_new(self) -> bool:
        """Continue as new, or prepare to; return True if the run stays in this Temporal run."""
        if self._calls.under_way(ArchiveRequest, Notice):
            return False
        for call in self._calls.under_way(EffectsRequest):
            self._calls.drop(call.id)  # the next Temporal run asks the ledger again
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
        # In a flood, the snapshot carries a few unwritten events: while they are written, more signals arrive.
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
            begin: The input of this run, with the agent to load if none is loaded yet.
        """
        log, calls = self._log, self._calls
        chain = {"sealed": True, "first_run_id": calls.first_run_id, "orders": calls.orders}
        if not log.loaded:
            refusals = log.refusals.take() if log.refusals.counted else None
            return begin.model_copy(update={**chain, "held": log.held, "refusals": refusals})
        log.record_refusals()
        tail = tuple(log.events.since(log.archived.position))
        loading = {} if log.state.spec else {name: getattr(begin, name) for name in AGENT_FIELDS}
        following = RunInput(
            idle_limit=begin.idle_limit,
            snapshot=log.archived.model_copy(update={"tail": tail}),
            features=max(log.state.features, log.archive_features),
        )
        return following.model_copy(update=chain | loading)
