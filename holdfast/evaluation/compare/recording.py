"""What a recorded run gives its play: its task, replies, results and decisions, and what people sent.

All of it is words for an LLM and for people, data to compare with. The file that it comes from may be anybody's, so
nothing here says what to run, where to connect or which folder to open.
"""

from typing import Any

from holdfast.core.agents.agent import AgentSpec
from holdfast.core.authority.refinements import RefinementKind
from holdfast.core.authority.statements import DecisionKind
from holdfast.core.base.models import Frozen
from holdfast.core.budget.budget import Amounts, Budget
from holdfast.core.llm.blocks import Content, Media, TextBlock
from holdfast.core.llm.messages import AssistantMessage, Usage
from holdfast.core.log.events import ToolStatus
from holdfast.core.memory.recalled import RecalledTier
from holdfast.core.tools.cannot import Scope
from holdfast.core.trust import Trust
from holdfast.evaluation.compare.trajectory import Course


class RecordedReply(Frozen):
    """A reply of the LLM."""

    message: AssistantMessage | None
    usage: Usage
    finish_reason: str
    llm: str


class RecordedResult(Frozen):
    """The result of a call: what the LLM read."""

    call: int
    """Which of the LLM's calls it answered, counted from 1."""
    status: ToolStatus
    content: Content
    trust: Trust | None = None
    scope: Scope | None = None
    seconds: float | None = None
    """With the status `cannot`: how long it cannot be done; None for no end."""


class RecordedDecision(Frozen):
    """What people, or the policy at the expiry of a request, decided about a call."""

    decision: DecisionKind
    by: str
    reason: str = ""
    arguments: dict[str, Any] | None = None
    result: str | None = None
    remember: bool = False


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
    """A recorded run, as it is played."""

    thread: str
    task: Content
    by: str
    agent: str
    """The name of the agent that it ran; empty where none was loaded."""
    idle_limit: float | None = None
    trust: Trust = "person"
    budget: Budget | None = None
    workspace: str = ""
    """The folder in which it ran: text that the policy's conditions see, never a folder that is opened."""
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
    """The causes of the blocks that a person ended with `retry`."""
    extensions: tuple[Amounts, ...] = ()
    """How people extended the budget."""
    course: Course


def without_addresses(content: Content) -> Content:
    """Return content that names nothing elsewhere: an endpoint fetches media by address, or by id from the account of
    the person who plays the run, and a `provider` part may ask it for anything.
    """
    if isinstance(content, str):
        return content
    return tuple(
        TextBlock(text=f"[{block.type} left out: a recording does not say what is fetched from elsewhere]")
        if isinstance(block, Media) and not block.data
        else block.model_copy(update={"provider": None})
        for block in content
    )
