"""A loop: fresh agent runs on one workspace, one task each, until its TASKS.md is done. Pure: what follows from what.

1. What is to be done stands in the workspace's files. People may edit them at any time; every iteration begins with
   what they say then, and what people changed is a commit of its own.
2. An iteration is an agent run that knows nothing of those before it but what the files say. It ends with its task
   completed, blocked with a reason, or failed: then ERRORS.md says why, and the next one reads it.
3. Limits do not end a loop. It is blocked, says why, and `retry` grants as much again.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from pydantic import Field

from holdfast.events import RunOutcome
from holdfast.messages import Usage
from holdfast.model import Frozen
from holdfast.state import Parked, Status

RECENT = 20
"""Iterations that a loop remembers in full; the log of each is that of its thread, and git has what it did."""

WORDS = 1_000
"""Characters of what is said of an iteration."""

IterationOutcome = Literal["completed", "blocked", "failed", "changed"]
"""Its task was completed · it said why the task cannot be done · neither · the task was changed or removed."""

RunEnd = Literal["completed", "failed", "cancelled", "out_of_time"]
"""How the iteration's agent run ended."""


class LoopLimits(Frozen):
    """Bounds of a loop. One that reaches a bound is blocked; `retry` grants as much again."""

    iterations: int = Field(default=100, ge=1)
    cost: float | None = Field(default=None, gt=0)
    """US dollars, by the list prices of the LLM; looked at between iterations."""
    seconds: float | None = Field(default=None, gt=0)
    """From its start, pauses included; an iteration under way is stopped."""
    attempts: int = Field(default=3, ge=1)
    """Iterations in a row that may fail at the same task."""


class LoopInput(Frozen):
    """Input of `AgentLoopWorkflow`."""

    workspace: str
    """Absolute path of a folder on the workers."""
    task: str = ""
    """What all of it is for; the initializer makes TASKS.md of it where there is none."""
    agent: str | None = None
    """Who does the tasks; None for the catalog's first agent."""
    initializer: str | None = None
    """Who writes the plan; None for the same agent."""
    by: str = ""
    limits: LoopLimits = LoopLimits()
    state: "LoopState | None" = None
    """Where the Temporal run before this one stopped; set by the workflow alone."""


class LoopResult(Frozen):
    """Result of `AgentLoopWorkflow`."""

    iterations: int
    tasks: int
    """Tasks that are done."""
    usage: Usage
    cost: float | None
    """US dollars; None where the price of an LLM is not known."""


class SurveyRequest(Frozen):
    """Input of `survey_workspace`."""

    loop: str
    workspace: str
    agent: str | None
    initializer: str | None = None
    key: str
    """Names the survey: what people changed is committed once."""
    priced: bool = False
    """The loop has a limit in dollars: the prices have to be known."""


class Survey(Frozen):
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


class SettleRequest(Frozen):
    """Input of `settle_iteration`."""

    loop: str
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


class Settled(Frozen):
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
    begun_at: datetime = datetime(1970, 1, 1, tzinfo=UTC)
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
    blocked: Parked | None = None
    notify: bool = False
    """The worker tells somebody of blocks and of the end."""
    notices: int = 0
    """How many there were."""
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


@dataclass(frozen=True)
class Initialize:
    """Have the plan written."""


@dataclass(frozen=True)
class Work:
    """Have a task done."""

    task: str


@dataclass(frozen=True)
class Block:
    """Wait until somebody mends the cause and sends `retry`."""

    cause: str
    message: str


@dataclass(frozen=True)
class Finish:
    """Everything is done."""


Step = Initialize | Work | Block | Finish


def begin(loop: LoopInput, *, thread: str, at: datetime) -> LoopState:
    """Where a loop stands when it begins, or goes on in a new Temporal run."""
    if loop.state:
        return loop.state
    limits = loop.limits
    return LoopState(
        thread=thread,
        task=loop.task,
        workspace=loop.workspace,
        begun_at=at,
        count_limit=limits.iterations,
        cost_limit=limits.cost,
        deadline=at + timedelta(seconds=limits.seconds) if limits.seconds else None,
        updated_at=at,
    )


def next_step(loop: LoopInput, state: LoopState, survey: Survey, *, at: datetime) -> Step:
    """What a loop does next, now that its files have been looked at."""
    if survey.problem:
        return Block(survey.cause, survey.problem)
    if survey.planned and not survey.next:
        return _nothing_to_do(survey)
    if reached := _limit(loop.limits, state, at=at):
        return reached
    if survey.next:
        return _attempt(loop.limits, state, survey.next)
    if state.initialized:
        return Block("NoTasks", "the initializer has run, and TASKS.md has no task; write one, or give the loop a task")
    if not (loop.task or survey.plannable):
        return Block("NoTasks", "there is neither a TASKS.md with tasks nor a features.json, and the loop has no task")
    return Initialize()


def _nothing_to_do(survey: Survey) -> Step:
    if survey.blocked:
        return Block("TasksBlocked", "; ".join(survey.blocked)[: 4 * WORDS])
    if survey.failing:
        features = ", ".join(survey.failing)[:WORDS]
        return Block("FeaturesFailing", f"TASKS.md is done, and features.json says that these do not pass: {features}")
    return Finish()


def _limit(limits: LoopLimits, state: LoopState, *, at: datetime) -> Block | None:
    if state.count >= state.count_limit:
        made = f"{state.count} iterations made"
        return Block("IterationLimit", f"{made}; `retry` allows {limits.iterations} more")
    if state.deadline and at >= state.deadline:
        return Block("TimeLimit", f"its time is up; `retry` allows {limits.seconds:g} more seconds")
    if state.cost_limit is not None and (state.cost is None or state.cost >= state.cost_limit):
        spent = "nobody knows how much" if state.cost is None else f"${state.cost:,.2f}"
        return Block("CostLimit", f"{spent} spent; `retry` allows ${limits.cost:,.2f} more")
    return None


def _attempt(limits: LoopLimits, state: LoopState, task: str) -> Step:
    last = state.recent[-1] if state.recent else None
    if last and last.task == task and state.failures >= limits.attempts:
        why = f"{state.failures} iterations in a row have failed at {task!r}; the last: {last.explanation}"
        return Block("AttemptsFailed", why)
    return Work(task)


def on_survey(state: LoopState, survey: Survey, *, at: datetime) -> LoopState:
    """The files were looked at."""
    counted = {"open": survey.open, "done": survey.done}
    known = {"agent": survey.agent or state.agent, "notify": survey.notify or state.notify}
    return state.model_copy(update={**counted, **known, "updated_at": at})


def on_start(state: LoopState, iteration: Iteration, *, at: datetime) -> LoopState:
    """An iteration begins."""
    again = {"initialized": state.initialized or not iteration.task}
    recent = (*state.recent, iteration)[-RECENT:]
    return state.model_copy(update={**again, "count": state.count + 1, "recent": recent, "updated_at": at})


def on_settled(state: LoopState, settled: Settled, *, at: datetime) -> LoopState:
    """The iteration under way has ended."""
    current = state.current
    assert current is not None
    before = state.recent[-2] if len(state.recent) > 1 else None
    again = before is not None and before.task == current.task
    failed = settled.outcome == "failed"
    known = state.cost is not None and settled.cost is not None
    ended = current.model_copy(
        update={
            "outcome": settled.outcome,
            "explanation": settled.explanation[:WORDS],
            "commits": settled.commits,
            "cost": settled.cost,
        }
    )
    change = {
        "recent": (*state.recent[:-1], ended),
        "failures": (state.failures if again else 0) + 1 if failed else 0,
        "usage": state.usage + settled.usage,
        "cost": (state.cost or 0) + (settled.cost or 0) if known else None,
        "updated_at": at,
    }
    return state.model_copy(update=change)


def on_block(state: LoopState, block: Block, *, at: datetime) -> LoopState:
    """The loop cannot go on by itself."""
    return state.model_copy(update={"blocked": Parked(cause=block.cause, message=block.message), "updated_at": at})


def on_retry(loop: LoopInput, state: LoopState, *, at: datetime) -> LoopState:
    """Somebody has mended what blocked it, or grants as much again."""
    limits = loop.limits
    change: dict[str, Any] = {"blocked": None, "failures": 0, "initialized": False, "updated_at": at}
    if state.count >= state.count_limit:
        change["count_limit"] = state.count + limits.iterations
    if limits.seconds and state.deadline and at >= state.deadline:
        change["deadline"] = at + timedelta(seconds=limits.seconds)
    if limits.cost and (state.cost is None or state.cost >= (state.cost_limit or 0)):
        change |= {"cost_limit": (state.cost or 0) + limits.cost, "cost": state.cost or 0.0}
    return state.model_copy(update=change)


Steering = Literal["pause", "resume", "retry"]


def on_steering(
    loop: LoopInput, state: LoopState, what: Steering, payload: Any, *, at: datetime
) -> tuple[LoopState, str, str]:
    """The state after somebody has steered the loop, the outcome (`accepted`, `nothing_to_do`, `malformed`), and why.

    Args:
        loop: The loop's input.
        state: Before.
        what: To pause between iterations, to go on after a pause, or to go on after a block.
        payload: `{"by": "alice", "reason": "…"}`, or whatever somebody typed instead.
        at: The time.
    """
    if not isinstance(payload, dict) or not isinstance(by := payload.get("by"), str) or not by.strip():
        return state, "malformed", 'it has to be a JSON object that says who: {"by": "your name"}'
    if what == "pause":
        if state.paused:
            return state, "nothing_to_do", f"it was paused by {state.paused.by}"
        paused = Steered(by=by[:200], reason=str(payload.get("reason") or "")[:WORDS])
        when = "it pauses when the iteration under way has ended" if state.current else "it is paused"
        return state.model_copy(update={"paused": paused, "updated_at": at}), "accepted", when
    if what == "resume":
        if not state.paused:
            return state, "nothing_to_do", "it is not paused"
        return state.model_copy(update={"paused": None, "updated_at": at}), "accepted", "it goes on"
    if not state.blocked:
        return state, "nothing_to_do", "it is not blocked"
    return on_retry(loop, state, at=at), "accepted", "it goes on"


def result_of(state: LoopState) -> LoopResult:
    """The result when everything is done."""
    return LoopResult(iterations=state.count, tasks=state.done, usage=state.usage, cost=state.cost)
