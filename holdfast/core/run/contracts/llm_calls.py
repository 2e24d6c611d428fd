"""An LLM call: its request, its reply, and the proof of its failure."""

from pydantic import Field

from holdfast.core.llm.messages import AssistantMessage, Usage
from holdfast.core.llm.names import MAX_LLMS
from holdfast.core.llm.outages import Outage, PassedOver
from holdfast.core.mac.seals import ActivityRequest, ActivityResult
from holdfast.core.nodes import NodeTerms, Placement
from holdfast.core.transcript.transcript import TranscriptRef


class LLMRequest(ActivityRequest):
    """The input of `call_llm`: the messages to send, by reference to the calling workflow's transcript."""

    transcript: TranscriptRef
    compacting: bool = False
    """Ask for the summary that replaces the transcript (context compaction)."""
    priced: bool = False
    """Compute the cost of the reply, which the run records."""
    budgeted: bool = False
    """The run has a budget: an attempt that may have cost something ends the call, before another one is made."""
    lost: int = 0
    """How many attempts at the same step have already ended calls: retries wait longer."""
    sized: bool = False
    """Report the request's size in tokens if the provider counts far fewer."""
    nodes: NodeTerms | None = None
    """The terms for the node that makes the call; None for any node. With terms, the reply has a placement."""


class LLMReply(ActivityResult):
    """The result of `call_llm`: the reply, normalised before it is recorded."""

    message: AssistantMessage | None = None
    """The LLM's message; None if the provider's reply has none, for the reason in `rejected`."""
    rejected: str = ""
    """Why the reply is unusable; empty if it is usable."""
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
    """The address of the reply's full text, if `message` has only its head and tail."""
    request_tokens: int = 0
    """If requested: the request's tokens, estimated from its bytes, if the provider counts far fewer; else 0."""
    cost: int | None = None
    """If requested: nano-dollars by list prices; None if the LLM's price is unknown."""
    signed: str = ""
    """The node's signature (`holdfast.core.run.contracts.signed_results`); empty if it has no key."""
    placement: Placement | None = None
    """If the request has terms for nodes: the node that took the call. If none did, there was no request to the LLM."""
    endpoint: str = ""
    """The endpoint that replied; empty for a plain name at the default endpoint."""
    passed_over: tuple[PassedOver, ...] = Field(default=(), max_length=MAX_LLMS)
    """The LLMs before it in the agent's order."""


class Failures(ActivityResult):
    """The state that a failed attempt of `call_llm` leaves for the next one, in its last heartbeat."""

    outage: Outage
    untraced: bool = False
    """With a budget: an attempt after these may have ended without a trace. Temporal's count of attempts cannot show
    that, because it restarts if somebody resets the activity."""
    usage: Usage | None = None
    """With a budget: usage of an unrecorded reply that an attempt received; None if there is none."""
    cost: int | None = None
    """Nano-dollars of that reply; None if the price was not requested, or is unknown."""
    passed_over: tuple[PassedOver, ...] = Field(default=(), max_length=MAX_LLMS)
    """The LLMs of the agent's order that this call has given up."""
    failing: str = ""
    """The LLM of the last attempt."""
    failed: int = 0
    """How many attempts in a row that LLM has failed in this call."""


class LLMFailed(ActivityResult):
    """Proof of why an LLM call failed: the details of the error that ends `call_llm`, if the run has a budget.
    Without it, anybody with access to Temporal could fail the activity and so claim that the call cost nothing.
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
    """Usage of an unrecorded reply that one of them received: it is charged instead."""
    cost: int | None = None
    """Nano-dollars of that reply; None if the price was not requested, or is unknown."""
