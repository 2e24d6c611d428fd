"""The commands that an agent run (`holdfast.core.run.machine.machine`) gives to its driver, its end, and the answers
that it passes to its activities in process.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, Self

from temporalio.exceptions import ApplicationError, FailureError, is_cancelled_exception

from holdfast.core.run.contracts.error_types import cause_of
from holdfast.core.run.contracts.llm_calls import LLMFailed, LLMReply, LLMRequest
from holdfast.core.run.contracts.loading import (
    AgentRequest,
    EffectsRequest,
    LoadedAgent,
    LoadedThread,
    PastEffects,
    ThreadRequest,
)
from holdfast.core.run.contracts.record import Archived, ArchiveRequest, Notice, Notified
from holdfast.core.run.contracts.runs import RunInput, RunResult
from holdfast.core.run.contracts.subagents import (
    Announced,
    AnnounceEnd,
    CheckSubagentsRequest,
    EndSubagentsRequest,
    StartedSubagents,
    StartSubagentsRequest,
    SubagentReports,
)
from holdfast.core.run.contracts.tool_calls import PreviewedCall, PreviewRequest, ToolOutcome, ToolRequest
from holdfast.core.run.state.places import Places

# Each request has an entry in the table of activities (`holdfast.core.run.contracts.table`), which names its result.
ChildRequest = StartSubagentsRequest | CheckSubagentsRequest | EndSubagentsRequest | AnnounceEnd
OwnRequest = (
    ThreadRequest | EffectsRequest | AgentRequest | LLMRequest | ToolRequest | PreviewRequest | Notice | ArchiveRequest
)
Request = OwnRequest | ChildRequest
Result = (
    LoadedThread
    | PastEffects
    | LoadedAgent
    | LLMReply
    | ToolOutcome
    | PreviewedCall
    | Notified
    | Archived
    | StartedSubagents
    | SubagentReports
    | Announced
)


@dataclass(frozen=True)
class Call:
    """Make this call. Its id names it in `AgentRun.ended` and in `Stop`."""

    id: int
    request: Request
    number: int = 0
    """The number of a tool call in the thread; 0 for a call of a `verify` tool, and for everything else."""
    seconds: float = 0
    """How long the call may take as a local activity; the run makes it again as an ordinary activity if it takes
    longer. 0 for an ordinary activity."""
    places: Places = field(default_factory=Places)
    """The nodes of the run when it made the call: an answer may refer to them (`Placement.same`)."""


@dataclass(frozen=True)
class Sleep:
    """Report when that time has passed."""

    id: int
    until: datetime
    seconds: float
    """Seconds from now until then."""
    awaited: str = ""
    """What the run waits for from outside meanwhile (`holdfast.core.run.decide.decide`); empty for nothing."""
    open_ended: bool = False
    """Whether nothing is due then: the timer only shows that the run waits."""


@dataclass(frozen=True)
class Stop:
    """Stop a call or a sleep. The driver still reports the end of a tool call, but of no other call."""

    id: int


Command = Call | Sleep | Stop


@dataclass(frozen=True)
class Failure:
    """Why a call failed."""

    cause: str
    """The error's type, a short name."""
    message: str
    cancelled: bool = False
    final: bool = False
    """The activity reports that no further attempt can succeed."""
    details: tuple[Any, ...] = ()
    """The error's details. They are claims: anybody with access to Temporal can fail an activity."""
    proof: LLMFailed | None = None
    """The proof in the details of why an LLM call failed; None if they hold none with a valid seal."""

    @classmethod
    def of(cls, error: FailureError) -> Self:
        """Return the failure that an activity's error describes. `ActivityError` does not wrap a local activity's."""
        cause = error.cause or error
        reported = cause if isinstance(cause, ApplicationError) else None
        final, details = (reported.non_retryable, tuple(reported.details)) if reported else (False, ())
        return cls(*cause_of(error), is_cancelled_exception(error), final, details)


@dataclass(frozen=True)
class End:
    """The end of a Temporal run: exactly one field is set."""

    result: RunResult | None = None
    failure: Failure | None = None
    """The run failed, or was cancelled if `cancelled` is set."""
    next: RunInput | None = None
    """The run continues as new (continue-as-new) with this input."""


KEEP_TRACE = "holdfast_keep_trace"
"""The function of a worker by which a moved run names the chain whose trace its log lines belong to; only if runs are
traced."""

GIVE_ANSWERS = "holdfast_give_answers"
"""The name under which a worker offers its workflows the function that receives a run's answers
(`holdfast.activities.calling_run`)."""

Answers = Mapping[str, Callable[..., Any]]
"""Query → the function that answers it."""


class Caller(NamedTuple):
    """A Temporal run that calls activities. One process may serve several namespaces."""

    namespace: str
    thread: str
    run_id: str
