"""The events of an agent run: a closed union, in the past tense. What each means is written here and only here.

1. An event is recorded once and never changes; state (`holdfast.run.state`) and transcript
   (`holdfast.transcript.transcript`) are folds over events.
2. Every event carries its position, its time and the digest of the chain up to and including itself.
3. Fields are only added, with a default that never changes; anything else needs a new schema version and an
   upcaster. An event's JSON leaves defaults out, so a field added later alters no digest of an older event.
4. Events that belong together share a field. `number` links the events of one tool call, `request` (or `request.id`)
   those of one approval request, `rule` those of one remembered rule, `by` and `to` those of one delegation, and
   `message` a message with the position of its `user_message_received` or `task_refined`.
5. "Followed by" names the events that come next where nothing else arrives. What people send can come at any time.
"""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import Field, SerializationInfo, SerializerFunctionWrapHandler, TypeAdapter, field_serializer

from holdfast.agents.agent import AgentSpec
from holdfast.authority.approvals import ApprovalRequest, DecisionOutcome
from holdfast.authority.extensions import Extension
from holdfast.authority.follow_ups import Message, WhenBusy
from holdfast.authority.policy import Policy, Terms, VerdictKind
from holdfast.authority.refinements import Refinement, RefinementKind
from holdfast.authority.statements import AuthorityDelegation, Decision, DecisionKind, Lift, Proof, Revocation
from holdfast.base.models import Frozen
from holdfast.budget.account import TokenPrice
from holdfast.budget.budget import Amounts, Budget, LimitName
from holdfast.budget.tree import TreeCost
from holdfast.lineage import Lineage
from holdfast.llm.blocks import Content, ToolCall, text_of
from holdfast.llm.messages import AssistantMessage, Usage
from holdfast.llm.outages import Outage
from holdfast.log.fork_point import ForkPoint
from holdfast.log.import_point import ImportPoint
from holdfast.memory.recalled import RecalledTier
from holdfast.tools.cannot import HandedConstraint, Scope
from holdfast.tools.effects import PastEffect
from holdfast.tools.failures import FailedAttempts, FailureKind
from holdfast.tools.triggers import WakeTrigger
from holdfast.trust import Trust

ToolStatus = Literal["ok", "failed", "invalid", "denied", "answered", "unknown", "undone", "cancelled", "cannot"]
"""How a call ended: returned · raised or timed out · could not be called so · was denied · a person answered in its
place · its outcome is unknown · happened and was undone · was stopped · cannot be made: its tool, or a constraint, said
so."""

RunOutcome = Literal["completed", "failed", "cancelled", "moved"]
"""`moved`, from feature level 1 on: the run continues in another place, where its file is imported."""


class Event(Frozen):
    """The fields of every event. The log sets the three that have no meaningful default."""

    schema_version: int = 1
    position: int = -1
    """0 for the first event of the thread, then without gaps."""
    at: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    """Temporal's time of the workflow task that recorded the event: the same on every replay."""
    digest: str = ""
    """SHA-256 of the previous event's digest and this event's canonical JSON (`event_json`) without `digest`."""


class Proven(Frozen):
    """How it is known who sent what an event records."""

    proof: Proof = ""
    key: str = ""
    """The public key that verified the signature."""
    signature: str = ""


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
    """The feature level (`holdfast.run.features`) from here on."""


class RunForked(Event):
    """The thread was forked from another one: the events before this one are the other thread's, byte for byte, under
    its id. What people decided there lets nothing run here; its effects ask first (`holdfast.run.forking`).

    Followed by: `tool_call_finished` for each call that was open there, then `run_started`.
    Correlate: `point.head` is the digest of the event before; `first_run_id` is that of the `run_started`.
    """

    type: Literal["run_forked"] = "run_forked"
    thread: str
    """The id of this thread, to which all that follows belongs."""
    first_run_id: str
    """The first run id of the chain of Temporal runs that begins with the fork."""
    point: ForkPoint
    """The thread that it was forked from, and its last event here."""
    origin: str
    """The id of the thread to which that event belongs: that thread, or one that it was itself forked from."""
    by: str = ""
    """Who forked it."""
    imported: ImportPoint | None = None
    """The file from which the other thread's events come; None where it is a thread of this place."""
    features: int = 0
    """The feature level (`holdfast.run.features`) from here on."""
    llm: str = ""
    """The LLM of its agents; empty for their own."""
    policies: tuple[Policy, ...] = ()
    """Policies that judge its calls beside its agent's: the strictest verdict counts, so none of them allows more."""


class MoveRequested(Event):
    """A person asked for the run to be moved to another place. Nothing starts any more, and tools under way end first.
    Recorded from feature level 1 on.

    Followed by: `tool_call_finished` for each tool under way, then `run_finished` with the outcome `moved`.
    """

    type: Literal["move_requested"] = "move_requested"
    by: str
    reason: str = ""


class RunImported(Event):
    """The thread continues here, from a portable file: the events before this one are the file's, byte for byte. A run
    that is closed stays closed. What was open where it was moved away is open here; what people decided there counts
    where the policy of this place vouches for it (`holdfast.run.importing`). Recorded from feature level 1 on.

    Followed by: for a run that was moved, `agent_loaded`, then the ends of calls that cannot stay open, and
    `approval_requested` for each call that is to be judged anew.
    Correlate: `point.head` is the digest of the event before.
    """

    type: Literal["run_imported"] = "run_imported"
    run_id: str
    """Temporal's id of the run that continues the thread here."""
    first_run_id: str
    """The first run id of the chain of Temporal runs that begins here. Effects keep the one that names them."""
    point: ImportPoint
    """What was imported."""
    by: str = ""
    """Who imported it."""
    features: int = 0
    """The feature level (`holdfast.run.features`) from here on."""


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


class UserMessageReceived(Event, Proven):
    """A person sent a message. The first one is the task; a later one waits until the LLM is shown it.

    Followed by: `message_taken`, at the end of the step; after the task, `agent_loaded`.
    Correlate: its `position` is the `message` of the `message_taken`; `id` tells signed messages apart.
    """

    type: Literal["user_message_received"] = "user_message_received"
    content: Content
    by: str = ""
    task: bool = False
    """The message is the task that the run was started with."""
    when_busy: WhenBusy = "queue"
    id: str = ""
    until: datetime | None = None

    @property
    def said(self) -> Message:
        """The message as it was sent, which the signature covers."""
        return Message(
            message=self.content,
            by=self.by,
            when_busy=self.when_busy,
            id=self.id,
            until=self.until,
            signature=self.signature,
        )


class TaskRefined(Event, Proven):
    """The task was narrowed, replaced or corrected: by a person, or by a call of the agent that people approved.
    Recorded from feature level 1 on.

    Followed by: `message_taken`, at the end of the step: the LLM is shown it as it is shown a message; or, where a call
    made it, the `tool_call_finished` of that call.
    Correlate: its `position` is the `message` of the `message_taken`; `id` tells repetitions apart; `call` is the
    number of the agent's call.
    """

    type: Literal["task_refined"] = "task_refined"
    refinement: int
    """Its number, counted from 1 throughout the thread."""
    kind: RefinementKind
    text: str
    by: str
    """Who made it; the agent's name where a call of it did."""
    when_busy: Literal["queue", "interrupt"] = "queue"
    id: str = ""
    until: datetime | None = None
    call: int | None = None
    """The number of the agent's call that made it, which people approved; None where a person made it."""

    @property
    def said(self) -> Refinement:
        """The statement as it was sent, which the signature covers."""
        return Refinement(
            kind=self.kind,
            text=self.text,
            by=self.by,
            when_busy=self.when_busy,
            id=self.id,
            until=self.until,
            signature=self.signature,
        )


class MessageTaken(Event):
    """A waiting message, or a refinement of the task, is shown to the LLM, from the next request on.

    Followed by: further `message_taken`, then `llm_replied`.
    Correlate: `message` is the position of the `user_message_received` or `task_refined`.
    """

    type: Literal["message_taken"] = "message_taken"
    message: int
    """The position of the `user_message_received` or `task_refined`."""


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
    """The feature level (`holdfast.run.features`) from here on, if the thread has no higher one."""
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


class LLMReplied(Event):
    """The LLM replied. A step begins here.

    Followed by: `tool_call_requested` for each call of `message`; without calls, `message_awaited` or `run_finished`;
    `reply_rejected` where nothing of the reply can be used.
    Correlate: the ids in `message.tool_calls` are those of the `call` of each `tool_call_requested`.
    """

    type: Literal["llm_replied"] = "llm_replied"
    message: AssistantMessage | None
    """None where the reply has nothing to keep."""
    transcript_length: int
    """How many messages the request had."""
    usage: Usage
    finish_reason: str
    llm: str
    """The provider's name of the LLM that replied."""
    request_id: str | None = None
    """The provider's id of the request."""
    duration_ms: int = 0
    attempt: int = 1
    """Temporal's attempt that succeeded; those before it failed."""
    outage: Outage | None = None
    """The attempts that failed before; an attempt whose worker was killed left nothing."""
    artifact: str = ""
    """Address of the reply's full text, where the message has only its head and tail."""
    cost: int | None = Field(default=None, ge=0)
    """With a budget of money: nano-dollars by list prices; None where the price of the LLM that replied is unknown."""


class MessageAwaited(Event):
    """The LLM has answered without calls; the run stays open for a follow-up message.

    Followed by: `user_message_received` and `message_taken`; or, when the idle limit is over, `learning_requested` or
    `run_finished`.
    Correlate: it comes right after the `llm_replied` whose text is `result`; a structured one right after the
    `tool_call_finished` of the call that gives it.
    """

    type: Literal["message_awaited"] = "message_awaited"
    result: str
    structured: bool = False
    """The result is a value of the agent's result type, as canonical JSON. Recorded from feature level 1 on."""


class LearningRequested(Event):
    """The LLM has answered, and is asked what is worth remembering before the run ends. From feature level 1 on.

    The answer is that of the last `message_awaited`, and stays the result of the run.
    Followed by: `llm_replied`, whose text counts for nothing; or `learning_skipped`. Then the calls of that reply, and
    `run_finished`.
    Correlate: `message_awaited` has the answer.
    """

    type: Literal["learning_requested"] = "learning_requested"
    notice: str
    """The message that the LLM reads."""


class LearningSkipped(Event):
    """The LLM could not be asked what is worth remembering; the run ends all the same. From feature level 1 on.

    Followed by: `run_finished`.
    Correlate: it belongs to the last `learning_requested`.
    """

    type: Literal["learning_skipped"] = "learning_skipped"
    cause: str
    """A short name of why: `LLMRejected`, …"""
    message: str = ""


class LLMCallLost(Event):
    """An attempt at an LLM call may have cost something, and gave no reply: its worker died, or its request was sent
    and not refused. The run charges it, and makes the call again. Recorded from feature level 1 on, for runs with a
    budget.

    Followed by: `budget_reserved` for the same request; `budget_spent` or `learning_skipped` where the budget has no
    room for that, and `run_blocked` where the last call was lost too often, or middleware refused a reply.
    Correlate: it settles the last `budget_reserved` for an LLM call.
    """

    type: Literal["llm_call_lost"] = "llm_call_lost"
    attempts: int = Field(ge=1)
    """How many may have cost something; each is charged with the request, without a `usage`."""
    request_tokens: int = Field(ge=0)
    """The tokens of the request, estimated from its bytes."""
    usage: Usage | None = None
    """Of the reply to one of them, which middleware refused, or which could not be stored: that attempt is charged with
    it instead."""
    cost: int | None = Field(default=None, ge=0)
    """Nano-dollars of that reply; None where money is not limited, or the price is unknown."""
    outage: Outage | None = None
    """The failed attempts, as far as they left a trace."""


class ContextExceeded(Event):
    """The provider rejected a request because it does not fit the LLM's context window.

    Followed by: `context_compacted`, or `run_blocked` where no compaction is left.
    Correlate: it stands in the place of the `llm_replied`, or of the `context_compacted`, that the request was for.
    """

    type: Literal["context_exceeded"] = "context_exceeded"
    message: str
    outage: Outage | None = None
    """With a budget: the attempts that failed before; as the process that failed the call claims."""


class CompactionRequested(Event):
    """A person asked for a compaction of the context. Recorded from feature level 1 on.

    Followed by: `context_compacted`, at once while the run waits for a message, else at the end of the step. Where the
    run is blocked or the LLM refuses the request as too long, the request has lapsed.
    """

    type: Literal["compaction_requested"] = "compaction_requested"
    by: str
    reason: str = ""


class ContextCompacted(Event):
    """The context was compacted: a summary message stands in for the first `messages` messages of the transcript,
    except for `originals`. Nothing is deleted from the log.

    Followed by: `message_taken` or `llm_replied`.
    Correlate: `originals` are positions of `user_message_received`.
    """

    type: Literal["context_compacted"] = "context_compacted"
    summary_message: str
    """The message: what survives word for word, and the summary."""
    summary: str
    """The LLM's own words."""
    messages: int
    """How many messages it stands in for."""
    originals: tuple[int, ...] = ()
    """People's messages that hold more than text, by position: they follow the summary message as they were sent."""
    kept: int = 0
    """How many messages came after those that the summary stands in for, and stay."""
    usage: Usage = Usage()
    outage: Outage | None = None
    """The failed attempts at the request for the summary."""
    cost: int | None = Field(default=None, ge=0)
    """As for `llm_replied`."""


class ReplyRejected(Event):
    """A reply could not be used; the LLM reads why, and is called again.

    Followed by: `llm_replied`; `context_compacted` if a summary was asked for; `run_blocked` after too many in a row.
    Correlate: it comes right after the `llm_replied` and the calls that it is about.
    """

    type: Literal["reply_rejected"] = "reply_rejected"
    reason: str
    notice: str = ""
    """The message that the LLM reads; empty where the results of its calls say it."""
    usage: Usage = Usage()
    """With a budget: the tokens of a rejected summary, which has no `llm_replied`."""
    outage: Outage | None = None
    """With a budget: the failed attempts at the request for a rejected summary."""
    cost: int | None = Field(default=None, ge=0)
    """As for `llm_replied`, of a rejected summary."""


class ToolCallRequested(Event):
    """The LLM requested a tool call; or the run makes one of its own (`own`).

    Followed by: `verdict_given`; or `tool_call_finished` with the status `invalid`.
    Correlate: `number` is that of all events of this call; `call.id` is the id in the `llm_replied`; `past` is the key
    of an effect of the `run_reset`.
    """

    type: Literal["tool_call_requested"] = "tool_call_requested"
    number: int
    """Counted from 1 throughout the thread."""
    call: ToolCall
    past: str = ""
    """The key of the effect that this very call had before the run was reset: the call adopts it, and has no other."""
    own: bool = False
    """The run itself makes it, to keep progress.txt: the LLM reads nothing of it. Recorded from feature level 1 on."""


class VerdictGiven(Event):
    """A call was judged: it is allowed, approval is required (`ask`), or it is denied.

    Followed by: `tool_call_started` if allowed; `approval_requested` if approval is required; `tool_call_finished` with
    the status `denied`, or `cannot` where a constraint refuses the call.
    Correlate: `number` is the call's; `rule` is a policy rule, `remembered …` with the id of a `rule_remembered`,
    `constraint …` with the number of the call whose tool said that it cannot, or `repeated call` (the loop guard's).
    """

    type: Literal["verdict_given"] = "verdict_given"
    number: int
    verdict: VerdictKind
    rule: str
    terms: Terms | None = None
    """Where a remembered rule allows the call: the terms under which approval would be required."""
    repeats: int = 0
    """How often the call has had the same result, where it is allowed and starts later for that."""
    delay: float = 0
    """Seconds by which it starts later; a person's message ends the wait."""


class ApprovalRequested(Event):
    """Approval required: people are asked whether a call may run. An older open request about the same call is closed.

    Followed by: `decision_received`, or `approval_expired`; before that, perhaps `baseline_recorded`,
    `approval_reminded` and `approval_escalated`.
    Correlate: `request.id` is the `request` of all events about this request; `request.number` is the call's.
    """

    type: Literal["approval_requested"] = "approval_requested"
    request: ApprovalRequest


class ReconcileRequested(Event):
    """The outcome of a call is unknown: people are asked whether its effect happened.

    Followed by: `decision_received`, then `tool_call_finished`, or `tool_call_started` where the call runs again or is
    undone. It never expires.
    Correlate: `request.id` is the `request` of all events about this request; `request.number` is the call's.
    """

    type: Literal["reconcile_requested"] = "reconcile_requested"
    request: ApprovalRequest
    cause: FailureKind | None = None
    """Why the outcome is unknown, in a word; None where that is not known."""
    failures: FailedAttempts | None = None
    """The attempts at the call that failed before."""


class ApprovalReminded(Event):
    """An open request is not decided yet; those who may decide it are reminded.

    Followed by: as after the request. Correlate: `request` is the id of the open request.
    """

    type: Literal["approval_reminded"] = "approval_reminded"
    request: str


class ApprovalEscalated(Event):
    """An open request is not decided yet; from here on, more people may decide it.

    Followed by: as after the request. Correlate: `request` is the id of the open request.
    """

    type: Literal["approval_escalated"] = "approval_escalated"
    request: str
    by: tuple[str, ...]
    """The people and roles who are asked in addition."""


class ApprovalExpired(Event):
    """A request expired before it was decided, so the policy decided it.

    Followed by: `tool_call_started`, or `tool_call_finished` with the status `denied`.
    Correlate: `request` is the id of the request, which is closed.
    """

    type: Literal["approval_expired"] = "approval_expired"
    request: str
    decision: Literal["deny", "approve"]


class DecisionReceived(Event, Proven):
    """A person's decision arrived. Only `accepted` and `waiting_for_quorum` change anything by themselves; after
    `judged_anew` another request takes the place of this one. With any other outcome, the body is kept as digest and
    size only.

    Followed by: if `accepted`, `rule_remembered` if it makes a rule, and `tool_call_started` or `tool_call_finished`;
    if `judged_anew`, `approval_requested`; else nothing.
    Correlate: `request` is the id of the request, as the person gave it.
    """

    type: Literal["decision_received"] = "decision_received"
    request: str
    decision: DecisionKind
    by: str
    reason: str
    outcome: DecisionOutcome
    explanation: str = ""
    digest_given: str = ""
    """The digest of what the person saw, as they sent it."""
    arguments: dict[str, Any] | None = None
    """The arguments to run with, where the person changed them; the LLM's own are in `tool_call_requested`."""
    result: str | None = None
    remember: bool = False
    right: str = ""
    """Who delegated the approval authority that was used; empty for the person's own."""
    rule: str = ""
    """The rule that judged changed arguments."""
    sent_digest: str = ""
    """Of a refused decision: SHA-256 of what was sent, in place of its body (`holdfast.run.refusals`)."""
    sent_bytes: int = 0

    @property
    def said(self) -> Decision:
        """The decision as it was sent, which the signature covers; of a refused one, what is kept of it."""
        return Decision(
            decision=self.decision,
            request=self.request,
            by=self.by,
            reason=self.reason,
            digest=self.digest_given or None,
            arguments=self.arguments,
            result=self.result,
            remember=self.remember,
            signature=self.signature,
        )


class RuleRemembered(Event):
    """A remembered rule: the same call is allowed from here on, in this thread, because all who approved it asked for
    that. It counts only right after the decision that makes it.

    Followed by: `tool_call_started`, of the call that was approved.
    Correlate: `rule` is the id in a later `rule_revoked`, and in the `rule` of `verdict_given`.
    """

    type: Literal["rule_remembered"] = "rule_remembered"
    rule: str
    """The rule's id, for the signal `revoke`."""
    tool: str
    call_digest: str
    """Digest of tool and arguments."""
    by: tuple[str, ...]
    """The people whose approvals made the rule."""


class RuleRevoked(Event, Proven):
    """A remembered rule was revoked: the policy alone judges such calls again.

    Followed by: nothing of its own. Correlate: `rule` is that of the `rule_remembered`.
    """

    type: Literal["rule_revoked"] = "rule_revoked"
    rule: str
    by: str
    reason: str = ""

    @property
    def said(self) -> Revocation:
        """The revocation as it was sent, which the signature covers."""
        return Revocation(by=self.by, reason=self.reason, remembered=self.rule, signature=self.signature)


class AuthorityDelegated(Event, Proven):
    """An approver delegated their approval authority to another, within this thread.

    Followed by: nothing of its own. Correlate: `by` and `to` are those of a later `delegation_revoked`; a
    `decision_received` that uses the delegation has its `by` in `right`.
    """

    type: Literal["authority_delegated"] = "authority_delegated"
    by: str
    to: str
    until: datetime
    reason: str = ""

    @property
    def said(self) -> AuthorityDelegation:
        """The delegation as it was sent, if it was signed: the signature covers it."""
        return AuthorityDelegation(
            by=self.by, reason=self.reason, to=self.to, until=self.until, signature=self.signature
        )


class DelegationRevoked(Event, Proven):
    """A delegation of approval authority was revoked, and so were the votes on open requests that used it.

    Followed by: nothing of its own. Correlate: `by` and `to` are those of the `authority_delegated`.
    """

    type: Literal["delegation_revoked"] = "delegation_revoked"
    by: str
    to: str
    reason: str = ""

    @property
    def said(self) -> Revocation:
        """The revocation as it was sent, which the signature covers."""
        return Revocation(by=self.by, reason=self.reason, delegated_to=self.to, signature=self.signature)


class Finding(Frozen):
    """What one `verify` tool found."""

    tool: str
    status: ToolStatus
    content: str
    trust: Trust | None = None
    """How far it can be trusted, where that differs from the tool's other results."""


class BaselineRecorded(Event):
    """Approval requests opened, and the agent's `verify` tools recorded the world that people are asked about. The LLM
    does not read it; after a long pause, later findings are compared with it (`holdfast.run.baseline`).

    Followed by: `decision_received` or `approval_expired`.
    Correlate: it is about all requests that are open in the step.
    """

    type: Literal["baseline_recorded"] = "baseline_recorded"
    findings: tuple[Finding, ...]


class StateVerified(Event):
    """After a long pause, the agent's `verify` tools have run. The LLM reads their findings before its next step.

    Followed by: `approval_requested` for every call whose approval was given for another state of the world; else what
    was due before the pause.
    Correlate: `findings` are compared with those of the last `baseline_recorded` or `state_verified` of the step.
    """

    type: Literal["state_verified"] = "state_verified"
    paused_seconds: int
    findings: tuple[Finding, ...]


class ToolCallStarted(Event):
    """The intent: from here on the call's effect may happen.

    Followed by: `tool_call_finished`, or `reconcile_requested` if the outcome is unknown.
    Correlate: `number` is the call's; `request` is the id of the `approval_requested`, or `reconcile_requested`, whose
    decision lets it run; `key` is its row in the ledger.
    """

    type: Literal["tool_call_started"] = "tool_call_started"
    number: int
    key: str
    """Names the effect (`holdfast.tools.effects.effect_key`)."""
    request: str = ""
    """The request whose decision this start uses up; empty where the policy allows the call."""
    undo: bool = False
    """The call undoes the effect instead of having it."""


class ToolCallFinished(Event):
    """A call has its result, which the LLM reads. With the status `cannot` and a `scope`, a constraint stands from here
    on: such calls are refused without being made.

    Followed by: `llm_replied`, when every call of the step has a result.
    Correlate: `number` is the call's; an open request about the call is closed with it. A constraint has the number of
    the call: in the `rule` of later `verdict_given`, and in `constraint_lifted`.
    """

    type: Literal["tool_call_finished"] = "tool_call_finished"
    number: int
    status: ToolStatus
    content: Content
    adopted: bool = False
    """An earlier attempt had the effect; this one found it done and did not repeat it."""
    duration_ms: int = 0
    artifact: str = ""
    """Address of the full result, where `content` has only its head and tail."""
    size: int = 0
    """Bytes of the full result; 0 where `content` is complete."""
    artifacts: tuple[str, ...] = ()
    """Addresses of the images and files that were left out of `content`, in its order. Recorded from feature level 1
    on."""
    trust: Trust | None = None
    """How far the result can be trusted, where that differs from the tool's other results."""
    scope: Scope | None = None
    """With the status `cannot`: which calls are refused from here on. None where a constraint refused this call."""
    until: datetime | None = None
    """When they are no longer refused; None for when a person lifts the constraint."""
    repeats: int = 0
    """How often the call has ended like this with nothing new in between, where the LLM reads that with the result."""
    cause: FailureKind | None = None
    """Why the call failed, in a word; None where it did not fail, or where that is not known."""
    failures: FailedAttempts | None = None
    """The attempts at the call that failed before; each left no event of its own."""

    @property
    def text(self) -> str:
        """The result's text, with the type of each other block in brackets."""
        return text_of(self.content)


class DormancyBegan(Event):
    """The agent has put itself to sleep: this call waits for its wake trigger. Recorded from feature level 1 on.

    Followed by: `tool_call_finished` when the wait ends; at once where a buffered event ends it.
    Correlate: `number` is the call's; `wake` is the position of the `wake_received` whose event had been buffered.
    """

    type: Literal["dormancy_began"] = "dormancy_began"
    number: int
    trigger: WakeTrigger
    wake: int = 0
    """The `wake_received` that ends the wait at once; 0 where none does."""


PollKind = Literal["news", "same", "partial", "timeout", "no_response"]
"""What a poll brought: another result than the one before · the same one, or one that changes too often to count as
news · a part · nothing in time · no result."""


class WaitPolled(Event):
    """The run has called the tool that a sleeping call polls, and has its result. The LLM reads the last one only, with
    `tool_call_finished`. Recorded from feature level 1 on.

    Followed by: `tool_call_finished` where the poll ends the wait, else another poll.
    Correlate: `number` is the call's that sleeps; `poll` counts its polls from 1.
    """

    type: Literal["wait_polled"] = "wait_polled"
    number: int
    poll: int
    status: ToolStatus
    """How the tool's call ended."""
    result: PollKind
    """What sets the time of the next poll."""
    seen: str
    """Digest of the result."""
    duration_ms: int = 0
    again: datetime | None = None
    """When the next poll is due; None where this one ends the wait."""


class WakeReceived(Event):
    """An event arrived from outside, or somebody woke the run. What was sent is a claim. Recorded from feature level 1
    on.

    Followed by: where it was `delivered`, `tool_call_finished` for each wait that it ends; where it was `buffered`,
    nothing until a call waits for such an event.
    Correlate: its `position` is the `wake` of the `dormancy_began` that a buffered event ends.
    """

    type: Literal["wake_received"] = "wake_received"
    outcome: Literal["delivered", "buffered"]
    event: str = ""
    """The event's name; empty where somebody woke the run without one."""
    id: str = ""
    """The sender's id of the event, which counts once."""
    data: str = ""
    """The event's data: an object, as canonical JSON."""
    by: str = ""
    """Who sent it, by their own claim."""
    reason: str = ""
    call: int | None = None
    """The number of the one call that it was sent to; None for all that wait."""


class ConstraintLifted(Event, Proven):
    """A person lifted a constraint: the calls that it refused are judged again like any others. Recorded from feature
    level 1 on.

    Followed by: nothing of its own. Correlate: `constraint` is the `number` of the `tool_call_finished` that made it.
    """

    type: Literal["constraint_lifted"] = "constraint_lifted"
    constraint: int
    """The constraint's number, which is that of the call whose tool said that it cannot."""
    by: str
    reason: str = ""

    @property
    def said(self) -> Lift:
        """The statement as it was sent, which the signature covers."""
        return Lift(by=self.by, reason=self.reason, constraint=self.constraint, signature=self.signature)


class SubagentStarted(Event):
    """A child run has started, in a thread of its own. Recorded from feature level 1 on.

    Followed by: `subagent_ended` when it has ended; `tool_call_finished` at once where it runs in the background.
    Correlate: `number` is that of the `run_agent` call; the child's `run_started` has that call in its `lineage`.
    """

    type: Literal["subagent_started"] = "subagent_started"
    number: int
    thread: str
    """The child's thread."""
    agent: str
    run_id: str
    """Temporal's first run id of the child."""
    background: bool = False


SubagentStatus = Literal["completed", "failed", "cancelled", "terminated", "lost", "unfinished"]
"""How a child run ended: with an answer · as it reported itself · it was cancelled · closed from outside · nothing is
left of it, or its result is not its own · it was asked to end, and had not in time."""


class SubagentEnded(Event):
    """A child run has ended. Recorded from feature level 1 on.

    Followed by: `tool_call_finished` of each call that waits for it.
    Correlate: `number` and `thread` are those of its `subagent_started`.
    """

    type: Literal["subagent_ended"] = "subagent_ended"
    number: int
    thread: str
    status: SubagentStatus
    trust: Trust = "web"
    """How far its words can be trusted."""
    said: str = ""
    """Digest of its words, as the parent reads them."""
    steps: int = 0
    usage: Usage = Usage()
    """What the LLM calls of the child cost, without those of its own sub-agents."""
    constraints: tuple[HandedConstraint, ...] = ()
    """What its tools said cannot be done: the parent refuses such calls, too."""
    cost: TreeCost | None = None
    """With an allowance: what it and all runs below it have spent. None: that is unknown, and the whole allowance
    counts."""


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


class RunUnblocked(Event):
    """A person sent `retry`, and the run resumes.

    Followed by: what was due before the block. Correlate: it belongs to the last `run_blocked`.
    """

    type: Literal["run_unblocked"] = "run_unblocked"
    by: str
    reason: str = ""


class RunPaused(Event):
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


class RunResumed(Event):
    """The pause is over: a person resumed the run, or the `until` of the pause has come. Recorded from feature level 1
    on.

    Followed by: what was due before the pause; a wait for a message begins anew. Correlate: it belongs to the last
    `run_paused`.
    """

    type: Literal["run_resumed"] = "run_resumed"
    by: str = ""
    """Who resumed it; empty where its `until` has come."""
    reason: str = ""


class BudgetReserved(Event):
    """An LLM call begins, and the account of the run has reserved what it is expected to cost; or a sub-agent is about
    to start, and the account has reserved its allowance. Recorded from feature level 1 on, for runs with a budget.

    Followed by: `llm_replied`, `context_compacted` or `reply_rejected`, which settles it with what it has cost; or
    `llm_call_lost`, `context_exceeded`, `learning_skipped` or `run_blocked`. A call that the provider refuses costs
    nothing; one that was given up is settled with all that was reserved. An allowance: `subagent_started`;
    `subagent_ended` settles it.
    Correlate: it belongs to the next of these; an allowance to the `run_agent` call of the number `call`. A second one
    for the same call raises the first: the sub-agent was started before the run was reset, with a larger one.
    """

    type: Literal["budget_reserved"] = "budget_reserved"
    steps: int
    tokens: int
    nano_usd: int = 0
    """Nano-dollars; 0 without a budget of money."""
    call: int | None = None
    """The number of the call whose sub-agent gets the allowance; None for an LLM call."""


class BudgetLow(Event):
    """At least 80 % of a limit of the budget is spent. Recorded once for each limit; after an extension, perhaps again.

    Followed by: the call that was due. Correlate: nothing.
    """

    type: Literal["budget_low"] = "budget_low"
    limit: LimitName
    spent: str
    """In the limit's own unit: steps, tokens, US dollars or seconds."""
    allowed: str
    notice: str
    """The message that the LLM reads."""


class BudgetSpent(Event):
    """The budget has no room for another call, except for the part that was kept back: the LLM makes one last call, of
    which no tool runs, to hand in what it has.

    Followed by: `budget_reserved` and `llm_replied`, then `run_blocked` with the cause `BudgetSpent`; at once where not
    even the last call fits.
    Correlate: the next `budget_extended` with a notice ends it.
    """

    type: Literal["budget_spent"] = "budget_spent"
    limit: LimitName
    """The limit that has no room."""
    last_call: bool = False
    """The LLM makes a last call."""
    notice: str = ""
    """The message that it reads then."""


class BudgetExtended(Event, Proven):
    """A person extended the budget. A run that its end has blocked is unblocked, where every limit has room again.

    Followed by: what was due before the end of the budget.
    Correlate: `id` tells repetitions apart.
    """

    type: Literal["budget_extended"] = "budget_extended"
    by: str
    reason: str = ""
    more: Amounts
    """What is added to the limits."""
    id: str = ""
    until: datetime | None = None
    resumes: bool = False
    """The budget had ended, and has room for further calls again."""
    notice: str = ""
    """The message that the LLM reads then."""

    @property
    def said(self) -> Extension:
        """The statement as it was sent, which the signature covers."""
        return Extension(
            **self.more.model_dump(),
            by=self.by,
            reason=self.reason,
            id=self.id,
            until=self.until,
            signature=self.signature,
        )


class SignalRejected(Event):
    """A signal or update was refused: its name is unknown, its payload malformed, or it may not do what it asks for.

    Followed by: nothing of its own. Correlate: `sent_digest` is that of the payload in Temporal's history.
    """

    type: Literal["signal_rejected"] = "signal_rejected"
    signal: str
    explanation: str
    outcome: str = ""
    """Why, in a word: `malformed`, `unknown_signal`, `not_entitled`, …"""
    by: str = ""
    """Who sent it, by their own claim."""
    sent_digest: str = ""
    """SHA-256 of what was sent, in place of its body."""
    sent_bytes: int = 0


class RefusalsCounted(Event):
    """More was refused in this Temporal run than is recorded one by one: the number of the other refusals, up to here.

    Followed by: nothing of its own. Correlate: it counts refusals since the last `refusals_counted` or `run_continued`.
    """

    type: Literal["refusals_counted"] = "refusals_counted"
    count: int
    sent_bytes: int
    """Bytes that were sent with them."""
    refusals_digest: str
    """Digest of the chain over the events that they would have been, without position and time. Temporal's history has
    what was sent.
    """


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


AgentEvent = Annotated[
    RunStarted
    | RunContinued
    | RunReset
    | RunForked
    | MoveRequested
    | RunImported
    | UserMessageReceived
    | TaskRefined
    | MessageTaken
    | AgentLoaded
    | MemoryRecalled
    | LLMReplied
    | MessageAwaited
    | LearningRequested
    | LearningSkipped
    | LLMCallLost
    | ContextExceeded
    | CompactionRequested
    | ContextCompacted
    | ReplyRejected
    | ToolCallRequested
    | VerdictGiven
    | ApprovalRequested
    | ReconcileRequested
    | ApprovalReminded
    | ApprovalEscalated
    | ApprovalExpired
    | DecisionReceived
    | RuleRemembered
    | RuleRevoked
    | AuthorityDelegated
    | DelegationRevoked
    | BaselineRecorded
    | StateVerified
    | ToolCallStarted
    | ToolCallFinished
    | DormancyBegan
    | WaitPolled
    | WakeReceived
    | ConstraintLifted
    | SubagentStarted
    | SubagentEnded
    | RunBlocked
    | RunUnblocked
    | RunPaused
    | RunResumed
    | BudgetReserved
    | BudgetLow
    | BudgetSpent
    | BudgetExtended
    | SignalRejected
    | RefusalsCounted
    | RunFinished,
    Field(discriminator="type"),
]

EVENTS: TypeAdapter[list[AgentEvent]] = TypeAdapter(list[AgentEvent])
"""Decodes events, each by its type."""
