"""The state of an agent run: everything that a decision depends on, and nothing else.

1. Nothing about a run lives outside its state, and only events change a state (`holdfast.core.run.fold.evolve`). Its
   parts, in the modules beside this one, are frozen dataclasses: one concept each, with the changes that concern it
   alone.
2. A call changes its phase by the table of transitions in `holdfast.core.run.state.calls`.
3. The status is derived, never set.
4. The size of a state does not grow with its thread: continue-as-new carries it from one Temporal run to the next.
   Defaults are left out there, so a part that equals its default costs nothing.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from holdfast.core.agents.agent import AgentSpec
from holdfast.core.authority.hours import ZoneOffsets
from holdfast.core.authority.statements import Lift
from holdfast.core.base.models import Frozen
from holdfast.core.budget.account import Account
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.llm.messages import Usage
from holdfast.core.log.events import RunOutcome
from holdfast.core.nodes import TrustScope, narrowed
from holdfast.core.run.state.authority import Authority
from holdfast.core.run.state.calls import Calls, CallState
from holdfast.core.run.state.constraints import Constraints
from holdfast.core.run.state.context import Context, Inbox, TaskRefinement
from holdfast.core.run.state.dormancy import Dormancy
from holdfast.core.run.state.features import (
    DORMANCY,
    KEEPS_PROGRESS,
    LEARNS,
    TYPED_CONTEXT,
)
from holdfast.core.run.state.freshness import Freshness
from holdfast.core.run.state.origin import Fork, Import, Loss, Move, RunOrigin
from holdfast.core.run.state.pacing import Pacing
from holdfast.core.run.state.places import Places
from holdfast.core.run.state.progress import Ending, Idle, Pause, Repeats, Steps
from holdfast.core.run.state.subagents import Subagents
from holdfast.core.run.state.typed_context import TypedContext
from holdfast.core.tools.effects import PastEffect, effect_key
from holdfast.core.tools.subagents import SUBAGENT_TOOLS

Status = Literal[
    "running",
    "waiting_approval",
    "waiting_message",
    "paused",
    "dormant",
    "blocked",
    "completed",
    "failed",
    "cancelled",
    "moved",
]
"""`paused`: a person has paused the run or the loop. `dormant`: the run waits only for wake triggers that its agent has
set; or a paused loop of feature level 0."""


MOST_RUN_ID = 64
"""The most characters of a run id from a file that a run repeats; Temporal's have 36."""


class Blocked(Frozen):
    """The cause of a block."""

    cause: str
    message: str
    after: str = ""
    """The failures before, if the run gave up calling the LLM."""

    def view(self) -> dict[str, Any]:
        """Return the cause as `show` presents it."""
        return self.model_dump(exclude_defaults=True)


_IN_DOUBT = ("outcome_unknown", "awaiting_answer", "orphaned")
"""The phases of calls whose requests would be decided by another policy than the one by which they were opened."""


@dataclass(frozen=True)
class RunState:
    """Everything that a decision depends on."""

    thread: str = ""
    task: str = ""
    """The task that the thread was started with. It never changes; `refinements` change its meaning."""
    refinements: tuple[TaskRefinement, ...] = ()
    """The refinements of the task, oldest first."""
    origin: RunOrigin = field(default_factory=RunOrigin)
    spec: AgentSpec | None = None
    """The agent, as a worker loaded it; None until then."""
    spec_hash: str = ""
    next_agent: str = ""
    """The agent that is loaded at the end of the step, after a reclassification; empty for none."""
    policy_change: str = ""
    """The digest of the policy that the run adopts as soon as a worker has loaded it; empty for none."""
    lift: Lift | None = None
    """A lift that came with the start, and is judged when the agent is loaded; None for none."""
    workspace: str = ""
    notify: bool = False
    """The worker sends notices of approval requests and of the run's end."""
    unattended: bool = False
    """The run fails instead of waiting for a person."""
    zones: tuple[ZoneOffsets, ...] = ()
    """The offsets of the time zones of the policies' hours."""
    page: str = ""
    """The address of the gateway with the page, as the worker that loaded the agent gave it; empty for none."""
    features: int = 0
    """The feature level: the release whose behaviour the run has (`holdfast.core.run.state.features`)."""
    fork: Fork | None = None
    """The thread's last fork; None if it was not forked from another."""
    imported: Import | None = None
    """The thread's last import; None if it began in this cluster."""
    lost: Loss | None = None
    """The thread's last gap; None if it has all of its events."""
    moving: Move | None = None
    """The run is being moved to another cluster: nothing starts any more."""
    steps: Steps = field(default_factory=Steps)
    calls: Calls = field(default_factory=Calls)
    authority: Authority = field(default_factory=Authority)
    inbox: Inbox = field(default_factory=Inbox)
    constraints: Constraints = field(default_factory=Constraints)
    dormancy: Dormancy = field(default_factory=Dormancy)
    subagents: Subagents = field(default_factory=Subagents)
    repeats: Repeats = field(default_factory=Repeats)
    pacing: Pacing = field(default_factory=Pacing)
    """The tools that do not answer."""
    context: Context = field(default_factory=Context)
    typed_context: TypedContext = field(default_factory=TypedContext)
    """The values that a program gave with the start (`holdfast.core.tools.typed_context`)."""
    places: Places = field(default_factory=Places)
    """The nodes that may execute the run, and the one that does."""
    freshness: Freshness = field(default_factory=Freshness)
    idle: Idle = field(default_factory=Idle)
    ending: Ending = field(default_factory=Ending)
    usage: Usage = field(default_factory=Usage)
    account: Account = field(default_factory=Account)
    """The limits of the run's budget, and its use of them; without limits if it has no budget."""
    blocked: Blocked | None = None
    pause: Pause | None = None
    """The pause by a person; None if the run is not paused."""
    pauses: int = 0
    """How many pauses, and changes of a pause, there were since the LLM's last reply."""
    holds: int = 0
    """How often the thread was paused, resumed, blocked, unblocked or moved, from feature level 1 on. Signed statements
    that steer the thread are bound to this number."""
    outcome: RunOutcome | None = None
    result: str = ""
    structured: bool = False
    """The result is a value of the agent's result type, as canonical JSON."""
    failure: str = ""
    """A short name for the cause of a failed run."""
    events: int = 0
    """How many events led to this state."""
    updated_at: datetime = datetime(1970, 1, 1, tzinfo=UTC)

    @property
    def status(self) -> Status:
        """The status of the run, in one word."""
        if self.outcome:
            return self.outcome
        if self.pause:
            return "paused"
        if self.blocked:
            return "blocked"
        if self.awaits_message and not self.ends_at(self.updated_at):
            return "waiting_message"
        postponed = self.calls.postponed
        if self.running_calls or len(self.calls.allowed) > len(postponed):
            return "running"
        if self.authority.requests:
            return "waiting_approval"
        return "dormant" if self.dormancy.waits or postponed else "running"

    @property
    def running_calls(self) -> tuple[CallState, ...]:
        """The started calls of the step, without dormant ones."""
        asleep = {wait.number for wait in self.dormancy.waits}
        return tuple(call for call in self.calls.current if call.phase == "started" and call.number not in asleep)

    @property
    def adopts_policy(self) -> bool:
        """Whether another policy can take effect now: one is asked for, no tool runs, and no outcome is open."""
        if not self.policy_change or self.outcome or self.spec is None:
            return False
        running = any(call.call.name not in SUBAGENT_TOOLS for call in self.running_calls)
        return not running and all(call.phase not in _IN_DOUBT for call in self.calls.current)

    @property
    def in_tree(self) -> bool:
        """Whether the run is a sub-agent, has any, or may start some."""
        return bool(self.origin.lineage or self.subagents.children or (self.spec and self.spec.subagents))

    @property
    def awaits_subagents(self) -> bool:
        """Whether all calls under way start or await sub-agents."""
        running = self.running_calls if self.spec and self.spec.subagents else ()
        return bool(running) and all(call.call.name in SUBAGENT_TOOLS for call in running)

    def carries_out(self, number: int) -> bool:
        """Return whether the run itself, and no activity, carries out this call of the current step."""
        call = self.calls.find(number)
        return call is not None and self.carries_out_tool(call.call.name)

    def carries_out_tool(self, name: str) -> bool:
        """Return whether the run itself carries out the calls of this tool of its agent."""
        tool = self.spec.tool(name) if self.spec else None
        return tool is not None and tool.kind == "runtime" and self.features >= DORMANCY

    @property
    def resumes_import(self) -> bool:
        """Whether an imported run waits for the agent of this cluster."""
        return self.imported is not None and not self.imported.entered

    @property
    def kept_trace(self) -> str:
        """The first run id of the chain of Temporal runs whose trace a run keeps that was moved; empty for the trace of
        the chain that executes it. A file may name anything, so the id is bounded.
        """
        kept = self.imported is not None and self.imported.keeps_trace
        return (self.origin.trace_run or self.origin.first_run_id)[:MOST_RUN_ID] if kept else ""

    @property
    def awaits_message(self) -> bool:
        """Whether the LLM has answered, and no follow-up message has arrived yet."""
        return self.idle.awaiting and not self.inbox.waiting

    @property
    def has_partial_result(self) -> bool:
        """Whether the budget is used up, and `result` is the partial result that the LLM returned then."""
        return self.account.closing == "over"

    @property
    def has_closing_work(self) -> bool:
        """Whether the run has work to do between the answer and its end (`holdfast.core.run.rules.closing_work`)."""
        return self.spec is not None and bool(self.subagents.children or self.keeps_progress or self.learns)

    @property
    def keeps_progress(self) -> bool:
        """Whether the run keeps its progress in progress.txt."""
        return self.spec is not None and self.spec.memory.progress and self.features >= KEEPS_PROGRESS

    @property
    def learns(self) -> bool:
        """Whether the LLM is asked for its learnings before the run ends."""
        return self.spec is not None and self.spec.memory.learn and self.features >= LEARNS

    def ends_at(self, at: datetime) -> bool:
        """Return whether the wait for a message is over at this time: only the closing work comes before the end."""
        until = self.idle.until
        return self.awaits_message and self.has_closing_work and until is not None and until <= at

    def wake_at(self, at: datetime) -> datetime | None:
        """Return when something is due even if nothing arrives; None for never.

        The end of the wait for a message is left out once that time has come: while the end of the run waits for
        something else, its timer would fire over and over. So are polls that are already due: they are under way, or
        something holds the run.
        """
        if self.outcome:
            return None
        if self.awaits_message and not self.pause and not self.ends_at(at):
            return self._node_due(at) if self.compacts_now else self.idle.until
        due = [request.due_at for request in self.authority.requests]
        due += [self.pause.until] if self.pause else []
        due += [self.dormancy.due(after=at)] if self.dormancy.waits else []
        due += [self.ending.until]
        due += [] if self.pause else [self._node_due(at)]
        return min((time for time in due if time), default=None)

    def _node_due(self, at: datetime) -> datetime | None:
        """Return when the run offers its work to nodes again; None if it does not wait for one."""
        return self.places.until if self.places.until and self.places.waits_at(at) else None

    def next_start(self, at: datetime) -> datetime | None:
        """Return when the next call that is delayed beyond this time starts; None for never."""
        if self.outcome or self.pause:
            return None
        return min(
            (call.starts_at for call in self.calls.delayed if call.starts_at and call.starts_at > at), default=None
        )

    @property
    def compacts_now(self) -> bool:
        """Whether the context is compacted while the run waits for a message, because a person requested it."""
        held = self.pause or self.blocked or self.outcome
        return self.awaits_message and self.context.requested and not held

    def stale_for(self, at: datetime) -> int:
        """Return the seconds since the agent acted, if its `verify` tools have to run first; else 0."""
        return self.freshness.stale_for(self.spec, at) if self.spec and self.spec.verify else 0

    def effect_key(self, number: int, call: ToolCall) -> str:
        """Return the key of a call's effect, which no other run of the thread and no other call number shares.

        A call that had its effect before a reset, or in a run that was closed, keeps the key of that effect.
        """
        if past := self.past_of(number, call):
            return past.key
        first_run_id = self.origin.first_run_id
        return effect_key(thread=self.thread, first_run_id=first_run_id, number=number, call_digest=call.digest)

    def past_of(self, number: int, call: ToolCall) -> PastEffect | None:
        """Return the past effect of a call of the current step, with these arguments; None for none.

        If a person changed the arguments, it is a past effect that no other call has adopted.
        """
        own = self.calls.find(number)
        if own is None or own.call.digest == call.digest:
            return own.past if own else None  # a request that people signed keeps its key
        same = (past for past in self.calls.past if (past.tool, past.call_digest) == (call.name, call.digest))
        return next(same, None)

    def context_of(self, number: int, tool: str) -> dict[str, Any] | None:
        """Return the typed context that a call sees; None if its tool does not want it, or if the run has none.

        A call that resolves an effect of a closed run sees the context of that run.

        Args:
            number: The call's number; 0 for a call that no LLM requested.
            tool: The tool's name.
        """
        spec = self.spec.tool(tool) if self.spec else None
        if spec is None or not spec.wants_context or self.features < TYPED_CONTEXT:
            return None
        call = self.calls.find(number)
        return call.context if call and call.context is not None else self.typed_context.values

    def writes_of(self, tool: str) -> tuple[str, ...]:
        """Return the fields of the typed context that a tool may change."""
        spec = self.spec.tool(tool) if self.spec else None
        return spec.writes if spec and self.features >= TYPED_CONTEXT else ()

    @property
    def scope(self) -> TrustScope:
        """The nodes that may execute the run: a layer of its starts, of the runs above and of its agent each."""
        return narrowed(self.places.scope, self.spec.nodes) if self.spec and self.spec.nodes else self.places.scope
