"""The calls and sleeps of an agent run that are under way, and the commands that start and stop them.

1. Each call and sleep has an id, counted through the whole chain of Temporal runs: it names the call's request.
2. The result of a dropped call is ignored. A tool call is never dropped: its effect may have happened, so the run
   waits for a stopped one. A poll has no effect, and is dropped when its wait ends.
3. A call that fails as a local activity is made again as an ordinary one, unless it failed for good.
4. Temporal can reset a run to an earlier event. Effects that happened after that event are in the ledger alone. So
   after a reset, and when a Temporal run begins, the run asks the ledger, and starts nothing before the answer. The
   ends of other calls are delayed until then, in order.
5. The findings of `verify` tools are collected until all of them have returned, and recorded as one event.
"""

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime

from holdfast.core.llm.blocks import text_of
from holdfast.core.log.events import Finding
from holdfast.core.mac.seals import ActivityResult, Unsealed, call_name, is_unsealed
from holdfast.core.run.contracts.commands import Call, Command, Failure, Request, Result, Sleep, Stop
from holdfast.core.run.contracts.error_types import NOT_SEALED
from holdfast.core.run.contracts.llm_calls import LLMRequest
from holdfast.core.run.contracts.loading import EffectsRequest
from holdfast.core.run.contracts.record import ArchiveRequest, Notice
from holdfast.core.run.contracts.requests import preview_request
from holdfast.core.run.contracts.subagents import StartSubagentsRequest
from holdfast.core.run.contracts.table import activity_of
from holdfast.core.run.contracts.tool_calls import PreviewRequest, ToolOutcome, ToolRequest
from holdfast.core.run.decide.decide import OPEN_WAIT
from holdfast.core.run.state.places import Places
from holdfast.core.run.state.state import RunState

CallEnd = Result | Unsealed | Failure | None
"""How a call ended: its result, or why it failed. None for a sleep."""


class OpenCalls:
    """The calls under way. Not part of `RunState`, because they concern this Temporal run only: the next one starts
    without open calls, and makes those again that it needs. It inherits only the count of ids.

    Args:
        thread: The workflow id.
        first_run_id: Temporal's first execution run id.
        orders: How many ids the chain of Temporal runs has used so far.
    """

    def __init__(self, *, thread: str, first_run_id: str, orders: int) -> None:
        self.orders = orders
        self._thread, self.first_run_id = thread, first_run_id
        self._open: dict[int, Call | Sleep] = {}
        self._commands: list[Command] = []
        self._slow: set[str] = set()
        """Tools with a call that took longer than a local activity may."""
        self._abandoned: set[int] = set()
        """Tool calls that were stopped because the history is too large to wait for them."""
        self.reset = False
        """Temporal has reported a reset, and the ledger has not answered since."""
        self._delayed: list[tuple[int, CallEnd]] = []
        """The ends of calls that are delayed until the ledger's answer."""
        self.baseline = False
        """The `verify` tools run because requests have opened; else because of a long pause."""
        self._findings: list[Finding] = []

    def commands(self) -> Sequence[Command]:
        """Return the commands since the last call, in order."""
        commands, self._commands = self._commands, []
        return commands

    def under_way(self, *kinds: type[Request]) -> list[Call]:
        """Return the open calls whose request is of one of these kinds, oldest first."""
        return [call for call in self._open.values() if isinstance(call, Call) and isinstance(call.request, kinds)]

    @property
    def verifying(self) -> bool:
        """Whether `verify` tools are under way."""
        return any(not call.number for call in self.under_way(ToolRequest))

    def close(self, call_id: int) -> Call | Sleep | None:
        """Remove a call or sleep that has ended, and return it; None if it was dropped before."""
        return self._open.pop(call_id, None)

    # Starting.

    def call(self, request: Request, state: RunState, *, number: int = 0) -> None:
        """Make a call, as a local activity if the table of activities allows it.

        Args:
            request: The request.
            state: The run's state, for the limits of its agent.
            number: The number of a tool call in the thread; 0 for any other request.
        """
        slow = isinstance(request, ToolRequest) and request.call.name in self._slow
        seconds = 0 if slow else activity_of(request).local_seconds(request, state)
        if state.kept_trace not in ("", self.first_run_id):
            request = request.model_copy(update={"trace_run": state.kept_trace})
        self._begin(self._named(request, number, state.places, seconds=seconds))

    def call_again(self, call: Call) -> None:
        """Make a local activity's call again as an ordinary activity: it took too long, or needs to be retried."""
        if isinstance(call.request, ToolRequest):
            self._slow.add(call.request.call.name)
        self._begin(self._named(call.request, call.number, call.places))

    def wake_at(self, until: datetime | None, *, now: datetime, awaited: str = "", writing: bool = False) -> None:
        """Replace the sleep under way by one until that time.

        Args:
            until: The time; None if nothing is due.
            now: Now.
            awaited: What the run waits for from outside; if there is anything, the sleep shows it.
            writing: The record is being written. A sleep that only shows the wait does not begin before that has ended:
                an input that arrives sooner costs no timer.
        """
        open_ended = until is None and bool(awaited)
        for call in [call for call in self._open.values() if isinstance(call, Sleep)]:
            if call.awaited == awaited and (call.open_ended if open_ended else call.until == until):
                return
            self.drop(call.id)
        if open_ended and writing:
            return
        if end := now + OPEN_WAIT if open_ended else until:
            # Never zero: with a clock that lags, the run would wake repeatedly within one workflow task.
            self._begin(Sleep(self._next_id(), end, max(0.01, (end - now).total_seconds()), awaited, open_ended))

    def _named(self, request: Request, number: int, places: Places, *, seconds: float = 0) -> Call:
        call_id = self._next_id()
        name = call_name(workflow_id=self._thread, first_run_id=self.first_run_id, number=call_id)
        return Call(call_id, request.model_copy(update={"order": name}), number, seconds, places)

    def _begin(self, call: Call | Sleep) -> None:
        self._open[call.id] = call
        self._commands.append(call)

    def _next_id(self) -> int:
        self.orders += 1
        return self.orders

    # Stopping.

    def drop(self, call_id: int) -> None:
        """Stop a call or sleep, and ignore its result."""
        call = self._open.pop(call_id)
        commands = [command for command in self._commands if command is not call]
        if len(commands) == len(self._commands):
            commands.append(Stop(call_id))
        self._commands = commands  # a call that was not started yet needs no stop

    def drop_replies(self) -> None:
        """Drop the LLM call under way, unless it is for a context compaction."""
        for call in self.under_way(LLMRequest):
            if isinstance(call.request, LLMRequest) and not call.request.compacting:
                self.drop(call.id)

    def drop_llm(self) -> None:
        """Drop the LLM call under way, of either kind."""
        for call in self.under_way(LLMRequest):
            self.drop(call.id)

    def preview(self, state: RunState) -> None:
        """Have the previews of announced requests computed, and drop those that no request needs any more."""
        awaited = {call.asked.id: call for call in state.calls.previewing if call.asked}
        for call in self.under_way(PreviewRequest):
            if isinstance(call.request, PreviewRequest) and awaited.pop(call.request.request, None) is None:
                self.drop(call.id)
        for each in awaited.values():
            self.call(preview_request(state, each), state)

    def drop_polls(self, *, but: Collection[int]) -> None:
        """Drop the polls of all calls except these."""
        for call in self.under_way(ToolRequest):
            if isinstance(call.request, ToolRequest) and call.request.poll and call.number not in but:
                self.drop(call.id)

    def cancel(self) -> None:
        """Stop tool calls and wait for them. Let notices, starts of sub-agents and writes to the record finish. Drop
        all other calls.
        """
        for call in list(self._open.values()):
            if isinstance(call, Sleep) or not isinstance(
                call.request, ToolRequest | Notice | ArchiveRequest | StartSubagentsRequest
            ):
                self.drop(call.id)
            elif isinstance(call.request, ToolRequest):
                self._commands.append(Stop(call.id))

    def abandon(self, *, archiving: bool) -> None:
        """Stop tool calls, once each, and drop the other calls: there is no time left to wait for them.

        Args:
            archiving: Drop a write to the permanent record as well.
        """
        for call in [call for call in self._open.values() if isinstance(call, Call)]:
            if isinstance(call.request, ArchiveRequest) and not archiving:
                continue
            if not isinstance(call.request, ToolRequest):
                self.drop(call.id)
            elif call.id not in self._abandoned:
                self._abandoned.add(call.id)
                self._commands.append(Stop(call.id))

    # Ends.

    @property
    def reconciling(self) -> bool:
        """Whether the ledger has been asked and has not answered."""
        return bool(self.under_way(EffectsRequest))

    def delay(self, call_id: int, end: CallEnd) -> bool:
        """Delay the end of a call until the ledger has answered; return False if no delay is necessary."""
        call = self._open.get(call_id)
        if not self.reconciling or (isinstance(call, Call) and isinstance(call.request, EffectsRequest)):
            return False
        self._delayed.append((call_id, end))
        return True

    def delayed(self) -> Iterator[tuple[int, CallEnd]]:
        """Yield the delayed ends of calls, in order, once the ledger has answered."""
        while self._delayed and not self.reconciling:
            yield self._delayed.pop(0)

    def add_finding(self, tool: str, outcome: ToolOutcome) -> tuple[Finding, ...]:
        """Add the finding of one `verify` tool; after the last, return all findings in the order of the tools' names.

        They are not part of `RunState`, because they are recorded only when complete.
        """
        finding = Finding(tool=tool, status=outcome.status, content=text_of(outcome.content), trust=outcome.trust)
        self._findings.append(finding)
        if self.verifying:
            return ()
        findings, self._findings = self._findings, []
        return tuple(sorted(findings, key=lambda each: each.tool))

    def refuse_answer(self, call_id: int, end: CallEnd) -> Failure | None:
        """Return why a result is rejected as the answer to a call; None if it is valid, or if the call is not open.

        An answer is valid if one of our own processes sealed it for this call.
        """
        call = self._open.get(call_id)
        if not isinstance(call, Call) or isinstance(end, Failure):
            return None
        if is_unsealed(end):
            return Failure(NOT_SEALED, str(end))
        if not isinstance(end, ActivityResult) or not isinstance(end, activity_of(call.request).answer):
            return Failure(NOT_SEALED, f"the answer is {'empty' if end is None else 'of another kind'}")
        if end.answers != call.request.order:
            why = f"the answer belongs to call {end.answers!r}, and not to {call.request.order!r}"
            return Failure(NOT_SEALED, why)
        return None
