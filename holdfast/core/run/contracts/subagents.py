"""What a run and activities agree on about its sub-agents: orders to start them, to look at them and to end them."""

from typing import Any

from holdfast.core.authority.policy import Policy
from holdfast.core.base.models import Frozen
from holdfast.core.budget.budget import Budget
from holdfast.core.budget.tree import TreeCost
from holdfast.core.lineage import Lineage
from holdfast.core.llm.messages import Usage
from holdfast.core.log.events import SubagentStatus
from holdfast.core.mac.seals import Answer, Order
from holdfast.core.run.contracts.runs import RunInput
from holdfast.core.tools.cannot import HandedConstraint
from holdfast.core.tools.subagents import child_thread
from holdfast.core.trust import Trust

ENDED_SIGNAL = "subagent_ended"
"""The signal by which a child hints that it is about to end. The parent believes nothing of it, and looks."""

NO_ANSWER = "it gave no answer"
"""The words of a child that was cancelled."""

CLOSING_SECONDS = 3.0
"""How long a look waits for a child to close that has hinted at its end."""


class ChildStart(Frozen):
    """One child to start."""

    number: int
    """The number of the `run_agent` call."""
    key: str
    """The call's effect key."""
    agent: str
    task: str
    budget: Budget | None = None
    """Its allowance; None where the calling run has no budget."""


class StartChildren(Order):
    """The input of `start_children`: the children to start, and what all of them are given."""

    children: tuple[ChildStart, ...]
    path: tuple[str, ...]
    """The threads from the root to the calling run."""
    depth: int
    """Of the children."""
    deepest: int
    by: str = ""
    by_proven: bool = False
    requesters: tuple[str, ...] = ()
    requesters_unproven: bool = False
    revoked_keys: tuple[str, ...] = ()
    workspace: str
    trust: Trust
    policies: tuple[Policy, ...] = ()
    constraints: tuple[HandedConstraint, ...] = ()
    features: int


def child_input(order: StartChildren, child: ChildStart) -> RunInput:
    """Return the input of a child run: the one place that says what a parent hands down."""
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
        budget=child.budget,
        features=order.features,
    )


def is_own(given: Any, order: StartChildren, child: ChildStart) -> bool:
    """Return whether the start of an existing thread is the one that this order asks for."""
    lineage = proven_lineage(given)
    return lineage is not None and (lineage.path, lineage.key) == (order.path, child.key)


def proven_lineage(given: Any) -> Lineage | None:
    """Return the lineage of a run by its input; None where that has no seal, or no lineage."""
    return given.lineage if isinstance(given, RunInput) and given.proven else None


class StartedChild(Frozen):
    """What became of one start."""

    number: int
    run_id: str = ""
    """Temporal's first run id of the child; empty where it was not started."""
    problem: str = ""
    """Why it was not started."""
    existing: bool = False
    """It had been started before: by an earlier attempt, or before the run was reset."""
    budget: Budget | None = None
    """Of an existing one: the allowance that it was started with."""


class StartedChildren(Answer):
    """The result of `start_children`."""

    children: tuple[StartedChild, ...]


class ChildRef(Frozen):
    """A child to look at."""

    number: int
    run_id: str
    """Temporal's first run id of the child; empty where no answer says that it was started."""
    key: str = ""
    """The effect key of its call, where the run id is unknown: a run that was started for this call has it."""
    unsettled: bool = False
    """An order to start it has failed. An attempt may still be under way, so it may yet begin."""
    closing: bool = False
    """It has hinted at its end: wait a moment until it is closed."""
    costs: bool = False
    """It has an allowance: the run asks what its tree has spent, however it ended."""

    def thread(self, parent: str) -> str:
        """Return the id of its thread."""
        return child_thread(parent, self.number)


class LookAtChildren(Order):
    """The input of `look_at_children`: of which children the run asks how they ended."""

    children: tuple[ChildRef, ...]
    clip: int
    """How many characters of each one's words are kept."""


class EndChildren(Order):
    """The input of `end_children`: which children to cancel, and how long to wait for their ends."""

    children: tuple[ChildRef, ...]
    seconds: float
    clip: int


class ChildReport(Frozen):
    """How a child has ended."""

    number: int
    status: SubagentStatus
    text: str
    """Its answer, or why it has none; clipped."""
    trust: Trust = "web"
    steps: int = 0
    usage: Usage = Usage()
    constraints: tuple[HandedConstraint, ...] = ()
    cost: TreeCost | None = None
    """Where the look asks for it: what it and all runs below it have spent; None where that is unknown."""


class ChildReports(Answer):
    """The result of `look_at_children` and of `end_children`: those that have ended."""

    reports: tuple[ChildReport, ...] = ()
    started: tuple[StartedChild, ...] = ()
    """Of `end_children`: those of which the run did not know whether they were started, and that were."""


class AnnounceEnd(Order):
    """The input of `announce_end`: which run to send the hint that the calling one is about to end."""

    parent: str


class Announced(Answer):
    """The result of `announce_end`."""
