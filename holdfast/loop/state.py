"""A loop: fresh agent runs on one workspace, one task each, until its TASKS.md is done. As data: what goes in
and out, and where it stands. `holdfast.loop.decide` has what follows from it.

1. What is to be done stands in the workspace's files. People may edit them at any time; every iteration begins with
   what they say then, and what people changed is a commit of its own.
2. An iteration is an agent run that knows nothing of those before it but what the files say. It ends with its task
   completed, blocked with a reason, or failed: then ERRORS.md says why, and the next one reads it.
3. Limits do not end a loop. It is blocked, says why, and `retry` grants as much again.
"""

from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import Field

from holdfast.base.models import Frozen, Sealed
from holdfast.llm.messages import Usage
from holdfast.log.events import RunOutcome
from holdfast.run.state import Blocked, Status
from holdfast.seals.orders import Answer, Order
from holdfast.seals.starts import Start

RECENT = 20
"""Iterations that a loop remembers in full; the log of each is that of its thread, and git has what it did."""

WORDS = 1_000
"""Characters of what is said of an iteration."""

IterationOutcome = Literal["completed", "blocked", "failed", "changed"]
"""Its task was completed · it said why the task cannot be done · neither · the task was changed or removed."""

RunEnd = Literal["completed", "failed", "cancelled", "out_of_time"]
"""How the iteration's agent run ended."""

Steering = Literal["pause", "resume", "retry"]
"""To pause between iterations · to go on after a pause · to go on after a block."""


class LoopLimits(Frozen):
    """Bounds of a loop. One that reaches a bound is blocked; `retry` grants as much again."""

    iterations: int = Field(default=100, ge=1)
    cost: float | None = Field(default=None, gt=0)
    """US dollars, by the list prices of the LLM; looked at between iterations."""
    seconds: float | None = Field(default=None, gt=0)
    """From its start, pauses included; an iteration under way is stopped."""
    attempts: int = Field(default=3, ge=1)
    """Iterations in a row that may fail at the same task."""


class LoopInput(Start):
    """Input of `AgentLoopWorkflow`."""

    workspace: str = ""
    """Absolute path of a folder on the workers."""
    task: str = ""
    """What all of it is for; the initializer makes TASKS.md of it where there is none."""
    agent: str | None = None
    """Who does the tasks; None for the catalog's first agent."""
    initializer: str | None = None
    """Who writes the plan; None for the same agent."""
    by: str = ""
    by_proven: bool = True
    """As in `RunInput`: the memory of that person is in reach of the iterations."""
    limits: LoopLimits = LoopLimits()
    state: "LoopState | None" = None
    """Where the Temporal run before this one stopped; set by the workflow alone."""


class LoopResult(Sealed):
    """Result of `AgentLoopWorkflow`."""

    iterations: int
    tasks: int
    """Tasks that are done."""
    usage: Usage
    cost: float | None
    """US dollars; None where the price of an LLM is not known."""


class SurveyRequest(Order):
    """Input of `survey_workspace`."""

    workspace: str
    agent: str | None
    initializer: str | None = None
    key: str
    """Names the survey: what people changed is committed once."""
    priced: bool = False
    """The loop has a limit in dollars: the prices have to be known."""


class Survey(Answer):
    """Result of `survey_workspace`: what the files say."""

    problem: str = ""
    """Why no iteration can begin; empty where one can."""
    cause: str = "Workspace"
    """What kind of problem it is."""
    head: str = ""
    """The commit that the next iteration begins with."""
    planned: bool = False
    """TASKS.md has tasks."""
    plannable: bool = False
    """There is a features.json to make a plan of."""
    open: int = 0
    done: int = 0
    next: str = ""
    """Title of the first task that can be done; empty if there is none."""
    twins: int = 0
    """How many open tasks have that title."""
    finished: int = 0
    """How many done ones have it."""
    blocked: tuple[str, ...] = ()
    """Titles and reasons."""
    failing: tuple[str, ...] = ()
    """Features that do not pass yet."""
    agent: str = ""
    llm: str = ""
    initializer_llm: str = ""
    notify: bool = False
    """The worker has somebody to tell."""


class SettleRequest(Order):
    """Input of `settle_iteration`."""

    workspace: str
    thread: str
    """The iteration's."""
    number: int
    task: str
    """Empty for the initializer."""
    twins: int
    finished: int = 0
    """How many tasks of that title were done before."""
    head: str
    """The commit that it began with."""
    llm: str
    key: str
    end: RunEnd
    explanation: str = ""
    """Why its run failed."""


class Settled(Answer):
    """Result of `settle_iteration`: what became of it."""

    outcome: IterationOutcome
    explanation: str = ""
    commits: tuple[str, ...] = ()
    """Of this iteration, oldest first: `abc1234 subject`."""
    usage: Usage = Usage()
    cost: float | None = None


class Iteration(Frozen):
    """One iteration of a loop."""

    number: int
    """0 and up; the initializer has one, too."""
    thread: str
    task: str
    """Empty for the initializer."""
    started_at: datetime
    outcome: IterationOutcome | None = None
    """None while it is under way."""
    explanation: str = ""
    commits: tuple[str, ...] = ()
    cost: float | None = None


class Steered(Frozen):
    """Somebody has paused the loop."""

    by: str
    reason: str = ""


class LoopState(Frozen):
    """Where a loop stands."""

    thread: str
    task: str = ""
    workspace: str = ""
    agent: str = ""
    count: int = 0
    """Iterations that were started."""
    recent: tuple[Iteration, ...] = ()
    initialized: bool = False
    """The initializer has run since the last `retry`."""
    done: int = 0
    open: int = 0
    failures: int = 0
    """Iterations in a row that failed at the same task: the last one's."""
    usage: Usage = Usage()
    cost: float | None = 0.0
    """None as soon as the price of an iteration is not known."""
    count_limit: int = 0
    cost_limit: float | None = None
    deadline: datetime | None = None
    paused: Steered | None = None
    blocked: Blocked | None = None
    notify: bool = False
    """The worker tells somebody of blocks and of the end."""
    notices: int = 0
    """How many there were."""
    orders: int = 0
    """Orders to activities that were given."""
    outcome: RunOutcome | None = None
    result: str = ""
    updated_at: datetime = datetime(1970, 1, 1, tzinfo=UTC)

    @property
    def current(self) -> Iteration | None:
        """The iteration under way."""
        last = self.recent[-1] if self.recent else None
        return last if last and last.outcome is None else None

    @property
    def status(self) -> Status:
        """One word for where the loop is. A pause begins when the iteration under way has ended."""
        if self.outcome:
            return self.outcome
        if self.current:
            return "running"
        if self.blocked:
            return "blocked"
        return "dormant" if self.paused else "running"

    def view(self) -> dict[str, Any]:
        """The state as `show` presents it: what agent runs have, and the iterations."""
        return {
            "thread": self.thread,
            "agent": self.agent or None,
            "status": self.status,
            "step": self.count,
            "events": self.count,
            "task": self.task,
            "workspace": self.workspace,
            "pending": [],
            "blocked": self.blocked.model_dump() if self.blocked else None,
            "paused": self.paused.model_dump() if self.paused else None,
            "usage": self.usage.model_dump(),
            "cost": self.cost,
            "tasks": {"done": self.done, "open": self.open},
            "iterations": [each.model_dump(mode="json") for each in self.recent],
            "result": self.result if self.outcome else None,
            "updated_at": self.updated_at.isoformat(),
        }
