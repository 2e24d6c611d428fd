"""What workflows, activities and clients agree on: the models that cross a process boundary, and names.

Every model is sealed (`holdfast.seals.seals`): only our own processes can make one. Signals, updates and plain starts
are claims instead: anybody who reaches Temporal can make one, and policy and signatures judge it. Which activity
answers which request, and how it is called, is in `holdfast.run.activities`.
"""

from datetime import datetime
from typing import Any, ClassVar, Literal

from temporalio.exceptions import ApplicationError, FailureError

from holdfast.agents.agent import AgentSpec
from holdfast.authority.approvals import ApprovalRequest
from holdfast.authority.policy import Policy
from holdfast.base.digests import GENESIS
from holdfast.base.models import Frozen, Sealed
from holdfast.budget.account import TokenPrice
from holdfast.budget.budget import Budget
from holdfast.budget.tree import TreeCost
from holdfast.lineage import Lineage
from holdfast.llm.blocks import Content, ToolCall
from holdfast.llm.messages import AssistantMessage, Usage
from holdfast.llm.outages import Outage
from holdfast.log.events import RefusalsCounted, ToolStatus
from holdfast.log.fork_point import ForkPoint
from holdfast.log.import_point import ImportPoint
from holdfast.memory.recalled import RecalledTier
from holdfast.run.snapshot import RunSnapshot
from holdfast.seals.orders import Answer, Order
from holdfast.seals.starts import Start
from holdfast.tools.cannot import HandedConstraint, Scope
from holdfast.tools.effects import PastEffect
from holdfast.tools.failures import FailedAttempts, FailureKind
from holdfast.transcript.transcript import TranscriptRef
from holdfast.trust import Origin, Trust

WORKFLOW = "AgentRunWorkflow"
LOOP_WORKFLOW = "AgentLoopWorkflow"
SCHEDULED_WORKFLOW = "ScheduledRunWorkflow"
TASK_QUEUE = "holdfast"
"""Default task queue."""


class RunInput(Start):
    """The input of `AgentRunWorkflow`: the task, who gives it, and what the run continues.

    The workflow id is the thread id.
    """

    PLAIN = frozenset({"task", "agent", "by", "idle_limit", "budget"})

    task: Content = ""
    """What the user asks for; empty where `snapshot` holds it."""
    by: str = ""
    """Who gives the task; only a claim, unless the start is sealed."""
    by_proven: bool = True
    """With a sealed start: the process that made it has authenticated that person."""
    agent: str | None = None
    """The agent's name; None for the one that a continued thread had, or else the catalog's first."""
    workspace: str | None = None
    """A folder on the worker; None for the one that a continued thread had, or else one of the thread's own."""
    idle_limit: float | None = None
    """Seconds that the run stays open for follow-up messages; None for the agent's own limit."""
    resume: bool = False
    """The thread may have a past: load it, and continue from there."""
    previous_run: str | None = None
    """With `resume`: Temporal's id of the thread's last run, if Temporal still has it."""
    fork: ForkPoint | None = None
    """The thread is new, and begins with the events of another one up to there. Such a start may have no task."""
    llm: str = ""
    """With a fork: the LLM of its agents; empty for their own."""
    keeps_policy: bool = False
    """With a fork: the policy of the other thread's agent judges its calls, too, whichever agent it has."""
    brought: bool = False
    """With a fork: a file has brought its events, and the folder that they name is not one of this place."""
    imported: ImportPoint | None = None
    """The past comes from a portable file: with `resume`, the thread continues from there; with `fork`, a new one."""
    depth: int = 0
    """How many agents stand between this run and a person."""
    trust: Trust = "person"
    """The trust level of the task: `tool`, where it was read in a file."""
    schedule: str = ""
    """The name of the schedule that started the run; empty for none. Such a start carries the level that has it."""
    lineage: Lineage | None = None
    """Which run starts it as a sub-agent; None for none. Such a start carries the level that has it."""
    policies: tuple[Policy, ...] = ()
    """With a lineage: the policies of the runs above, which judge its calls beside its own. With a fork: further ones
    that do."""
    constraints: tuple[HandedConstraint, ...] = ()
    """With a lineage: what the parent's tools said cannot be done."""
    budget: Budget | None = None
    """What the run may use: no more than its agent's budget allows; None for that one. A sealed start with a budget
    carries the level that has it."""
    hands_in: bool = False
    """With a budget: where it ends, the run hands in what it has and ends, and does not wait for `extend`. Of the
    iteration of a loop."""
    snapshot: RunSnapshot | None = None
    """Where the Temporal run before this one stopped. Only the workflow sets it, when it continues as new."""
    held: tuple[tuple[str, Any], ...] = ()
    """Signals and updates that arrived in an earlier Temporal run, which ended before the thread's past was loaded."""
    refusals: RefusalsCounted | None = None
    """How many that run refused."""
    features: int = 0
    """The feature level with which this Temporal run begins (`holdfast.run.features`). Only workflows set it, the run
    when it continues as new and the launcher of a scheduled run; and sealed starts of forks, of imports, of sub-agents
    and with a budget.
    """


class RunResult(Sealed):
    """The result of `AgentRunWorkflow`: the agent's last reply, and what it cost."""

    result: str
    steps: int
    usage: Usage
    structured: bool = False
    """The result is a value of the agent's result type, as canonical JSON."""
    llm: str = ""
    """The LLM that the tokens were for; empty below the feature level that names it."""
    refinements: int = 0
    """How often people have refined the task."""
    moved: bool = False
    """The run was moved to another place, and continues there: `result` says by whom."""
    trust: Trust | None = None
    """Of a sub-agent: the trust level of the reply."""
    constraints: tuple[HandedConstraint, ...] = ()
    """Of a sub-agent: what its tools said cannot be done."""
    cost: TreeCost | None = None
    """Of a sub-agent with a budget: what it and all runs below it have spent."""
    first_run_id: str = ""
    """The first run id of the chain of Temporal runs that it ends; empty below the feature level that names it."""


class EffectsRequest(Order):
    """The input of `load_effects`: which effects of the thread the run asks the ledger for."""

    after: int
    """The number of the last call that is finished for good: the run asks for what came later."""
    position: int = 0
    """How many events the run expects in the permanent record: the record has to lead there."""
    head: str = GENESIS
    """The digest of the last of them."""


class PastEffects(Answer):
    """The result of `load_effects`: the effects that the ledger has of the thread."""

    effects: tuple[PastEffect, ...] = ()
    """Oldest first."""
    left_out: int = 0
    """How many older ones are left out."""
    moved: RunSnapshot | None = None
    """Where the thread stands, if it was moved to another place after the events that the run has: it was reset."""


class ThreadRequest(Order):
    """The input of `load_thread`: which closed run of the thread to continue."""

    previous_run: str | None = None
    """Temporal's id of the thread's last run, if Temporal still has it."""
    fork: ForkPoint | None = None
    """The thread begins here, with the events of another one."""
    imported: bool = False
    """With `fork`: an import has put those events into the record, under the fork's own id."""


class LoadedThread(Answer):
    """The result of `load_thread`: the thread's past."""

    snapshot: RunSnapshot = RunSnapshot()
    """Where the thread stands; at position 0 if it has no past."""
    moved: bool = False
    """The run that asks was moved to another place there: it was reset."""


class ForkedFolder(Frozen):
    """The files with which a fork begins."""

    workspace: str
    """The folder of the thread that it was forked from."""
    at: datetime
    """The time of the last event that both threads have."""


class AgentRequest(Order):
    """The input of `load_agent`: which agent and workspace to resolve, and what the run knows of its thread."""

    agent: str | None
    """The agent's name; None for the catalog's first."""
    workspace: str | None
    """A folder on the worker; None for one of the thread's own."""
    user: str = ""
    """Who gave the thread's task, and whose standing memories the agent gets; empty where that is not proven."""
    fresh: bool = False
    """The run expects the thread to be new: the permanent record must have nothing of it."""
    plain: bool = False
    """The start was not sealed; a worker may refuse such starts."""
    forked: ForkedFolder | None = None
    """The thread was forked: its own folder begins with the files that the other thread had then."""
    after: int = 0
    """How many calls the thread's log has. The ledger may have later ones, if the run was reset to its beginning."""
    budget: Budget | None = None
    """The budget that the start gives the run."""
    llm: str = ""
    """The LLM that takes the place of the agent's; empty for the agent's."""
    position: int | None = None
    """How many events the run has. Where the record says that the thread was moved after them, the run was reset."""


class LoadedAgent(Answer):
    """The result of `load_agent`: the agent as this thread runs it."""

    spec: AgentSpec
    workspace: str
    """Absolute path on the worker."""
    notify: bool = False
    """The worker has receivers for notices."""
    recalled: tuple[RecalledTier, ...] = ()
    """The memories that the LLM is shown from the start."""
    past: PastEffects | None = None
    """Effects that the thread has had and its log lacks, because the run was reset to its beginning."""
    features: int = 0
    """The feature level of the worker's release."""
    price: TokenPrice | None = None
    """With a budget of money: the list price of the agent's LLM; None where it is unknown."""


class LLMRequest(Order):
    """The input of `call_llm`: what to send, by reference to the calling workflow's transcript."""

    transcript: TranscriptRef
    compacting: bool = False
    """Ask for the summary that replaces the transcript (context compaction)."""
    priced: bool = False
    """Compute what the reply costs, because the run has a budget of money."""
    budgeted: bool = False
    """The run has a budget: an attempt that may have cost something ends the call, before another one is made."""
    lost: int = 0
    """How many attempts at the same step have ended calls before this one: what fails again is retried later."""
    sized: bool = False
    """Report the request's own size where the provider counts far fewer tokens."""


class LLMReply(Answer):
    """The result of `call_llm`: the reply, normalised before it is recorded."""

    message: AssistantMessage | None = None
    """The LLM's message; None where the provider's reply holds none: `rejected` says why."""
    rejected: str = ""
    """Why the reply cannot be used as it is; empty if it can."""
    problems: dict[str, str] = {}
    """Call id → why the call cannot run (unknown tool, arguments that do not fit)."""
    arguments: dict[str, str] = {}
    """Call id → its arguments as the tool reads them (`holdfast.tools.arguments`), where the LLM wrote others."""
    usage: Usage = Usage()
    finish_reason: str = "stop"
    llm: str = ""
    request_id: str | None = None
    duration_ms: int = 0
    attempt: int = 1
    outage: Outage | None = None
    """The failed attempts before this one, as far as they left a trace."""
    artifact: str = ""
    """The address of the reply's full text, where `message` holds its head and tail only."""
    request_tokens: int = 0
    """Where the request asks for it: its tokens by its bytes, if the provider counts far fewer; else 0."""
    cost: int | None = None
    """Where the request asks for it: nano-dollars by list prices; None where the LLM's price is unknown."""


class Failures(Answer):
    """What a failed attempt of `call_llm` hands to the next attempt, in its last heartbeat."""

    outage: Outage
    untraced: bool = False
    """With a budget: an attempt after these may have ended without a trace, whatever Temporal's count of attempts says,
    which begins again where somebody resets the activity."""
    usage: Usage | None = None
    """With a budget: of the reply that an attempt received, and that is not recorded; None where none did."""
    cost: int | None = None
    """Nano-dollars of that reply; None where no price is asked for, or known."""


class LLMFailed(Answer):
    """Proof of why an LLM call failed: the details of the error that ends `call_llm`, where the run has a budget.
    Anybody who reaches Temporal can fail an activity, and what the provider refuses costs nothing.
    """

    cause: str
    """The error's type: `LLM_REJECTED`, `CONTEXT_TOO_LONG` or `LLM_LOST`."""
    outage: Outage | None = None
    """The failed attempts before this one, as far as they left a trace."""
    lost: int = 0
    """How many attempts may have cost something."""
    request_tokens: int = 0
    """The tokens of the request that each of them may have sent, estimated from its bytes."""
    usage: Usage | None = None
    """Of the reply that one of them received, and that is not recorded: it is charged with that instead."""
    cost: int | None = None
    """Nano-dollars of that reply; None where no price is asked for, or known."""


class ToolRequest(Order):
    """The input of `call_tool`: the intent to run a tool call, which the log has recorded."""

    call: ToolCall
    key: str
    """The effect key; the activity recomputes it from the call, its number and the chain of runs."""
    number: int = 0
    """The call's number in the thread; 0 for one that no LLM asked for."""
    first_run_id: str = ""
    """The first run id of the chain of runs that gave the effect its key; empty for the calling run's."""
    epoch: int = 0
    """How often a person has said that the effect did not happen: each epoch has its own row in the ledger."""
    workspace: str
    clip: int = 8_000
    """How many characters of the result are kept."""
    max_worker_deaths: int = 3
    """How many workers may die during the call before it is not attempted again."""
    undo: bool = False
    """Undo the effect, instead of causing it."""
    settle: bool = False
    """Find out what became of the effect, and cause nothing."""
    origin: Origin | None = None
    """Where the call comes from, for tools that ask for it."""
    poll: int = 0
    """The number of the poll that this is, of a call that sleeps and that `number` names; 0 for any other call."""
    cannot: bool = False
    """The run takes the status `cannot`; one of a lower feature level takes `failed` in its place."""
    names_artifacts: bool = False
    """The run takes `ToolOutcome.artifacts`; one of a lower feature level finds them in the text."""
    failures: bool = False
    """The run takes `cause` and `failures` of an outcome; one of a lower feature level does not."""
    settles: bool = False
    """The run takes `settles_in` of an outcome; one of a lower feature level finds that in the text."""
    trust: Trust | None = None
    """The trust level of what the LLM writes, given everything it has read; None below the feature level at which every
    run keeps it: then no file is marked, and no result is labelled by its files.
    """


class InDoubt(Frozen):
    """How a tool's function ended that did not say whether its effect had happened."""

    content: str
    """For the LLM, if it turns out not to have happened."""
    cause: FailureKind | None = None
    running: bool = False
    """It took too long, and its thread may still be at work."""


class EarlierAttempts(Answer):
    """What an attempt of `call_tool` leaves for the next one: how the attempts at the call have failed."""

    deaths: int = 0
    """How many workers died during the call."""
    failures: FailedAttempts | None = None
    raised: int = 0
    """How often an idempotent tool has raised."""
    in_doubt: InDoubt | None = None
    """How the call ended, while it is not known yet whether its effect has happened."""


class ToolOutcome(Answer):
    """The result of `call_tool`. Status `unknown`: the effect may have happened, and a person has to find out."""

    status: ToolStatus
    content: Content
    adopted: bool = False
    """An earlier attempt had the effect already; this one returns its result."""
    duration_ms: int = 0
    artifact: str = ""
    """The address of the full result, where `content` holds its head and tail only."""
    size: int = 0
    """Bytes of the full result; 0 where `content` is all of it."""
    artifacts: tuple[str, ...] = ()
    """The addresses of the images and files that were left out of `content`."""
    trust: Trust | None = None
    """The trust level of this result; None for the level of all results of the tool."""
    scope: Scope | None = None
    """With the status `cannot`: which calls cannot be made."""
    until: datetime | None = None
    """With the status `cannot`: until when; None for no end."""
    cause: FailureKind | None = None
    """Why the call failed, or its outcome is unknown, in a word; None where that is not known."""
    failures: FailedAttempts | None = None
    """The attempts before this one that failed, as far as they left a trace."""
    settles_in: float | None = None
    """With the status `unknown`: seconds from the outcome in which a request of the call may still arrive."""


Occasion = Literal[
    "request_opened",
    "request_reminded",
    "request_escalated",
    "request_expired",
    "run_blocked",
    "run_finished",
    "budget_low",
    "budget_spent",
]


class Notice(Order):
    """The input of `notify`: what happened in a run or a loop, for people who do not watch it."""

    occasion: Occasion
    position: int
    """The event's position: with the thread's id it names the notice, so that a receiver recognises a duplicate."""
    agent: str = ""
    request: ApprovalRequest | None = None
    status: str = ""
    text: str = ""
    """The run's result, or why it is blocked."""


class Notified(Answer):
    """The result of `notify`: how many receivers got the notice."""

    receivers: int = 0


class ArchiveRequest(Order):
    """The input of `archive`: which of the calling workflow's events to write into the permanent record."""

    start: int
    stop: int
    """One more than the last position to write."""
    base: str = GENESIS
    """The digest of the event before `start`, which the written events have to continue."""
    head: str
    """The digest of the last event, to which the written events have to lead."""
    pausing: bool = False
    """The run waits after this: a worker may drop what it caches of it."""
    fork: ForkPoint | None = None
    """`start` is the first event after this fork: the other thread's events are written with it, all or none."""


class Archived(Answer):
    """The result of `archive`: how far the permanent record leads."""

    length: int
    """How many events of the thread the permanent record has."""
    features: int = 0
    """The feature level of the worker's release."""


class Page(bytes):
    """The answer to the queries `log` and `transcript`: as many lines as fit."""

    SEALED: ClassVar[bool] = True


class View(dict[str, Any]):
    """The answer to a query or an update that people read, as JSON."""

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
"""Query → the type of its answer: the queries of a run."""


EFFECT_SETTLING = "EffectSettling"
"""The type of the error of an attempt that waits until no request of a lost attempt can arrive any more."""

# Types of non-retryable errors: no further attempt can succeed.
AGENT_NOT_FOUND = "AgentNotFound"
AGENT_UNFIT = "AgentUnfit"
"""The agent lacks the tools that a loop needs."""
WORKSPACE_NOT_FOUND = "WorkspaceNotFound"
TASK_EMPTY = "TaskEmpty"
TASK_TOO_LONG = "TaskTooLong"
TASK_MALFORMED = "TaskMalformed"
BUDGET_UNSUPPORTED = "BudgetUnsupported"
"""The start gives a budget, and the worker that loaded the agent is of a release without budgets."""
NAME_INVALID = "NameInvalid"
"""The name of the person who gives the task could be mistaken for another's."""
START_UNPROVEN = "StartUnproven"
"""The policy requires proof of who asks, and none of our own processes started the run."""
LLM_REJECTED = "LLMRejected"
"""The provider rejects the request: wrong key, unknown model, malformed request."""
CONTEXT_TOO_LONG = "ContextTooLong"
"""The request does not fit the LLM's context window."""
LLM_LOST = "LLMCallLost"
"""An attempt may have cost something, and gave no reply: a run with a budget charges it, then calls the LLM again."""
START_REFUSED = "StartRefused"
"""The start claims what only a sealed start may, or is not valid for this thread at this time."""
NOT_SEALED = "NotSealed"
"""An order or an answer does not come from our own processes, or belongs to another call."""
THREAD_EXISTS = "ThreadExists"
"""The run expects its thread to be new, and the permanent record has events of it."""
NOT_SETTLED = "NotSettled"
"""Some of the events to write were exposed early by a query: the run is replayed, and asks again."""
RECORD_CONFLICT = "RecordConflict"
"""The permanent record has other events at these positions, for example after a reset."""
RECORD_UNREADABLE = "RecordUnreadable"
"""The permanent record of the thread is damaged, or has a gap."""


def cause_of(error: FailureError) -> tuple[str, str]:
    """Return the type and message of what made an activity fail. A local activity's error is itself the cause."""
    cause = error.cause or error
    name = cause.type if isinstance(cause, ApplicationError) and cause.type else type(cause).__name__
    return name, getattr(cause, "message", None) or str(cause)
