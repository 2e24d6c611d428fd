"""The events of a run as a whole: it began, was continued, reset, blocked or paused, and ended."""

from datetime import datetime
from typing import Any, Literal

from pydantic import SerializationInfo, SerializerFunctionWrapHandler, field_serializer

from holdfast.core.agents.agent import AgentSpec
from holdfast.core.authority.policy import Policy
from holdfast.core.budget.account import TokenPrice
from holdfast.core.budget.budget import Budget
from holdfast.core.lineage import Lineage
from holdfast.core.llm.outages import Outage
from holdfast.core.log.events.base import Event, Proven
from holdfast.core.memory.recalled import RecalledTier
from holdfast.core.tools.cannot import HandedConstraint
from holdfast.core.tools.effects import PastEffect
from holdfast.core.trust import Trust

RunOutcome = Literal["completed", "failed", "cancelled", "moved"]
"""`moved`, from feature level 1 on: the run continues in another place, where its file is imported."""


class RunStarted(Event):
    """The run began, or another run continues a closed thread.

    Followed by: `user_message_received` (the task), then `agent_loaded` or `run_finished`.
    Correlate: `run_id` is Temporal's; `first_run_id` is part of the `key` of every `tool_call_started` of this run.
    """

    type: Literal["run_started"] = "run_started"
    thread: str
    run_id: str
    """Temporal's run id; a run that is reset keeps the id that it began with."""
    first_run_id: str
    """The first run id of the chain of Temporal runs: it names the effects of all runs of that chain."""
    sealed: bool = True
    """One of our own processes started the run, and vouches for who gave the task; else all of this is a claim."""
    start: str = ""
    """The id of the sealed start, which counts once."""
    user_proven: bool = True
    """Whether it is proven that the person whose task it is started the run; only then is their memory in reach."""
    agent: str | None
    """The requested agent; None for the catalog's first."""
    idle_limit: float | None = None
    """Seconds that the run stays open for follow-up messages; None for the agent's own limit."""
    depth: int = 0
    """How many agents stand between the run and a person."""
    trust: Trust = "person"
    """How far the task can be trusted."""
    schedule: str = ""
    """The name of the schedule that started the run; empty for none."""
    lineage: Lineage | None = None
    """Which run started it as a sub-agent; None for none. Recorded from feature level 1 on."""
    policies: tuple[Policy, ...] = ()
    """With a lineage: the policies of the runs above, which judge its calls beside its own."""
    constraints: tuple[HandedConstraint, ...] = ()
    """With a lineage: what the parent's tools said cannot be done."""
    allowance: Budget | None = None
    """The budget that a loop gives to this iteration: where it ends, the run hands in what it has, and ends. None for
    none. Recorded from feature level 1 on."""


class RunContinued(Event):
    """The run continues in a new Temporal run, from a snapshot, because the history of the one before was long enough.

    Followed by: `run_reset` if the ledger has effects that the log lacks; else the event that would have followed
    without the move.
    Correlate: `run_id` is that of the new Temporal run.
    """

    type: Literal["run_continued"] = "run_continued"
    run_id: str
    """Temporal's id of the new run."""
    features: int = 0
    """The feature level (`holdfast.core.run.state.features`) from here on."""


class RunReset(Event):
    """Temporal reset the run to an earlier event (`temporal workflow reset`). What happened after that event is in the
    ledger, but not in this branch of the log; it was not undone.

    Followed by: `approval_requested` for each call that has to be asked about again.
    Correlate: the `key` of each of `effects` is that of the `tool_call_started` in the abandoned branch; a later
    `tool_call_requested` that adopts the effect has it in `past`.
    """

    type: Literal["run_reset"] = "run_reset"
    effects: tuple[PastEffect, ...] = ()
    """What happened, or may have happened, in the abandoned branch; the oldest first."""
    left_out: int = 0
    """How many older effects there are besides."""
    asking: bool = False
    """An LLM call was under way: the LLM reads about the reset after its answer."""


class AgentLoaded(Event):
    """A worker loaded the agent: from here on, this is what the LLM is shown and what the policy is.

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
    """The worker sends notices of requests and endings (`notify`)."""
    features: int = 0
    """The feature level (`holdfast.core.run.state.features`) from here on, if the thread has no higher one."""
    budget: Budget | None = None
    """What the run may use: no more than its start and its agent allow; None for no limit. Recorded from feature level
    1 on."""
    price: TokenPrice | None = None
    """With a budget of money: the list price of the agent's LLM; None where it is unknown."""

    @field_serializer("spec", mode="wrap", when_used="json")
    def _recorded(self, spec: AgentSpec, encode: SerializerFunctionWrapHandler, info: SerializationInfo) -> Any:
        """Encode what a thousand runs share once."""
        return spec.recorded if info.exclude_defaults else encode(spec)


class MemoryRecalled(Event):
    """The agent's memory, as it was when the run began: the LLM is shown it.

    Followed by: `llm_replied`.
    Correlate: it comes after the `agent_loaded` whose memory it is, or after the `run_reset` in between.
    """

    type: Literal["memory_recalled"] = "memory_recalled"
    tiers: tuple[RecalledTier, ...]


class RunBlocked(Event):
    """The run is blocked until a person fixes the cause and sends `retry`.

    Followed by: `run_unblocked`, or `run_finished` if the run is cancelled.
    Correlate: the next `run_unblocked` belongs to it.
    """

    type: Literal["run_blocked"] = "run_blocked"
    cause: str
    """A short name of the cause: `LLMRejected`, `StepLimit`, …"""
    message: str
    outage: Outage | None = None
    """The attempts that failed before the run gave up; as the process that failed the call claims."""


class RunUnblocked(Event, Proven):
    """A person sent `retry`, and the run resumes.

    Followed by: what was due before the block. Correlate: it belongs to the last `run_blocked`.
    """

    type: Literal["run_unblocked"] = "run_unblocked"
    by: str
    reason: str = ""


class RunPaused(Event, Proven):
    """A person paused the run, or changed the reason or the end of its pause. Recorded from feature level 1 on.

    What is under way ends, and is recorded; nothing else starts before the run resumes.
    Followed by: the ends of what is under way; then `run_resumed`, or `run_finished` if the run is cancelled.
    Correlate: the next `run_resumed` ends the pause.
    """

    type: Literal["run_paused"] = "run_paused"
    by: str
    reason: str = ""
    until: datetime | None = None
    """When the pause ends by itself; None for never."""


class RunResumed(Event, Proven):
    """The pause is over: a person resumed the run, or the `until` of the pause has come. Recorded from feature level 1
    on.

    Followed by: what was due before the pause; a wait for a message begins anew. Correlate: it belongs to the last
    `run_paused`.
    """

    type: Literal["run_resumed"] = "run_resumed"
    by: str = ""
    """Who resumed it; empty where its `until` has come."""
    reason: str = ""


class RunFinished(Event):
    """The run ended.

    Followed by: refusals of late signals only; or `run_started`, when another run continues the thread.
    Correlate: it ends the run of the last `run_started`.
    """

    type: Literal["run_finished"] = "run_finished"
    outcome: RunOutcome
    result: str = ""
    """The LLM's last reply, or why the run failed."""
    structured: bool = False
    """The result is a value of the agent's result type, as canonical JSON. Recorded from feature level 1 on."""
    cause: str = ""
    """A short name of why it failed: `AgentNotFound`, …"""
