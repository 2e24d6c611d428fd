"""An LLM call: its request, its reply, and the proof of how it failed."""

from holdfast.core.llm.messages import AssistantMessage, Usage
from holdfast.core.llm.outages import Outage
from holdfast.core.mac.seals import Answer, Order
from holdfast.core.transcript.transcript import TranscriptRef


class LLMRequest(Order):
    """The input of `call_llm`: the messages to send, by reference to the calling workflow's transcript."""

    transcript: TranscriptRef
    compacting: bool = False
    """Ask for the summary that replaces the transcript (context compaction)."""
    priced: bool = False
    """Compute the cost of the reply, because the run has a budget of money."""
    budgeted: bool = False
    """The run has a budget: an attempt that may have cost something ends the call, before another one is made."""
    lost: int = 0
    """How many attempts at the same step have ended calls before this one: the next retries wait longer."""
    sized: bool = False
    """Report the request's own size if the provider counts far fewer tokens."""


class LLMReply(Answer):
    """The result of `call_llm`: the reply, normalised before it is recorded."""

    message: AssistantMessage | None = None
    """The LLM's message; None if the provider's reply holds none: `rejected` says why."""
    rejected: str = ""
    """Why the reply cannot be used as it is; empty if it can."""
    problems: dict[str, str] = {}
    """Call id → why the call cannot run (unknown tool, arguments that do not fit)."""
    arguments: dict[str, str] = {}
    """Call id → its arguments as the tool reads them (`holdfast.core.tools.arguments`), if the LLM wrote others."""
    usage: Usage = Usage()
    finish_reason: str = "stop"
    llm: str = ""
    request_id: str | None = None
    duration_ms: int = 0
    attempt: int = 1
    outage: Outage | None = None
    """The failed attempts before this one, as far as they left a trace."""
    artifact: str = ""
    """The address of the reply's full text, if `message` holds its head and tail only."""
    request_tokens: int = 0
    """If the request asks for it: its tokens by its bytes, if the provider counts far fewer; else 0."""
    cost: int | None = None
    """If the request asks for it: nano-dollars by list prices; None if the LLM's price is unknown."""


class Failures(Answer):
    """The state that a failed attempt of `call_llm` leaves for the next one, in its last heartbeat."""

    outage: Outage
    untraced: bool = False
    """With a budget: an attempt after these may have ended without a trace, whatever Temporal's count of attempts says,
    which begins again if somebody resets the activity."""
    usage: Usage | None = None
    """With a budget: usage of a reply that an attempt received, and that is not recorded; None if none did."""
    cost: int | None = None
    """Nano-dollars of that reply; None if no price is asked for, or known."""


class LLMFailed(Answer):
    """Proof of why an LLM call failed: the details of the error that ends `call_llm`, if the run has a budget.
    Anybody who reaches Temporal can fail an activity, and a request that the provider refuses costs nothing.
    """

    cause: str
    """The error's type: `LLM_REJECTED`, `CONTEXT_TOO_LONG` or `LLM_LOST`."""
    outage: Outage | None = None
    """The failed attempts before this one, as far as they left a trace."""
    lost: int = 0
    """How many attempts may have cost something."""
    request_tokens: int = 0
    """The tokens of the request that each of them may have sent, estimated from its bytes."""
    usage: Usage | None = None
    """Usage of a reply that one of them received, and that is not recorded: it is charged instead."""
    cost: int | None = None
    """Nano-dollars of that reply; None if no price is asked for, or known."""
