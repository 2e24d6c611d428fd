"""Models of a thread, a listed thread and a result. Workers return them, and `show --json` prints them."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Literal, TypeVar, overload

from pydantic import TypeAdapter, ValidationError

from holdfast.api.request_views import Constraint, Delegation, PendingRequest, RememberedRule, TaskRefinement
from holdfast.core.base.models import Frozen
from holdfast.core.budget.budget import LimitName
from holdfast.core.llm.messages import Usage
from holdfast.core.nodes import Node
from holdfast.core.run.state.progress import Pause
from holdfast.core.run.state.state import Blocked, Status
from holdfast.core.run.views.lifecycle import Phase
from holdfast.core.run.views.status import NextStep
from holdfast.core.trust import Trust
from holdfast.errors import ResultNotStructured

T = TypeVar("T")

ThreadStatus = Status | Literal["paused_in_temporal", "unauthenticated"]
"""A thread's status. `paused_in_temporal` is Temporal's own pause (`temporal workflow pause`), at any step. An
`unauthenticated` run was not made by a process with a known fleet key: nothing in it can be trusted."""


class DelayedCall(Frozen):
    """A call that is allowed but starts later, because it repeats earlier calls."""

    call: int
    """Its number in the thread."""
    tool: str
    repeats: int
    """The number of times it has had the same result."""
    starts_at: datetime


class ThreadFork(Frozen):
    """The origin of a forked thread (`Thread.fork`)."""

    thread: str
    """The thread that it was forked from."""
    position: int
    """The position of the last event that both threads have."""
    head: str
    """The digest of that event."""
    by: str
    effects_ask: bool
    """Effects require approval even if the policy allows them; `Thread.lift(0)` ends that."""
    lifted_by: str | None = None
    """The person who ended that."""
    llm: str = ""
    """The LLM set by the fork; empty for the agent's LLM."""
    policies: tuple[str, ...] = ()
    """Digests of the policies added by the fork; they judge its calls together with the agent's policy."""


class ThreadLimits(Frozen):
    """An agent's limits (`holdfast.Limits`), and the counts towards them."""

    steps: int
    """LLM replies so far."""
    step_limit: int
    """The number at which the run is blocked; each `retry` at the limit raises it."""
    rejected_replies: int
    """Unusable replies in a row."""
    max_rejected_replies: int
    max_calls: int
    """The maximum number of calls that run per reply."""
    repeats: int = 0
    """The highest number of times that one call has had the same result, with nothing new in between."""
    repeats_asked: int = 0
    """The number of repeats at which people are asked, or the run is blocked; 0 for never."""


class BudgetLimit(Frozen):
    """One limit of a run's budget, and its use: exact decimals, in US dollars, seconds or a count."""

    limit: LimitName
    allowed: str
    spent: str
    reserved: str
    """The amount reserved by running calls."""
    left: str


class ThreadBudget(Frozen):
    """The budget account of a run."""

    limits: tuple[BudgetLimit, ...]
    closing: Literal["", "asked", "over"] = ""
    """`asked`: the LLM makes its last call; `over`: no further call until a person extends the budget."""
    short: str = ""
    """The limit that was reached."""


class NodeWait(Frozen):
    """The wait of a run whose work no node took."""

    nodes: str
    """The nodes that it waits for, in words; empty for any."""
    until: datetime
    """When it offers its work again."""
    rejected: tuple[str, ...] = ()
    """The nodes that did not take it, each with its reason."""


class ThreadPlaces(Frozen):
    """The nodes that execute a run."""

    scope: tuple[tuple[str, ...], ...] = ()
    """Its trust scope: a node has to fit one selector of each layer. Empty for every node."""
    node: Node | None = None
    """The node that was recorded last to have taken its work."""
    policy: str = ""
    """The hash of that node's own policy; empty if it has not judged the run."""
    waits_for: NodeWait | None = None
    """The wait for a node; None if the run waits for none."""


class ThreadPolls(Frozen):
    """The polls of a sleeping call, and the time of the next one."""

    count: int
    again: datetime
    result: Literal["news", "same", "partial", "timeout", "no_response", "error"] | None
    """The result of the last poll; None before the first."""


class ThreadWait(Frozen):
    """A sleeping call, and its wake trigger."""

    call: int
    kind: Literal["time", "constraint", "event", "poll", "task"]
    constraint: int = 0
    """The number of the constraint whose end it waits for; 0 for anything else."""
    event: str = ""
    """The name of the event that it waits for; empty for anything else."""
    match: dict[str, Any] = {}
    """Fields and values that the event's data must have."""
    tool: str = ""
    """The tool that it polls; empty for anything else."""
    arguments: str = ""
    """The arguments of the polled call, as JSON."""
    condition: dict[str, Any] = {}
    """The condition on the result of the polled call: the one of `contains`, `lacks`, `equals` and `changes` that is
    not empty."""
    server: str = ""
    """The name of the foreign server whose task it waits for; empty for anything else."""
    task: str = ""
    """The server's id of that task."""
    interval: float = 0
    """The seconds between two polls of that task, at least."""
    polls: ThreadPolls | None = None
    """Its polls so far; None if it does not poll."""
    until: datetime | None = None
    """The time at which the wait ends without a trigger; None for never."""
    since: datetime


class KeptEvent(Frozen):
    """An event that no call has waited for yet."""

    event: str
    id: str
    at: datetime


class ThreadDormancy(Frozen):
    """The waits of an agent that has put its run to sleep."""

    until: datetime | None
    """The time at which the first of its waits ends without a trigger; None for never."""
    waits: tuple[ThreadWait, ...]
    buffered: tuple[KeptEvent, ...]


class ThreadLineage(Frozen):
    """The runs above a sub-agent."""

    parent: str
    root: str
    path: tuple[str, ...]
    """The threads above it, root first."""
    call: int
    """The number of the parent's call that started it."""


class Subagent(Frozen):
    """A sub-agent, as its parent records it."""

    call: int
    """The number of the call that started it."""
    thread: str
    agent: str
    status: str
    """`open`, or how it ended."""
    background: bool = False
    since: datetime


class ThreadState(Frozen):
    """The current state of a thread."""

    thread: str
    agent: str | None
    """The agent's name; None until a worker has loaded it."""
    status: ThreadStatus
    step: int
    """The number of LLM replies so far."""
    events: int
    """The number of events; the last one is at position `events - 1`."""
    lifecycle: Phase | None = None
    """The run's lifecycle phase (`holdfast.core.run.views.lifecycle`); None from a worker of an older release."""
    now: str = ""
    """The run's current activity or wait: `waits for a decision on request 3`."""
    next: tuple[NextStep, ...] = ()
    """The possible next actions, each with its trigger."""
    task: str
    """The task that the thread was started with."""
    refinements: tuple[TaskRefinement, ...] = ()
    """Refinements of the task by people, oldest first."""
    workspace: str
    """The run's folder on the worker."""
    schedule: str = ""
    """The name of the schedule that started the thread; empty if none did."""
    caller: str = ""
    """The id of the program's workflow that started the run; empty if none did."""
    fork: ThreadFork | None = None
    """The thread's origin, if it is a fork; else None."""
    lineage: ThreadLineage | None = None
    """The runs above it, if it is a sub-agent; else None."""
    subagents: tuple[Subagent, ...] = ()
    """The sub-agents that it has started."""
    pending: tuple[PendingRequest, ...]
    remembered: tuple[RememberedRule, ...] = ()
    delegated: tuple[Delegation, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    """Calls that tools reported as impossible, oldest first."""
    delayed: tuple[DelayedCall, ...] = ()
    """Calls that start later, because they repeat earlier calls."""
    places: ThreadPlaces | None = None
    """The nodes that may execute the run, and the one that did; None if any node may, and no node has judged it."""
    blocked: Blocked | None
    """The reason why the run is blocked; `Thread.retry` resumes it."""
    unattended: bool = False
    """The run fails instead of waiting for a person."""
    paused: Pause | None = None
    """The pause: by whom, why and until when; `Thread.resume` ends it."""
    dormancy: ThreadDormancy | None = None
    """The waits of a sleeping agent, and buffered events that no call has waited for yet; None if there are neither."""
    llm: str | None = None
    """The LLM that the agent uses."""
    limits: ThreadLimits | None = None
    """The agent's limits, and the counts towards them; None until a worker has loaded the agent."""
    budget: ThreadBudget | None = None
    """The run's budget and its use; None if it has no budget."""
    context: dict[str, Any] | None = None
    """The run's typed context, as JSON; None if it has none. `Agent.context` validates it: `Model(**state.context)`."""
    warning: str = ""
    """A problem that a person should fix, although the run can continue; empty for none."""
    trust: Trust | None = None
    """The lowest trust level of what the LLM has read; None if the run has not kept it."""
    usage: Usage
    """Tokens of all LLM calls of the thread."""
    result: str | None
    """The LLM's last reply, or the reason why the run failed; None while the agent works."""
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
    """The number of open requests."""
    task: str | None = None
    """The task in one line; None if another program started the run without it."""
    refinements: int | None = None
    """The number of task refinements; None if the run could not report it in time."""
    usage: Usage | None = None
    """Tokens of all LLM calls; None if the run could not report them in time."""
    llm: str | None = None
    """The LLM that the agent uses; None if unknown."""
    budget: ThreadBudget | None = None
    """The budget of an open run and its use; None if it has no budget, or could not report it in time."""


class Attention(Frozen):
    """A run of a tree that cannot continue without a person."""

    thread: str
    """Its thread: the awaited one, or that of a sub-agent below it."""
    agent: str | None
    status: ThreadStatus
    pending: tuple[PendingRequest, ...] = ()
    """Its open requests, for `Thread.decide`."""
    blocked: Blocked | None = None
    """Why it is blocked; `Thread.retry` of this thread resumes it."""
    paused: Pause | None = None
    """Its pause by a person; `Thread.resume` of this thread ends it."""
    unattended: bool = False
    """It fails instead of waiting for a person, and waits only for decisions on effects whose outcome is unknown."""

    @property
    def cause(self) -> str:
        """Why it needs a person, as a short name: the cause of its block, `ApprovalRequired`, `OutcomeUnknown` or
        `Paused`.
        """
        if self.blocked and not self.unattended:
            return self.blocked.cause
        if self.pending:
            asks = any(request.kind != "reconcile" for request in self.pending)
            return "ApprovalRequired" if asks else "OutcomeUnknown"
        return "Paused"


class ThreadTree(Frozen):
    """A thread and its sub-agents, recursively (`Thread.tree`)."""

    thread: str
    agent: str | None
    status: ThreadStatus | str
    """The run's status; if it cannot be read, the status that its parent has recorded."""
    step: int = 0
    usage: Usage | None = None
    """The tokens that the run has used, without those of the runs below it; None if unknown."""
    llm: str | None = None
    pending: tuple[PendingRequest, ...] = ()
    """Its open requests, for `Thread.decide`."""
    blocked: Blocked | None = None
    error: str = ""
    """Why it cannot be read; else empty."""
    children: tuple["ThreadTree", ...] = ()

    def walk(self) -> Iterator["ThreadTree"]:
        """Yield the runs of the tree, each before its children."""
        yield self
        for child in self.children:
            yield from child.walk()


class Result(Frozen):
    """The result of a run."""

    thread: str
    status: ThreadStatus
    """`completed`; with `until="attention"` and `until="answer"`, also the status in which the run waits. While the run
    itself works, and a sub-agent needs a person, it is the status of that sub-agent: see `attention`."""
    text: str
    """The LLM's last reply, or its partial result if a budget is used up; a structured result as canonical JSON. Empty
    while the run waits for a decision or is blocked."""
    structured: bool = False
    """`text` is a value of the agent's result type (`Agent(result=…)`), which `parse` reads."""
    steps: int
    usage: Usage
    pending: tuple[PendingRequest, ...] = ()
    """The requests to decide, if the status is `waiting_approval`: those of the run and of its sub-agents."""
    blocked: Blocked | None = None
    """The reason, if the status is `blocked`."""
    paused: Pause | None = None
    """The pause, if the status is `paused`: by whom, why and until when."""
    attention: tuple[Attention, ...] = ()
    """The runs of the tree that need a person, from the top down: the run itself, or its sub-agents."""

    @overload
    def parse(self, kind: type[T]) -> T: ...
    @overload
    def parse(self, kind: Any) -> Any: ...
    def parse(self, kind: Any) -> Any:
        """Return the structured result as a value of a type.

        Args:
            kind: The type, as in `Agent(result=…)`.

        Raises:
            ResultNotStructured: The result is text, such as the partial result of a run whose budget is used up; or it
                does not fit the type.
        """
        if not self.structured:
            raise ResultNotStructured(f"thread {self.thread!r} is {self.status}, and has no structured result")
        try:
            return TypeAdapter(kind).validate_json(self.text)
        except ValidationError as error:
            why = f"the result of thread {self.thread!r} does not fit {kind!r}: {error}"
            raise ResultNotStructured(why) from None
