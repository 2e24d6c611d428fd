"""Requests and answers about a run's sub-agents: to start them, to poll them and to cancel them."""

from typing import Any

from holdfast.core.authority.policy import Policy
from holdfast.core.base.models import Frozen
from holdfast.core.budget.budget import Budget
from holdfast.core.budget.tree import TreeCost
from holdfast.core.lineage import Lineage
from holdfast.core.llm.messages import Usage
from holdfast.core.log.events import SubagentStatus
from holdfast.core.mac.seals import ActivityRequest, ActivityResult
from holdfast.core.nodes import TrustScope
from holdfast.core.run.contracts.runs import RunInput
from holdfast.core.run.state.features import TRACE_LINKS
from holdfast.core.tools.cannot import InheritedConstraint
from holdfast.core.tools.subagents import child_thread
from holdfast.core.trust import Trust

ENDED_SIGNAL = "subagent_ended"
"""The signal by which a sub-agent hints that it is about to end. The parent trusts none of it, and polls instead."""

PARENT_ENDS = "the run above it, which nobody attends, ends"
"""The reason with which a run cancels its sub-agents if their unknown outcomes are kept for a person. Only a claim:
anybody with access to Temporal can cancel a run for any reason."""

NO_ANSWER = "it gave no answer"
"""The text of a sub-agent that was cancelled."""

HINTED_SECONDS = 3.0
"""How long a poll waits for a sub-agent that has sent the hint to close."""


class SubagentStart(Frozen):
    """A sub-agent to start."""

    number: int
    """The number of the `run_agent` call."""
    key: str
    """The call's effect key."""
    agent: str
    task: str
    budget: Budget | None = None
    """Its allowance; None if the calling run has no budget."""


class StartSubagentsRequest(ActivityRequest):
    """The input of `start_subagents`: the sub-agents to start, and the properties that they have in common."""

    children: tuple[SubagentStart, ...]
    path: tuple[str, ...]
    """The threads from the root to the calling run."""
    depth: int
    """The depth of the sub-agents."""
    deepest: int
    by: str = ""
    by_proven: bool = False
    requesters: tuple[str, ...] = ()
    requesters_unproven: bool = False
    revoked_keys: tuple[str, ...] = ()
    workspace: str
    trust: Trust
    policies: tuple[Policy, ...] = ()
    constraints: tuple[InheritedConstraint, ...] = ()
    context: dict[str, Any] | None = None
    """The typed context of the calling run, which the sub-agents get, too."""
    unattended: bool = False
    """Nobody attends the calling run, so nobody attends its sub-agents."""
    scope: TrustScope = ()
    """The nodes that may execute the calling run, and so its sub-agents."""
    features: int


def child_input(order: StartSubagentsRequest, child: SubagentStart, *, traceparent: str = "") -> RunInput:
    """Return the input of a child run. Only this function propagates data from a parent.

    Args:
        order: What the sub-agents have in common.
        child: The sub-agent.
        traceparent: The span of the parent's run.
    """
    lineage = Lineage(
        path=order.path,
        number=child.number,
        key=child.key,
        deepest=order.deepest,
        requesters=order.requesters,
        requesters_unproven=order.requesters_unproven,
        revoked_keys=order.revoked_keys,
        allowance=child.budget,
    )
    return RunInput(
        task=child.task,
        agent=child.agent,
        by=order.by,
        by_proven=order.by_proven,
        workspace=order.workspace,
        depth=order.depth,
        trust=order.trust,
        lineage=lineage,
        policies=order.policies,
        constraints=order.constraints,
        context=order.context,
        budget=child.budget,
        when_blocked="fail" if order.unattended else None,
        scope=order.scope,
        traceparent=traceparent if order.features >= TRACE_LINKS else "",
        features=order.features,
    )


def is_own(begin: Any, order: StartSubagentsRequest, child: SubagentStart) -> bool:
    """Return whether the input of an existing run comes from an earlier attempt at this start."""
    lineage = proven_lineage(begin)
    return lineage is not None and (lineage.path, lineage.key) == (order.path, child.key)


def proven_lineage(begin: Any) -> Lineage | None:
    """Return the lineage in a run's input; None if the input has no seal or no lineage."""
    return begin.lineage if isinstance(begin, RunInput) and begin.proven else None


class StartedSubagent(Frozen):
    """The outcome of one start."""

    number: int
    run_id: str = ""
    """Temporal's first run id of the sub-agent; empty if it was not started."""
    problem: str = ""
    """Why it was not started."""
    existing: bool = False
    """It had been started before: by an earlier attempt, or before the run was reset."""
    budget: Budget | None = None
    """If it existed: the allowance that it was started with."""


class StartedSubagents(ActivityResult):
    """The result of `start_subagents`."""

    children: tuple[StartedSubagent, ...]


class SubagentRef(Frozen):
    """A reference to a sub-agent to poll or cancel."""

    number: int
    run_id: str
    """Temporal's first run id of the sub-agent; empty if no answer has confirmed its start."""
    key: str = ""
    """If the run id is unknown: the effect key of its call, which the lineage of the sub-agent contains."""
    unsettled: bool = False
    """A request to start it has failed. An attempt may still be under way, so it may yet begin."""
    closing: bool = False
    """It has sent the hint that it is about to end: wait a moment until it is closed."""
    costs: bool = False
    """It has an allowance: report the cost of its tree, however it ended."""

    def thread(self, parent: str) -> str:
        """Return the id of its thread."""
        return child_thread(parent, self.number)


class CheckSubagentsRequest(ActivityRequest):
    """The input of `check_subagents`: the sub-agents to poll for their ends."""

    children: tuple[SubagentRef, ...]
    clip: int
    """Maximum characters of each sub-agent's text."""


class EndSubagentsRequest(ActivityRequest):
    """The input of `end_subagents`: the sub-agents to cancel, and how long to wait for their ends."""

    children: tuple[SubagentRef, ...]
    seconds: float
    clip: int
    keeps_unknown: bool = False
    """A sub-agent with an effect whose outcome is unknown ends only when a person has said what happened: nobody has
    asked for the cancellation."""


class SubagentReport(Frozen):
    """The end of a sub-agent."""

    number: int
    status: SubagentStatus
    text: str
    """Its answer, or why it has none; clipped."""
    trust: Trust = "web"
    steps: int = 0
    usage: Usage = Usage()
    constraints: tuple[InheritedConstraint, ...] = ()
    cost: TreeCost | None = None
    """If requested: its cost, with that of all runs below it; None if that is unknown."""


class SubagentReports(ActivityResult):
    """The result of `check_subagents` and of `end_subagents`: the sub-agents that have ended."""

    reports: tuple[SubagentReport, ...] = ()
    started: tuple[StartedSubagent, ...] = ()
    """From `end_subagents`: the sub-agents that turned out to have been started, without a recorded start."""


class AnnounceEnd(ActivityRequest):
    """The input of `announce_end`: the parent to notify that the calling run is about to end."""

    parent: str


class Announced(ActivityResult):
    """The result of `announce_end`."""
