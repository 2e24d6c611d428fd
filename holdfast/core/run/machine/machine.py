"""An agent run without I/O: inputs go in, commands come out.

Inputs are signals, updates, the ends of calls and cancellation, in the order in which they reach the run. Each adds
events to the log, and those determine the next action. Commands make and stop calls, and finally end the run.
`workflows/agent_run.py` carries them out through Temporal; `holdfast.core.temporal.history_reader` recovers them from a
recorded history. So both record the same events.

1. The agent, the LLM's reply and the thread's past are requested one at a time; tool calls run in parallel.
2. After an input, the run acts at once until it has to wait.
3. Until the thread's past is loaded (`start`), inputs are held (`run_log`). After a reset, nothing starts until the
   ledger has reported the effects that have happened (`open_calls`).
4. When Temporal's history has grown enough, the run continues as new (`rollover`).
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any

from holdfast.core.log.event_log import EventLog
from holdfast.core.log.events import AgentEvent
from holdfast.core.run.contracts.commands import Call, ChildRequest, Command, End, Failure, Sleep
from holdfast.core.run.contracts.llm_calls import LLMRequest
from holdfast.core.run.contracts.loading import AgentRequest
from holdfast.core.run.contracts.record import ArchiveRequest, Notice
from holdfast.core.run.contracts.requests import cancel_request
from holdfast.core.run.contracts.runs import RunInput
from holdfast.core.run.contracts.subagents import ENDED_SIGNAL, PARENT_ENDS
from holdfast.core.run.contracts.tool_calls import ToolRequest
from holdfast.core.run.decide.decide import awaited_input, next_action
from holdfast.core.run.decide.foreign_tasks import on_cancelled_tasks
from holdfast.core.run.decide.reactions import on_cancel, on_time
from holdfast.core.run.decide.results import end_of
from holdfast.core.run.inputs.decisions import on_due
from holdfast.core.run.inputs.interventions import SIGNALS, UPDATES, in_level, on_signal, react, refuse_update
from holdfast.core.run.inputs.move import on_moved
from holdfast.core.run.machine.actions import STARTS, carry_out
from holdfast.core.run.machine.open_calls import CallEnd, OpenCalls
from holdfast.core.run.machine.results import moved_snapshot, on_answer, on_failure
from holdfast.core.run.machine.rollover import HistorySize, Rollover
from holdfast.core.run.machine.run_log import RunLog
from holdfast.core.run.machine.start import Opening, RunIds
from holdfast.core.run.machine.subagents import SubagentWatch
from holdfast.core.run.rules.authority import Reaction
from holdfast.core.run.rules.unattended import is_in_doubt
from holdfast.core.run.state.features import require_features
from holdfast.core.run.state.next_actions import EndSubagents, Fail
from holdfast.core.run.state.state import RunState
from holdfast.core.run.waits.foreign_waits import tasks_of
from holdfast.core.transcript.transcript import Transcript


class AgentRun:
    """One Temporal run of a thread. The driver calls `observe` before each input, and `conclude` after it has passed
    all inputs of a workflow task.

    Args:
        begin: The workflow's input.
        thread: The workflow id.
        run_id: Temporal's original id of this run: a reset keeps it, and so the events before the reset.
        first_run_id: Temporal's first execution run id, which names effects.
        at: The time.
        started_at: When the start reached Temporal.

    Raises:
        FeaturesUnknown: Only a newer release can continue this run.
    """

    def __init__(
        self, begin: RunInput, *, thread: str, run_id: str, first_run_id: str, at: datetime, started_at: datetime
    ) -> None:
        self.end: End | None = None
        """How this Temporal run ended; None while it is open."""
        self._calls = calls = OpenCalls(thread=thread, first_run_id=first_run_id, orders=begin.orders)
        self._log = log = RunLog(begin, calls, at=at)
        self._rollover = Rollover(log, calls)
        self._opening = Opening(begin, RunIds(thread, run_id, first_run_id), log=log, calls=calls)
        self._cancelled: str | None = None
        """The reason of the cancellation request; None if there is none. Not part of the state: a cancelled run does
        not continue as new."""
        self._cancelled_tasks: list[str] = []
        """The tasks of foreign servers that this run has asked to cancel, because it ends."""
        self._was_moved = False
        """Whether this run had moved its thread to another cluster before a reset: it ignores all further inputs."""
        self._fail(self._opening.open(started_at=started_at))
        self._proceed()

    @property
    def log(self) -> EventLog:
        """The events that this Temporal run keeps."""
        return self._log.events

    @property
    def state(self) -> RunState:
        """The state that follows from the events."""
        return self._log.state

    @property
    def transcript(self) -> Transcript:
        """The messages for the LLM."""
        return self._log.transcript

    @property
    def session(self) -> dict[str, Any]:
        """What a worker needs before it reads the transcript."""
        return self._log.session

    @property
    def last_refusals(self) -> Sequence[AgentEvent]:
        """The last rejected signals and updates that this Temporal run has recorded, oldest first."""
        return tuple(self._log.refusals.last)

    @property
    def over(self) -> bool:
        """Whether the run ends or continues as new with this workflow task."""
        return self._rollover.leaving or self.end is not None

    def commands(self) -> Sequence[Command]:
        """Return the commands since the last call, in order."""
        return self._calls.commands()

    # Inputs.

    def observe(self, *, at: datetime, history: HistorySize) -> None:
        """Record the time and the size of Temporal's history."""
        self._log.at, self._rollover.history = at, history

    def signal(self, name: str, payload: Any, *, texts: Sequence[str] | None = None) -> None:
        """Handle a signal. `texts` are its payloads, for a run whose feature level lacks that signal."""
        if texts is not None and not in_level(SIGNALS, name, self.state):
            payload = list(texts)
        if self._was_moved:
            return
        self._rollover.signals += 1
        self._rollover.leaving = False
        if self._log.loaded:
            self._receive(name, payload)
        else:
            self._log.hold(name, payload)
            self._rollover.leaving = self._rollover.near_limit

    def update(self, name: str, payload: Any) -> dict[str, str]:
        """Handle an update; return its outcome and an explanation."""
        if self._was_moved:
            return {"outcome": "too_late", "explanation": "the thread was moved to another place, and continues there"}
        self._rollover.leaving = False
        if self._log.loaded:
            return self._intervene(react, name, payload)
        if refused := self.refused(name, payload, at=self._log.at):
            return refused
        self._log.hold(name, payload)
        return react(self.state, name, payload, at=self._log.at).answer

    def refused(self, name: str, payload: Any, *, at: datetime) -> dict[str, str] | None:
        """Return the answer of `update` if it would reject this update at that time, else None. Changes nothing."""
        if not in_level(UPDATES, name, self.state):
            why = f"this run began under a release without the update {name}, and has it when it continues as new"
            if name in UPDATES and self.state.spec is None:
                why = "the agent is being loaded: send it again in a moment"
            return {"outcome": "unknown_update", "explanation": why}
        if not self._log.loaded and (refused := self._log.refuse_held(name, payload)):
            return refused
        return refuse_update(self.state, name, payload, at=at)

    def ended(self, call_id: int, end: CallEnd = None) -> None:
        """Handle the result or failure of a call, or the end of a sleep."""
        if self._calls.delay(call_id, end):
            return
        end = self._calls.refuse_answer(call_id, end) or end
        call = self._calls.close(call_id)
        if call is None or self.over:
            return  # dropped, or left to the next Temporal run
        if isinstance(call, Sleep):
            self._log.record(*on_time(self.state, at=self._log.at))
        elif not isinstance(end, Failure):
            self._on_answer(call, end)
        elif call.seconds and not end.final:
            self._calls.call_again(call)
            return
        elif isinstance(call.request, ChildRequest):
            self._subagents.on_failure(call.request)
        else:
            self._fail(on_failure(call, call.request, end, log=self._log, calls=self._calls))
        self._proceed()

    def cancel(self, reason: str = "") -> None:
        """Handle the request to cancel: stop the tools under way and wait for them, and drop all other calls."""
        if not self._log.loaded:
            self._fail(Failure("CancelledError", "cancelled before the thread was loaded", cancelled=True))
            return
        self._rollover.leaving = False  # the next Temporal run would not receive the request
        if self.end and self.end.next:
            self.end = None
        self._cancelled = reason
        self._calls.cancel()
        self._proceed()

    def was_reset(self) -> None:
        """Handle a reset of the run to an earlier event by Temporal: ask the ledger, unless that is under way."""
        self._subagents.was_reset()
        if self._log.loaded and not self.over:
            self._calls.reset = True
            if not self._calls.reconciling:
                self._log.reconcile()

    def conclude(self) -> None:
        """End this Temporal run if it continues as new. The driver has passed all inputs of the workflow task.

        Raises:
            FeaturesUnknown: The run has reached a feature level that this release lacks.
        """
        require_features(self.state.features)
        if self._rollover.leaving and not self.end:
            self.end = End(next=self._rollover.next_input(self._opening.begin))

    # Events.

    def _receive(self, name: str, payload: Any) -> None:
        if name == ENDED_SIGNAL and self._subagents.hint(payload):
            self._proceed()
            return
        self._intervene(on_signal, name, payload)

    def _intervene(self, reacts: Callable[..., Reaction], name: str, payload: Any) -> dict[str, str]:
        self._log.record(*on_due(self.state, at=self._log.at))
        reaction = reacts(self.state, name, payload, at=self._log.at)
        self._log.record(*reaction.events)
        if reaction.interrupts:
            self._calls.drop_replies()
        self._proceed()
        return reaction.answer

    def _on_answer(self, call: Call, answer: Any) -> None:
        if moved := moved_snapshot(answer):  # drop the events since the move, and leave the record unchanged
            self._log.open(moved)
            self._was_moved = True
            self.end = end_of(self.state, first_run_id=self._calls.first_run_id)
            return
        if isinstance(call.request, ChildRequest):
            self._subagents.on_answer(call.request, answer)
        elif self._log.loaded:
            on_answer(call, call.request, answer, log=self._log, calls=self._calls)
        elif isinstance(call.request, AgentRequest):
            self._fail(self._opening.on_agent(call.request, answer))
        else:
            self._fail(self._opening.on_thread(answer.snapshot))
        for name, payload in self._log.release():  # empty, unless the past was loaded just now
            self._receive(name, payload)

    def _fail(self, failure: Failure | None) -> None:
        """End the run if there is a failure."""
        if failure:
            self.end = End(failure=failure)

    # The next action.

    @cached_property
    def _subagents(self) -> SubagentWatch:
        return SubagentWatch(self._log, self._calls)

    @property
    def _tree(self) -> SubagentWatch | None:
        """The sub-agents of a run that is one, has any, or may start some; None for any other run."""
        return self._subagents if self.state.in_tree else None

    def _proceed(self) -> None:
        """Take actions until the run has to wait."""
        for call_id, end in self._calls.delayed():
            self.ended(call_id, end)
        if self._tree and not self.over:
            self._tree.end_left_over()
        while not self.over and self._log.loaded and self._advance():
            pass
        if not self.over and self._log.loaded and not self._calls.reconciling:
            self._log.archive_at_pause()
            at = self._log.at
            due = self.state.wake_at(at), self.state.next_start(at), self._tree.due() if self._tree else None
            until, awaited = min(filter(None, due), default=None), awaited_input(self.state, at=at)
            self._calls.wake_at(until, now=at, awaited=awaited, writing=self._log.archiving)

    def _advance(self) -> bool:
        """Take one action; return False if the run waits for an input."""
        log, calls, rollover, tree = self._log, self._calls, self._rollover, self._tree
        moving = self.state.moving and not self.state.outcome
        calls.drop_polls(but=[wait.number for wait in self.state.dormancy.waits if not moving])
        if moving:
            calls.drop_llm()
        if self._cancelled is not None and not self.state.outcome:
            self._cancel_tasks()
            keeping = self.state.unattended and self._cancelled == PARENT_ENDS
            if calls.under_way(ToolRequest) or (tree and tree.end_all(keeps_unknown=keeping)):
                return False
            if keeping:
                log.record(*on_cancelled_tasks(self.state, at=log.at))
            if keeping and is_in_doubt(self.state):
                return False  # until a person has said what happened
            log.record(*on_cancel(self.state, self._cancelled))
        rollover.stop_waiting()
        if calls.reconciling and (not rollover.due or calls.under_way(ToolRequest)):
            return False
        if self.state.ending.learning == "over":
            calls.drop_replies()  # to a request that was made before the end
        if calls.under_way(AgentRequest, LLMRequest) or calls.verifying:
            return False
        if log.fork_due:
            if not log.archiving:
                log.archive()
            return False
        if moving and not self.state.outcome and not calls.under_way(ToolRequest):
            log.record(on_moved(self.state))
        if self.state.outcome:
            self._close()
            return False
        due = rollover.due
        if due and not (calls.under_way(ToolRequest) or (tree and tree.cancels_left and not rollover.urgent)):
            return rollover.continue_as_new()
        if tree and not due:
            tree.proceed()
        if not due and not self.state.pause and not moving:
            calls.preview(self.state)
        action = next_action(self.state, at=log.at)
        if isinstance(action, STARTS) and rollover.due:
            return False  # calls under way end first, and the next Temporal run takes the action
        if isinstance(action, EndSubagents):
            return not self._subagents.end_all(keeps_unknown=self.state.unattended)
        if isinstance(action, Fail):
            self._cancel_tasks()
            if calls.under_way(ToolRequest) or (tree and tree.end_all(keeps_unknown=True)):
                return False
        return carry_out(action, self._opening.begin, log=log, calls=calls)

    def _cancel_tasks(self) -> None:
        """Cancel the tasks of foreign servers that calls continue as, once each."""
        for number, task in tasks_of(self.state).items():
            if task not in self._cancelled_tasks:
                self._cancelled_tasks.append(task)
                self._calls.call(cancel_request(self.state, number, task), self.state, number=number)

    def _close(self) -> None:
        """End the run when its events are in the permanent record."""
        tree = self._tree
        if self._calls.under_way(ArchiveRequest, Notice) or (tree and tree.cancels_left):
            return
        if self._log.archive_due:
            self._log.archive()
        elif not (tree and tree.announces()):
            self.end = end_of(self.state, first_run_id=self._calls.first_run_id)
