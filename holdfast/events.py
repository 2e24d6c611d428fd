"""The events of an agent run: a closed union, in the past tense. What each means is written here and only here.

1. An event is recorded once and never changes; state (`holdfast.state`) and transcript (`holdfast.transcript`)
   are folds over events.
2. Every event carries its position, its time and the digest of the chain up to and including itself.
3. Fields are only added, with a default that never changes; anything else needs a new schema version and an
   upcaster. An event's JSON leaves defaults out, so a field added later alters no digest of an older event.
"""

from datetime import UTC, datetime
from itertools import islice
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, TypeAdapter

from holdfast.agent import AgentSpec
from holdfast.approval import DecisionKind, DecisionOutcome, Request
from holdfast.messages import AssistantMessage, ToolCall, Usage
from holdfast.model import GENESIS, Frozen, canonical, chain, page
from holdfast.policy import VerdictKind

ToolStatus = Literal["ok", "failed", "invalid", "denied", "unknown", "cancelled"]
"""How a call ended: returned · raised or timed out · not callable as asked · refused · nobody can tell · stopped."""

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


class RunStarted(Event):
    """The run began."""

    type: Literal["run_started"] = "run_started"
    thread: str
    run_id: str
    """Temporal's run id."""
    agent: str | None
    """The agent asked for; None for the catalog's first."""


class UserMessageReceived(Event):
    """A person said something; the first one is the task."""

    type: Literal["user_message_received"] = "user_message_received"
    content: str


class AgentLoaded(Event):
    """A worker resolved the agent: what the LLM will be told and the policy will allow, from here on."""

    type: Literal["agent_loaded"] = "agent_loaded"
    spec: AgentSpec
    spec_hash: str
    workspace: str
    """The run's folder, on the worker."""


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
    """More than 1: the provider failed that often less one, and Temporal tried again."""


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


class VerdictGiven(Event):
    """The policy judged the call."""

    type: Literal["verdict_given"] = "verdict_given"
    number: int
    verdict: VerdictKind
    rule: str


class ApprovalRequested(Event):
    """A person is asked whether the call may run."""

    type: Literal["approval_requested"] = "approval_requested"
    request: Request


class ReconcileRequested(Event):
    """Nobody can tell whether the call's effect happened; a person is asked."""

    type: Literal["reconcile_requested"] = "reconcile_requested"
    request: Request


class DecisionReceived(Event):
    """A person's decision arrived. Only `accepted` changes anything."""

    type: Literal["decision_received"] = "decision_received"
    request: str
    decision: DecisionKind
    by: str
    reason: str
    outcome: DecisionOutcome
    explanation: str = ""


class ToolCallStarted(Event):
    """The intent: from here on the call's effect may happen."""

    type: Literal["tool_call_started"] = "tool_call_started"
    number: int
    key: str
    """Names the effect (`holdfast.effects.effect_key`)."""


class ToolCallFinished(Event):
    """The call has a result, which the LLM will read."""

    type: Literal["tool_call_finished"] = "tool_call_finished"
    number: int
    status: ToolStatus
    content: str
    adopted: bool = False
    """The effect was found done by an earlier attempt, and not done again."""
    duration_ms: int = 0


class RunParked(Event):
    """The run cannot go on until somebody mends the cause and sends `retry`."""

    type: Literal["run_parked"] = "run_parked"
    cause: str
    """A short name of the cause: `LLMRejected`, `StepLimit`, …"""
    message: str


class RunUnparked(Event):
    """Somebody sent `retry`."""

    type: Literal["run_unparked"] = "run_unparked"
    by: str
    reason: str = ""


class SignalRejected(Event):
    """A signal arrived that means nothing here: unknown name, malformed payload, or nothing to do."""

    type: Literal["signal_rejected"] = "signal_rejected"
    signal: str
    explanation: str


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
    | UserMessageReceived
    | AgentLoaded
    | LLMReplied
    | ReplyRejected
    | ToolCallRequested
    | VerdictGiven
    | ApprovalRequested
    | ReconcileRequested
    | DecisionReceived
    | ToolCallStarted
    | ToolCallFinished
    | RunParked
    | RunUnparked
    | SignalRejected
    | RunFinished,
    Field(discriminator="type"),
]

EVENTS: TypeAdapter[list[AgentEvent]] = TypeAdapter(list[AgentEvent])
"""Decodes events, each by its type."""

EventT = TypeVar("EventT", bound=Event)


class EventLog:
    """The events of one thread in order, append-only, and the digest of their chain."""

    def __init__(self) -> None:
        self.events: list[AgentEvent] = []
        self.head = GENESIS

    def append(self, event: EventT, *, at: datetime) -> EventT:
        """Stamp `event` with position, time and digest, keep it, and return it as kept."""
        stamped = event.model_copy(update={"position": len(self.events), "at": at})
        self.head = chain(self.head, _body(stamped))
        stamped = stamped.model_copy(update={"digest": self.head})
        self.events.append(stamped)  # type: ignore[arg-type]  # every Event subclass is in the union
        return stamped

    def page(self, start: int, stop: int | None = None) -> bytes:
        """Events from position `start` up to `stop`, one JSON text a line, a page of them; empty without any."""
        return page(canonical(event_json(event)) for event in islice(self.events, start, stop))


def first_altered(events: list[AgentEvent]) -> int | None:
    """The position of the first event whose digest does not follow from the ones before it; None if all do."""
    head = GENESIS
    for position, event in enumerate(events):
        head = chain(head, _body(event))
        if event.position != position or event.digest != head:
            return position
    return None


def event_json(event: AgentEvent | Event) -> dict[str, Any]:
    """The event as it is shown, exported and digested: whoever has this JSON needs only SHA-256 to check the chain."""
    told = {"schema_version": event.schema_version, "type": getattr(event, "type", "event")}
    return told | event.model_dump(mode="json", exclude_defaults=True)


def _body(event: Event) -> bytes:
    return canonical({name: value for name, value in event_json(event).items() if name != "digest"})
