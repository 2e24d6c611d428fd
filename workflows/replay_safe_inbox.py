"""Delivers inputs to an agent run so that a replay delivers the same inputs, in the same order and at the same times.

The SDK does not promise that. Three things differ between a run and its replay:

1. On a replay, the ends of local activities may come in another order, in another workflow task and at another time.
   So nothing is delivered while local activities are under way. When all have ended, their ends are delivered in the
   order in which they were started, then the inputs that came meanwhile; all at the time at which they were started.
2. To answer a query after a crash, the SDK delivers the events in history beyond the last workflow task, at that task's
   time: the same time with a longer history. When the real task comes, the SDK delivers only later events. So time and
   order of the events would differ from a replay, and with an update among them the order of commands would, too:
   such a run could never be replayed. Therefore the next workflow task that brings an input fails once, and the run is
   replayed. Until then queries show none of these events: in the replay, a request might come after the decision of
   somebody who had seen it early. A task that brings no input would not fail: our workers drop the run after the query
   (`holdfast.worker.workflow_runners`).
3. The SDK replays a workflow task without commands together with the next one, at the next one's time. So each task
   that delivers an input leaves a trace in history: a command, or a search attribute.
"""

import asyncio
from collections.abc import Callable, Iterator

from temporalio import workflow

from holdfast.core.run.machine.machine import AgentRun
from holdfast.core.run.machine.rollover import HistorySize
from holdfast.core.run.state.state import RunState

Input = Callable[[AgentRun], None]
"""An input that has arrived: a function that passes it to the run."""


class ReplaySafeInbox:
    """Decides which inputs are delivered, and when. The caller passes each to the run, and carries its commands out
    before it asks for the next one.

    Args:
        run: The run; the inbox also reports the time, the size of history and resets to it.
    """

    def __init__(self, run: AgentRun) -> None:
        self.settled: tuple[int, RunState] | None = None
        """After a query exposed events early: how many events came before those, and the state after them."""
        self.outdated = False
        """Whether the run has to be replayed, because a query exposed events early."""
        self._run = run
        self._local: dict[int, Input | None] = {}
        """Local activities under way, and the ends of those that have ended."""
        self._arrived: list[Input] = []
        """Inputs to deliver once no local activity is running."""
        self._arrived_in: object = None
        """The activation in which the last of them arrived."""
        self._activation: tuple[object, int] | None = None
        """The time and the length of history at the last input."""
        self._delivered: tuple[object, int] | None = None
        """The same for the last input that was delivered."""
        self._traced: tuple[object, int] | None = None
        """The same for the last trace in history without a call."""
        self._begun = activation()
        self._seed = workflow.random_seed()

    # Delivery.

    def deliver(self, arrived: Input) -> Iterator[Input]:
        """Return the inputs to pass to the run now: this one, or none while local activities are under way."""
        self._detect_lookahead()
        if self._local:
            if self._was_reset():
                self._arrived.append(AgentRun.was_reset)
            self._arrived.append(arrived)
            self._arrived_in = _current_activation()
            return
        info = workflow.info()
        self._delivered = self._activation
        length, size = info.get_current_history_length(), info.get_current_history_size()
        history = HistorySize(events=length, bytes=size, suggested=info.is_continue_as_new_suggested())
        self._run.observe(at=workflow.now(), history=history)
        if self._was_reset():
            self._run.was_reset()
        yield arrived

    def expect(self, call_id: int) -> None:
        """Record that a local activity was started: nothing is delivered until it has ended."""
        self._local[call_id] = None

    def deliver_end(self, call_id: int, end: Input) -> Iterator[Input]:
        """Return the inputs to pass to the run now that a call has ended.

        To answer a query, the SDK may complete the workflow task with the marker of a local activity whose end it
        delivers with the next task only. On a replay it delivers that end before the inputs of that task, at another
        time. So if an end and other inputs come together, the task fails, and the run is replayed.
        """
        if call_id not in self._local:
            yield from self.deliver(end)
            return
        self._detect_lookahead()
        self._local[call_id] = end
        ends = [ended for ended in self._local.values() if ended]
        if len(ends) < len(self._local):
            return
        if self._arrived_in is _current_activation() and not workflow.unsafe.is_replaying():
            self.outdated = True
        self._arrived_in = None
        self._local = {}
        self._arrived[:0] = ends
        self.leave_trace()  # the markers
        while self._arrived and not self._local:
            yield self._arrived.pop(0)

    # Traces in history.

    @property
    def untraced(self) -> bool:
        """Whether the inputs delivered in this activation have left no trace in history except calls."""
        return self._traced != self._delivered

    def leave_trace(self) -> None:
        """Record that search attributes or markers leave a trace in history."""
        self._traced = self._delivered

    # Resets, and events that a query exposes early.

    def _was_reset(self) -> bool:
        """Return, once, whether Temporal reset the run to this point: the random seed changes here, replay or not."""
        if activation() == self._begun:
            self._seed = workflow.random_seed()  # a run that was reset to its very beginning asks the ledger anyway
        before, self._seed = self._seed, workflow.random_seed()
        return before != self._seed

    def _detect_lookahead(self) -> None:
        """Detect events exposed early by a query replay."""
        before, self._activation = self._activation, activation()
        if before and before != self._activation:
            if self.settled:
                self.outdated = self._activation[0] != before[0]
            elif self._activation[0] == before[0]:
                self.settled = self._run.log.length, self._run.state


def activation() -> tuple[object, int]:
    """Return the time and the length of history, which identify an activation, except for a query replay."""
    return workflow.now(), workflow.info().get_current_history_length()


def _current_activation() -> object:
    """Return an object that identifies the SDK's current activation: the same object within it, another in the next.

    The SDK offers no other way to distinguish two activations at the same time. The event loop is its instance of the
    workflow, which collects the commands of each activation in a separate object.
    """
    return asyncio.get_running_loop().__dict__["_current_completion"]
