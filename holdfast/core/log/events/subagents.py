"""Events of sub-agents, in the log of their parent."""

from typing import Literal

from holdfast.core.budget.tree import TreeCost
from holdfast.core.llm.messages import Usage
from holdfast.core.log.events.base import Event
from holdfast.core.tools.cannot import InheritedConstraint
from holdfast.core.trust import Trust


class SubagentStarted(Event):
    """A sub-agent started, in its own thread. Recorded from feature level 1 on.

    Followed by: `subagent_ended` when it has ended; `tool_call_finished` immediately if it runs in the background.
    Correlate: `number` is that of the `run_agent` call; the sub-agent's `run_started` has that call in its `lineage`.
    """

    type: Literal["subagent_started"] = "subagent_started"
    number: int
    thread: str
    """The sub-agent's thread."""
    agent: str
    run_id: str
    """Temporal's first run id of the sub-agent."""
    background: bool = False


SubagentStatus = Literal["completed", "failed", "cancelled", "terminated", "lost", "unfinished"]
"""How a sub-agent ended: with an answer · it reported a failure · it was cancelled · closed from outside · no trace of
it is left, or its result is not authentic · it was asked to end but did not in time."""


class SubagentEnded(Event):
    """A sub-agent ended. Recorded from feature level 1 on.

    Followed by: `tool_call_finished` of each call that waits for it.
    Correlate: `number` and `thread` are those of its `subagent_started`.
    """

    type: Literal["subagent_ended"] = "subagent_ended"
    number: int
    thread: str
    status: SubagentStatus
    trust: Trust = "web"
    """How far its result can be trusted."""
    said: str = ""
    """Digest of its result, as the parent reads it."""
    steps: int = 0
    usage: Usage = Usage()
    """Tokens of the sub-agent's LLM calls, without those of its own sub-agents."""
    constraints: tuple[InheritedConstraint, ...] = ()
    """The constraints that its tools reported: the parent rejects such calls, too."""
    cost: TreeCost | None = None
    """With an allowance: the total spent by it and all runs below it. If None, that is unknown, and the whole allowance
    counts."""
