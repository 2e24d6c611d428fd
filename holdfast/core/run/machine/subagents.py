"""Schedule the starts and polls of a run's sub-agents. Not part of `RunState`, because it concerns this Temporal run
only: the next one polls all of them when it begins.

1. Sub-agents are started and polled in batches, one request of a kind at a time.
2. A sub-agent's hint triggers a poll of that sub-agent alone; a hint during a poll triggers another poll. After a poll
   has found a hint to be false, further hints about that sub-agent wait longer each time, up to a minute.
3. A sub-agent that was closed from outside sends no hint: all open ones are polled periodically.
4. While a person has paused the run, none is started. Ends are recorded.
5. A start, poll or cancellation that fails for good is repeated after a growing pause of up to five minutes: anybody
   with access to Temporal can make it fail.
6. A cancelled run also cancels the sub-agents of calls that wait for a start: the request may have failed after they
   had begun.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, assert_never

from holdfast.core.log.events import ToolCallFinished
from holdfast.core.run.contracts.commands import ChildRequest
from holdfast.core.run.contracts.subagents import (
    AnnounceEnd,
    CheckSubagentsRequest,
    EndSubagentsRequest,
    StartedSubagents,
    StartSubagentsRequest,
    SubagentRef,
    SubagentReport,
    SubagentReports,
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
    unstarted_calls,
)
from holdfast.core.tools.subagents import AGENT_RESULT, child_thread, read_agent_result

FIRST_POLL = timedelta(seconds=20)
"""Time from the last start until all open sub-agents are polled."""

LONGEST_PAUSE = timedelta(minutes=5)
"""Maximum time between two polls of all of them."""

LONGEST_HINT_DELAY = 60
"""Maximum number of seconds that a hint waits if the sub-agent's last hints were false."""

POLL_BATCH = 20
"""Maximum number of sub-agents in one poll: each may report `HANDED_BYTES` of constraints."""


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
        """Call number → whether its sub-agent has sent a hint: sub-agents to poll as soon as possible."""
        self._false_hints: dict[int, tuple[int, datetime]] = {}
        """Call number → how many hints about its sub-agent were false, and when a poll last found one to be."""
        self._early_hints: list[int] = []
        """The calls whose sub-agents have sent hints before the answer to their start has arrived."""
        self._delayed_hints: dict[int, datetime] = {}
        """Call number → when a delayed hint about its sub-agent is due."""
        self._next: datetime | None = None
        """When all open sub-agents are polled; None before this Temporal run has seen the first of them."""
        self._pause = FIRST_POLL
        self._starts, self._polls, self._ends = Backoff(), Backoff(), Backoff()
        self._left_over: list[SubagentRef] = []
        """Sub-agents to cancel that were started before a reset, and that the run did not adopt."""
        self._was_reset = False
        self._unsettled: set[int] = set()
        """The calls for which a request to start a sub-agent has failed."""
        self._absent: set[int] = set()
        """The calls without a sub-agent, according to the answer to its cancellation."""
        self._announced = False

    # Inputs.

    def hint(self, payload: Any) -> bool:
        """Handle the hint that a sub-agent is about to end; return False if that sub-agent is not open."""
        thread = payload.get("thread") if isinstance(payload, dict) else None
        child = self._log.state.subagents.of_thread(thread) if isinstance(thread, str) else None
        if child is None and (number := self._starting(thread)):
            self._early_hints += [number] if number not in self._early_hints else []
            return True
        if child is None or not child.open:
            return False
        count, polled_at = self._false_hints.get(child.number, (0, self._log.at))
        due = polled_at + timedelta(seconds=min(2 ** min(count, 10), LONGEST_HINT_DELAY)) if count else self._log.at
        if due > self._log.at:
            self._delayed_hints[child.number] = due
        else:
            self._queue[child.number] = True
        return True

    def on_answer(self, request: ChildRequest, answer: Any) -> None:
        """Handle the answer to a call about sub-agents, of the type that the table of activities names."""
        match request:
            case StartSubagentsRequest():
                self._on_started(answer)
            case CheckSubagentsRequest():
                self._on_polled(request, answer)
            case EndSubagentsRequest():
                self._on_ended(request, answer)
            case AnnounceEnd():
                pass
            case _:
                assert_never(request)

    def on_failure(self, request: ChildRequest) -> None:
        """Repeat a call about sub-agents that failed for good, after a pause."""
        match request:
            case StartSubagentsRequest():
                self._starts.failed(self._log.at)
                self._unsettled.update(child.number for child in request.children)
            case CheckSubagentsRequest():
                self._polls.failed(self._log.at)
                for ref in request.children:
                    self._queue[ref.number] = ref.closing or self._queue.get(ref.number, False)
            case EndSubagentsRequest():  # cancel those that the run did not adopt, and its own if it ends
                self._left_over += self._left(request)
                self._ends.failed(self._log.at)
            case AnnounceEnd():
                pass  # the parent polls periodically
            case _:
                assert_never(request)

    def _on_started(self, answer: StartedSubagents) -> None:
        """Record the sub-agents that were started."""
        self._starts.succeeded()
        for started in answer.children:
            self._log.record(*on_started(self._log.state, started))
        left = [each for each in answer.children if each.existing and not self._log.state.subagents.find(each.number)]
        if left:  # the run did not adopt them: no budget is reserved for them
            refs = (SubagentRef(number=each.number, run_id=each.run_id) for each in left)
            self._calls.call(end_request(self._log.state, [*refs]), self._log.state)
        self._queue |= dict.fromkeys(self._early_hints, True)
        self._early_hints.clear()
        if self._next is None or self._next <= self._log.at:
            self._pause = FIRST_POLL
            self._next = self._log.at + self._pause

    def _on_polled(self, request: CheckSubagentsRequest, answer: SubagentReports) -> None:
        """Record the reports of the polled sub-agents."""
        self._polls.succeeded()
        self._report(answer.reports)
        for ref in request.children:
            child = self._log.state.subagents.find(ref.number)
            if child is None or not child.open:
                self._forget(ref.number)
            elif ref.closing:
                count, _ = self._false_hints.get(ref.number, (0, self._log.at))
                self._false_hints[ref.number] = count + 1, self._log.at

    def _on_ended(self, request: EndSubagentsRequest, answer: SubagentReports) -> None:
        """Record the ends of the cancelled sub-agents, and those whose start the run had not recorded."""
        self._ends.succeeded()
        for started in answer.started:
            self._log.record(*on_started(self._log.state, started))
        self._absent.update(ref.number for ref in request.children if not ref.run_id)
        self._report(answer.reports)
        self._log.record(*on_unfinished(self._log.state, [ref.number for ref in request.children]))

    @property
    def cancels_left(self) -> bool:
        """Whether the run still cancels sub-agents that it did not adopt: the next Temporal run would not find them."""
        requests = [call.request for call in self._calls.under_way(EndSubagentsRequest)]
        under_way = any(self._left(each) for each in requests if isinstance(each, EndSubagentsRequest))
        return under_way or bool(self._left_over)

    def was_reset(self) -> None:
        """Poll all sub-agents: the reset log may lack their starts and ends."""
        self._next = None
        self._absent.clear()
        self._was_reset = True

    # Calls.

    def proceed(self) -> None:
        """Start and poll the sub-agents that are due."""
        state = self._log.state
        if state.spec is None or not (state.spec.subagents or state.subagents.children):
            return
        held = state.pause or (state.unattended and state.blocked)
        if not held and not self._starts.pauses(self._log.at) and not self._calls.under_way(StartSubagentsRequest):
            self._start()
        if not self._polls.pauses(self._log.at) and not self._calls.under_way(
            CheckSubagentsRequest, EndSubagentsRequest
        ):
            self._poll()

    def end_left_over(self) -> None:
        """Cancel the sub-agents that the run did not adopt, if that has failed and the pause is over."""
        if self._left_over and not self._ends.pauses(self._log.at):
            self._calls.call(end_request(self._log.state, self._left_over), self._log.state)
            self._left_over = []

    def end_all(self, *, keeps_unknown: bool) -> bool:
        """Cancel the open sub-agents; return whether the run still has to wait for that.

        Args:
            keeps_unknown: Nobody has asked for it: their unknown outcomes are kept for a person.
        """
        if self._calls.under_way(StartSubagentsRequest, EndSubagentsRequest):
            return True
        children = to_end(self._log.state, unsettled=self._unsettled, absent=self._absent)
        if not children:
            return False
        if self._ends.pauses(self._log.at):
            return True
        self._calls.call(end_request(self._log.state, children, keeps_unknown=keeps_unknown), self._log.state)
        return True

    def announces(self) -> bool:
        """Notify the parent, once, that the run is about to end; return whether that is still under way."""
        lineage = self._log.state.origin.lineage
        if lineage and not self._announced:
            self._announced = True
            self._calls.call(AnnounceEnd(parent=lineage.parent), self._log.state)
        return bool(self._calls.under_way(AnnounceEnd))

    def due(self) -> datetime | None:
        """Return when the next start, poll or cancellation is due even if no input arrives; None for never."""
        times = [each.until for each in (self._starts, self._polls, self._ends) if each.until]
        if self._log.state.subagents.children and not self._calls.under_way(CheckSubagentsRequest, EndSubagentsRequest):
            times += self._delayed_hints.values()
            if self._next and self._log.state.subagents.open:
                times.append(self._next)
        # Anything already due waits for something else and follows it: a timer would only fire repeatedly.
        return min((time for time in times if time > self._log.at), default=None)

    def _start(self) -> None:
        before = self._log.state
        ends = on_starts_due(before)
        self._log.record(*ends)
        refused = [event.number for event in ends if isinstance(event, ToolCallFinished)]
        if refused and self._was_reset:  # the same calls may have started sub-agents before the reset
            refs = [unknown_ref(before, number) for number in refused]
            self._calls.call(end_request(self._log.state, refs), self._log.state)
        if request := start_request(self._log.state):
            self._calls.call(request, self._log.state)

    def _left(self, request: EndSubagentsRequest) -> list[SubagentRef]:
        """Return those sub-agents of a request that were started before a reset, and that the run did not adopt."""
        state = self._log.state
        own = state.subagents.numbers | {call.number for call in unstarted_calls(state)}
        return [ref for ref in request.children if ref.number not in own]

    def _starting(self, thread: Any) -> int:
        """Return the number of the call that is about to start this thread; 0 for none."""
        requests = [call.request for call in self._calls.under_way(StartSubagentsRequest)]
        numbers = [
            child.number for each in requests if isinstance(each, StartSubagentsRequest) for child in each.children
        ]
        return next((number for number in numbers if child_thread(self._log.state.thread, number) == thread), 0)

    def _poll(self) -> None:
        log, at = self._log, self._log.at
        for number in [number for number, due in self._delayed_hints.items() if due <= at]:
            del self._delayed_hints[number]
            self._queue[number] = True
        open_children = log.state.subagents.open
        if open_children and (self._next is None or self._next <= at):
            for child in open_children:
                self._queue.setdefault(child.number, False)
            self._next = at + self._pause
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
        for child in self._requested_again():
            self._queue.setdefault(child.number, False)
        # Each batch clips results to the same length: only then can the results of two polls be compared.
        clip = min(limits_of(log.state).tool_result_chars, REPORT_CHARS)
        numbers = [*self._queue][: max(1, min(POLL_BATCH, REPORT_CHARS // clip))]
        refs = []
        for number in numbers:
            child_or_none = log.state.subagents.find(number)
            closing = self._queue.pop(number)
            if child_or_none:
                refs.append(ref_of(log.state, child_or_none, closing=closing))
        if refs:
            self._calls.call(CheckSubagentsRequest(children=tuple(refs), clip=clip), log.state)

    def _requested_again(self) -> list[Child]:
        """Return the ended sub-agents whose results a call requests once more."""
        ended = []
        for call in self._log.state.calls.current:
            if call.phase == "started" and call.call.name == AGENT_RESULT:
                arguments = read_agent_result(call.call)
                child = self._log.state.subagents.of_thread(arguments.thread) if arguments else None
                if child and not child.open:
                    ended.append(child)
        return ended

    def _report(self, reports: Iterable[SubagentReport]) -> None:
        for report in reports:
            self._log.record(*on_report(self._log.state, report))

    def _forget(self, number: int) -> None:
        self._queue.pop(number, None)
        self._delayed_hints.pop(number, None)
        self._false_hints.pop(number, None)
