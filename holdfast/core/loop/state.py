"""The data of a loop: its input, result and state. `holdfast.core.loop.decide` makes the decisions; the state is a fold
over the loop's events (`holdfast.core.loop.evolve`).

1. The workspace's files define the work. People may edit them at any time: every iteration begins with their current
   content, and people's changes become a separate commit.
2. An iteration is an agent run that gets information about earlier ones only from the files. It ends with its task
   completed, blocked with a reason, or failed; then the reason is in ERRORS.md, where the next iteration reads it.
3. A limit does not end a loop. The loop is blocked with an explanation, and `retry` grants the same amount again.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from holdfast.core.agents.agent import WhenBlocked
from holdfast.core.base.models import Frozen, Sealed
from holdfast.core.budget.account import Account
from holdfast.core.budget.budget import Budget
from holdfast.core.budget.tree import TreeCost
from holdfast.core.llm.messages import Usage
from holdfast.core.log.events import RunOutcome
from holdfast.core.log.loop_events import IterationOutcome, Logged, LogPart
from holdfast.core.log.loop_events import LoopLimits as LoopLimits
from holdfast.core.mac.seals import ActivityRequest, ActivityResult
from holdfast.core.mac.starts import Start
from holdfast.core.nodes import Nodes
from holdfast.core.run.state.features import LOOP_LOG
from holdfast.core.run.state.state import Blocked, Status
from holdfast.core.trust import Trust

RECENT = 20
"""Number of recent iterations in the state; every iteration has a log under its thread, and its commits are in git."""

WORDS = 1_000
"""Maximum length of an explanation."""

RunEnd = Literal["completed", "failed", "cancelled", "out_of_time"]
"""The end of an iteration's agent run."""

Steering = Literal["pause", "resume", "retry"]
"""Pause between iterations · resume after a pause · resume after a block."""


class LoopInput(Start):
    """Input of `AgentLoopWorkflow`."""

    workspace: str = ""
    """Absolute path of a folder on the workers."""
    task: str = ""
    """The goal of the loop; the initializer writes TASKS.md from it if there is none."""
    agent: str | None = None
    """The agent that does the tasks; None for the catalog's first agent."""
    initializer: str | None = None
    """The agent that writes the plan; None for the same agent."""
    by: str = ""
    by_proven: bool = True
    """As in `RunInput`: whether the iterations may access the memory of this person."""
    context: dict[str, Any] | None = None
    """The typed context of each iteration, as in `RunInput`."""
    nodes: Nodes = ()
    """The nodes that may execute the iterations; empty for those of their agents. Such a start has the feature level of
    trust scopes."""
    limits: LoopLimits = LoopLimits()
    when_blocked: WhenBlocked | None = None
    """`fail` for a loop that nobody attends: its iterations are unattended, and what would block the loop fails it.
    None to wait; its agents decide about their iterations. Such a start has the feature level of unattended runs."""
    state: "LoopState | None" = None
    """The state at the end of the previous Temporal run; set only by the workflow."""
    features: int = 0
    """As in `RunInput`."""
    log: LogPart = LogPart()
    """The position of the loop's log, with the events that the record lacks; set only by the workflow."""


class LoopResult(Sealed):
    """Result of `AgentLoopWorkflow`."""

    iterations: int
    tasks: int
    """Number of completed tasks."""
    usage: Usage
    cost: float | None
    """US dollars; None if the price of an LLM is unknown."""


class SurveyRequest(ActivityRequest):
    """Input of `survey_workspace`."""

    workspace: str
    agent: str | None
    initializer: str | None = None
    key: str
    """Key of the survey, so that people's changes are committed only once."""
    priced: bool = False
    """Whether the loop has a cost limit, so that prices must be known."""
    log: LogPart | None = None
    """Events of the loop to write into the permanent record, if there are any."""


class Survey(ActivityResult):
    """Result of `survey_workspace`: the content of the files."""

    problem: str = ""
    """The reason that no iteration can begin; empty if one can."""
    cause: str = "Workspace"
    """Kind of the problem."""
    head: str = ""
    """The commit that the next iteration starts from."""
    planned: bool = False
    """Whether TASKS.md has tasks."""
    plannable: bool = False
    """Whether there is a features.json to make a plan from."""
    open: int = 0
    done: int = 0
    next: str = ""
    """Title of the first task to work on; empty if there is none."""
    twins: int = 0
    """Number of open tasks with that title."""
    finished: int = 0
    """Number of completed tasks with that title."""
    blocked: tuple[str, ...] = ()
    """Titles of blocked tasks, with reasons."""
    failing: tuple[str, ...] = ()
    """Features that do not pass yet."""
    agent: str = ""
    llm: str = ""
    initializer_llm: str = ""
    notify: bool = False
    """Whether the worker has a notification target."""
    features: int = 0
    """The feature level of the worker's release."""
    logged: Logged | None = None
    """The result of writing the request's `log`."""
    trust: Trust = "tool"
    """The trust level of the tasks and of the reasons for failures."""


class SettleRequest(ActivityRequest):
    """Input of `settle_iteration`."""

    workspace: str
    thread: str
    """Thread id of the iteration."""
    number: int
    task: str
    """Empty for the initializer."""
    twins: int
    finished: int = 0
    """Number of tasks with that title that were already completed."""
    head: str
    """The commit that the iteration started from."""
    llm: str
    key: str
    end: RunEnd
    explanation: str = ""
    """The reason that the iteration's run failed."""
    log_head: bool = False
    """Whether to return the length and the last digest of the log of the iteration's thread."""
    budget: Budget | None = None
    """The budget that the loop gave to the iteration; with one, return the spending. None to leave that out."""
    run_id: str = ""
    """The first run id of the iteration's run; empty if it could not be started."""


class Settled(ActivityResult):
    """Result of `settle_iteration`: the outcome of the iteration."""

    outcome: IterationOutcome
    explanation: str = ""
    commits: tuple[str, ...] = ()
    """Commits of this iteration, oldest first: `abc1234 subject`."""
    usage: Usage = Usage()
    cost: float | None = None
    spent: TreeCost | None = None
    """The spending of the iteration and all runs below it, from the loop's account. `short` is only ever a limit of the
    loop, not one of the agent's own budget.
    """
    log_events: int = 0
    """Number of events in the log of the iteration's thread; 0 if it was not requested or the log cannot be read."""
    log_head: str = ""
    """The digest of the last of these events."""


class LoopArchiveRequest(ActivityRequest):
    """Input of `archive_loop`."""

    log: LogPart
    """The events to write into the permanent record."""


class LoopArchived(ActivityResult):
    """Result of `archive_loop`."""

    logged: Logged = Logged()


class Iteration(Frozen):
    """One iteration of a loop."""

    number: int
    """From 0; the initializer's run counts as well."""
    thread: str
    task: str
    """Empty for the initializer."""
    started_at: datetime
    outcome: IterationOutcome | None = None
    """None while the iteration is running."""
    explanation: str = ""
    commits: tuple[str, ...] = ()
    cost: float | None = None


class Steered(Frozen):
    """A pause of the loop: the person and the reason."""

    by: str
    reason: str = ""
    until: datetime | None = None
    """The time at which it ends by itself; None for never."""


@dataclass(frozen=True)
class LoopState:
    """State of a loop."""

    thread: str
    task: str = ""
    workspace: str = ""
    agent: str = ""
    count: int = 0
    """Number of iterations started."""
    recent: tuple[Iteration, ...] = ()
    initialized: bool = False
    """Whether the initializer has run since the last `retry`."""
    done: int = 0
    open: int = 0
    failures: int = 0
    """Number of consecutive iterations that failed at the task of the last one."""
    usage: Usage = field(default_factory=Usage)
    cost: float | None = 0.0
    """US dollars; None as soon as the price of an iteration is unknown."""
    count_limit: int = 0
    cost_limit: float | None = None
    deadline: datetime | None = None
    paused: Steered | None = None
    blocked: Blocked | None = None
    notify: bool = False
    """Whether the worker sends notifications of blocks and of the end."""
    features: int = 0
    """The feature level, as of the last survey (`holdfast.core.run.state.features`)."""
    notices: int = 0
    """Number of notifications so far."""
    orders: int = 0
    """Number of activity requests so far. Neither this nor `notices` follows from events: they number the requests and
    notifications that the loop sends.
    """
    outcome: RunOutcome | None = None
    result: str = ""
    updated_at: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    limits: LoopLimits = field(default_factory=LoopLimits)
    """The limits that the loop was started with."""
    account: Account = field(default_factory=Account)
    """The limits on tokens and money, and the spending. It has no limits if the loop has neither limit, or is below the
    feature level that introduced accounts: there, `cost` is compared with `cost_limit`.
    """
    events: int = 0
    """Number of events in the loop's log."""
    pauses: int = 0
    """Number of pauses and changes to a pause since the last iteration began."""

    @property
    def current(self) -> Iteration | None:
        """The running iteration."""
        last = self.recent[-1] if self.recent else None
        return last if last and last.outcome is None else None

    @property
    def status(self) -> Status:
        """The status in one word. A pause begins only when the running iteration has ended."""
        if self.outcome:
            return self.outcome
        if self.current:
            return "running"
        if self.blocked:
            return "blocked"
        if self.paused:
            return "paused" if self.logged else "dormant"
        return "running"

    @property
    def logged(self) -> bool:
        """Whether the loop writes its log to the permanent record and is paused in the same way as a run."""
        return self.features >= LOOP_LOG

    def view(self) -> dict[str, Any]:
        """Return the state as JSON, for `show`: the fields of agent runs, and the iterations."""
        return {
            "thread": self.thread,
            "agent": self.agent or None,
            "status": self.status,
            "step": self.count,
            "events": self.events if self.logged else self.count,
            "task": self.task,
            "workspace": self.workspace,
            "pending": [],
            "blocked": self.blocked.model_dump() if self.blocked else None,
            "paused": self._paused_view(),
            "usage": self.usage.model_dump(),
            "cost": self.cost,
            "budget": self.account.view(),
            "tasks": {"done": self.done, "open": self.open},
            "iterations": [each.model_dump(mode="json") for each in self.recent],
            "result": self.result if self.outcome else None,
            "features": self.features,
            "updated_at": self.updated_at.isoformat(),
        }

    def _paused_view(self) -> dict[str, Any] | None:
        if self.paused is None:
            return None
        return self.paused.model_dump(mode="json", exclude=None if self.logged else {"until"})
