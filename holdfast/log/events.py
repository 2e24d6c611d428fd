"""The events of an agent run: a closed union, in the past tense. What each means is written here and only here.

1. An event is recorded once and never changes; state (`holdfast.run.state`) and transcript
   (`holdfast.transcript.transcript`) are folds over events.
2. Every event carries its position, its time and the digest of the chain up to and including itself.
3. Fields are only added, with a default that never changes; anything else needs a new schema version and an
   upcaster. An event's JSON leaves defaults out, so a field added later alters no digest of an older event.
"""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from holdfast.agents.agent import AgentSpec
from holdfast.authority.approvals import ApprovalRequest, DecisionOutcome
from holdfast.authority.follow_ups import Message, WhenBusy
from holdfast.authority.policy import Terms, VerdictKind
from holdfast.authority.statements import AuthorityDelegation, Decision, DecisionKind, Proof, Revocation
from holdfast.base.models import Frozen
from holdfast.llm.messages import AssistantMessage, Content, ToolCall, Usage
from holdfast.llm.outages import Outage
from holdfast.memory.recalled import RecalledTier
from holdfast.tools.effects import PastEffect
from holdfast.trust import Trust

ToolStatus = Literal["ok", "failed", "invalid", "denied", "answered", "unknown", "undone", "cancelled"]
"""How a call ended: returned · raised or timed out · not callable as asked · refused · a person answered in its place ·
nobody can tell · took place and was taken back · stopped."""

RunOutcome = Literal["completed", "failed", "cancelled"]


class Event(Frozen):
    """What every event carries. The log stamps the three fields without a meaningful default."""

    schema_version: int = 1
    position: int = -1
    """0 for the first event of the thread, then without gaps."""
    at: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    """Temporal's time of the workflow task that recorded it: the same on every replay."""
    digest: str = ""
    """SHA-256 of the previous event's digest and this event's canonical JSON (`event_json`) without `digest`."""


class Proven(Frozen):
    """How it is known who said what an event records."""

    proof: Proof = ""
    key: str = ""
    """The public key whose signature was found right."""
    signature: str = ""


class RunStarted(Event):
    """The run began."""

    type: Literal["run_started"] = "run_started"
    thread: str
    run_id: str
    """Temporal's run id; a run that is reset keeps the one that it began with."""
    first_run_id: str
    """The first of the chain of Temporal runs: it names the effects of this run, and of those that it continues in."""
    sealed: bool = True
    """One of our own processes has started it, and vouches for who gave the task; else all of it is a claim."""
    start: str = ""
    """Names the sealed start, which counts once."""
    user_proven: bool = True
    """Whether who started it is known to be the person it is for: only then is that person's memory in reach."""
    agent: str | None
    """The agent asked for; None for the catalog's first."""
    idle_limit: float | None = None
    """Seconds that the run stays open for follow-up messages; None for what the agent says."""
    depth: int = 0
    """How many agents stand between the run and a person."""
    trust: Trust = "person"
    """Whose word the task is."""


class RunContinued(Event):
    """The run goes on in a new Temporal run, from a snapshot: the history of the one before had grown enough."""

    type: Literal["run_continued"] = "run_continued"
    run_id: str
    """Temporal's id of the new run."""


class RunReset(Event):
    """Temporal has taken the run back to an earlier event (`temporal workflow reset`). What happened after that event
    is not in this branch of the log, but in the ledger, and was not taken back.
    """

    type: Literal["run_reset"] = "run_reset"
    effects: tuple[PastEffect, ...] = ()
    """What happened, or may have, in the branch that was left; the oldest first."""
    left_out: int = 0
    """How many older ones there are besides."""
    asking: bool = False
    """An LLM call was under way: the LLM is told after its answer."""


class UserMessageReceived(Event, Proven):
    """A person said something. The first message is the task; a later one waits until it is taken."""

    type: Literal["user_message_received"] = "user_message_received"
    content: Content
    by: str = ""
    task: bool = False
    """The run was started with it."""
    when_busy: WhenBusy = "queue"
    id: str = ""
    until: datetime | None = None

    @property
    def said(self) -> Message:
        """The message as it was sent: what the signature is over."""
        return Message(
            message=self.content,
            by=self.by,
            when_busy=self.when_busy,
            id=self.id,
            until=self.until,
            signature=self.signature,
        )


class MessageTaken(Event):
    """A message that waited is shown to the LLM, from the next request on."""

    type: Literal["message_taken"] = "message_taken"
    message: int
    """The position of its `user_message_received`."""


class AgentLoaded(Event):
    """A worker resolved the agent: what the LLM will be told and the policy will allow, from here on."""

    type: Literal["agent_loaded"] = "agent_loaded"
    spec: AgentSpec
    spec_hash: str
    workspace: str
    """The run's folder, on the worker."""
    policy_hash: str = ""
    notify: bool = False
    """The worker tells somebody of requests and endings (`notify`)."""


class MemoryRecalled(Event):
    """What the LLM is shown of the agent's memory, as it was when the run began."""

    type: Literal["memory_recalled"] = "memory_recalled"
    tiers: tuple[RecalledTier, ...]


class LLMReplied(Event):
    """The LLM answered. A step begins here."""

    type: Literal["llm_replied"] = "llm_replied"
    message: AssistantMessage | None
    """None where the reply holds nothing to keep."""
    transcript_length: int
    """How many messages the LLM was shown."""
    usage: Usage
    finish_reason: str
    llm: str
    """The provider's name of what answered."""
    request_id: str | None = None
    """The provider's id of the request."""
    duration_ms: int = 0
    attempt: int = 1
    """More than 1: that many less one failed, and Temporal tried again."""
    outage: Outage | None = None
    """The attempts that failed before; one whose worker was killed left nothing."""
    artifact: str = ""
    """Address of the reply's whole text, where the message holds its head and tail only."""


class MessageAwaited(Event):
    """The LLM has answered; the run stays open for a follow-up message."""

    type: Literal["message_awaited"] = "message_awaited"
    result: str


class ContextExceeded(Event):
    """The provider refused a request because it does not fit the LLM's context window."""

    type: Literal["context_exceeded"] = "context_exceeded"
    message: str


class ContextCompacted(Event):
    """A hand-off message stands in for everything before it, but for `originals` and the last `kept` messages."""

    type: Literal["context_compacted"] = "context_compacted"
    summary_message: str
    """The message: what survives verbatim, and the summary."""
    summary: str
    """The LLM's own words."""
    messages: int
    """How many messages it stands for."""
    originals: tuple[int, ...] = ()
    """The messages of people that hold more than text, by position: they follow the hand-off, as they were sent."""
    kept: int = 0
    usage: Usage = Usage()
    outage: Outage | None = None
    """The attempts at the request for the summary that failed before."""


class ReplyRejected(Event):
    """The reply could not be used as it is; the LLM is told so, and asked again."""

    type: Literal["reply_rejected"] = "reply_rejected"
    reason: str
    notice: str = ""
    """Said to the LLM as a message; empty where the results of its calls say it."""


class ToolCallRequested(Event):
    """The LLM asked for a tool."""

    type: Literal["tool_call_requested"] = "tool_call_requested"
    number: int
    """Counted from 1 through the thread."""
    call: ToolCall
    past: str = ""
    """The key of an effect that this very call had before the run was reset: it is adopted, not made again."""


class VerdictGiven(Event):
    """The policy judged the call."""

    type: Literal["verdict_given"] = "verdict_given"
    number: int
    verdict: VerdictKind
    rule: str
    terms: Terms | None = None
    """Where a remembered rule lifts `ask`: how what it lifts would be decided."""


class ApprovalRequested(Event):
    """A person is asked whether the call may run."""

    type: Literal["approval_requested"] = "approval_requested"
    request: ApprovalRequest


class ReconcileRequested(Event):
    """Nobody can tell whether the call's effect happened; a person is asked."""

    type: Literal["reconcile_requested"] = "reconcile_requested"
    request: ApprovalRequest


class ApprovalReminded(Event):
    """Nobody has decided; those who may are reminded."""

    type: Literal["approval_reminded"] = "approval_reminded"
    request: str


class ApprovalEscalated(Event):
    """Nobody has decided; more people may."""

    type: Literal["approval_escalated"] = "approval_escalated"
    request: str
    by: tuple[str, ...]
    """The people and roles who are asked besides."""


class ApprovalExpired(Event):
    """Nobody has decided in time; the policy has."""

    type: Literal["approval_expired"] = "approval_expired"
    request: str
    decision: Literal["deny", "approve"]


class DecisionReceived(Event, Proven):
    """A person's decision arrived. Only `accepted` and `waiting_for_quorum` change anything by themselves; after
    `judged_anew` another request opens in the place of this one. Of any other, the body is kept as digest and size.
    """

    type: Literal["decision_received"] = "decision_received"
    request: str
    decision: DecisionKind
    by: str
    reason: str
    outcome: DecisionOutcome
    explanation: str = ""
    digest_given: str = ""
    """The digest of what the person saw, as they gave it."""
    arguments: dict[str, Any] | None = None
    """Those to run with, where a person has changed them; the LLM's own are in `tool_call_requested`."""
    result: str | None = None
    remember: bool = False
    right: str = ""
    """Whose right was used, where it was lent."""
    rule: str = ""
    """The rule by which changed arguments were judged."""
    sent_digest: str = ""
    """Where it was refused: SHA-256 of what was sent, in the place of its body (`holdfast.run.refusals`)."""
    sent_bytes: int = 0

    @property
    def said(self) -> Decision:
        """The decision as it was sent: what the signature is over; of one that changed nothing, what is kept of it."""
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
    """The same call is allowed from here on, in this thread: all who approved it said so. Comes right after the
    decision that made it, and counts for nothing without.
    """

    type: Literal["rule_remembered"] = "rule_remembered"
    rule: str
    """Its id, for the signal `revoke`."""
    tool: str
    call_digest: str
    """Digest of tool and arguments."""
    by: tuple[str, ...]
    """Whose approvals made it."""


class RuleRevoked(Event, Proven):
    """A remembered rule counts no more."""

    type: Literal["rule_revoked"] = "rule_revoked"
    rule: str
    by: str
    reason: str = ""

    @property
    def said(self) -> Revocation:
        """What was sent: what the signature is over."""
        return Revocation(by=self.by, reason=self.reason, remembered=self.rule, signature=self.signature)


class AuthorityDelegated(Event, Proven):
    """An approver has lent their right to another, within this thread."""

    type: Literal["authority_delegated"] = "authority_delegated"
    by: str
    to: str
    until: datetime
    reason: str = ""

    @property
    def said(self) -> AuthorityDelegation:
        """What was sent, where it was signed: what the signature is over."""
        return AuthorityDelegation(
            by=self.by, reason=self.reason, to=self.to, until=self.until, signature=self.signature
        )


class DelegationRevoked(Event, Proven):
    """A right that was lent is taken back."""

    type: Literal["delegation_revoked"] = "delegation_revoked"
    by: str
    to: str
    reason: str = ""

    @property
    def said(self) -> Revocation:
        """What was sent: what the signature is over."""
        return Revocation(by=self.by, reason=self.reason, delegated_to=self.to, signature=self.signature)


class Finding(Frozen):
    """What one `verify` tool found."""

    tool: str
    status: ToolStatus
    content: str
    trust: Trust | None = None
    """What it is worth, where that is not what the tool says of all its results."""


class BaselineRecorded(Event):
    """Requests have opened, and the agent's `verify` tools have looked at what people are asked for. The LLM is not
    told; where an approval comes late, what the tools find then is compared with it (`holdfast.run.baseline`).
    """

    type: Literal["baseline_recorded"] = "baseline_recorded"
    findings: tuple[Finding, ...]


class StateVerified(Event):
    """After a long pause, the agent's `verify` tools have looked at the world. The LLM is told before its next step.

    Where it differs from what stood when people were asked, requests for the same calls follow.
    """

    type: Literal["state_verified"] = "state_verified"
    paused_seconds: int
    findings: tuple[Finding, ...]


class ToolCallStarted(Event):
    """The intent: from here on the call's effect may happen."""

    type: Literal["tool_call_started"] = "tool_call_started"
    number: int
    key: str
    """Names the effect (`holdfast.tools.effects.effect_key`)."""
    request: str = ""
    """The request whose approval this start uses up; empty where the policy allows the call."""
    undo: bool = False
    """The effect is taken back, not made."""


class ToolCallFinished(Event):
    """The call has a result, which the LLM will read."""

    type: Literal["tool_call_finished"] = "tool_call_finished"
    number: int
    status: ToolStatus
    content: str
    adopted: bool = False
    """The effect was found done by an earlier attempt, and not done again."""
    duration_ms: int = 0
    artifact: str = ""
    """Address of the whole result, where `content` holds its head and tail only."""
    size: int = 0
    """Bytes of the whole result; 0 where `content` is the whole."""
    trust: Trust | None = None
    """What the result is worth, where that is not what the tool says of all its results."""


class RunBlocked(Event):
    """The run cannot go on until somebody mends the cause and sends `retry`."""

    type: Literal["run_blocked"] = "run_blocked"
    cause: str
    """A short name of the cause: `LLMRejected`, `StepLimit`, …"""
    message: str
    outage: Outage | None = None
    """The attempts that failed before the LLM was given up; a claim of whoever failed the call."""


class RunUnblocked(Event):
    """Somebody sent `retry`."""

    type: Literal["run_unblocked"] = "run_unblocked"
    by: str
    reason: str = ""


class SignalRejected(Event):
    """A signal arrived that means nothing here: unknown name, malformed payload, or nothing to do."""

    type: Literal["signal_rejected"] = "signal_rejected"
    signal: str
    explanation: str
    outcome: str = ""
    """One word for why: `malformed`, `unknown_signal`, `not_entitled`, …"""
    by: str = ""
    """Who sent it, as they say."""
    sent_digest: str = ""
    """SHA-256 of what was sent, in the place of its body."""
    sent_bytes: int = 0


class RefusalsCounted(Event):
    """More was refused in this Temporal run than is recorded one by one: the rest of it, up to here."""

    type: Literal["refusals_counted"] = "refusals_counted"
    count: int
    sent_bytes: int
    """Bytes that were sent with them."""
    refusals_digest: str
    """Of the chain over the events that they would have been, without position and time. Temporal's history has what
    was sent.
    """


class RunFinished(Event):
    """The run ended."""

    type: Literal["run_finished"] = "run_finished"
    outcome: RunOutcome
    result: str = ""
    """The LLM's last words, or why the run failed."""
    cause: str = ""
    """A short name of why it failed: `AgentNotFound`, …"""


AgentEvent = Annotated[
    RunStarted
    | RunContinued
    | RunReset
    | UserMessageReceived
    | MessageTaken
    | AgentLoaded
    | MemoryRecalled
    | LLMReplied
    | MessageAwaited
    | ContextExceeded
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
    | RunBlocked
    | RunUnblocked
    | SignalRejected
    | RefusalsCounted
    | RunFinished,
    Field(discriminator="type"),
]

EVENTS: TypeAdapter[list[AgentEvent]] = TypeAdapter(list[AgentEvent])
"""Decodes events, each by its type."""
