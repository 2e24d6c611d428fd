"""The actions that a run can take next: a closed union. `holdfast.core.run.decide.decide` chooses one."""

from dataclasses import dataclass
from typing import Literal

from holdfast.core.budget.budget import LimitName


@dataclass(frozen=True)
class LoadAgent:
    """Have a worker load the agent."""


@dataclass(frozen=True)
class LoadPolicy:
    """Have a worker load the policy that the run adopts."""


@dataclass(frozen=True)
class CallLLM:
    """Make the next LLM call."""


@dataclass(frozen=True)
class Compact:
    """Compact the context."""

    asking: bool
    """Ask the LLM for a summary; otherwise reuse the last one, because not even that request fits."""
    answered_only: bool
    """Compact only the messages that the LLM has already answered, and keep later ones."""


@dataclass(frozen=True)
class TakeMessages:
    """Show the waiting messages to the LLM."""


@dataclass(frozen=True)
class Verify:
    """Run the agent's `verify` tools."""

    tools: tuple[str, ...]
    baseline: bool = False
    """They run because approval requests have opened; otherwise because of a long pause."""


@dataclass(frozen=True)
class ResolveCalls:
    """Resolve these calls, which were under way when the thread's last run was closed."""

    numbers: tuple[int, ...]


@dataclass(frozen=True)
class StartCalls:
    """Start these tool calls, concurrently."""

    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Poll:
    """Make the next poll of these dormant calls, unless it is under way or no longer possible."""

    numbers: tuple[int, ...]


@dataclass(frozen=True)
class ReportBudget:
    """Record that the budget is low, or used up."""

    short: LimitName | Literal[""] = ""
    """The limit that has no room for the next call; empty if the budget is only low."""


@dataclass(frozen=True)
class Block:
    """Do nothing until a person sends `retry`."""

    cause: str
    message: str


@dataclass(frozen=True)
class Wait:
    """Do nothing until another event is recorded."""


@dataclass(frozen=True)
class NoteProgress:
    """Make the run's own call that keeps progress.txt."""


@dataclass(frozen=True)
class AskForLearnings:
    """Ask the LLM what is worth remembering, before the run ends."""


@dataclass(frozen=True)
class EndSubagents:
    """Cancel the open sub-agents, before the run ends."""


@dataclass(frozen=True)
class Complete:
    """End the run with the LLM's answer."""


@dataclass(frozen=True)
class Fail:
    """End an unattended run as failed, with the cause of its block."""


@dataclass(frozen=True)
class Finish:
    """The run is over."""


OwnAction = (
    LoadAgent
    | LoadPolicy
    | CallLLM
    | Compact
    | TakeMessages
    | Verify
    | ResolveCalls
    | StartCalls
    | Poll
    | NoteProgress
    | AskForLearnings
    | Complete
    | ReportBudget
    | Block
    | Wait
    | Fail
    | Finish
)
"""The actions that concern the run alone."""

Action = OwnAction | EndSubagents
