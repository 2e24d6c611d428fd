"""An agent run without I/O: inputs go in, commands come out.

Signals, updates, the ends of calls and the request to cancel go in, in the order in which they reach the run. Each
leads to events in the log, and those to the next action. Calls to make and to stop come out, and finally how the run
ends. `workflows/agent_run.py` carries the commands out through Temporal; `holdfast.core.temporal.history_reader` finds
them again in a recorded history. So both record the same events.

1. The agent, the LLM's reply and the thread's past are requested one at a time; tool calls run side by side.
2. What follows from an input is done at once, until there is something to wait for.
3. Before the thread's past is loaded (`opening`), inputs are held (`run_log`). After a reset, nothing is started before
   the ledger has reported the effects that have happened (`open_calls`).
4. When Temporal's history has grown enough, the run continues as new (`rollover`).
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from holdfast.core.log.event_log import EventLog
from holdfast.core.log.events import AgentEvent
from holdfast.core.run.contracts.commands import Call, Command, End, Failure, Sleep
from holdfast.core.run.contracts.llm_calls import LLMRequest
from holdfast.core.run.contracts.loading import AgentRequest
from holdfast.core.run.contracts.record import ArchiveRequest, Notice
from holdfast.core.run.contracts.runs import RunInput
from holdfast.core.run.contracts.subagents import ENDED_SIGNAL
from holdfast.core.run.contracts.tool_calls import ToolRequest
from holdfast.core.run.decide.decide import next_action
from holdfast.core.run.decide.reactions import on_cancel, on_time
from holdfast.core.run.decide.results import end_of
from holdfast.core.run.inputs.decisions import on_due
from holdfast.core.run.inputs.interventions import SIGNALS, UPDATES, in_level, on_signal, react, refuse_update
from holdfast.core.run.inputs.move import on_moved
from holdfast.core.run.machine.actions import STARTS, carry_out
from holdfast.core.run.machine.open_calls import CallEnd, OpenCalls
from holdfast.core.run.machine.results import on_answer, on_failure
from holdfast.core.run.machine.rollover import HistorySize, Rollover
from holdfast.core.run.machine.run_log import RunLog
from holdfast.core.run.machine.start import Opening, RunIds, moved_in
from holdfast.core.run.machine.subagents import SubagentWatch
from holdfast.core.run.rules.authority import Reaction
from holdfast.core.run.state.features import require_features
from holdfast.core.run.state.state import RunState
from holdfast.core.transcript.transcript import Transcript


class AgentRun:
    """One Temporal run of a thread. The driver calls `observe` before each input, and `conclude` when it has passed on
    all that a workflow task brings.

    Args:
        begin: The workflow's input.
        thread: The workflow id.
        run_id: Temporal's id of this run, as it began: it is the same after a reset, and so are the events until then.
        first_run_id: Temporal's first execution run id, which names effects.
        at: The time.
        started_at: When the start reached Temporal.

    Raises:
        FeaturesUnknown: It takes a newer release to continue this run.
    """

    def __init__(
        self, begin: RunInput, *, thread: str, run_id: str, first_run_id: str, at: datetime, started_at: datetime
    ) -> None:
        self.end: End | None = None
        """How this Temporal run ended; None as long as it has not."""
        self._calls = calls = OpenCalls(thread=thread, first_run_id=first_run_id, orders=begin.orders)
        self._log = log = RunLog(begin, calls, at=at)
        self._subagents = SubagentWatch(log, calls)
        self._rollover = Rollover(log, calls)
        self._opening = Opening(begin, RunIds(thread, run_id, first_run_id), log=log, calls=calls)
        self._cancelled: str | None = None
        """Why the run was asked to cancel; None if it was not. Not part of the state, because no new Temporal run
        continues it."""
        self._was_moved = False
        """Whether this run has moved its thread away, before it was reset: it ignores all further inputs."""
        self._fail(self._opening.open(started_at=started_at))
        self._proceed()

    @property
    def log(self) -> EventLog:
        """The events, as far as this Temporal run keeps them."""
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
    def last_refusals(self) -> Sequence[AgentEvent]:
        """The last refused signals and updates that this Temporal run has recorded, oldest first."""
        return tuple(self._log.refusals.last)

    @property
    def over(self) -> bool:
        """Whether the run ends, or continues as new, as far as this workflow task goes."""
        return self._rollover.leaving or self.end is not None

    def commands(self) -> Sequence[Command]:
        """Return the commands since the last time, in order."""
        return self._calls.commands()

    # Inputs.

    def observe(self, *, at: datetime, history: HistorySize) -> None:
        """Note the time, and how large Temporal's history is."""
        self._log.at, self._rollover.history = at, history

    def signal(self, name: str, payload: Any, *, texts: Sequence[str] | None = None) -> None:
        """Take in a signal. `texts` are its payloads, for a run of a level without that name."""
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
        """Take in an update; return its outcome and an explanation."""
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
        """Return what `update` would answer if it refused this update at that time, else None. Changes nothing."""
        if not in_level(UPDATES, name, self.state):
            why = f"this run began under a release without the update {name}, and has it when it continues as new"
            if name in UPDATES and self.state.spec is None:
                why = "the agent is being loaded: send it again in a moment"
            return {"outcome": "unknown_update", "explanation": why}
        if not self._log.loaded and (unheld := self._log.refuse_held(name, payload)):
            return unheld
        return refuse_update(self.state, name, payload, at=at)

    def ended(self, call_id: int, end: CallEnd = None) -> None:
        """Take in that a call returned or failed, or that a sleep is over."""
        if self._calls.delay(call_id, end):
            return
        end = self._calls.refuse_answer(call_id, end) or end
        call = self._calls.close(call_id)
        if call is None or self.over:
            return  # given up, or left to the next Temporal run
        if isinstance(call, Sleep):
            self._log.record(*on_time(self.state, at=self._log.at))
        elif not isinstance(end, Failure):
            self._answered(call, end)
        elif call.local and not end.final:
            self._calls.call_again(call)
            return
        else:
            self._fail(on_failure(call, end, log=self._log, calls=self._calls, subagents=self._subagents))
        self._proceed()

    def cancel(self, reason: str = "") -> None:
        """Take in the request to cancel: tools under way are stopped and waited for, everything else is given up."""
        if not self._log.loaded:
            self._fail(Failure("CancelledError", "cancelled before the thread was loaded", cancelled=True))
            return
        self._rollover.leaving = False  # a new Temporal run would not get the request
        if self.end and self.end.next:
            self.end = None
        self._cancelled = reason
        self._calls.cancel()
        self._proceed()

    def was_reset(self) -> None:
        """Take in that Temporal has reset the run to an earlier event, unless it asks the ledger anyway."""
        self._subagents.was_reset()
        if self._log.loaded and not self.over:
            self._calls.reset = True
            if not self._calls.reconciling:
                self._log.reconcile()

    def conclude(self) -> None:
        """End this Temporal run if it continues as new: all that the workflow task brings has been passed on.

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
            self._calls.give_up_replies()
        self._proceed()
        return reaction.answer

    def _answered(self, call: Call, answer: Any) -> None:
        if moved := moved_in(answer):  # the events since then are dropped, and the record stays as it is
            self._log.open(moved)
            self._was_moved = True
            self.end = end_of(self.state, first_run_id=self._calls.first_run_id)
            return
        if self._log.loaded:
            on_answer(call, answer, log=self._log, calls=self._calls, subagents=self._subagents)
        elif isinstance(call.request, AgentRequest):
            self._opening.on_agent(call.request, answer)
        else:
            self._fail(self._opening.on_thread(answer.snapshot))
        for name, payload in self._log.release():  # nothing, unless the past was loaded just now
            self._receive(name, payload)

    def _fail(self, failure: Failure | None) -> None:
        """End the run if there is a failure."""
        if failure:
            self.end = End(failure=failure)

    # The next action.

    def _proceed(self) -> None:
        """Do what follows, until there is something to wait for."""
        for call_id, end in self._calls.delayed():
            self.ended(call_id, end)
        if not self.over:
            self._subagents.end_left_over()
        while not self.over and self._log.loaded and self._advance():
            pass
        if not self.over and self._log.loaded and not self._calls.reconciling:
            self._log.archive_at_pause()
            at = self._log.at
            due = self.state.wake_at(at), self.state.next_start(at), self._subagents.due()
            self._calls.wake_at(min(filter(None, due), default=None), now=at)

    def _advance(self) -> bool:
        """Take one action; return False if nothing follows until an input arrives."""
        log, calls, rollover, subagents = self._log, self._calls, self._rollover, self._subagents
        moving = self.state.moving and not self.state.outcome
        calls.give_up_polls(but=[wait.number for wait in self.state.dormancy.waits if not moving])
        if moving:
            calls.give_up_llm()
        if self._cancelled is not None and not self.state.outcome:
            if calls.under_way(ToolRequest) or subagents.end_all():
                return False
            log.record(*on_cancel(self.state, self._cancelled))
        rollover.stop_waiting()
        if calls.reconciling and (not rollover.due or calls.under_way(ToolRequest)):
            return False
        if self.state.ending.learning == "over":
            calls.give_up_replies()  # to a request that was made before the end
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
        if due and not (calls.under_way(ToolRequest) or (subagents.cancels_left and not rollover.urgent)):
            return rollover.continue_as_new()
        if not due:
            subagents.proceed()
        action = next_action(self.state, at=log.at)
        if isinstance(action, STARTS) and rollover.due:
            return False  # calls under way end first, and the next Temporal run takes the action
        return carry_out(action, self._opening.begin, log=log, calls=calls, subagents=subagents)

    def _close(self) -> None:
        """End the run when its events are in the permanent record."""
        if self._calls.under_way(ArchiveRequest, Notice) or self._subagents.cancels_left:
            return
        if self._log.archive_due:
            self._log.archive()
        elif not self._subagents.announces():
            self.end = end_of(self.state, first_run_id=self._calls.first_run_id)
