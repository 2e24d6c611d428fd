"""The events of LLM calls, and of the context that they are shown."""

from typing import Literal

from pydantic import Field

from holdfast.core.llm.messages import AssistantMessage, Usage
from holdfast.core.llm.outages import Outage
from holdfast.core.log.events.base import Event


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
    request_tokens: int = Field(default=0, ge=0)
    """The tokens of the request, estimated from its bytes, if the provider counts far fewer, for example without those
    in its cache: they trigger context compaction in place of its count. Recorded from feature level 1 on."""
    cost: int | None = Field(default=None, ge=0)
    """With a budget of money: nano-dollars by list prices; None where the price of the LLM that replied is unknown."""


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
