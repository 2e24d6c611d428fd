"""An agent run without I/O: what reaches it goes in, commands come out.

Signals, updates, the ends of calls and the request to cancel go in, in the order in which they reach the run; calls
to make and to stop come out, and at last how it ends. `workflows/agent_run.py` carries the commands out through
Temporal; `holdfast.temporal.history_reader` finds them again in a recorded history. So both record the very same
events.

1. The run asks the agent, the LLM and the thread's past one at a time; tool calls run side by side.
2. When Temporal's history has grown enough, the run starts nothing more, waits for what is under way, writes its
   events into the permanent record, and goes on in a new Temporal run from a snapshot: at any boundary between calls.
   What arrives meanwhile travels in the snapshot. Long before Temporal would end the run it waits for nothing any
   more: a flood of signals costs the calls that are under way, and not the run.
3. Events are written into the permanent record when the run pauses, before it goes on elsewhere, and before it ends.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, cast

from holdfast.agents.agent import Limits, shared
from holdfast.base.digests import canonical
from holdfast.base.names import person_name
from holdfast.llm.messages import ToolCall
from holdfast.llm.outages import Outage
from holdfast.log.event_log import EventLog
from holdfast.log.events import (
    AgentEvent,
    AgentLoaded,
    DecisionReceived,
    Finding,
    MemoryRecalled,
    MessageTaken,
    RunBlocked,
    RunContinued,
    RunStarted,
    SignalRejected,
    UserMessageReceived,
)
from holdfast.run.baseline import on_findings
from holdfast.run.commands import Call, Command, End, Failure, Request, Result, Sleep, Stop
from holdfast.run.contracts import (
    NOT_SEALED,
    NOT_SETTLED,
    START_REFUSED,
    AgentRequest,
    Archived,
    ArchiveRequest,
    EffectsRequest,
    LLMReply,
    LLMRequest,
    LoadedAgent,
    LoadedThread,
    Notice,
    Notified,
    PastEffects,
    RunInput,
    RunResult,
    ThreadRequest,
    ToolOutcome,
    ToolRequest,
)
from holdfast.run.decide import (
    CLOSED_EARLY,
    IN_DOUBT,
    Block,
    CallLLM,
    Compact,
    Finish,
    LoadAgent,
    Settle,
    StartCalls,
    TakeMessages,
    Verify,
    Wait,
    next_action,
    on_cancel,
    on_compaction,
    on_loaded,
    on_lost_agent,
    on_lost_call,
    on_lost_llm,
    on_outcome,
    on_reopen,
    on_reply,
    on_start,
    on_summary,
    on_task,
    on_time,
)
from holdfast.run.decisions import on_due
from holdfast.run.evolve import evolve
from holdfast.run.inputs import on_mandate, on_message, on_payload, on_signal
from holdfast.run.notices import notice_of
from holdfast.run.refusals import Refusals, bounded, encoded, is_refused
from holdfast.run.resets import on_reset
from holdfast.run.snapshot import MAX_BYTES, PRESSED_BYTES, TAIL_BYTES, RunSnapshot
from holdfast.run.state import RunState
from holdfast.seals.orders import Answer, order_name
from holdfast.seals.seals import Unsealed, is_unsealed
from holdfast.seals.starts import refusal
from holdfast.tools.effects import Effect
from holdfast.transcript.transcript import Transcript
from holdfast.trust import Origin

SIGNALS = 200
"""Signals from which a run goes on in a new Temporal run. Our servers take 400 (`history.maximumSignalsPerExecution`),
so that a run can move while they refuse more; Temporal's default is 10,000.
"""

PRESSED_EVENTS = 30_000
"""Events of Temporal's history from which nothing that is under way is waited for: it ends a run at 51,200."""

PRESSED_SIZE = 16_000_000
"""Bytes of history from which it is so: Temporal ends a run at 50 MB."""

HELD = 150
"""Signals that are kept until the thread's past is loaded. More are refused."""

HELD_BYTES = 200_000
"""What they hold, as JSON."""


class AgentRun:
    """One Temporal run of a thread. The driver sets `at`, `history_length`, `history_size` and `crowded` before each
    input, and calls `conclude` when all that a workflow task brings has been passed on.

    Args:
        begin: The workflow's input.
        thread: The workflow id.
        run_id: Temporal's id of this run, as it began: it is the same after a reset, and so are the events until then.
        first_run_id: Temporal's first execution run id, which names effects.
        at: The time.
        started_at: When the start reached Temporal.
    """

    def __init__(
        self, begin: RunInput, *, thread: str, run_id: str, first_run_id: str, at: datetime, started_at: datetime
    ) -> None:
        self.at = at
        self.history_length = 0
        """Events that Temporal's history has, as the workflow task that is being worked on sees it."""
        self.history_size = 0
        """Bytes of it."""
        self.crowded = False
        """Whether Temporal suggests a new run."""
        self.end: End | None = None
        self._begin = begin
        self._thread, self._run_id, self._first_run_id = thread, run_id, first_run_id
        self._ids = begin.orders
        self._commands: list[Command] = []
        self._calls: dict[int, Call | Sleep] = {}
        self._held = list(begin.held)
        """Signals that came before the thread's past was loaded."""
        self._held_bytes = sum(len(encoded(payload)) for _, payload in self._held)
        self._signals = 0
        """Signals that came in this Temporal run."""
        self._refusals = Refusals(begin.refusals)
        self._ends: list[Callable[[], None]] = []
        """Ends of calls that came while the run looked back: they are taken in afterwards, in their order."""
        self._loaded = True
        self._reset = False
        """Whether Temporal has said that it was reset, since the run last looked back."""
        self._agent: str | None = None
        self._stopping = False
        self._moving = False
        """Whether the events have been written down in order to go on in a new Temporal run."""
        self._leaving = False
        """Whether it goes on in a new Temporal run, with all that this workflow task brings."""
        self._let_go: set[int] = set()
        """Tool calls that were stopped because the history is too long to wait for them."""
        self._stay_until = 0
        """The step until which this run stays where it is, for its snapshot was too large."""
        self._paused_at = -1
        """The step at whose pause the events were last written down."""
        self._slow: set[str] = set()
        """Tools of which a call took longer than a local activity may."""
        self._unrecorded = False
        """Whether the permanent record refuses this run's events for good."""
        self._baseline = False
        """Whether `verify` tools are under way for requests that have opened."""
        self._findings: list[Finding] = []
        """What `verify` tools have found so far."""
        self.log, self.state, self.transcript = EventLog(), RunState(), Transcript()
        self._base = self._archiving = RunSnapshot()
        """Where the permanent record stands, and where it will when it has been written to."""
        self._base_size: tuple[RunSnapshot, int] = self._base, 0
        """Bytes of a snapshot, so that each is measured once."""
        if refused := refusal(begin, first_run_id=first_run_id, started_at=started_at):
            self.end = End(failure=Failure(START_REFUSED, refused))
            return
        self._open(begin.snapshot or RunSnapshot(state=RunState(thread=thread)))
        if begin.snapshot:
            self._agent = begin.agent
            self.record(RunContinued(run_id=run_id))
            self._look_back()  # it may have been reset to here
        elif begin.resume:
            self._loaded = False
            self._call(ThreadRequest(previous_run=begin.previous_run))
        else:
            self._start()
        self._go_on()

    def commands(self) -> Sequence[Command]:
        """What is to be carried out since this was last asked, in order."""
        commands, self._commands = self._commands, []
        return commands

    def signal(self, name: str, payload: Any) -> None:
        """A signal arrived."""
        self._signals, self._leaving = self._signals + 1, False
        if not self._loaded:
            self._hold(name, payload)
            self._leaving = self._brimming()
            return
        self._receive(name, payload)

    def _receive(self, name: str, payload: Any) -> None:
        self.record(*on_due(self.state, at=self.at))
        if name == "say":
            self._answer(name, payload)
        else:
            self.record(*on_signal(self.state, name, payload, at=self.at))
        self._go_on()

    def update(self, name: str, payload: Any) -> dict[str, str]:
        """An update arrived; returns its outcome and an explanation."""
        self._leaving = False
        if not self._loaded:
            if refused := self.refused(name, payload, at=self.at):
                return refused
            self._hold(name, payload)
            expected, why, _, _ = on_message(self.state, payload, door=name, at=self.at)
            return {"outcome": expected, "explanation": why}
        self.record(*on_due(self.state, at=self.at))
        outcome, explanation = self._answer(name, payload)
        self._go_on()
        return {"outcome": outcome, "explanation": explanation}

    def refused(self, name: str, payload: Any, *, at: datetime) -> dict[str, str] | None:
        """What `update` would answer if it refused this update at that time; None if it would not. Changes nothing."""
        if not self._loaded:
            if name != "say":
                return {"outcome": "unknown_request", "explanation": "the thread is being loaded; nothing is open yet"}
            if self._has_no_room(payload):
                return {"outcome": "too_many", "explanation": "too much waits until the thread is loaded; say it then"}
        state = self.state
        for event in on_due(state, at=at):  # `update` records it first
            state = evolve(state, event.model_copy(update={"at": at}))
        outcome, explanation, events, _ = _judged(state, name, payload, at=at)
        if all(is_refused(event) for event in events):
            return {"outcome": outcome, "explanation": explanation}
        return None

    def conclude(self) -> None:
        """All that a workflow task brings has been passed on: where the run leaves, take everything along."""
        if not self._leaving or self.end:
            return
        chain = {"sealed": True, "first_run_id": self._first_run_id, "orders": self._ids}
        if not self._loaded:
            refusals = self._refusals.take() if self._refusals.counted else None
            waits = {"held": tuple(self._held), "refusals": refusals}
            self.end = End(next=self._begin.model_copy(update={**chain, **waits}))
            return
        self._record_count()
        tail = tuple(self.log.since(self._base.position))
        begin = RunInput(
            idle_limit=self._begin.idle_limit,
            agent=None if self.state.spec else self._agent,
            workspace=None if self.state.spec else self._begin.workspace,
            snapshot=self._base.model_copy(update={"tail": tail}),
        )
        self.end = End(next=begin.model_copy(update=chain))

    @property
    def over(self) -> bool:
        """Whether the run ends, or leaves, as far as this workflow task goes."""
        return self._leaving or self.end is not None

    def ended(self, call_id: int, result: Result | Unsealed | None = None) -> None:
        """A call returned, or a sleep is over."""
        if self._waits_for_past(call_id):
            self._ends.append(partial(self.ended, call_id, result))
            return
        if refused := self._no_answer(call_id, result):
            self.failed(call_id, refused)
            return
        if (call := self._calls.pop(call_id, None)) is None or self.over:
            return  # given up meanwhile, or what was to follow is the next Temporal run's business
        if isinstance(call, Sleep):
            self.record(*on_time(self.state, at=self.at))
        else:
            self._take(call, cast(Result | None, result))
        self._go_on()

    def failed(self, call_id: int, failure: Failure) -> None:
        """A call came to nothing."""
        if self._waits_for_past(call_id):
            self._ends.append(partial(self.failed, call_id, failure))
            return
        if (call := self._calls.pop(call_id, None)) is None or self.over:
            return
        assert isinstance(call, Call)
        if call.local and not failure.final:
            self._call_again(call)
            return
        cause, message = failure.cause, failure.message
        match call.request:
            case EffectsRequest() if cause == NOT_SEALED:
                self._call(call.request)
            case ThreadRequest() | EffectsRequest():
                self.end = End(failure=failure)
            case AgentRequest():
                self.record(*on_lost_agent(cause, message))
            case LLMRequest():
                self.record(*on_lost_llm(cause, message, Outage.from_details(failure.details)))
            case ToolRequest(call=verifying) if not call.number:
                self._found(verifying.name, ToolOutcome(status="failed", content=f"{cause}: {message}"))
            case Notice():
                pass  # those who were to be told could not be; the log has it
            case ToolRequest():
                outcome = on_lost_call(
                    self._effect_of(self.state.call(call.number).call), cause, message, cancelled=failure.cancelled
                )
                self.record(*on_outcome(self.state, call.number, outcome, at=self.at))
            case ArchiveRequest() if cause in (NOT_SETTLED, NOT_SEALED):
                self._paused_at = -1
            case ArchiveRequest():
                self._unrecorded = True
                if not self.state.outcome:
                    self.record(RunBlocked(cause=cause, message=message))
        self._go_on()

    def cancel(self) -> None:
        """The run is to stop: tools under way are stopped and waited for, everything else is given up."""
        if not self._loaded:
            self.end = End(failure=Failure("CancelledError", "cancelled before the thread was loaded", cancelled=True))
            return
        self._leaving = False  # nobody would tell the next Temporal run
        if self.end and self.end.next:
            self.end = None
        self._stopping = True
        for call in list(self._calls.values()):
            if isinstance(call, Sleep) or not isinstance(call.request, ToolRequest | Notice | ArchiveRequest):
                self._give_up(call.id)
            elif isinstance(call.request, ToolRequest):
                self._commands.append(Stop(call.id))
        self._go_on()

    def was_reset(self) -> None:
        """Temporal has taken the run back to an earlier event, and it goes on from here.

        What it did after that event is in the ledger alone, so nothing more happens before that was looked up. A run
        that goes on elsewhere, or loads its agent first, looks there.
        """
        if self._loaded and not self.over:
            self._reset = True
            if not self._looking:
                self._look_back()

    def record(self, *events: AgentEvent) -> None:
        """Append events to the log and fold them. Nothing else changes what the run knows."""
        for event in events:
            if is_refused(event):
                if self._refusals.many:
                    self._refusals.count(event)
                    continue
                self._refusals.recorded += 1
            else:
                self._record_count()
            stamped = self.log.append(event, at=self.at)
            notice = notice_of(self.state, stamped) if self.state.notify else None
            self._fold_in(stamped)
            if notice:
                self._call(notice)

    def _record_count(self) -> None:
        """Record how many refusals there were that are not recorded one by one."""
        if self._refusals.counted and self._loaded:
            self.record(self._refusals.take())

    def _fold_in(self, event: AgentEvent) -> None:
        self.state = evolve(self.state, event)
        self.transcript.add(event)

    def _open(self, snapshot: RunSnapshot) -> None:
        """Stand where a snapshot does."""
        self._base = snapshot.model_copy(update={"tail": ()})
        self.log = EventLog(snapshot.position, snapshot.head)
        self.state = snapshot.state
        self.transcript = Transcript(snapshot.transcript)
        for event in snapshot.tail:
            self.log.restore(event)
            self._fold_in(event)

    def _start(self) -> None:
        """Begin, or begin again where a closed run of the thread ended."""
        begin, past = self._begin, self.state
        if begin.start and begin.start in past.starts:
            why = f"the start {begin.start} has begun a run of this thread before; say something to the thread instead"
            self.end = End(failure=Failure(START_REFUSED, why))
            return
        self._agent = begin.agent or (past.spec.name if past.spec else None)
        self.record(*on_reopen(past))
        self.record(
            RunStarted(
                thread=self._thread,
                run_id=self._run_id,
                first_run_id=self._first_run_id,
                sealed=begin.proven,
                start=begin.start,
                user_proven=begin.proven and begin.by_proven,
                agent=self._agent,
                idle_limit=begin.idle_limit,
                depth=begin.depth,
                trust=begin.trust,
            )
        )
        self.record(UserMessageReceived(content=begin.task, by=_spelt(begin.by), task=True))

    # What comes back.

    def _no_answer(self, call_id: int, result: Result | Unsealed | None) -> Failure | None:
        """Why a result does not count as the answer to a call; None if it does."""
        call = self._calls.get(call_id)
        if not isinstance(call, Call):
            return None
        if is_unsealed(result):
            return Failure(NOT_SEALED, str(result))
        if not isinstance(result, Answer):
            return Failure(NOT_SEALED, f"the answer is {'empty' if result is None else 'of another kind'}")
        if result.answers != call.request.order:
            why = f"the answer belongs to call {result.answers!r}, and not to {call.request.order!r}"
            return Failure(NOT_SEALED, why)
        return None

    def _take(self, call: Call, result: Result | None) -> None:
        match call.request, result:
            case ThreadRequest(), LoadedThread():
                self._open(result.snapshot)
                self._start()
                self._loaded = True
                held, self._held, self._held_bytes = self._held, [], 0
                for name, payload in held:
                    self._receive(name, payload)
            case EffectsRequest(), PastEffects():
                self._looked_back(result)
            case AgentRequest(), LoadedAgent():
                spec = shared(result.spec)
                self.record(
                    AgentLoaded(
                        spec=spec,
                        spec_hash=spec.hash,
                        policy_hash=spec.policy.hash,
                        workspace=result.workspace,
                        notify=result.notify,
                    )
                )
                if result.past:
                    self._looked_back(result.past)
                if result.recalled:
                    self.record(MemoryRecalled(tiers=result.recalled))
                self.record(*on_loaded(self.state))
            case LLMRequest(compacting=True), LLMReply():
                folded = call.request.transcript.length
                kept = self.transcript.unanswered if folded < self.transcript.length else 0
                originals = self.transcript.originals
                self.record(*on_summary(self.state, result, folded=folded, kept=kept, originals=originals))
            case LLMRequest(), LLMReply():
                self.record(*on_reply(self.state, result, shown=call.request.transcript.length, at=self.at))
            case Notice(), Notified():
                pass
            case ToolRequest(call=verifying), ToolOutcome() if not call.number:
                self._found(verifying.name, result)
            case ToolRequest(), ToolOutcome():
                self.record(*on_outcome(self.state, call.number, result, at=self.at))
            case ArchiveRequest(), Archived():
                self._base = self._archiving
            case _:
                raise TypeError(f"{type(result).__name__} is no answer to {type(call.request).__name__}")

    @property
    def _looking(self) -> bool:
        """Whether it is being found out what the run has done already."""
        return bool(self._under_way(EffectsRequest))

    def _waits_for_past(self, call_id: int) -> bool:
        """Whether the end of a call cannot be taken in yet."""
        call = self._calls.get(call_id)
        return self._looking and not (isinstance(call, Call) and isinstance(call.request, EffectsRequest))

    def _look_back(self) -> None:
        """Find out what the run has done already, before anything is started."""
        first = min((call.number for call in self.state.calls), default=self.state.call_count + 1)
        recorded = self._archiving if self._under_way(ArchiveRequest) else self._base
        self._call(EffectsRequest(after=first - 1, position=recorded.position, head=recorded.head))

    def _looked_back(self, past: PastEffects) -> None:
        asking = bool(self._under_way(LLMRequest))
        known = {effect.key for effect in self.state.past}
        known |= {self.state.effect_key(call.number, call.call) for call in self.state.calls if call.begun or call.past}
        effects = tuple(effect for effect in past.effects if effect.key not in known)
        if (effects or self._reset) and not self.state.outcome:
            self.record(*on_reset(self.state, effects, left_out=past.left_out, asking=asking, at=self.at))
        self._reset = False

    def _found(self, tool: str, outcome: ToolOutcome) -> None:
        """A `verify` tool has looked; when all have, that is recorded, with what follows from it."""
        self._findings.append(Finding(tool=tool, status=outcome.status, content=outcome.content, trust=outcome.trust))
        if not self._verifying():
            self._findings, findings = [], sorted(self._findings, key=lambda finding: finding.tool)
            self.record(*on_findings(self.state, tuple(findings), baseline=self._baseline, at=self.at))

    def _answer(self, update: str, payload: Any) -> tuple[str, str]:
        """The outcome of an update, and an explanation."""
        outcome, explanation, events, interrupts = _judged(self.state, update, payload, at=self.at)
        self.record(*events)
        if interrupts:
            for call in self._under_way(LLMRequest):
                if isinstance(call.request, LLMRequest) and not call.request.compacting:
                    self._give_up(call.id)
        return outcome, explanation

    def _hold(self, name: str, payload: Any) -> None:
        """Keep what comes before the thread's past is loaded, or refuse it."""
        if self._has_no_room(payload):
            why = "too much came before the thread was loaded"
            for event in bounded([SignalRejected(signal=name, explanation=why, outcome="too_many")], payload):
                self._refusals.count(event)  # the log is not there yet
            return
        if not isinstance(payload, dict | list | str):
            payload = None  # it may have to travel as JSON, and means nothing anyway
        self._held.append((name, payload))
        self._held_bytes += len(encoded(payload))

    def _has_no_room(self, payload: Any) -> bool:
        return len(self._held) >= HELD or self._held_bytes + len(encoded(payload)) > HELD_BYTES

    # What follows.

    def _go_on(self) -> None:
        """Do what follows, until there is something to wait for."""
        while self._ends and not self._looking:
            self._ends.pop(0)()
        while not self.over and self._loaded and self._advance():
            pass
        if not self.over and self._loaded and not self._looking:
            self._keep_record()
            self._keep_time()

    def _advance(self) -> bool:
        """Take one action; False where nothing follows until something arrives."""
        if self._stopping and not self.state.outcome:
            if self._under_way(ToolRequest):
                return False
            self.record(*on_cancel(self.state))
        if self._pressed():
            self._wait_no_more()
        if self._looking and (not self._full() or self._under_way(ToolRequest)):
            return False
        if self._under_way(AgentRequest, LLMRequest) or self._verifying():
            return False
        if self.state.outcome:
            return self._close()
        if self._full() and not self._under_way(ToolRequest):
            return self._move()
        return self._carry_out(next_action(self.state, at=self.at))

    def _carry_out(self, action: Any) -> bool:
        match action:
            case Verify() | Settle() | StartCalls() | LoadAgent() | CallLLM() | Compact() if self._full():
                return False  # what is under way ends first, and the next Temporal run goes on
            case LoadAgent():
                begin = self._begin
                if not begin.snapshot and (refused := on_task(begin.task, by=begin.by)):
                    self.record(*refused)
                else:
                    self._load_agent()
            case CallLLM():
                self._call(LLMRequest(transcript=self.transcript.ref(self.state.spec_hash)))
            case Compact():
                self._compact(action)
            case TakeMessages():
                self.record(*(MessageTaken(message=waiting.message) for waiting in self.state.inbox))
            case Settle(numbers=numbers):
                under_way = {call.number for call in self._under_way(ToolRequest)}
                for number in numbers:
                    if number not in under_way:
                        self._settle(number)
                return not under_way >= set(numbers)
            case StartCalls(numbers=numbers):
                for number in numbers:
                    self._start_call(number)
            case Block(cause=cause, message=message):
                self.record(RunBlocked(cause=cause, message=message))
            case Verify(tools=tools):
                self._baseline = action.baseline
                for tool in tools:
                    self._call_tool(ToolCall(id=f"verify_{tool}", name=tool, arguments=self._defaults(tool)))
            case Wait() | Finish():
                return False
        return True

    def _defaults(self, tool: str) -> str:
        """The arguments of a call that gives none."""
        spec = self.state.spec.tool(tool) if self.state.spec else None
        return canonical(spec.defaults if spec else {}).decode()

    def _load_agent(self) -> None:
        workspace = self._begin.workspace or self.state.workspace or None
        begin = self._begin
        self._call(
            AgentRequest(
                agent=self._agent,
                workspace=workspace,
                user=self.state.proven_user,
                fresh=not begin.resume and not self._base.position,
                plain=not self.state.sealed,
                after=self.state.call_count,
            )
        )

    def _compact(self, action: Compact) -> None:
        if action.asking:
            ref = self.transcript.ref(self.state.spec_hash, shown=action.answered_only)
            self._call(LLMRequest(transcript=ref, compacting=True))
        else:
            length, originals = self.transcript.length, self.transcript.originals
            self.record(on_compaction(self.state, self.state.summary, folded=length, kept=0, originals=originals))

    def _start_call(self, number: int) -> None:
        state, call = self.state.call(number), self.state.call(number).call
        origin = self._origin(call, approved=state.approved)
        self.record(on_start(self.state, number))
        self._call_tool(call, number=number, epoch=state.epoch, undo=state.undo, origin=origin)

    def _settle(self, number: int) -> None:
        """Find out what became of an effect that was under way when the thread's last run was closed."""
        orphan, spec = self.state.call(number), self.state.spec
        if spec and spec.tool(orphan.call.name):
            self._call_tool(orphan.call, number=number, epoch=orphan.epoch, undo=orphan.undo, settle=True)
        else:
            why = f"{CLOSED_EARLY} The agent has no {orphan.call.name} any more to find out with. {IN_DOUBT}"
            self.record(*on_outcome(self.state, number, ToolOutcome(status="unknown", content=why), at=self.at))

    def _origin(self, call: ToolCall, *, approved: bool) -> Origin | None:
        """Where a call that is about to start comes from, for tools that want to know."""
        spec = self.state.spec
        tool = spec.tool(call.name) if spec else None
        if spec is None or tool is None or not tool.wants_origin:
            return None
        position, trust = self.log.length, self.state.trust
        return Origin(agent=spec.name, user=self.state.proven_user, position=position, trust=trust, approved=approved)

    def _call_tool(
        self,
        call: ToolCall,
        *,
        number: int = 0,
        epoch: int = 0,
        undo: bool = False,
        settle: bool = False,
        origin: Origin | None = None,
    ) -> None:
        assert self.state.spec is not None
        past = self.state.past_of(number, call)
        request = ToolRequest(
            call=call,
            key=self._effect_key(call, number),
            number=past.number if past else number,
            first_run_id=past.first_run_id if past else "",
            epoch=epoch,
            workspace=self.state.workspace,
            clip=self.state.spec.limits.tool_result_chars,
            undo=undo,
            settle=settle,
            origin=origin,
        )
        self._call(request, number=number)

    def _effect_key(self, call: ToolCall, number: int) -> str:
        return self.state.effect_key(number, call)

    def _effect_of(self, call: ToolCall) -> Effect:
        assert self.state.spec is not None
        tool = self.state.spec.tool(call.name)
        assert tool is not None, "a call of an unknown tool never gets a verdict"
        return tool.effect

    # The permanent record, and the next Temporal run.

    def _full(self) -> bool:
        """Whether the run is to go on in a new Temporal run."""
        if self.state.step < self._stay_until or (self._unrecorded and not self._brimming()):
            return False
        limits = self.state.spec.limits if self.state.spec else Limits()
        return self.crowded or self.history_length >= limits.history_events or self._signals >= SIGNALS

    def _brimming(self) -> bool:
        """Whether Temporal will soon end the run for the length of its history."""
        return self.history_size >= PRESSED_SIZE or self.history_length >= PRESSED_EVENTS

    def _pressed(self) -> bool:
        """Whether it is to go on there whatever is under way."""
        return self._full() and self._brimming()

    def _wait_no_more(self) -> None:
        """Stop the tools under way, and give up all else. The next Temporal run asks anew for what it needs."""
        few = self.log.size_since(self._base.position) <= TAIL_BYTES
        for call in [call for call in self._calls.values() if isinstance(call, Call)]:
            if isinstance(call.request, ArchiveRequest) and not few:
                continue  # what is too much to be carried along
            if not isinstance(call.request, ToolRequest):
                self._give_up(call.id)
            elif call.id not in self._let_go:
                self._let_go.add(call.id)
                self._commands.append(Stop(call.id))

    def _move(self) -> bool:
        if self._under_way(ArchiveRequest, Notice):
            return False
        for call in self._under_way(EffectsRequest):
            self._give_up(call.id)  # the next Temporal run looks back itself
        unwritten = self.log.size_since(self._base.position)
        # In a flood, events that are few travel along unwritten: each moment that this takes brings more signals.
        waits = self._moving or self._refusals.many or self._unrecorded or self._pressed()
        if unwritten and not (waits and unwritten <= TAIL_BYTES) and not self._unrecorded:
            self._moving = True
            self._archive()
            return False
        if self._base_size[0] is not self._base:
            self._base_size = self._base, len(self._base.model_dump_json(exclude_defaults=True).encode())
        if self._base_size[1] + unwritten > (PRESSED_BYTES if self._pressed() else MAX_BYTES):
            self._stay_until, self._moving = self.state.step + 1, False
            return True
        self._leaving = True
        return False

    def _close(self) -> bool:
        if self._under_way(ArchiveRequest, Notice):
            return False
        if self._base.position < self.log.length and not self._unrecorded:
            self._archive()
            return False
        state = self.state
        if state.outcome == "completed":
            self.end = End(result=RunResult(result=state.result, steps=state.step, usage=state.usage))
        else:
            self.end = End(failure=Failure(state.failure, state.result, cancelled=state.outcome == "cancelled"))
        return False

    def _keep_record(self) -> None:
        """Write the events down where the run pauses: once for each pause."""
        pausing = self.state.status in ("waiting_approval", "waiting_message", "blocked") and not self._verifying()
        due = pausing and self._paused_at != self.state.step and not self._unrecorded
        if due and self._base.position < self.log.length and not self._under_way(ArchiveRequest):
            self._paused_at = self.state.step
            self._archive(pausing=True)

    def _keep_time(self) -> None:
        """Have the run woken when something is due though nothing arrives."""
        until = self.state.wake_at
        for call in [call for call in self._calls.values() if isinstance(call, Sleep)]:
            if call.until == until:
                return
            self._give_up(call.id)
        if until:
            # Never no time at all: a clock that lags would have the run woken over and over within one task.
            self._begin_call(Sleep(self._next_id(), until, max(0.01, (until - self.at).total_seconds())))

    def _archive(self, *, pausing: bool = False) -> None:
        self._record_count()
        self._archiving = RunSnapshot(
            position=self.log.length, head=self.log.head, state=self.state, transcript=self.transcript.base
        )
        start, stop = self._base.position, self.log.length
        base = self._base.head
        self._call(ArchiveRequest(start=start, stop=stop, base=base, head=self.log.head, pausing=pausing))

    # Calls under way.

    def _under_way(self, *kinds: type[Request]) -> list[Call]:
        return [call for call in self._calls.values() if isinstance(call, Call) and isinstance(call.request, kinds)]

    def _verifying(self) -> bool:
        """Whether `verify` tools are under way."""
        return any(not call.number for call in self._under_way(ToolRequest))

    def _call(self, request: Request, *, number: int = 0) -> None:
        self._begin_call(self._named(request, number, seconds=self._local_seconds(request)))

    def _call_again(self, call: Call) -> None:
        """Make a local activity's call again, as an ordinary one: it took too long, or has to be tried patiently."""
        if isinstance(call.request, ToolRequest):
            self._slow.add(call.request.call.name)
        self._begin_call(self._named(call.request, call.number))

    def _named(self, request: Request, number: int, *, seconds: float = 0) -> Call:
        call_id = self._next_id()
        name = order_name(workflow_id=self._thread, first_run_id=self._first_run_id, number=call_id)
        return Call(call_id, request.model_copy(update={"order": name}), number, seconds)

    def _local_seconds(self, request: Request) -> float:
        """How long this may take as a local activity; 0 where it is none.

        A local activity runs before the workflow task that it belongs to is in history, and again if that is made
        again. So it may only read: what it were to write, or to tell people, might come to be in no log.
        """
        limits = self.state.spec.limits if self.state.spec else Limits()
        match request:
            case ThreadRequest() | EffectsRequest() | AgentRequest():
                return limits.local_seconds
            case ToolRequest(call=call, settle=False, undo=False) if call.name not in self._slow:
                return limits.local_seconds if self._effect_of(call) is Effect.READ else 0
            case _:
                return 0

    def _begin_call(self, call: Call | Sleep) -> None:
        self._calls[call.id] = call
        self._commands.append(call)

    def _give_up(self, call_id: int) -> None:
        call = self._calls.pop(call_id)
        asked = [command for command in self._commands if command is not call]
        if len(asked) == len(self._commands):
            asked.append(Stop(call_id))
        self._commands = asked  # where nobody has been asked for the call yet, there is nothing to stop

    def _next_id(self) -> int:
        self._ids += 1
        return self._ids


def _judged(state: RunState, name: str, payload: Any, *, at: datetime) -> tuple[str, str, list[AgentEvent], bool]:
    """What an update leads to: outcome, explanation, events, and whether the LLM call under way is given up for it."""
    if name == "say":
        outcome, explanation, events, _ = on_message(state, payload, door=name, at=at)
        return outcome, explanation, events, outcome == "interrupting"
    if name != "decide":
        told, explanation, events = on_mandate(state, name, payload, at=at)
        return told, explanation, events, False
    events = on_payload(state, name, payload, at=at)
    received = events[0]
    assert isinstance(received, DecisionReceived | SignalRejected)
    return received.outcome, received.explanation, events, False


def _spelt(by: str) -> str:
    """The one spelling of who gives the task; as it was given, where the run will fail for it."""
    try:
        return person_name(by)
    except ValueError:
        return by[:2_000]
