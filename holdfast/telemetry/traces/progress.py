"""Where a run is, as far as its traces need it: a small fold over the events that survives in a row of the database.

An *activation* is what a run does between two waits. A run waits if nothing is in progress: every unfinished call of
the step is held (by an approval request, a sleep, a sub-agent, a policy's hours, a missing node), or the run is
blocked, paused or answered.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from holdfast.core.agents.agent import llms_of
from holdfast.core.base.trace_context import SpanContext, read_traceparent
from holdfast.core.log import events as ev
from holdfast.core.run.state.features import KEEPS_TRACE
from holdfast.telemetry.traces.spans import run_context

WaitKind = Literal["", "approval", "wake", "subagent", "hours", "node", "message", "blocked", "paused"]
"""What a run or a call waits for; empty for nothing."""

WORK = frozenset(
    {
        *("agent_loaded", "memory_recalled", "llm_replied", "llm_call_lost", "context_exceeded", "context_compacted"),
        *("reply_rejected", "learning_requested", "learning_skipped", "tool_call_started", "tool_call_finished"),
        *("tool_call_rerouted", "subagent_started", "subagent_ended", "run_blocked", "run_finished"),
    }
)
"""The events that show that a run did something. Others arrive while it waits, and do not end the wait alone."""


@dataclass
class OpenCall:
    """A tool call without a result."""

    id: str
    tool: str
    """The name, if the agent has such a tool: an LLM can write any text in its place."""
    requested: datetime
    started: datetime | None = None
    held: WaitKind = ""
    verdict: str = ""
    rule: str = ""
    asked: datetime | None = None
    """When people were first asked about it."""
    request: str = ""
    kind: str = ""
    """Of the request: `approval` or `reconcile`."""
    decision: str = ""
    decided: datetime | None = None
    proof: str = ""
    edited: bool = False
    reminders: int = 0
    escalations: int = 0
    subagent: str = ""
    """The thread of the sub-agent that it started."""
    subagent_run: str = ""


@dataclass
class Totals:
    """What was used, by an activation or by a run."""

    steps: int = 0
    tool_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read: int = 0
    cache_write: int = 0
    nano_usd: int = 0
    priced: bool = False
    """Whether some cost is known: runs that began before feature level 2 record none without a budget of money."""


@dataclass
class Progress:
    """The state between two events of a thread."""

    thread: str = ""
    run: str = ""
    summary: SpanContext | None = None
    """The span that sums up the run."""
    began: datetime | None = None
    agent: str = ""
    llm: str = ""
    tools: tuple[str, ...] = ()
    depth: int = 0
    schedule: str = ""
    parent: str = ""
    parent_call: int = 0
    caller: SpanContext | None = None
    """The span that caused the start: the caller's, or that of the parent's run."""
    calls: dict[int, OpenCall] = field(default_factory=dict)
    expected: int = 0
    """How many calls of the last reply have not been requested yet."""
    loaded: bool = False
    answered: bool = False
    blocked: bool = False
    paused: bool = False
    no_node: bool = False
    calling: bool = False
    """An LLM call was in progress when the run was paused."""
    outcome: str = ""
    """How the run ended; empty while it has not."""
    cause: str = ""
    last_at: datetime | None = None
    first: int = 0
    """The position of the first event of the activation."""
    activations: int = 0
    previous: SpanContext | None = None
    """The root of the activation before."""
    waited_for: WaitKind = ""
    """What the run waited for before the activation; empty for nothing."""
    waiting_since: datetime | None = None
    waits: int = 0
    waited: float = 0
    totals: Totals = field(default_factory=Totals)

    def waits_for(self) -> WaitKind:
        """Return what the run waits for; empty if something is in progress or it has ended."""
        if self.outcome or self.expected or any(each.started and not each.held for each in self.calls.values()):
            return ""
        if self.paused or self.blocked:
            return "" if self.calling else "paused" if self.paused else "blocked"
        if self.no_node:
            return "node"
        if self.answered:
            return "message"
        held = [each.held for each in self.calls.values()]
        return held[0] if held and all(held) else ""

    def fold(self, event: ev.AgentEvent) -> None:
        """Take an event into account. A finished call is the caller's to remove, which needs it for its span."""
        match event:
            case ev.ToolCallRequested() | ev.VerdictGiven() | ev.ToolCallStarted():
                self._fold_call(event)  # most events of a log, so they come first
            case ev.ToolCallFinished():
                pass
            case ev.RunStarted():
                self._begin(event)
            case ev.RunForked():
                self.thread, self.run, self.summary = event.thread, event.first_run_id, run_context(event.first_run_id)
                self.began = event.at
            case ev.RunImported():
                if event.features < KEEPS_TRACE or self.summary is None:
                    self.summary = run_context(event.first_run_id)
                self.run, self.outcome = event.first_run_id, "" if self.outcome == "moved" else self.outcome
            case ev.AgentLoaded():
                spec = event.spec
                self.agent, self.loaded = spec.name, True
                self.llm = llms_of(spec)[0]
                self.tools = tuple(tool.name for tool in spec.tools)
                self.no_node = False
            case ev.LLMReplied():
                self.calling = self.answered = self.no_node = False
                self.expected = len(event.message.tool_calls) if event.message else 0
            case ev.ReplyRejected() | ev.RunReset() | ev.EventsLost():
                self.expected = 0
            case ev.MessageAwaited():
                self.answered = True
            case ev.MessageTaken() | ev.LearningRequested():
                self.answered = False
            case ev.RunBlocked():
                self.blocked = True
            case ev.RunUnblocked():
                self.blocked = False
            case ev.BudgetExtended() if event.resumes:
                self.blocked = False
            case ev.RunPaused():
                self.calling = not self.paused and self._is_calling()
                self.paused = True
            case ev.RunResumed():
                self.paused = self.calling = False
            case ev.NodeAwaited():
                self._hold_for_node(event.number)
            case ev.NodeAccepted():
                self.no_node = False
            case ev.RunFinished():
                self.outcome, self.cause = event.outcome, event.cause
            case _:
                self._fold_call(event)
        self.last_at = event.at

    def _begin(self, event: ev.RunStarted) -> None:
        self.thread, self.run, self.summary = event.thread, event.first_run_id, run_context(event.first_run_id)
        self.began, self.depth, self.schedule = event.at, event.depth, event.schedule
        self.parent = event.lineage.parent if event.lineage else ""
        self.parent_call = event.lineage.number if event.lineage else 0
        self.caller = read_traceparent(event.traceparent)
        self.outcome = self.cause = ""
        self.answered = self.blocked = self.paused = self.calling = self.no_node = False
        self.expected = self.activations = self.waits = 0
        self.waited, self.totals = 0, Totals()

    def _is_calling(self) -> bool:
        """Whether an LLM call is in progress, which the log shows only by its reply."""
        return self.loaded and not (self.calls or self.answered or self.blocked or self.outcome)

    def _hold_for_node(self, number: int) -> None:
        if number in self.calls:
            self.calls[number].held, self.calls[number].started = "node", None
        elif not number:
            self.no_node = True

    def _fold_call(self, event: ev.AgentEvent) -> None:
        """Take an event about a call into account."""
        match event:
            case ev.ToolCallRequested():
                self.expected = max(0, self.expected - (not event.own))
                tool = event.call.name if event.call.name in self.tools else ""
                self.calls[event.number] = OpenCall(event.call.id, tool, event.at)
            case ev.VerdictGiven() if call := self.calls.get(event.number):
                call.verdict, call.rule = event.verdict, event.rule
            case ev.ApprovalRequested() | ev.ReconcileRequested() if call := self.calls.get(event.request.number):
                request = event.request
                call.held, call.request, call.kind, call.asked = "approval", request.id, request.kind, event.at
                call.decision, call.rule = "", request.rule or call.rule
            case ev.ApprovalReminded() if call := self._asked(event.request):
                call.reminders += 1
            case ev.ApprovalEscalated() if call := self._asked(event.request):
                call.escalations += 1
            case ev.ApprovalExpired() if call := self._asked(event.request):
                call.held, call.decision, call.decided, call.proof = "", f"expired_{event.decision}", event.at, ""
            case ev.DecisionReceived() if call := self._asked(event.request):
                if event.outcome in ("accepted", "judged_anew"):
                    call.held, call.decision, call.decided, call.proof = "", event.decision, event.at, event.proof
                    call.edited = call.edited or event.arguments is not None
            case ev.ToolCallPostponed() if call := self.calls.get(event.number):
                call.held = "hours"
            case ev.ToolCallStarted() if call := self.calls.get(event.number):
                call.held, call.started = "", event.at
            case ev.DormancyBegan() if call := self.calls.get(event.number):
                call.held = "" if event.wake else "wake"
            case ev.SubagentStarted() if call := self.calls.get(event.number):
                call.held = "" if event.background else "subagent"
                call.subagent, call.subagent_run = event.thread, event.run_id
            case ev.SubagentEnded() if call := self.calls.get(event.number):
                call.held = ""
            case _:
                pass

    def _asked(self, request: str) -> OpenCall | None:
        return next((each for each in self.calls.values() if each.request == request and each.held == "approval"), None)
