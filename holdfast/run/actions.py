"""Carrying out the actions that `next_action` returns: calls to make, and events to record."""

from typing import assert_never

from holdfast.log.events import MessageTaken, RunBlocked, ToolCallFinished
from holdfast.run.archiving import Archiving
from holdfast.run.budgeting import on_call, on_report
from holdfast.run.consequences import CLOSED_EARLY, OUTCOME_UNKNOWN, on_outcome, on_runtime_call, on_start, on_task
from holdfast.run.contracts import LLMRequest, RunInput, ToolOutcome, ToolRequest
from holdfast.run.ending import on_complete, on_learning_due, on_progress_due
from holdfast.run.features import SIZED_REQUESTS
from holdfast.run.next_actions import (
    Action,
    AskForLearnings,
    Block,
    CallLLM,
    Compact,
    Complete,
    EndSubagents,
    Finish,
    LoadAgent,
    NoteProgress,
    Poll,
    ReportBudget,
    Settle,
    StartCalls,
    TakeMessages,
    Verify,
    Wait,
)
from holdfast.run.open_calls import OpenCalls
from holdfast.run.polling import refuse_poll
from holdfast.run.recorder import Recorder
from holdfast.run.replies import on_compaction
from holdfast.run.requests import agent_request, origin_of, poll_request, tool_request, verify_request
from holdfast.run.state import RunState
from holdfast.run.subagent_watch import SubagentWatch
from holdfast.run.verification import Verification
from holdfast.transcript.transcript import TranscriptRef

STARTS = Verify | Settle | StartCalls | Poll | LoadAgent | CallLLM | Compact
"""Actions that start something: a run that is about to continue as new leaves them to the next Temporal run."""


def _llm_request(state: RunState, transcript: TranscriptRef, *, compacting: bool = False) -> LLMRequest:
    account = state.account
    budgeted = bool(account.limits)
    return LLMRequest(
        transcript=transcript,
        compacting=compacting,
        priced=budgeted and account.priced,
        budgeted=budgeted,
        lost=account.lost,
        sized=state.features >= SIZED_REQUESTS,
    )


class Actions:
    """Turns actions into commands and events.

    Args:
        begin: The run's input.
        run: Records the events.
        calls: Makes the calls.
        archiving: Where the permanent record stands.
        verification: Collects what `verify` tools find.
        subagents: Starts, watches and ends sub-agents.
    """

    def __init__(
        self,
        begin: RunInput,
        run: Recorder,
        calls: OpenCalls,
        archiving: Archiving,
        verification: Verification,
        subagents: SubagentWatch,
    ) -> None:
        self.agent = begin.agent
        """The agent to load; None for the catalog's first. Not part of the state, which has the one that is loaded."""
        self._begin = begin
        self._run = run
        self._calls = calls
        self._archiving = archiving
        self._verification = verification
        self._subagents = subagents

    def carry_out(self, action: Action) -> bool:
        """Carry out one action; return False where nothing follows until something arrives."""
        match action:
            case LoadAgent():
                self._load_agent()
            case CallLLM():
                if self._run.state.account.limits:
                    self._run.record(*on_call(self._run.state))
                state = self._run.state
                self._calls.call(_llm_request(state, self._run.transcript.ref(state.spec_hash)), state)
            case ReportBudget():
                self._run.record(*on_report(self._run.state, action))
            case Compact():
                self._compact(action)
            case TakeMessages():
                self._run.record(*(MessageTaken(message=taken.message) for taken in self._run.state.inbox.waiting))
            case Settle(numbers=numbers):
                return self._settle_all(numbers)
            case StartCalls(numbers=numbers):
                for number in numbers:
                    self._start_call(number)
            case NoteProgress():
                self._run.record(*on_progress_due(self._run.state, at=self._run.at))
            case AskForLearnings():
                self._run.record(on_learning_due(self._run.state))
            case EndSubagents():
                return not self._subagents.end_all()
            case Complete():
                self._run.record(on_complete(self._run.state))
            case Poll(numbers=numbers):
                return self._poll_all(numbers)
            case Block(cause=cause, message=message):
                self._run.record(RunBlocked(cause=cause, message=message))
            case Verify(tools=tools, baseline=baseline):
                self._verification.begin(baseline=baseline)
                for tool in tools:
                    self._calls.call(verify_request(self._run.state, tool), self._run.state)
            case Wait() | Finish():
                return False
            case _:
                assert_never(action)
        return True

    def _load_agent(self) -> None:
        begin, state = self._begin, self._run.state
        untold = begin.fork is not None and not begin.task  # a fork may have nothing new to say
        if not begin.snapshot and not untold and (refused := on_task(begin.task, by=begin.by)):
            self._run.record(*refused)
            return
        recorded = self._archiving.recorded.position
        self._calls.call(agent_request(begin, state, agent=self.agent, recorded=recorded), state)

    def _compact(self, action: Compact) -> None:
        state, transcript = self._run.state, self._run.transcript
        if action.asking:
            if state.account.limits:
                self._run.record(*on_call(state, summary=True))
            ref = transcript.ref(state.spec_hash, shown=action.answered_only)
            self._calls.call(_llm_request(state, ref, compacting=True), self._run.state)
        else:
            length, originals = transcript.length, transcript.originals
            event = on_compaction(state, state.context.summary, compacted=length, kept=0, originals=originals)
            self._run.record(event)

    def _start_call(self, number: int) -> None:
        before, position = self._run.state, self._run.log.length
        call = before.calls.get(number)
        origin = origin_of(before, number, call.call.name, position=position)
        started = on_start(before, number, at=self._run.at)
        self._run.record(started)
        if isinstance(started, ToolCallFinished):
            return
        if before.carries_out(number):
            self._run.record(*on_runtime_call(before, number, at=self._run.at))
            return
        state = self._run.state
        request = tool_request(state, call.call, number=number, epoch=call.epoch, undo=call.undo, origin=origin)
        self._calls.call(request, state, number=number)

    def _poll_all(self, numbers: tuple[int, ...]) -> bool:
        """Make the polls that are due and not under way; return whether a wait has ended instead."""
        under_way = {call.number for call in self._calls.under_way(ToolRequest)}
        ended = False
        for wait in [wait for wait in self._run.state.dormancy.waits if wait.number in numbers]:
            state = self._run.state
            if refused := refuse_poll(state, wait, at=self._run.at):
                self._run.record(refused)
                ended = True
            elif wait.number not in under_way:
                request = poll_request(state, wait, position=self._run.log.length)
                self._calls.call(request, state, number=wait.number)
        return ended

    def _settle_all(self, numbers: tuple[int, ...]) -> bool:
        under_way = {call.number for call in self._calls.under_way(ToolRequest)}
        for number in numbers:
            if number not in under_way:
                self._settle(number)
        return not under_way >= set(numbers)

    def _settle(self, number: int) -> None:
        """Find out what became of an effect that was under way when the thread's last run was closed."""
        state = self._run.state
        orphan = state.calls.get(number)
        call = orphan.call
        if state.spec and state.spec.tool(call.name):
            request = tool_request(state, call, number=number, epoch=orphan.epoch, undo=orphan.undo, settle=True)
            self._calls.call(request, state, number=number)
        else:
            why = f"{CLOSED_EARLY} The agent has no {call.name} any more to find out with. {OUTCOME_UNKNOWN}"
            self._run.record(*on_outcome(state, number, ToolOutcome(status="unknown", content=why), at=self._run.at))
