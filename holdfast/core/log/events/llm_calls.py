"""Events of LLM calls and of their context."""

from datetime import datetime
from typing import Literal

from pydantic import Field

from holdfast.core.authority.interventions import Compaction
from holdfast.core.llm.messages import AssistantMessage, Usage
from holdfast.core.llm.outages import Outage, PassedOver
from holdfast.core.log.events.base import Event, Stated


class LLMReplied(Event):
    """The LLM replied. A step begins here.

    Followed by: `tool_call_requested` for each call of `message`; without calls, `message_awaited` or `run_finished`;
    `reply_rejected` if no part of the reply can be used.
    Correlate: the ids in `message.tool_calls` are those of the `call` of each `tool_call_requested`.
    """

    type: Literal["llm_replied"] = "llm_replied"
    message: AssistantMessage | None
    """None if no part of the reply is kept."""
    transcript_length: int
    """Number of messages in the request."""
    usage: Usage
    finish_reason: str
    llm: str
    """The provider's name of the LLM that replied."""
    request_id: str | None = None
    """The provider's id of the request."""
    duration_ms: int = 0
    attempt: int = 1
    """The number of the Temporal attempt that succeeded; earlier ones failed."""
    outage: Outage | None = None
    """The earlier failed attempts, without those whose worker was killed."""
    artifact: str = ""
    """Address of the reply's full text, if the message has only its head and tail."""
    request_tokens: int = Field(default=0, ge=0)
    """The tokens of the request, estimated from its bytes, if the provider counts far fewer, for example without those
    in its cache: they trigger context compaction in place of its count. Recorded from feature level 1 on."""
    cost: int | None = Field(default=None, ge=0)
    """With a cost budget: nano-dollars by list prices; None if the price of the LLM that replied is unknown."""
    signed: str = ""
    """The signature of the node that made the call; empty if it has no key. Recorded from feature level 2 on."""
    endpoint: str = ""
    """The endpoint that replied; empty for a plain name at the default endpoint. Recorded from feature level 2 on."""
    passed_over: tuple[PassedOver, ...] = ()
    """The LLMs before it in the agent's fallback order, each with its failure. Recorded from feature level 2 on."""


class LearningRequested(Event):
    """The LLM answered, and is asked what to remember before the run ends. Recorded from feature level 1 on.

    The answer is in the last `message_awaited`, and remains the result of the run.
    Followed by: `llm_replied`, whose text is ignored; or `learning_skipped`. Then the calls of that reply, and
    `run_finished`.
    Correlate: `message_awaited` has the answer.
    """

    type: Literal["learning_requested"] = "learning_requested"
    notice: str
    """The message that the LLM reads."""


class LearningSkipped(Event):
    """The LLM could not be asked what to remember; the run ends nevertheless. Recorded from feature level 1 on.

    Followed by: `run_finished`.
    Correlate: it belongs to the last `learning_requested`.
    """

    type: Literal["learning_skipped"] = "learning_skipped"
    cause: str
    """A short name of the reason: `LLMRejected`, …"""
    message: str = ""


class LLMCallLost(Event):
    """An attempt at an LLM call produced no reply but may have incurred a cost: its worker died, or the provider did
    not reject its request. The run charges it and repeats the call. Recorded from feature level 1 on, for runs with a
    budget.

    Followed by: `budget_reserved` for the same request; `budget_spent` or `learning_skipped` if the budget has no room
    for that; `run_blocked` if the last call was lost too often or middleware rejected a reply.
    Correlate: it settles the last `budget_reserved` for an LLM call.
    """

    type: Literal["llm_call_lost"] = "llm_call_lost"
    attempts: int = Field(ge=1)
    """Number of attempts that may have incurred a cost. Each is charged the request's tokens, except for the one with
    `usage`."""
    request_tokens: int = Field(ge=0)
    """The tokens of the request, estimated from its bytes."""
    usage: Usage | None = None
    """The usage of a reply that middleware rejected or that could not be stored: that attempt is charged this
    instead."""
    cost: int | None = Field(default=None, ge=0)
    """Nano-dollars of that reply; None without a cost budget, or if the price is unknown."""
    outage: Outage | None = None
    """The failed attempts that left a trace."""


class ContextExceeded(Event):
    """The provider rejected a request that exceeds the LLM's context window.

    Followed by: `context_compacted`, or `run_blocked` if no further compaction is possible.
    Correlate: it replaces the `llm_replied` or `context_compacted` that the request would have led to.
    """

    type: Literal["context_exceeded"] = "context_exceeded"
    message: str
    outage: Outage | None = None
    """With a budget: the earlier failed attempts, as reported by the process that failed the call."""


class CompactionRequested(Stated):
    """A person requested context compaction. Recorded from feature level 1 on.

    Followed by: `context_compacted`, immediately while the run waits for a message, otherwise at the end of the step.
    The request lapses if the run is blocked or the provider rejects the LLM request as too long.
    """

    STATEMENT = Compaction

    type: Literal["compaction_requested"] = "compaction_requested"
    by: str
    reason: str = ""
    summary: str = ""
    """The person's own summary; empty if the LLM is to write it. Recorded from feature level 2 on."""
    id: str = ""
    until: datetime | None = None
    """When the signed request expires."""


class ContextCompacted(Event):
    """The context was compacted: a summary message replaces the first `messages` messages of the transcript, except for
    `originals`. Nothing is deleted from the log.

    Followed by: `message_taken` or `llm_replied`.
    Correlate: `originals` are positions of `user_message_received`.
    """

    type: Literal["context_compacted"] = "context_compacted"
    summary_message: str
    """The message: the parts that are kept verbatim, and the summary."""
    summary: str
    """The LLM's own words, or those of the person who wrote it."""
    by: str = ""
    """The person who wrote the summary; empty for the LLM. Recorded from feature level 2 on."""
    messages: int
    """Number of messages that it replaces."""
    originals: tuple[int, ...] = ()
    """Positions of people's messages that contain more than text: they follow the summary message unchanged."""
    kept: int = 0
    """Number of later messages, which are kept."""
    usage: Usage = Usage()
    outage: Outage | None = None
    """The failed attempts at the request for the summary."""
    cost: int | None = Field(default=None, ge=0)
    """As for `llm_replied`."""
    signed: str = ""
    """As for `llm_replied`; empty if the run took an earlier summary again."""


class ReplyRejected(Event):
    """A reply could not be used; the LLM reads the reason and is called again.

    Followed by: `llm_replied`; `context_compacted` if a summary was asked for; `run_blocked` after too many in a row.
    Correlate: it comes directly after the `llm_replied`, and its calls, that it rejects.
    """

    type: Literal["reply_rejected"] = "reply_rejected"
    reason: str
    notice: str = ""
    """The message that the LLM reads; empty if the results of its calls give the reason."""
    usage: Usage = Usage()
    """With a budget: the tokens of a rejected summary, which has no `llm_replied`."""
    outage: Outage | None = None
    """With a budget: the failed attempts at the request for a rejected summary."""
    cost: int | None = Field(default=None, ge=0)
    """As for `llm_replied`, for a rejected summary."""
