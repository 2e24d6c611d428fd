"""An agent run without I/O: what reaches it goes in, commands come out.

Signals, updates, the ends of calls and the request to cancel go in, in the order in which they reach the run; calls
to make and to stop come out, and at last how it ends. `workflows/agent_run.py` carries the commands out through
Temporal; `holdfast.history` finds them again in a recorded history. So both record the very same events.

1. The run asks the agent, the LLM and the thread's past one at a time; tool calls run side by side.
2. When Temporal's history has grown enough, the run starts nothing more, waits for what is under way, writes its
   events into the permanent record, and goes on in a new Temporal run from a snapshot: at any boundary between calls.
   What arrives meanwhile travels in the snapshot.
3. Events are written into the permanent record when the run pauses, before it goes on elsewhere, and before it ends.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, cast

from holdfast.agent import shared
from holdfast.authority import on_due
from holdfast.baseline import on_findings
from holdfast.commands import Call, Command, End, Failure, Request, Result, Sleep, Stop
from holdfast.contracts import (
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
from holdfast.decide import (
    CLOSED_EARLY,
    IN_DOUBT,
    CallLLM,
    Finish,
    Fold,
    LoadAgent,
    Park,
    Settle,
    StartCalls,
    TakeMessages,
    Verify,
    Wait,
    next_action,
    on_cancel,
    on_fold,
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
from holdfast.events import (
    AgentEvent,
    AgentLoaded,
    DecisionReceived,
    Finding,
    MemoryRecalled,
    MessageTaken,
    RunContinued,
    RunParked,
    RunReset,
    RunStarted,
    SignalRejected,
    UserMessageReceived,
)
from holdfast.evolve import evolve
from holdfast.log import EventLog
from holdfast.messages import ToolCall
from holdfast.model import canonical
from holdfast.names import person_name
from holdfast.notices import notice_of
from holdfast.orders import Answer, order_name
from holdfast.outages import Outage
from holdfast.seals import Unsealed, is_unsealed
from holdfast.signals import on_mandate, on_message, on_payload, on_signal
from holdfast.snapshot import MAX_BYTES, TAIL_BYTES, RunSnapshot
from holdfast.starts import refusal
from holdfast.state import RunState
from holdfast.transcript import Transcript
from holdfast.trust import Origin


class AgentRun:
    """One Temporal run of a thread. The driver sets `at`, `history_length` and `crowded` before each input.

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
        self.crowded = False
        """Whether Temporal suggests a new run."""
        self.end: End | None = None
        self._begin = begin
        self._thread, self._run_id, self._first_run_id = thread, run_id, first_run_id
        self._ids = begin.orders
        self._commands: list[Command] = []
        self._calls: dict[int, Call | Sleep] = {}
        self._held: list[Callable[[], None]] = []
        """What came before the run's past was loaded: it is taken in afterwards, in its order."""
        self._loaded = True
        """Whether the run's past is here: that of the thread, and what happened before a reset."""
        self._reset = False
        """Whether it was reset while its thread's past was being loaded."""
        self._agent: str | None = None
        self._stopping = False
        self._moving = False
        """Whether the events have been written down in order to go on in a new Temporal run."""
        self._stay_until = 0
        """The step until which this run stays where it is, for its snapshot was too large."""
        self._paused_at = -1
        """The step at whose pause the events were last written down."""
        self._unrecorded = False
        """Whether the permanent record refuses this run's events for good."""
        self._baseline = False
        """Whether `verify` tools are under way for requests that have opened."""
        self._findings: list[Finding] = []
        """What `verify` tools have found so far."""
        self.log, self.state, self.transcript = EventLog(), RunState(), Transcript()
        self._base = self._archiving = RunSnapshot()
        """Where the permanent record stands, and where it will when it has been written to."""
        if refused := refusal(begin, first_run_id=first_run_id, started_at=started_at):
            self.end = End(failure=Failure(START_REFUSED, refused))
            return
        self._open(begin.snapshot or RunSnapshot(state=RunState(thread=thread)))
        if begin.snapshot:
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
        if not self._loaded:
            self._held.append(partial(self.signal, name, payload))
            return
        self.record(*on_due(self.state, at=self.at))
        if name == "say":
            self._say(payload, door=name)
        else:
            self.record(*on_signal(self.state, name, payload, at=self.at))
        self._go_on()

    def update(self, name: str, payload: Any) -> dict[str, str]:
        """An update arrived; returns its outcome and an explanation."""
        if not self._loaded:
            if name == "say":
                self._held.append(partial(self.signal, name, payload))
                expected, why, _, _ = on_message(self.state, payload, door=name, at=self.at)
                return {"outcome": expected, "explanation": why}
            why = "the run's past is being loaded; try again in a moment"
            return {"outcome": "unknown_request", "explanation": why}
        self.record(*on_due(self.state, at=self.at))
        outcome, explanation = self._answer(name, payload)
        self._go_on()
        return {"outcome": outcome, "explanation": explanation}

    def ended(self, call_id: int, result: Result | Unsealed | None = None) -> None:
        """A call returned, or a sleep is over."""
        if not self._loaded and not self._loads(call_id):
            self._held.append(partial(self.ended, call_id, result))
            return
        if refused := self._no_answer(call_id, result):
            self.failed(call_id, refused)
            return
        if (call := self._calls.pop(call_id, None)) is None or self.end:
            return  # given up meanwhile, or what was to follow is the next Temporal run's business
        if isinstance(call, Sleep):
            self.record(*on_time(self.state, at=self.at))
        else:
            self._take(call, cast(Result | None, result))
        self._go_on()

    def failed(self, call_id: int, failure: Failure) -> None:
        """A call came to nothing."""
        if not self._loaded and not self._loads(call_id):
            self._held.append(partial(self.failed, call_id, failure))
            return
        if (call := self._calls.pop(call_id, None)) is None or self.end:
            return
        assert isinstance(call, Call)
        cause, message = failure.cause, failure.message
        match call.request:
            case EffectsRequest() if cause == NOT_SEALED:
                self._call(call.request)
            case ThreadRequest() | EffectsRequest():
                self.end = End(failure=failure)
            case AgentRequest():
                self.record(*on_lost_agent(cause, message))
            case LLMRequest():
                self.record(*on_lost_llm(cause, message, Outage.told(failure.details)))
            case ToolRequest(call=verifying) if not call.number:
                self._found(verifying.name, ToolOutcome(status="failed", content=f"{cause}: {message}"))
            case Notice():
                pass  # those who were to be told could not be; the log has it
            case ToolRequest():
                outcome = on_lost_call(self._effect(call.number), cause, message, cancelled=failure.cancelled)
                self.record(*on_outcome(self.state, call.number, outcome, at=self.at))
            case ArchiveRequest() if cause in (NOT_SETTLED, NOT_SEALED):
                self._paused_at = -1
            case ArchiveRequest():
                self._unrecorded = True
                if not self.state.outcome:
                    self.record(RunParked(cause=cause, message=message))
        self._go_on()

    def cancel(self) -> None:
        """The run is to stop: tools under way are stopped and waited for, everything else is given up."""
        if not self._loaded and self._under_way(EffectsRequest):
            self._held.append(self.cancel)
            return
        if not self._loaded:
            self.end = End(failure=Failure("CancelledError", "cancelled before the thread was loaded", cancelled=True))
            return
        if self.end and self.end.next:
            self.end = None  # nobody would tell the next Temporal run
        self._stopping = True
        for call in list(self._calls.values()):
            if isinstance(call, Sleep) or not isinstance(call.request, ToolRequest | Notice | ArchiveRequest):
                self._give_up(call.id)
            elif isinstance(call.request, ToolRequest):
                self._commands.append(Stop(call.id))
        self._go_on()

    def was_reset(self) -> None:
        """Temporal has taken the run back to an earlier event, and it goes on from here.

        What it did after that event is in the ledger alone, so nothing more happens before that was looked up.
        """
        if self._loaded and not self.end and not self.state.outcome:
            self._reset = True
            self._look_back()

    def record(self, *events: AgentEvent) -> None:
        """Append events to the log and fold them. Nothing else changes what the run knows."""
        for event in events:
            stamped = self.log.append(event, at=self.at)
            notice = notice_of(self.state, stamped) if self.state.notify else None
            self._fold_in(stamped)
            if notice:
                self._call(notice)

    def _fold_in(self, event: AgentEvent) -> None:
        self.state = evolve(self.state, event)
        self.transcript.add(event)

    def _open(self, snapshot: RunSnapshot) -> None:
        """Stand where a snapshot does."""
        self._base, self._opened = snapshot.model_copy(update={"tail": ()}), snapshot.head
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
        if result is None or is_unsealed(result):
            return Failure(NOT_SEALED, str(result or "the answer is empty"))
        if isinstance(result, Answer) and result.answers != call.request.order:
            why = f"the answer belongs to call {result.answers!r}, and not to {call.request.order!r}"
            return Failure(NOT_SEALED, why)
        return None

    def _take(self, call: Call, result: Result | None) -> None:
        match call.request, result:
            case ThreadRequest(), LoadedThread():
                self._open(result.snapshot)
                self._start()
                self._release()
            case EffectsRequest(), PastEffects():
                self._looked_back(result)
                self._release()
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
            case LLMRequest(folding=True), LLMReply():
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

    def _loads(self, call_id: int) -> bool:
        """Whether a call brings the run's past."""
        call = self._calls.get(call_id)
        return isinstance(call, Call) and isinstance(call.request, ThreadRequest | EffectsRequest)

    def _look_back(self) -> None:
        """Find out what the run has done already, before anything else."""
        self._loaded = False
        first = min((call.number for call in self.state.calls), default=self.state.call_count + 1)
        self._call(EffectsRequest(after=first - 1, position=self.log.first, head=self._opened))

    def _looked_back(self, past: PastEffects) -> None:
        asking = bool(self._under_way(LLMRequest))
        begun = {self.state.effect_key(call.number, call.call) for call in self.state.calls if call.begun}
        effects = tuple(effect for effect in past.effects if effect.key not in begun)
        if effects or self._reset:
            self.record(RunReset(effects=effects, left_out=past.left_out, asking=asking))
        self._reset = False

    def _release(self) -> None:
        """Take in what came while the past was loaded."""
        self._loaded = True
        held, self._held = self._held, []
        for take_in in held:
            take_in()

    def _found(self, tool: str, outcome: ToolOutcome) -> None:
        """A `verify` tool has looked; when all have, that is recorded, with what follows from it."""
        self._findings.append(Finding(tool=tool, status=outcome.status, content=outcome.content, trust=outcome.trust))
        if not self._verifying():
            self._findings, findings = [], sorted(self._findings, key=lambda finding: finding.tool)
            self.record(*on_findings(self.state, tuple(findings), baseline=self._baseline, at=self.at))

    def _answer(self, update: str, payload: Any) -> tuple[str, str]:
        """The outcome of an update, and an explanation."""
        if update == "say":
            return self._say(payload, door=update)
        if update != "decide":
            outcome, explanation, events = on_mandate(self.state, update, payload, at=self.at)
            self.record(*events)
            return outcome, explanation
        events = on_payload(self.state, update, payload, at=self.at)
        self.record(*events)
        received = events[0]
        if isinstance(received, DecisionReceived):
            return received.outcome, received.explanation
        assert isinstance(received, SignalRejected)
        return "malformed", received.explanation

    def _say(self, payload: Any, *, door: str) -> tuple[str, str]:
        outcome, explanation, events, when_busy = on_message(self.state, payload, door=door, at=self.at)
        self.record(*events)
        if when_busy == "interrupt" and outcome == "interrupting":
            for call in self._under_way(LLMRequest):
                if isinstance(call.request, LLMRequest) and not call.request.folding:
                    self._give_up(call.id)
        return outcome, explanation

    # What follows.

    def _go_on(self) -> None:
        """Do what follows, until there is something to wait for."""
        while not self.end and self._loaded and self._advance():
            pass
        if not self.end and self._loaded:
            self._keep_record()
            self._keep_time()

    def _advance(self) -> bool:
        """Take one action; False where nothing follows until something arrives."""
        if self._stopping and not self.state.outcome:
            if self._under_way(ToolRequest):
                return False
            self.record(*on_cancel(self.state))
        if self._under_way(AgentRequest, LLMRequest) or self._verifying():
            return False
        if self.state.outcome:
            return self._close()
        if self._full() and not self._under_way(ToolRequest):
            return self._move()
        return self._carry_out(next_action(self.state, at=self.at))

    def _carry_out(self, action: Any) -> bool:
        match action:
            case Verify() | Settle() | StartCalls() | LoadAgent() | CallLLM() | Fold() if self._full():
                return False  # what is under way ends first, and the next Temporal run goes on
            case LoadAgent():
                if refused := on_task(self._begin.task, by=self._begin.by):
                    self.record(*refused)
                else:
                    self._load_agent()
            case CallLLM():
                self._call(LLMRequest(transcript=self.transcript.ref(self.state.spec_hash)))
            case Fold():
                self._fold(action)
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
            case Park(cause=cause, message=message):
                self.record(RunParked(cause=cause, message=message))
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
                fresh=not begin.resume,
                plain=not begin.proven,
                after=self.state.call_count,
            )
        )

    def _fold(self, action: Fold) -> None:
        if action.asking:
            ref = self.transcript.ref(self.state.spec_hash, shown=action.answered_only)
            self._call(LLMRequest(transcript=ref, folding=True))
        else:
            length, originals = self.transcript.length, self.transcript.originals
            self.record(on_fold(self.state, self.state.summary, folded=length, kept=0, originals=originals))

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

    def _effect(self, number: int) -> Any:
        assert self.state.spec is not None
        tool = self.state.spec.tool(self.state.call(number).call.name)
        assert tool is not None, "a call of an unknown tool never gets a verdict"
        return tool.effect

    # The permanent record, and the next Temporal run.

    def _full(self) -> bool:
        """Whether the run is to go on in a new Temporal run."""
        spec = self.state.spec
        if spec is None or self.state.step < self._stay_until or self._unrecorded:
            return False
        return self.crowded or self.history_length >= spec.limits.history_events

    def _move(self) -> bool:
        if self._under_way(ArchiveRequest, Notice):
            return False
        unwritten = self.log.size_since(self._base.position)
        if unwritten and not (self._moving and unwritten <= TAIL_BYTES):
            self._moving = True
            self._archive()
            return False
        snapshot = self._base.model_copy(update={"tail": tuple(self.log.since(self._base.position))})
        if len(snapshot.model_dump_json(exclude_defaults=True)) > MAX_BYTES:
            self._stay_until, self._moving = self.state.step + 1, False
            return True
        begin = RunInput(
            sealed=True,
            first_run_id=self._first_run_id,
            orders=self._ids,
            idle_limit=self._begin.idle_limit,
            snapshot=snapshot,
        )
        self.end = End(next=begin)
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
        call_id = self._next_id()
        name = order_name(workflow_id=self._thread, first_run_id=self._first_run_id, number=call_id)
        self._begin_call(Call(call_id, request.model_copy(update={"order": name}), number))

    def _begin_call(self, call: Call | Sleep) -> None:
        self._calls[call.id] = call
        self._commands.append(call)

    def _give_up(self, call_id: int) -> None:
        del self._calls[call_id]
        self._commands.append(Stop(call_id))

    def _next_id(self) -> int:
        self._ids += 1
        return self._ids


def _spelt(by: str) -> str:
    """The one spelling of who gives the task; as it was given, where the run will fail for it."""
    try:
        return person_name(by)
    except ValueError:
        return by[:2_000]
