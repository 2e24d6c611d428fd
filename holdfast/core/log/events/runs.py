"""Events of a run as a whole: it began, was continued, reset, blocked or paused, and ended."""

from datetime import datetime
from typing import Any, Literal

from pydantic import SerializationInfo, SerializerFunctionWrapHandler, field_serializer

from holdfast.core.agents.agent import AgentSpec, WhenBlocked
from holdfast.core.authority.hours import ZoneOffsets
from holdfast.core.authority.policy import Policy
from holdfast.core.authority.statements import Lift
from holdfast.core.budget.account import TokenPrice
from holdfast.core.budget.budget import Budget
from holdfast.core.lineage import Lineage
from holdfast.core.llm.conversation import Conversation
from holdfast.core.llm.outages import Outage
from holdfast.core.log.events.base import Event, Proven
from holdfast.core.memory.recalled import RecalledTier
from holdfast.core.nodes import TrustScope
from holdfast.core.tools.cannot import InheritedConstraint
from holdfast.core.tools.effects import PastEffect
from holdfast.core.trust import Trust

RunOutcome = Literal["completed", "failed", "cancelled", "moved"]
"""`moved`, from feature level 1 on: the run continues on the cluster that imports its file."""


class RunStarted(Event):
    """The run began, or another run continues a closed thread.

    Followed by: `user_message_received` (the task), then `agent_loaded` or `run_finished`.
    Correlate: `run_id` is Temporal's; `first_run_id` is part of the `key` of every `tool_call_started` of this run.
    """

    type: Literal["run_started"] = "run_started"
    thread: str
    run_id: str
    """Temporal's run id; a reset run keeps the id that it began with."""
    first_run_id: str
    """The first run id of the chain of Temporal runs: it is part of the effect keys of all runs of that chain."""
    sealed: bool = True
    """Whether one of Holdfast's own processes started the run and attests who gave the task; if not, all fields are
    unauthenticated."""
    start: str = ""
    """The id of the sealed start, for deduplication."""
    user_proven: bool = True
    """Whether it is proven that the task's user started the run; only then is their memory accessible."""
    agent: str | None
    """The requested agent; None for the catalog's first."""
    idle_limit: float | None = None
    """Seconds that the run stays open for follow-up messages; None for the agent's own limit."""
    depth: int = 0
    """Number of agents between the run and a person."""
    trust: Trust = "person"
    """How far the task can be trusted."""
    schedule: str = ""
    """The name of the schedule that started the run; empty for none."""
    caller: str = ""
    """The id of the program's workflow that started it; empty for none. Recorded from feature level 2 on."""
    lineage: Lineage | None = None
    """The run that started it as a sub-agent; None if it is not one. Recorded from feature level 1 on."""
    policies: tuple[Policy, ...] = ()
    """With a lineage: the policies of the runs above it, which judge its calls in addition to its own."""
    constraints: tuple[InheritedConstraint, ...] = ()
    """With a lineage: the constraints that the parent's tools reported."""
    context: dict[str, Any] | None = None
    """The typed context that the start gives; None for that of the thread. Recorded from feature level 2 on."""
    allowance: Budget | None = None
    """The budget that a loop gives to this iteration. When it is spent, the run returns a partial result and ends. None
    for no budget. Recorded from feature level 1 on."""
    when_blocked: WhenBlocked | None = None
    """Whether the start lets the run wait for a person or makes it fail; None if it says nothing. Recorded from feature
    level 2 on."""
    scope: TrustScope = ()
    """The nodes that may execute the run: layers within the thread's scope so far. Recorded from feature level 2 on."""
    lift: Lift | None = None
    """A person's lift of a constraint of the thread, which the policy judges right after `agent_loaded`:
    `constraint_lifted` or `signal_rejected` follows. Recorded from feature level 2 on."""
    conversation: Conversation = ()
    """A conversation from elsewhere that the start brings along: a claim, of which nothing happened here. Recorded from
    feature level 2 on."""
    traceparent: str = ""
    """The span that caused the start, as a W3C `traceparent`; of a sub-agent, the span that sums up its parent's run. A
    claim, to which traces link; empty for none. Recorded from feature level 2 on."""


class RunContinued(Event):
    """The run continues in a new Temporal run, from a snapshot, because the previous one's history was long enough.

    Followed by: `run_reset` if the ledger has effects that the log lacks; otherwise the event that would have followed
    without continue-as-new.
    Correlate: `run_id` is that of the new Temporal run.
    """

    type: Literal["run_continued"] = "run_continued"
    run_id: str
    """Temporal's id of the new run."""
    features: int = 0
    """The feature level (`holdfast.core.run.state.features`) from here on."""


class RunReset(Event):
    """Temporal reset the run to an earlier event (`temporal workflow reset`). Effects after that event are in the
    ledger but not in this branch of the log; they were not undone.

    Followed by: `approval_requested` for each call that requires approval again.
    Correlate: the `key` of each of `effects` is that of the `tool_call_started` in the abandoned branch; a later
    `tool_call_requested` that adopts the effect has it in `past`.
    """

    type: Literal["run_reset"] = "run_reset"
    effects: tuple[PastEffect, ...] = ()
    """Effects that happened, or may have happened, in the abandoned branch; oldest first."""
    left_out: int = 0
    """Number of older effects that are not listed."""
    asking: bool = False
    """Whether an LLM call was in progress; if so, the LLM reads about the reset after its reply."""


class AgentLoaded(Event):
    """A worker loaded the agent: its specification and policy apply from here on.

    Followed by: `memory_recalled` if the agent has memory, then `llm_replied`.
    Correlate: `spec_hash` is part of the digest of every later `approval_requested`.
    """

    type: Literal["agent_loaded"] = "agent_loaded"
    spec: AgentSpec
    spec_hash: str
    workspace: str
    """The run's folder on the worker."""
    policy_hash: str = ""
    notify: bool = False
    """Whether the worker sends notifications of requests and endings (`notify`)."""
    features: int = 0
    """The feature level (`holdfast.core.run.state.features`) from here on, if the thread has no higher one."""
    budget: Budget | None = None
    """The run's limits: at most those of its start and of its agent; None for no limit. Recorded from feature level 1
    on."""
    price: TokenPrice | None = None
    """With a cost budget: the list price of the agent's LLM; None if it is unknown."""
    context: dict[str, Any] | None = None
    """The context as the model of the agent completes it, with its default values; None if it adds none. Recorded from
    feature level 2 on."""
    unattended: bool = False
    """Whether the run fails instead of waiting for a person: its start, its agent or the run above says so. Recorded
    from feature level 2 on."""

    zones: tuple[ZoneOffsets, ...] = ()
    """The offsets of the time zones in the hours of the policies, from the worker's time zone data. Recorded from
    feature level 2 on."""

    page: str = ""
    """The address of the gateway with the page, for the links in Temporal's Web UI; empty for none. Recorded from
    feature level 2 on."""

    @field_serializer("spec", mode="wrap", when_used="json")
    def _recorded(self, spec: AgentSpec, encode: SerializerFunctionWrapHandler, info: SerializationInfo) -> Any:
        """Encode the spec once for all runs that share it."""
        return spec.recorded if info.exclude_defaults else encode(spec)


class MemoryRecalled(Event):
    """The agent's memory as of the beginning of the run was recalled, for the LLM to read.

    Followed by: `llm_replied`.
    Correlate: it comes after the `agent_loaded` of the same agent, or after a `run_reset` in between.
    """

    type: Literal["memory_recalled"] = "memory_recalled"
    tiers: tuple[RecalledTier, ...]


class RunBlocked(Event):
    """The run is blocked until a person fixes the cause and sends `retry`; if it is unattended, it fails.

    Followed by: `run_unblocked`, or `run_finished` if the run is cancelled or unattended.
    Correlate: the next `run_unblocked` belongs to it.
    """

    type: Literal["run_blocked"] = "run_blocked"
    cause: str
    """A short name of the cause: `LLMRejected`, `StepLimit`, …"""
    message: str
    outage: Outage | None = None
    """The failed attempts before the run was blocked, as reported by the process that failed the call."""


class RunUnblocked(Event, Proven):
    """A person sent `retry`, and the run resumes.

    Followed by: the event that the block delayed. Correlate: it belongs to the last `run_blocked`.
    """

    type: Literal["run_unblocked"] = "run_unblocked"
    by: str
    reason: str = ""


class RunPaused(Event, Proven):
    """A person paused the run, or changed the reason or the end of its pause. Recorded from feature level 1 on.

    Work in progress ends and is recorded; nothing new starts before the run resumes.
    Followed by: the events that end work in progress; then `run_resumed`, or `run_finished` if the run is cancelled.
    Correlate: the next `run_resumed` ends the pause.
    """

    type: Literal["run_paused"] = "run_paused"
    by: str
    reason: str = ""
    until: datetime | None = None
    """When the pause ends automatically; None for never."""


class RunResumed(Event, Proven):
    """The pause is over: a person resumed the run, or the `until` of the pause has passed. Recorded from feature level
    1 on.

    Followed by: the event that the pause delayed; a wait for a message starts over. Correlate: it belongs to the last
    `run_paused`.
    """

    type: Literal["run_resumed"] = "run_resumed"
    by: str = ""
    """The person who resumed it; empty if its `until` has passed."""
    reason: str = ""


class RunFinished(Event):
    """The run ended.

    Followed by: only rejections of late signals; or `run_started`, when another run continues the thread.
    Correlate: it ends the run of the last `run_started`.
    """

    type: Literal["run_finished"] = "run_finished"
    outcome: RunOutcome
    result: str = ""
    """The LLM's last reply, or why the run failed."""
    structured: bool = False
    """The result is a value of the agent's result type, as canonical JSON. Recorded from feature level 1 on."""
    cause: str = ""
    """A short name of the cause of failure: `AgentNotFound`, …"""
