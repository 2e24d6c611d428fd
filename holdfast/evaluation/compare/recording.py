"""The recording that feeds a rerun: the task, replies, results, decisions, and messages of people.

All of it is text for an LLM or for people, or data to compare with. It may come from an untrusted file, so nothing here
selects code, an address or a folder.
"""

from typing import Any

from holdfast.core.agents.agent import AgentSpec, WhenBlocked
from holdfast.core.authority.interventions import RefinementKind
from holdfast.core.authority.statements import DecisionKind
from holdfast.core.base.models import Frozen
from holdfast.core.budget.budget import Amounts, Budget
from holdfast.core.llm.blocks import Content, Media, TextBlock
from holdfast.core.llm.conversation import Conversation
from holdfast.core.llm.messages import AssistantMessage, Usage
from holdfast.core.log.events import ToolStatus
from holdfast.core.memory.recalled import RecalledTier
from holdfast.core.tools.cannot import Scope
from holdfast.core.trust import Trust
from holdfast.evaluation.compare.trajectory import Trajectory


class RecordedReply(Frozen):
    """A reply of the LLM."""

    message: AssistantMessage | None
    usage: Usage
    finish_reason: str
    llm: str


class RecordedResult(Frozen):
    """The result of a call, as the LLM read it."""

    call: int
    """The index of the LLM's call that it answers, counted from 1."""
    status: ToolStatus
    content: Content
    trust: Trust | None = None
    scope: Scope | None = None
    seconds: float | None = None
    """With the status `cannot`: how long the constraint lasts; None for no end."""
    missing: str = ""
    """The part that is missing from a partial result."""


class RecordedDecision(Frozen):
    """The decision about a call, by people or by the policy when a request expired."""

    decision: DecisionKind
    by: str
    reason: str = ""
    arguments: dict[str, Any] | None = None
    result: str | None = None
    remember: bool = False
    say: str = ""


class RecordedInput(Frozen):
    """A follow-up message, or a refinement of the task."""

    content: Content
    by: str
    refinement: RefinementKind | None = None
    """None for a message."""
    during: int = 0
    """The number of the LLM call during which it is sent; 0 to send it when the run waits for a message, or has ended.
    """


class Recording(Frozen):
    """A recorded run, as a rerun uses it."""

    thread: str
    task: Content
    by: str
    agent: str
    """The name of the agent that it ran; empty if none was loaded."""
    idle_limit: float | None = None
    when_blocked: WhenBlocked | None = None
    trust: Trust = "person"
    budget: Budget | None = None
    context: dict[str, Any] | None = None
    """The typed context that its start gave."""
    conversation: Conversation = ()
    """The conversation from elsewhere that its start brought along."""
    workspace: str = ""
    """The folder in which it ran: text for the policy's conditions, never opened."""
    recalled: tuple[RecalledTier, ...] = ()
    spec: AgentSpec | None = None
    inputs: tuple[RecordedInput, ...] = ()
    replies: tuple[RecordedReply, ...] = ()
    summaries: tuple[str, ...] = ()
    results: dict[str, tuple[RecordedResult, ...]] = {}
    """Digest of the call that ran → its results, in the order of the LLM's calls."""
    decisions: dict[str, tuple[RecordedDecision, ...]] = {}
    """Digest of the LLM's call → the decisions about it, oldest first."""
    unblocked: tuple[str, ...] = ()
    """The causes of blocks that a person ended with `retry`."""
    extensions: tuple[Amounts, ...] = ()
    """The budget extensions by people."""
    trajectory: Trajectory


def without_addresses(content: Content) -> Content:
    """Return content without references to the outside: an endpoint fetches media by address, or by id from the account
    of the person who reruns the run, and a `provider` part may request anything.
    """
    if isinstance(content, str):
        return content
    return tuple(
        TextBlock(text=f"[{block.type} left out: a recording does not say what is fetched from elsewhere]")
        if isinstance(block, Media) and not block.data
        else block.model_copy(update={"provider": None})
        for block in content
    )
