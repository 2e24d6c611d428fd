"""The events of child runs, in the log of their parent."""

from typing import Literal

from holdfast.core.budget.tree import TreeCost
from holdfast.core.llm.messages import Usage
from holdfast.core.log.events.base import Event
from holdfast.core.tools.cannot import HandedConstraint
from holdfast.core.trust import Trust


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
