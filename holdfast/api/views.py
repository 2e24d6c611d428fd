"""Models of a thread, of threads in a list and of a result: workers return them, and `show --json` prints them."""

from datetime import datetime
from typing import Any, Literal, TypeVar, overload

from pydantic import TypeAdapter, ValidationError

from holdfast.api.request_views import Constraint, Delegation, PendingRequest, RememberedRule, TaskRefinement
from holdfast.core.base.models import Frozen
from holdfast.core.budget.budget import LimitName
from holdfast.core.llm.messages import Usage
from holdfast.core.run.state.progress import Pause
from holdfast.core.run.state.state import Blocked, Status
from holdfast.core.run.views.lifecycle import Phase
from holdfast.core.run.views.status import Following
from holdfast.errors import ResultNotStructured

T = TypeVar("T")

ThreadStatus = Status | Literal["paused_in_temporal", "unauthenticated"]
"""A thread's status; `paused_in_temporal` is Temporal's own pause (`temporal workflow pause`), at any step. No process
with a fleet key that is known here has made a run that is `unauthenticated`: nothing that it says counts."""


class DelayedCall(Frozen):
    """A call that is allowed and starts later, because it repeats itself."""

    call: int
    """Its number in the thread."""
    tool: str
    repeats: int
    """How often it has had the same result."""
    starts_at: datetime


class ThreadFork(Frozen):
    """Where a thread was forked from (`Thread.fork`)."""

    thread: str
    """The thread that it was forked from."""
    position: int
    """The last event that both have."""
    head: str
    """The digest of that event."""
    by: str
    effects_ask: bool
    """Effects ask a person first, whatever the policy allows; `Thread.lift(0)` ends that."""
    lifted_by: str | None = None
    """Who ended it."""
    llm: str = ""
    """The LLM that was given with the fork; empty for that of the agent."""
    policies: tuple[str, ...] = ()
    """Digests of the policies that were given with it, and judge its calls beside the agent's."""


class ThreadLimits(Frozen):
    """What counts towards an agent's limits, and the limits (`holdfast.Limits`)."""

    steps: int
    """LLM replies so far."""
    step_limit: int
    """At how many the run is blocked; each `retry` there raises it."""
    rejected_replies: int
    """Unusable replies in a row."""
    max_rejected_replies: int
    max_calls: int
    """How many calls of one reply run."""
    repeats: int = 0
    """How often the call that repeats most has ended in the same way, with nothing new in between."""
    repeats_asked: int = 0
    """At how many people are asked, or the run is blocked; 0 for never."""


class BudgetLimit(Frozen):
    """What a limit of a run's budget allows, and what became of it: exact decimals, in dollars, seconds or a count."""

    limit: LimitName
    allowed: str
    spent: str
    reserved: str
    """By what is under way."""
    left: str


class ThreadBudget(Frozen):
    """The account of a run."""

    limits: tuple[BudgetLimit, ...]
    closing: Literal["", "asked", "over"] = ""
    """`asked`: the LLM makes its last call; `over`: no further call before a person extends the budget."""
    short: str = ""
    """The limit that ended it."""


class ThreadPolls(Frozen):
    """How often a call that sleeps has looked, and when it looks again."""

    count: int
    again: datetime
    result: Literal["news", "same", "partial", "timeout", "no_response"] | None
    """What the last look brought; None before the first."""


class ThreadWait(Frozen):
    """A call that sleeps."""

    call: int
    kind: Literal["time", "event", "poll"]
    event: str = ""
    """The name of the event that it waits for; empty for anything else."""
    match: dict[str, Any] = {}
    """Fields that the event's data has to have, with these values."""
    tool: str = ""
    """The tool that it polls; empty for anything else."""
    arguments: str = ""
    """The arguments of the polled call, as JSON."""
    condition: dict[str, Any] = {}
    """What the result of the polled call has to be like: the one of `contains`, `lacks`, `equals` and `changes` that is
    not empty."""
    polls: ThreadPolls | None = None
    """Its polls so far; None where it does not poll."""
    until: datetime | None = None
    """When it ends by itself; None for never."""
    since: datetime


class KeptEvent(Frozen):
    """An event that no call has waited for yet."""

    event: str
    id: str
    at: datetime


class ThreadDormancy(Frozen):
    """What an agent has put itself to sleep for."""

    until: datetime | None
    """When the first of its waits ends by itself; None for never."""
    waits: tuple[ThreadWait, ...]
    buffered: tuple[KeptEvent, ...]


class ThreadLineage(Frozen):
    """Which run started a sub-agent."""

    parent: str
    root: str
    path: tuple[str, ...]
    """The threads above it, the root first."""
    call: int
    """The number of the parent's call."""


class Subagent(Frozen):
    """A sub-agent, as its parent has it."""

    call: int
    """The number of the call that started it."""
    thread: str
    agent: str
    status: str
    """`open`, or how it ended."""
    background: bool = False
    since: datetime


class ThreadState(Frozen):
    """Where a thread stands."""

    thread: str
    agent: str | None
    """The agent's name; None until a worker has loaded it."""
    status: ThreadStatus
    step: int
    """How many times the LLM has replied."""
    events: int
    """How many events the thread has; the last one is at position `events - 1`."""
    lifecycle: Phase | None = None
    """Where the run is in its lifecycle (`holdfast.core.run.views.lifecycle`); None from a worker of an older release.
    """
    now: str = ""
    """What the run does or waits for: `waits for a decision on request 3`."""
    next: tuple[Following, ...] = ()
    """What follows, and after what."""
    task: str
    """What the thread was started with."""
    refinements: tuple[TaskRefinement, ...] = ()
    """How people have refined the task since, oldest first."""
    workspace: str
    """The run's folder on the worker."""
    schedule: str = ""
    """The name of the schedule that started the thread; empty for none."""
    fork: ThreadFork | None = None
    """Where the thread was forked from; None if it was not."""
    lineage: ThreadLineage | None = None
    """Which run started it as a sub-agent; None for none."""
    subagents: tuple[Subagent, ...] = ()
    """The sub-agents that it has started."""
    pending: tuple[PendingRequest, ...]
    remembered: tuple[RememberedRule, ...] = ()
    delegated: tuple[Delegation, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    """What tools said cannot be done, oldest first."""
    delayed: tuple[DelayedCall, ...] = ()
    """Calls that start later, because they repeat themselves."""
    blocked: Blocked | None
    """Why the run is blocked; `Thread.retry` resumes it."""
    paused: Pause | None = None
    """Who has paused the run, why and until when; `Thread.resume` resumes it."""
    dormancy: ThreadDormancy | None = None
    """What the agent has put itself to sleep for, and events that no call has waited for yet; None where there is
    neither."""
    llm: str | None = None
    """The LLM that the agent uses."""
    limits: ThreadLimits | None = None
    """What counts towards the agent's limits; None until a worker has loaded it."""
    budget: ThreadBudget | None = None
    """What the run may use, and has used; None where it has no budget."""
    warning: str = ""
    """What a person should change, though the run can continue; empty for nothing."""
    usage: Usage
    """Tokens of all LLM calls of the thread."""
    result: str | None
    """The LLM's last reply, or why the run failed; None while the agent is at work."""
    structured: bool = False
    """`result` is a value of the agent's result type, as canonical JSON."""
    updated_at: datetime


class ThreadSummary(Frozen):
    """A thread, as `Client.threads` lists it."""

    thread: str
    agent: str | None
    status: ThreadStatus
    step: int
    started_at: datetime
    """When its latest Temporal run started."""
    pending: int = 0
    """How many requests are open."""
    task: str | None = None
    """The task in one line; None if another program started the run without it."""
    refinements: int | None = None
    """How often people have refined the task; None where the run could not say so in time."""
    usage: Usage | None = None
    """Tokens of all LLM calls; None where the run could not report them in time."""
    llm: str | None = None
    """The LLM that the agent uses; None where that is unknown."""
    budget: ThreadBudget | None = None
    """What an open run may use, and has used; None where it has no budget, or could not say so in time."""


class Result(Frozen):
    """What a run has come to."""

    thread: str
    status: ThreadStatus
    """`completed`; with `until="attention"` also what the run waits for."""
    text: str
    """The LLM's last reply, or what it has handed in where a budget is spent; a structured result as canonical JSON.
    Empty while it asks or is blocked."""
    structured: bool = False
    """`text` is a value of the agent's result type (`Agent(result=…)`), which `parse` reads."""
    steps: int
    usage: Usage
    pending: tuple[PendingRequest, ...] = ()
    """The requests to decide, where the status is `waiting_approval`."""
    blocked: Blocked | None = None
    """Why, where the status is `blocked`."""
    paused: Pause | None = None
    """By whom, why and until when, where the status is `paused`."""

    @overload
    def parse(self, kind: type[T]) -> T: ...
    @overload
    def parse(self, kind: Any) -> Any: ...
    def parse(self, kind: Any) -> Any:
        """Return the structured result as a value of a type.

        Args:
            kind: The type, which is that of `Agent(result=…)`.

        Raises:
            ResultNotStructured: The result is text, as what is handed in where a budget is spent; or it does not fit
                the type.
        """
        if not self.structured:
            raise ResultNotStructured(f"thread {self.thread!r} is {self.status}, and has no structured result")
        try:
            return TypeAdapter(kind).validate_json(self.text)
        except ValidationError as error:
            why = f"the result of thread {self.thread!r} does not fit {kind!r}: {error}"
            raise ResultNotStructured(why) from None
