"""An agent run without I/O: what reaches it goes in, commands come out.

Signals, updates, the ends of calls and the request to cancel go in, in the order in which they reach the run. Calls to
make and to stop come out, and at last how the run ends. `workflows/agent_run.py` carries the commands out through
Temporal; `holdfast.temporal.history_reader` finds them again in a recorded history. So both record the same events.

1. The run asks the agent, the LLM and the thread's past one at a time; tool calls run side by side.
2. What follows from an input is done at once, until there is something to wait for (`next_action`).
3. Before the thread's past is loaded, inputs are held (`held_inputs`). After a reset, nothing is started before the
   ledger has said what was done already (`lookback`).
4. When Temporal's history has grown enough, the run continues as new (`rollover`).
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from holdfast.budget.tree import tree_cost
from holdfast.log.event_log import EventLog
from holdfast.log.events import AgentEvent, RunContinued, RunImported
from holdfast.log.import_point import ImportPoint
from holdfast.run.actions import STARTS, Actions
from holdfast.run.archiving import Archiving
from holdfast.run.call_ends import CallEnds
from holdfast.run.children import ENDED_SIGNAL
from holdfast.run.commands import Call, Command, End, Failure, Result, Sleep
from holdfast.run.consequences import (
    on_cancel,
    on_time,
)
from holdfast.run.contracts import (
    START_REFUSED,
    AgentRequest,
    ArchiveRequest,
    LLMRequest,
    LoadedAgent,
    LoadedThread,
    Notice,
    RunInput,
    RunResult,
    ThreadRequest,
    ToolRequest,
)
from holdfast.run.decide import next_action
from holdfast.run.decisions import on_due
from holdfast.run.evolve import evolve
from holdfast.run.features import RESULT_NAMES_LLM, RESULT_NAMES_RUN, require_features
from holdfast.run.held_inputs import HeldInputs
from holdfast.run.importing import import_event, on_entered, refuse_import
from holdfast.run.interventions import SIGNALS, UPDATES, in_level, on_signal, react, refuse_update
from holdfast.run.lookback import Lookback
from holdfast.run.moving import on_moved
from holdfast.run.open_calls import OpenCalls
from holdfast.run.opening import canonical_name, opening_events, refuse_forked_start, refuse_start
from holdfast.run.recorder import Recorder
from holdfast.run.refusals import Refusals
from holdfast.run.requests import agent_request
from holdfast.run.rights import Reaction
from holdfast.run.rollover import HistorySize, Rollover, next_input, unloaded_input
from holdfast.run.snapshot import RunSnapshot
from holdfast.run.state import RunState
from holdfast.run.subagent_watch import SubagentWatch
from holdfast.run.verification import Verification
from holdfast.seals.seals import Unsealed
from holdfast.seals.starts import refusal
from holdfast.transcript.transcript import Transcript


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
        self._begin = begin
        self._thread, self._run_id, self._first_run_id = thread, run_id, first_run_id
        self._calls = OpenCalls(thread=thread, first_run_id=first_run_id, orders=begin.orders)
        self._recorder = Recorder(Refusals(begin.refusals), self._notify, at=at)
        self._held = HeldInputs(begin.held, self._recorder.refusals)
        self._archiving = Archiving(self._recorder, self._calls)
        self._lookback = Lookback(self._recorder, self._calls, self._archiving)
        self._rollover = Rollover(self._recorder, self._calls, self._archiving)
        verification = Verification()
        self._subagents = watch = SubagentWatch(self._recorder, self._calls)
        self._actions = Actions(begin, self._recorder, self._calls, self._archiving, verification, watch)
        self._ends = CallEnds(
            self._recorder,
            self._calls,
            self._lookback,
            self._archiving,
            verification,
            watch,
            on_thread=self._on_thread,
            on_moved=self._end_as_moved,
        )
        self._stopping: str | None = None
        """Why the run was asked to cancel; None where it was not. Not part of the state, because no new Temporal run
        continues it."""
        self._was_moved = False
        """Whether this run has moved its thread away, before it was reset: it takes in nothing any more."""
        if refused := refusal(begin, first_run_id=first_run_id, started_at=started_at):
            self._recorder.state = RunState(thread=thread)
            self.end = End(failure=Failure(START_REFUSED, refused))
            return
        require_features(begin.features)
        self._open(begin.snapshot or RunSnapshot(state=RunState(thread=thread)))
        if begin.snapshot:
            self._record(RunContinued(run_id=run_id, features=begin.features))
            self._lookback.begin()  # it may have been reset to here
        elif begin.resume or begin.fork:
            self._recorder.loaded = False
            self._calls.call(_thread_request(begin), self.state)
        else:
            self._start()
        self._proceed()

    @property
    def log(self) -> EventLog:
        """The events, as far as this Temporal run keeps them."""
        return self._recorder.log

    @property
    def state(self) -> RunState:
        """What the events lead to."""
        return self._recorder.state

    @property
    def transcript(self) -> Transcript:
        """What the LLM is shown."""
        return self._recorder.transcript

    @property
    def last_refusals(self) -> Sequence[AgentEvent]:
        """The last refused signals and updates that this Temporal run has recorded, oldest first."""
        return tuple(self._recorder.refusals.last)

    @property
    def over(self) -> bool:
        """Whether the run ends, or continues as new, as far as this workflow task goes."""
        return self._rollover.leaving or self.end is not None

    def commands(self) -> Sequence[Command]:
        """Return what is to be carried out since the last time, in order."""
        return self._calls.commands()

    # What comes in.

    def observe(self, *, at: datetime, history: HistorySize) -> None:
        """Note the time, and how large Temporal's history is."""
        self._recorder.at, self._rollover.history = at, history

    def signal(self, name: str, payload: Any, *, texts: Sequence[str] | None = None) -> None:
        """Take in a signal.

        Args:
            name: Its name.
            payload: What was sent.
            texts: The payloads as texts, for a name that the first release lacks (`holdfast.run.interventions`). A run
                of a level without that name takes in these, as the first release does.
        """
        if texts is not None and not in_level(SIGNALS, name, self.state):
            payload = list(texts)
        if self._was_moved:
            return
        self._rollover.signals += 1
        self._rollover.leaving = False
        if self._recorder.loaded:
            self._receive(name, payload)
        else:
            self._held.hold(name, payload)
            self._rollover.leaving = self._rollover.near_limit

    def update(self, name: str, payload: Any) -> dict[str, str]:
        """Take in an update; return its outcome and an explanation."""
        if self._was_moved:
            return {"outcome": "too_late", "explanation": "the thread was moved to another place, and continues there"}
        self._rollover.leaving = False
        if self._recorder.loaded:
            return self._intervene(react, name, payload)
        if refused := self.refused(name, payload, at=self._recorder.at):
            return refused
        self._held.hold(name, payload)
        return react(self.state, name, payload, at=self._recorder.at).answer

    def refused(self, name: str, payload: Any, *, at: datetime) -> dict[str, str] | None:
        """Return what `update` would answer if it refused this update at that time, else None. Changes nothing."""
        if not in_level(UPDATES, name, self.state):
            why = f"this run began under a release without the update {name}, and has it when it continues as new"
            if name in UPDATES and self.state.spec is None:
                why = "the agent is being loaded: send it again in a moment"
            return {"outcome": "unknown_update", "explanation": why}
        if not self._recorder.loaded:
            if name != "say":
                return {"outcome": "unknown_request", "explanation": "the thread is being loaded; nothing is open yet"}
            if not self._held.has_room(payload):
                return {"outcome": "too_many", "explanation": "too much waits until the thread is loaded; say it then"}
        return refuse_update(self.state, name, payload, at=at)

    def ended(self, call_id: int, result: Result | Unsealed | None = None) -> None:
        """Take in that a call returned, or that a sleep is over."""
        if self._lookback.delays(call_id):
            self._lookback.delay(partial(self.ended, call_id, result))
            return
        if refused := self._calls.refuse_answer(call_id, result):
            self.failed(call_id, refused)
            return
        if (call := self._calls.close(call_id)) is None or self.over:
            return  # given up, or left to the next Temporal run
        if isinstance(result, LoadedAgent) and not self._recorder.loaded:
            self._enter(call, result)
        elif isinstance(call, Sleep):
            self._record(*on_time(self.state, at=self._recorder.at))
        else:
            self._ends.on_answer(call, result)
        self._proceed()

    def failed(self, call_id: int, failure: Failure) -> None:
        """Take in that a call failed."""
        if self._lookback.delays(call_id):
            self._lookback.delay(partial(self.failed, call_id, failure))
            return
        if (call := self._calls.close(call_id)) is None or self.over:
            return
        assert isinstance(call, Call)
        if call.local and not failure.final:
            self._calls.call_again(call)
            return
        if fatal := self._ends.on_failure(call, failure):
            self.end = End(failure=fatal)
        self._proceed()

    def cancel(self, reason: str = "") -> None:
        """Take in the request to cancel: tools under way are stopped and waited for, everything else is given up."""
        if not self._recorder.loaded:
            self.end = End(failure=Failure("CancelledError", "cancelled before the thread was loaded", cancelled=True))
            return
        self._rollover.leaving = False  # a new Temporal run would not get the request
        if self.end and self.end.next:
            self.end = None
        self._stopping = reason
        self._calls.cancel()
        self._proceed()

    def was_reset(self) -> None:
        """Take in that Temporal has reset the run to an earlier event, and that it continues from here.

        A run that continues as new, or loads its agent first, looks back there.
        """
        self._subagents.was_reset()
        if self._recorder.loaded and not self.over:
            self._lookback.reset = True
            if not self._lookback.under_way:
                self._lookback.begin()

    def conclude(self) -> None:
        """End this Temporal run if it continues as new: all that the workflow task brings has been passed on.

        Raises:
            FeaturesUnknown: The run has reached a feature level that this release lacks.
        """
        require_features(self.state.features)
        if not self._rollover.leaving or self.end:
            return
        chain: dict[str, Any] = {"first_run_id": self._first_run_id, "orders": self._calls.orders}
        if not self._recorder.loaded:
            self.end = End(next=unloaded_input(self._begin, self._recorder, self._held.all, **chain))
            return
        self._recorder.record_refusals()
        agent = self._actions.agent
        self.end = End(next=next_input(self._begin, self._recorder, self._archiving, agent=agent, **chain))

    # What it leads to.

    def _record(self, *events: AgentEvent) -> None:
        self._recorder.record(*events)

    def _notify(self, notice: Notice) -> None:
        self._calls.call(notice, self.state)

    def _open(self, snapshot: RunSnapshot) -> None:
        self._recorder.open(snapshot)
        self._archiving.open(snapshot)

    def _start(self) -> None:
        """Begin, or begin again where a closed run of the thread ended."""
        begin, past = self._begin, self.state
        refused = refuse_start(begin, past)
        if refused := refused or refuse_forked_start(begin, past, self.transcript, thread=self._thread, log=self.log):
            self.end = End(failure=Failure(START_REFUSED, refused))
            return
        self._actions.agent = agent = begin.agent or (past.spec.name if past.spec else None)
        ids = {"thread": self._thread, "run_id": self._run_id, "first_run_id": self._first_run_id}
        self._record(*opening_events(begin, past, agent=agent, **ids))

    def _receive(self, name: str, payload: Any) -> None:
        if name == ENDED_SIGNAL and self._subagents.hint(payload):
            self._proceed()
            return
        self._intervene(on_signal, name, payload)

    def _intervene(self, reacts: Callable[..., Reaction], name: str, payload: Any) -> dict[str, str]:
        self._record(*on_due(self.state, at=self._recorder.at))
        reaction = reacts(self.state, name, payload, at=self._recorder.at)
        self._record(*reaction.events)
        if reaction.interrupts:
            self._calls.give_up_replies()
        self._proceed()
        return reaction.answer

    def _on_thread(self, loaded: LoadedThread) -> None:
        if loaded.moved:
            self._end_as_moved(loaded.snapshot)
            return
        self._open(loaded.snapshot)
        if self._begin.imported and not self._begin.fork:
            self._arrive(self._begin.imported)
            return
        self._start()
        self._begin_inputs()

    def _end_as_moved(self, snapshot: RunSnapshot) -> None:
        """End where the thread stands, which this run has moved: Temporal has reset it to an event before that.

        What it has recorded since then is dropped, and the record stays as it is.
        """
        self._open(snapshot)
        self._was_moved, self.end = True, End(result=self._result())

    def _arrive(self, point: ImportPoint) -> None:
        """Have the agent of this place loaded, unless the run is closed. Nothing is recorded before: where there is no
        such agent, the import can be repeated.
        """
        position, head = self.log.length, self.log.head
        refused = refuse_import(point, self.state, thread=self._thread, position=position, head=head)
        if refused:
            self.end = End(failure=Failure(START_REFUSED, refused))
            return
        if self.state.outcome != "moved" or self.state.spec is None:
            self._record(self._imported(point))
            self._begin_inputs()
            return
        self._actions.agent = self.state.spec.name
        imported = evolve(self.state, self._imported(point).model_copy(update={"at": self._recorder.at}))
        self._calls.call(agent_request(self._begin, imported, agent=self._actions.agent, recorded=position), self.state)

    def _imported(self, point: ImportPoint) -> RunImported:
        by, level = canonical_name(self._begin.by), self._begin.features
        ids = {"run_id": self._run_id, "first_run_id": self._first_run_id}
        return import_event(point, by=by, level=level, **ids)

    def _enter(self, call: Call | Sleep, loaded: LoadedAgent) -> None:
        """Continue an imported run under the agent of this place."""
        assert isinstance(call, Call)
        assert self._begin.imported is not None
        if loaded.past and loaded.past.moved:
            self._end_as_moved(loaded.past.moved)
            return
        self._record(self._imported(self._begin.imported))
        self._ends.on_answer(call, loaded.model_copy(update={"recalled": ()}))
        self._record(*on_entered(self.state, at=self._recorder.at))
        self._lookback.begin()
        self._begin_inputs()

    def _begin_inputs(self) -> None:
        """Take in what was held until the thread's past was loaded."""
        self._recorder.loaded = True
        for name, payload in self._held.release():
            self._receive(name, payload)

    # What follows.

    def _proceed(self) -> None:
        """Do what follows, until there is something to wait for."""
        for end in self._lookback.delayed():
            end()
        if not self.over:
            self._subagents.end_left_over()
        while not self.over and self._recorder.loaded and self._advance():
            pass
        if not self.over and self._recorder.loaded and not self._lookback.under_way:
            self._archiving.write_at_pause()
            at = self._recorder.at
            due = self.state.wake_at(at), self.state.next_start(at), self._subagents.due()
            self._calls.wake_at(min(filter(None, due), default=None), now=at)

    def _advance(self) -> bool:
        """Take one action; return False where nothing follows until something arrives."""
        calls, rollover = self._calls, self._rollover
        moving = self.state.moving and not self.state.outcome
        calls.give_up_polls(but=[wait.number for wait in self.state.dormancy.waits if not moving])
        if moving:
            calls.give_up_llm()
        if self._stopping is not None and not self.state.outcome:
            if calls.under_way(ToolRequest) or self._subagents.end_all():
                return False
            self._record(*on_cancel(self.state, self._stopping))
        rollover.stop_waiting()
        if self._lookback.under_way and (not rollover.due or calls.under_way(ToolRequest)):
            return False
        if self.state.ending.learning == "over":
            calls.give_up_replies()  # to what the LLM was asked before the end
        if calls.under_way(AgentRequest, LLMRequest) or calls.verifying:
            return False
        if self._archiving.fork_due:
            if not calls.under_way(ArchiveRequest):
                self._archiving.write()
            return False
        if moving and not self.state.outcome and not calls.under_way(ToolRequest):
            self._record(on_moved(self.state))
        if self.state.outcome:
            self._close()
            return False
        waits = calls.under_way(ToolRequest) or (self._subagents.cancels_left and not rollover.urgent)
        if rollover.due and not waits:
            return rollover.continue_as_new()
        if not rollover.due:
            self._subagents.proceed()
        action = next_action(self.state, at=self._recorder.at)
        if isinstance(action, STARTS) and rollover.due:
            return False  # what is under way ends first, and the next Temporal run does it
        return self._actions.carry_out(action)

    def _close(self) -> None:
        """End the run when its events are in the permanent record."""
        if self._calls.under_way(ArchiveRequest, Notice) or self._subagents.cancels_left:
            return
        if self._archiving.due:
            self._archiving.write()
            return
        if self._subagents.announces():
            return
        state = self.state
        if state.outcome in ("completed", "moved"):
            self.end = End(result=self._result())
        else:
            self.end = End(failure=Failure(state.failure, state.result, cancelled=state.outcome == "cancelled"))

    def _result(self) -> RunResult:
        """The result of a run that has ended as completed or moved."""
        state = self.state
        llm = state.spec.llm if state.spec and state.features >= RESULT_NAMES_LLM else ""
        result = RunResult(
            result=state.result,
            structured=state.structured,
            steps=state.steps.count,
            usage=state.usage,
            llm=llm,
            refinements=len(state.refinements),
            moved=state.outcome == "moved",
            first_run_id=self._first_run_id if state.features >= RESULT_NAMES_RUN else "",
        )
        if state.origin.lineage:
            handed = state.constraints.to_hand_over(state.updated_at, up=True)
            cost = tree_cost(state.account)
            more = {"trust": state.context.trust, "constraints": handed, "cost": cost}
            result = result.model_copy(update=more)
        return result


def _thread_request(begin: RunInput) -> ThreadRequest:
    imported = begin.fork is not None and begin.imported is not None
    return ThreadRequest(previous_run=begin.previous_run, fork=begin.fork, imported=imported)
