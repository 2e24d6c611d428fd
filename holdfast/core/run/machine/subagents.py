"""When a run starts its sub-agents, and when it polls them. Not part of `RunState`, because it concerns this
Temporal run only: the next one looks at all of them when it begins.

1. Children are started and looked at in batches, one order of a kind at a time.
2. A child's hint leads to a look at that child alone; one that arrives during a look leads to another. If a look
   has found a hint to be untrue, further hints about that child wait longer each time, for up to a minute.
3. A child that was closed from outside sends no hint: all open ones are looked at from time to time.
4. While a person has paused the run, nothing is started. Ends are recorded.
5. A start, look or cancellation that fails for good is repeated after a pause that grows, for up to five minutes:
   anybody who reaches Temporal can make it fail.
6. A run that is cancelled also cancels the children of calls that wait for a start: such an order may have failed after
   they had begun.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from holdfast.core.log.events import ToolCallFinished
from holdfast.core.run.contracts.subagents import (
    AnnounceEnd,
    ChildRef,
    ChildReport,
    ChildReports,
    EndChildren,
    LookAtChildren,
    StartChildren,
    StartedChildren,
)
from holdfast.core.run.machine.open_calls import OpenCalls
from holdfast.core.run.machine.run_log import RunLog
from holdfast.core.run.rules.backoff import Backoff
from holdfast.core.run.state.subagents import Child
from holdfast.core.run.waits.subagents import (
    REPORT_CHARS,
    end_request,
    limits_of,
    on_report,
    on_started,
    on_starts_due,
    on_unfinished,
    ref_of,
    start_request,
    to_end,
    unknown_ref,
    wanted,
)
from holdfast.core.tools.subagents import AGENT_RESULT, child_thread, read_agent_result

FIRST_LOOK = timedelta(seconds=20)
"""After the last start, until all open children are looked at."""

LONGEST_PAUSE = timedelta(minutes=5)
"""The longest time between two looks at all of them."""

LONGEST_DOUBT = 60
"""The most seconds that a hint waits about a child whose last hints were untrue."""

LOOKS = 20
"""Children that one order looks at: each may hand over `HANDED_BYTES` of constraints."""


class SubagentWatch:
    """Starts, polls and cancels the sub-agents of a run.

    Args:
        log: Records the events.
        calls: Makes the calls.
    """

    def __init__(self, log: RunLog, calls: OpenCalls) -> None:
        self._log = log
        self._calls = calls
        self._queue: dict[int, bool] = {}
        """The calls whose children to look at as soon as possible; whether the child has hinted at its end."""
        self._untrue: dict[int, tuple[int, datetime]] = {}
        """How many hints about a child were untrue, and when that was last found."""
        self._early: list[int] = []
        """The calls whose children have hinted at their ends before the answer to their start has arrived."""
        self._later: dict[int, datetime] = {}
        """Hints that wait."""
        self._next: datetime | None = None
        """When all open children are looked at; None before the first of them is known to this Temporal run."""
        self._pause = FIRST_LOOK
        self._starts, self._looks, self._ends = Backoff(), Backoff(), Backoff()
        self._left_over: list[ChildRef] = []
        """Children to cancel that were started before a reset, and that the run did not take over."""
        self._was_reset = False
        self._unsettled: set[int] = set()
        """The calls for which an order to start a child has failed."""
        self._absent: set[int] = set()
        """The calls that have started none, as the cancellation of their children has found."""
        self._announced = False

    # Inputs.

    def hint(self, payload: Any) -> bool:
        """Take in the hint that a child is about to end; return False if that child is not open."""
        thread = payload.get("thread") if isinstance(payload, dict) else None
        child = self._log.state.subagents.of_thread(thread) if isinstance(thread, str) else None
        if child is None and (number := self._starting(thread)):
            self._early += [number] if number not in self._early else []
            return True
        if child is None or not child.open:
            return False
        count, found_at = self._untrue.get(child.number, (0, self._log.at))
        due = found_at + timedelta(seconds=min(2 ** min(count, 10), LONGEST_DOUBT)) if count else self._log.at
        if due > self._log.at:
            self._later[child.number] = due
        else:
            self._queue[child.number] = True
        return True

    def on_started(self, answer: StartedChildren) -> None:
        """Take in the children that were started."""
        self._starts.succeeded()
        for started in answer.children:
            self._log.record(*on_started(self._log.state, started))
        left = [each for each in answer.children if each.existing and not self._log.state.subagents.find(each.number)]
        if left:  # nothing is reserved for them
            refs = (ChildRef(number=each.number, run_id=each.run_id) for each in left)
            self._calls.call(end_request(self._log.state, [*refs]), self._log.state)
        self._queue |= dict.fromkeys(self._early, True)
        self._early.clear()
        if self._next is None or self._next <= self._log.at:
            self._pause = FIRST_LOOK
            self._next = self._log.at + self._pause

    def on_not_started(self, request: StartChildren) -> None:
        """Start children again after a pause."""
        self._starts.failed(self._log.at)
        self._unsettled.update(child.number for child in request.children)

    def on_looked(self, request: LookAtChildren, answer: ChildReports) -> None:
        """Take in the reports of the children that were polled."""
        self._looks.succeeded()
        self._report(answer.reports)
        for ref in request.children:
            child = self._log.state.subagents.find(ref.number)
            if child is None or not child.open:
                self._forget(ref.number)
            elif ref.closing:
                self._untrue[ref.number] = self._untrue.get(ref.number, (0, self._log.at))[0] + 1, self._log.at

    def on_not_looked(self, request: LookAtChildren) -> None:
        """Look at the same children again after a pause."""
        self._looks.failed(self._log.at)
        for ref in request.children:
            self._queue[ref.number] = ref.closing or self._queue.get(ref.number, False)

    def on_ended(self, request: EndChildren, answer: ChildReports) -> None:
        """Take in how the cancelled children ended: others may have started since."""
        self._ends.succeeded()
        for started in answer.started:
            self._log.record(*on_started(self._log.state, started))
        self._absent.update(ref.number for ref in request.children if not ref.run_id)
        self._report(answer.reports)
        self._log.record(*on_unfinished(self._log.state, [ref.number for ref in request.children]))

    def on_not_ended(self, request: EndChildren) -> None:
        """Cancel children again after a pause: those that the run did not take over, and its own if it ends."""
        self._left_over += self._left(request)
        self._ends.failed(self._log.at)

    @property
    def cancels_left(self) -> bool:
        """Whether children are being cancelled that the run did not take over: no other Temporal run has them."""
        orders = [call.request for call in self._calls.under_way(EndChildren)]
        under_way = any(self._left(order) for order in orders if isinstance(order, EndChildren))
        return under_way or bool(self._left_over)

    def was_reset(self) -> None:
        """Look at all children: the log may have lost their starts and ends."""
        self._next = None
        self._absent.clear()
        self._was_reset = True

    # Calls.

    def proceed(self) -> None:
        """Start children and look at them, as far as that is due."""
        state = self._log.state
        if state.spec is None or not (state.spec.subagents or state.subagents.children):
            return
        if not state.pause and not self._starts.pauses(self._log.at) and not self._calls.under_way(StartChildren):
            self._start()
        if not self._looks.pauses(self._log.at) and not self._calls.under_way(LookAtChildren, EndChildren):
            self._look()

    def end_left_over(self) -> None:
        """Cancel the children that the run did not take over, if that has failed and the pause is over."""
        if self._left_over and not self._ends.pauses(self._log.at):
            self._calls.call(end_request(self._log.state, self._left_over), self._log.state)
            self._left_over = []

    def end_all(self) -> bool:
        """Cancel the open children; return whether that is still to be waited for."""
        if self._calls.under_way(StartChildren, EndChildren):
            return True
        children = to_end(self._log.state, unsettled=self._unsettled, absent=self._absent)
        if not children:
            return False
        if self._ends.pauses(self._log.at):
            return True
        self._calls.call(end_request(self._log.state, children), self._log.state)
        return True

    def announces(self) -> bool:
        """Notify the parent, once, that the run is about to end; return whether that is still under way."""
        lineage = self._log.state.origin.lineage
        if lineage and not self._announced:
            self._announced = True
            self._calls.call(AnnounceEnd(parent=lineage.parent), self._log.state)
        return bool(self._calls.under_way(AnnounceEnd))

    def due(self) -> datetime | None:
        """Return when the next look or cancellation is due though nothing arrives; None for never."""
        times = [each.until for each in (self._starts, self._looks, self._ends) if each.until]
        if self._log.state.subagents.children and not self._calls.under_way(LookAtChildren, EndChildren):
            times += self._later.values()
            if self._next and self._log.state.subagents.open:
                times.append(self._next)
        # Anything due by now waits for something else, and is done then: a timer would only fire over and over.
        return min((time for time in times if time > self._log.at), default=None)

    def _start(self) -> None:
        before = self._log.state
        ends = on_starts_due(before)
        self._log.record(*ends)
        refused = [event.number for event in ends if isinstance(event, ToolCallFinished)]
        if refused and self._was_reset:  # the same calls may have started children before, and nothing is ordered now
            refs = [unknown_ref(before, number) for number in refused]
            self._calls.call(end_request(self._log.state, refs), self._log.state)
        if request := start_request(self._log.state):
            self._calls.call(request, self._log.state)

    def _left(self, order: EndChildren) -> list[ChildRef]:
        """Return those of the request that were started before the run was reset, and that it did not take over."""
        state = self._log.state
        own = state.subagents.numbers | {call.number for call in wanted(state)}
        return [ref for ref in order.children if ref.number not in own]

    def _starting(self, thread: Any) -> int:
        """Return the number of the call that is about to start this thread; 0 for none."""
        orders = [call.request for call in self._calls.under_way(StartChildren)]
        numbers = [each.number for order in orders if isinstance(order, StartChildren) for each in order.children]
        return next((each for each in numbers if child_thread(self._log.state.thread, each) == thread), 0)

    def _look(self) -> None:
        log, at = self._log, self._log.at
        for number in [number for number, due in self._later.items() if due <= at]:
            del self._later[number]
            self._queue[number] = True
        open_children = log.state.subagents.open
        if open_children and (self._next is None or self._next <= at):
            for child in open_children:
                self._queue.setdefault(child.number, False)
            self._next = at + self._pause
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
        for child in self._asked_again():
            self._queue.setdefault(child.number, False)
        # Each batch reads the same part of a result: only then can a later look be compared with an earlier one.
        clip = min(limits_of(log.state).tool_result_chars, REPORT_CHARS)
        numbers = [*self._queue][: max(1, min(LOOKS, REPORT_CHARS // clip))]
        refs = []
        for number in numbers:
            child_or_none = log.state.subagents.find(number)
            closing = self._queue.pop(number)
            if child_or_none:
                refs.append(ref_of(log.state, child_or_none, closing=closing))
        if refs:
            self._calls.call(LookAtChildren(children=tuple(refs), clip=clip), log.state)

    def _asked_again(self) -> list[Child]:
        """Return the children that have ended, and whose result a call waits for."""
        found = []
        for call in self._log.state.calls.current:
            if call.phase == "started" and call.call.name == AGENT_RESULT:
                given = read_agent_result(call.call)
                child = self._log.state.subagents.of_thread(given.thread) if given else None
                if child and not child.open:
                    found.append(child)
        return found

    def _report(self, reports: Iterable[ChildReport]) -> None:
        for report in reports:
            self._log.record(*on_report(self._log.state, report))

    def _forget(self, number: int) -> None:
        self._queue.pop(number, None)
        self._later.pop(number, None)
        self._untrue.pop(number, None)
