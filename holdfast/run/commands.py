"""What an agent run wants done (`holdfast.run.machine`), and how it ends."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from temporalio.exceptions import ApplicationError, FailureError, is_cancelled_exception

from holdfast.run.contracts import (
    AgentRequest,
    Archived,
    ArchiveRequest,
    EffectsRequest,
    LLMReply,
    LLMRequest,
    LoadedAgent,
    LoadedThread,
    Notice,
    Notified,
    PastEffects,
    RunInput,
    RunResult,
    ThreadRequest,
    ToolOutcome,
    ToolRequest,
    cause_of,
)

Request = ThreadRequest | EffectsRequest | AgentRequest | LLMRequest | ToolRequest | Notice | ArchiveRequest
Result = LoadedThread | PastEffects | LoadedAgent | LLMReply | ToolOutcome | Notified | Archived


@dataclass(frozen=True)
class Call:
    """Make this call; its id names it in `ended`, `failed` and `Stop`."""

    id: int
    request: Request
    number: int = 0
    """The number of a tool call; 0 for one that no LLM asked for (`Verify`)."""
    seconds: float = 0
    """How long it may take as a local activity, which is made again as an ordinary one if it takes longer; 0 for one
    that is an ordinary activity from the start."""

    @property
    def local(self) -> bool:
        """Whether it is a local activity."""
        return self.seconds > 0


@dataclass(frozen=True)
class Sleep:
    """Tell when that time has come."""

    id: int
    until: datetime
    seconds: float
    """From now."""


@dataclass(frozen=True)
class Stop:
    """Stop a call or a sleep. A tool call's end is still awaited, of anything else nothing more is wanted."""

    id: int


Command = Call | Sleep | Stop


@dataclass(frozen=True)
class Failure:
    """Why a call came to nothing."""

    cause: str
    """A short name: the type of the error."""
    message: str
    cancelled: bool = False
    final: bool = False
    """The call itself says that no further attempt would do better."""
    details: tuple[Any, ...] = ()
    """Those of the error: claims, for anybody who reaches Temporal can fail an activity."""

    @classmethod
    def of(cls, error: FailureError) -> Self:
        """What the error of an activity says. That of a local activity has no `ActivityError` around it."""
        cause = error.cause or error
        told = cause if isinstance(cause, ApplicationError) else None
        final, details = (told.non_retryable, tuple(told.details)) if told else (False, ())
        return cls(*cause_of(error), is_cancelled_exception(error), final, details)


@dataclass(frozen=True)
class End:
    """How the run ended: with one of these."""

    result: RunResult | None = None
    failure: Failure | None = None
    """Its `cancelled` tells a run that was cancelled from one that failed."""
    next: RunInput | None = None
    """It goes on in a new Temporal run, with this input."""
