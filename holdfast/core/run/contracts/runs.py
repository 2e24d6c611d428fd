"""The external interface of a run: its input, its result, and the answers to its queries. Clients start a run by name,
so the names of the workflows and of their task queue are here, too.
"""

from math import isfinite
from typing import Annotated, Any, ClassVar, get_args

from pydantic import AfterValidator

from holdfast.core.agents.agent import WhenBlocked
from holdfast.core.authority.policy import Policy
from holdfast.core.authority.statements import Lift
from holdfast.core.base.models import Sealed
from holdfast.core.base.text import one_line
from holdfast.core.budget.budget import Budget
from holdfast.core.budget.tree import TreeCost
from holdfast.core.lineage import Lineage
from holdfast.core.llm.blocks import Content
from holdfast.core.llm.conversation import Conversation
from holdfast.core.llm.messages import Usage
from holdfast.core.log.events import RefusalsCounted
from holdfast.core.log.fork_point import ForkPoint
from holdfast.core.log.import_point import ImportPoint
from holdfast.core.mac.starts import Start
from holdfast.core.nodes import TrustScope
from holdfast.core.run.contracts.snapshot import RunSnapshot
from holdfast.core.tools.cannot import InheritedConstraint
from holdfast.core.trust import Trust
from holdfast.errors import SettingsError

WORKFLOW = "AgentRunWorkflow"
LOOP_WORKFLOW = "AgentLoopWorkflow"
SCHEDULED_WORKFLOW = "ScheduledRunWorkflow"
WORKFLOW_TYPES = frozenset({WORKFLOW, LOOP_WORKFLOW, SCHEDULED_WORKFLOW})
TASK_QUEUE = "holdfast"
"""Default task queue."""


def _finite_or_none(seconds: float) -> float | None:
    """Return None for a number that JSON cannot hold: the digest of its event would not be that of its record."""
    return seconds if isfinite(seconds) else None


class RunInput(Start):
    """The input of `AgentRunWorkflow`: the task, the person who gives it, and the past to continue.

    The workflow id is the thread id.
    """

    PLAIN = frozenset({"task", "agent", "by", "idle_limit", "budget", "when_blocked"})

    task: Content = ""
    """The user's task; empty if `snapshot` has it."""
    message_id: str = ""
    """With `resume`: the sender's id of the message that is the task; the thread accepts each once. Such a start has
    the feature level of message ids."""
    by: str = ""
    """The name of the person who gives the task; only a claim, unless the start is sealed."""
    by_proven: bool = True
    """With a sealed start: the process that made it has authenticated that person."""
    agent: str | None = None
    """The agent's name; None for the agent of a continued thread, or else the catalog's first."""
    workspace: str | None = None
    """A folder on the worker; None for the folder of a continued thread, or else the thread's own."""
    idle_limit: Annotated[float, AfterValidator(_finite_or_none)] | None = None
    """Seconds that the run stays open for follow-up messages; None for the agent's own limit."""
    resume: bool = False
    """The thread may have a past: load and continue it."""
    previous_run: str | None = None
    """With `resume`: Temporal's id of the thread's last run, if Temporal still has it."""
    fork: ForkPoint | None = None
    """The thread is new, and begins with the events of another one up to that point. Such a start may lack a task."""
    llm: str = ""
    """With a fork: the LLM of its agents; empty for their own."""
    keeps_policy: bool = False
    """With a fork: the policy of the original thread's agent judges its calls, too, even under another agent."""
    brought: bool = False
    """With a fork: its events were imported, and the folder that they name is on another cluster."""
    imported: ImportPoint | None = None
    """The past comes from a portable file: `resume` continues the same thread, `fork` begins a new one."""
    depth: int = 0
    """How many agents stand between this run and a person."""
    trust: Trust = "person"
    """The trust level of the task: `tool` if it was read in a file."""
    schedule: str = ""
    """The name of the schedule that started the run; empty for none. Such a start has the feature level of schedules.
    """
    lineage: Lineage | None = None
    """The ancestry of a sub-agent; None for other runs. Such a start has the feature level of sub-agents."""
    caller: str = ""
    """The id of the program's workflow that started the run; empty for none. Such a start has the feature level of
    callers."""
    policies: tuple[Policy, ...] = ()
    """Further policies that judge its calls: with a lineage, those of the runs above; also possible with a fork."""
    constraints: tuple[InheritedConstraint, ...] = ()
    """With a lineage: the constraints that the parent's tools stated."""
    budget: Budget | None = None
    """The run's budget, within that of its agent; None for the agent's. A sealed start with a budget has the feature
    level of budgets."""
    returns_partial: bool = False
    """With a budget: when it is spent, the run returns a partial result instead of waiting for `extend`. Used by the
    iterations of a loop."""
    context: dict[str, Any] | None = None
    """The typed context of the run (`holdfast.core.tools.typed_context`); None for that of a continued or forked
    thread. Only a sealed start may have one, with the feature level of contexts."""
    when_blocked: WhenBlocked | None = None
    """Whether the run waits for a person or fails; None for the agent's own. A sealed start with `fail` has the feature
    level of unattended runs."""
    scope: TrustScope = ()
    """The nodes that may execute the run, within the thread's scope so far. Only a sealed start may have one, with the
    feature level of scopes."""
    conversation: Conversation = ()
    """A conversation from elsewhere, which the LLM reads as a claim. Only a sealed start may have one, with the feature
    level of conversations."""
    lift: Lift | None = None
    """A person's lift of a constraint of the closed thread, which is judged when the agent is loaded. Only a sealed
    start may have one, with the feature level of such lifts."""
    traceparent: str = ""
    """The span that caused the start, as a W3C `traceparent`: a claim, to which traces link; empty for none. Only a
    sealed start may have one, with the feature level of such links."""
    snapshot: RunSnapshot | None = None
    """The state at the end of the Temporal run before this one. Only the workflow sets it, when it continues as new."""
    held: tuple[tuple[str, Any], ...] = ()
    """Signals and updates that arrived in an earlier Temporal run, which ended before the thread's past was loaded."""
    refusals: RefusalsCounted | None = None
    """How many signals and updates that run rejected."""
    features: int = 0
    """The feature level with which this Temporal run begins (`holdfast.core.run.state.features`). Set by a run that
    continues as new, by the launcher of a scheduled run, and by sealed starts of forks, of imports, of sub-agents, by
    workflows, with a budget and with a context.
    """


class RunResult(Sealed):
    """The result of `AgentRunWorkflow`: the agent's last reply, and its cost."""

    result: str
    steps: int
    usage: Usage
    structured: bool = False
    """The result is a value of the agent's result type, as canonical JSON."""
    llm: str = ""
    """The LLM that used the tokens; empty below the feature level that names it."""
    refinements: int = 0
    """How often people have refined the task."""
    moved: bool = False
    """The run was moved to another cluster, and continues there: `result` names the person who moved it."""
    trust: Trust | None = None
    """For a sub-agent, and for a run that a program's workflow started: the trust level of the reply."""
    constraints: tuple[InheritedConstraint, ...] = ()
    """For a sub-agent: the constraints that its tools stated."""
    cost: TreeCost | None = None
    """For a sub-agent with a budget: its cost, with that of all runs below it."""
    first_run_id: str = ""
    """The first run id of the ended chain of Temporal runs; empty below the feature level that names it."""


def check_when_blocked(when_blocked: WhenBlocked | None, *, unattended: bool) -> WhenBlocked | None:
    """Return what a start says about a run that needs a person.

    Args:
        when_blocked: What a program gives.
        unattended: The short form of `fail`.

    Raises:
        SettingsError: They contradict each other, or the first is unknown.
    """
    if unattended and when_blocked == "wait":
        raise SettingsError("an unattended run does not wait for a person: leave out `unattended`, or `when_blocked`")
    if when_blocked not in (None, *get_args(WhenBlocked)):
        raise SettingsError(f"`when_blocked` {one_line(str(when_blocked), 30)!r}: it is wait or fail")
    return "fail" if unattended else when_blocked


class Page(bytes):
    """The answer to the queries `log` and `transcript`: as many lines as fit."""

    SEALED: ClassVar[bool] = True


class View(dict[str, Any]):
    """The answer to a query or an update, for people, as JSON."""

    SEALED: ClassVar[bool] = True


class Views(list[dict[str, Any]]):
    """The answer to a query that lists things."""

    SEALED: ClassVar[bool] = True


QUERIES: dict[str, type] = {
    "state": View,
    "pending_approvals": Views,
    "log": Page,
    "session": View,
    "transcript": Page,
}
"""Query of a run → the type of its answer."""
