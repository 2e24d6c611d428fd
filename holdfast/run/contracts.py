"""What workflows, activities and clients agree on: models that cross a process boundary, and names.

All of them are sealed (`holdfast.seals.seals`): only our own processes can make them. Signals, updates and plain
starts are claims, which anybody who reaches Temporal may make, and which policy and signatures judge.

Workflows call the stubs at the end; the implementations of the same names are in `activities/`. So no I/O library
is imported by workflow code, and mypy checks both sides.
"""

from typing import Any, ClassVar, Literal

from temporalio.exceptions import ApplicationError, FailureError

from holdfast.agents.agent import AgentSpec
from holdfast.authority.approvals import ApprovalRequest
from holdfast.base.digests import GENESIS
from holdfast.base.models import Sealed
from holdfast.llm.messages import AssistantMessage, Content, ToolCall, Usage
from holdfast.llm.outages import Outage
from holdfast.log.events import RefusalsCounted, ToolStatus
from holdfast.memory.recalled import RecalledTier
from holdfast.run.snapshot import RunSnapshot
from holdfast.seals.orders import Answer, Order
from holdfast.seals.starts import Start
from holdfast.tools.effects import PastEffect
from holdfast.transcript.transcript import TranscriptRef
from holdfast.trust import Origin, Trust

WORKFLOW = "AgentRunWorkflow"
LOOP_WORKFLOW = "AgentLoopWorkflow"
TASK_QUEUE = "holdfast"
"""Default task queue."""


class RunInput(Start):
    """Input of `AgentRunWorkflow`. The workflow id is the thread id."""

    PLAIN = frozenset({"task", "agent", "by", "idle_limit"})

    task: Content = ""
    """Empty where `snapshot` holds it."""
    by: str = ""
    """Who gives the task; a claim, unless the start is sealed."""
    by_proven: bool = True
    """With a sealed start: the process that made it has authenticated the person who gives the task."""
    agent: str | None = None
    """None for the catalog's first agent, or the one that a continued thread had."""
    workspace: str | None = None
    """A folder on the worker; None for one of the thread's own, or the one that a continued thread had."""
    idle_limit: float | None = None
    """Seconds that the run stays open for follow-up messages; None for what the agent says."""
    resume: bool = False
    """The thread may have a past: load it, and go on from there."""
    previous_run: str | None = None
    """With `resume`: Temporal's id of the thread's last run, if Temporal still has it."""
    depth: int = 0
    """How many agents stand between the run and a person."""
    trust: Trust = "person"
    """Whose word the task is: a tool's, where it was read in a file."""
    snapshot: RunSnapshot | None = None
    """Where the Temporal run before this one stopped; set by the workflow alone."""
    held: tuple[tuple[str, Any], ...] = ()
    """Signals that came before the thread's past was loaded, where a new Temporal run begins before it is."""
    refusals: RefusalsCounted | None = None
    """How many were refused until then."""


class RunResult(Sealed):
    """Result of `AgentRunWorkflow`."""

    result: str
    steps: int
    usage: Usage


class EffectsRequest(Order):
    """Input of `load_effects`."""

    after: int
    """The number of the last call that is finished for good: what came later is asked for."""
    position: int = 0
    """How far the run takes its thread to be recorded: the record has to lead there."""
    head: str = GENESIS
    """The digest of the event before."""


class PastEffects(Answer):
    """Result of `load_effects`: what the ledger has of the thread."""

    effects: tuple[PastEffect, ...] = ()
    """Oldest first."""
    left_out: int = 0
    """How many older ones there are besides."""


class ThreadRequest(Order):
    """Input of `load_thread`."""

    previous_run: str | None = None


class LoadedThread(Answer):
    """Result of `load_thread`."""

    snapshot: RunSnapshot = RunSnapshot()
    """Where the thread stands; at position 0 if it has no past."""


class AgentRequest(Order):
    """Input of `load_agent`."""

    agent: str | None
    workspace: str | None
    user: str = ""
    """Whose standing memories the agent has: who gave the thread's task; empty where that is not proven."""
    fresh: bool = False
    """The run takes the thread to be new: the permanent record must have nothing of it."""
    plain: bool = False
    """The start was not sealed; a worker may refuse those."""
    after: int = 0
    """How many calls the thread's log has: the ledger may have later ones, if the run was reset to its beginning."""


class LoadedAgent(Answer):
    """Result of `load_agent`."""

    spec: AgentSpec
    workspace: str
    """Absolute path on the worker."""
    notify: bool = False
    """The worker has somebody to tell of requests and endings."""
    recalled: tuple[RecalledTier, ...] = ()
    """What of its memory the LLM is shown from the start."""
    past: PastEffects | None = None
    """What the thread has done already, and its log does not have: the run was reset to its beginning."""


class LLMRequest(Order):
    """Input of `call_llm`: what to send, by reference to the calling workflow."""

    transcript: TranscriptRef
    compacting: bool = False
    """Ask for the summary that takes the transcript's place."""


class LLMReply(Answer):
    """Result of `call_llm`, recorded once, and so normalised before."""

    message: AssistantMessage | None = None
    """None where the provider's reply holds none; `rejected` then says why."""
    rejected: str = ""
    """Why the reply cannot be used as it is; empty if it can."""
    problems: dict[str, str] = {}
    """Call id → why the call cannot run (unknown tool, arguments that do not fit)."""
    arguments: dict[str, str] = {}
    """Call id → its arguments as the tool reads them (`holdfast.tools.arguments`), where the LLM wrote something
    else."""
    usage: Usage = Usage()
    finish_reason: str = "stop"
    llm: str = ""
    request_id: str | None = None
    duration_ms: int = 0
    attempt: int = 1
    outage: Outage | None = None
    """The attempts before, as far as they left a trace."""
    artifact: str = ""
    """Address of the reply's whole text, where `message` holds its head and tail only."""


class Failures(Answer):
    """What a failed attempt of `call_llm` leaves to the next one, in its last heartbeat."""

    outage: Outage


class ToolRequest(Order):
    """Input of `call_tool`: the recorded intent."""

    call: ToolCall
    key: str
    """Names the effect; the activity recomputes it from the call, its number and the chain of runs."""
    number: int = 0
    """The call's number in the thread; 0 for one that no LLM asked for."""
    first_run_id: str = ""
    """Of the chain of runs that gave the effect its key; empty for the calling one."""
    epoch: int = 0
    """Separates the ledger's rows when a person has said that the effect did not happen."""
    workspace: str
    clip: int = 8_000
    """Characters of the result that are kept."""
    undo: bool = False
    """Take the effect back, instead of making it."""
    settle: bool = False
    """Find out what became of it, and make nothing happen."""
    origin: Origin | None = None
    """For tools that want to know."""


class ToolOutcome(Answer):
    """Result of `call_tool`. `unknown`: the effect may have happened, and nobody but a person can tell."""

    status: ToolStatus
    content: str
    adopted: bool = False
    """Found done by an earlier attempt."""
    duration_ms: int = 0
    artifact: str = ""
    """Address of the whole result, where `content` holds its head and tail only."""
    size: int = 0
    """Bytes of the whole result; 0 where `content` is the whole."""
    trust: Trust | None = None
    """What this result is worth; None for what the tool says of all its results."""


Occasion = Literal[
    "request_opened", "request_reminded", "request_escalated", "request_expired", "run_blocked", "run_finished"
]


class Notice(Order):
    """Input of `notify`: what happened, for people who are elsewhere."""

    occasion: Occasion
    position: int
    """Of the event: with the thread's id it names the notice, whoever gets it twice."""
    agent: str = ""
    request: ApprovalRequest | None = None
    status: str = ""
    text: str = ""
    """The result, or why the run is blocked."""


class Notified(Answer):
    """Result of `notify`."""

    receivers: int = 0
    """How many were told."""


class ArchiveRequest(Order):
    """Input of `archive`: which of the calling workflow's events to write into the permanent record."""

    start: int
    stop: int
    """One more than the last position."""
    base: str = GENESIS
    """The digest of the event before `start`: what is written has to continue it."""
    head: str
    """The digest of the last event: what is written has to lead to it."""
    pausing: bool = False
    """The run waits after this: what a worker keeps of it in memory may go."""


class Archived(Answer):
    """Result of `archive`."""

    length: int
    """How many events of the thread the permanent record has."""


class Page(bytes):
    """The answer to the queries `log` and `transcript`: lines, as many as fit."""

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
"""The queries of a run, and what each answers."""


# Types of non-retryable errors: what went wrong is not Temporal's to retry.
AGENT_NOT_FOUND = "AgentNotFound"
AGENT_UNFIT = "AgentUnfit"
"""The agent lacks the tools that a loop needs."""
WORKSPACE_NOT_FOUND = "WorkspaceNotFound"
TASK_EMPTY = "TaskEmpty"
TASK_TOO_LONG = "TaskTooLong"
TASK_MALFORMED = "TaskMalformed"
NAME_INVALID = "NameInvalid"
"""Who gives the task has a name that could be taken for another's."""
START_UNPROVEN = "StartUnproven"
"""The policy wants to know who asks, and none of our own processes has started the run."""
LLM_REJECTED = "LLMRejected"
"""The provider refuses the request: wrong key, unknown model, a request it cannot read."""
CONTEXT_TOO_LONG = "ContextTooLong"
"""The request does not fit the LLM's context window."""
START_REFUSED = "StartRefused"
"""The start claims what only a sealed start may, or is not good here and now."""
NOT_SEALED = "NotSealed"
"""An order or an answer that does not come from our own processes, or belongs to something else."""
THREAD_EXISTS = "ThreadExists"
"""A start takes the thread to be new, and the permanent record has it."""
NOT_SETTLED = "NotSettled"
"""Events are to be written down that a query has made the workflow see too early: it is replayed, and asked again."""
RECORD_CONFLICT = "RecordConflict"
"""The permanent record has other events at these positions, as after a reset."""
RECORD_UNREADABLE = "RecordUnreadable"
"""The permanent record of the thread is damaged, or has a gap."""


def cause_of(error: FailureError) -> tuple[str, str]:
    """The type and message of what made an activity fail: the error's cause, which is the error of a local activity."""
    cause = error.cause or error
    name = cause.type if isinstance(cause, ApplicationError) and cause.type else type(cause).__name__
    return name, getattr(cause, "message", None) or str(cause)
