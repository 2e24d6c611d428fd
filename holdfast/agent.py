"""An agent as data: what a catalog offers (`Agent`), and what a run records of it (`AgentSpec`)."""

from functools import cached_property
from typing import Any
from weakref import WeakValueDictionary

from pydantic import Field

from holdfast.effects import Effect
from holdfast.model import Frozen, digest
from holdfast.policy import Policy


class Limits(Frozen):
    """Bounds of one agent run. A run that reaches one is blocked, not lost: `retry` grants as much again."""

    max_steps: int = Field(default=100, ge=1)
    """LLM calls."""
    max_rejected_replies: int = Field(default=3, ge=1)
    """Replies in a row that could not be used (empty, cut off, no valid tool call)."""
    tool_result_chars: int = Field(default=8_000, ge=200, le=400_000)
    """Length of a tool result in the transcript, in characters (2,000 tokens or so); what is longer is clipped."""
    llm_timeout: float = Field(default=600, gt=0)
    """Seconds that one attempt of an LLM call may take."""
    fold_tokens: int = Field(default=100_000, ge=1)
    """Tokens of a request and its reply, as the provider counts them, from which the transcript is folded. Four
    fifths of the LLM's context window are a good choice."""
    idle_limit: float = Field(default=0, ge=0)
    """Seconds that a run stays open for follow-up messages after the LLM has answered; 0 to finish at once."""
    stale_after: float = Field(default=86_400, gt=0)
    """Seconds of waiting after which the agent's `verify` tools run before anything else."""
    history_events: int = Field(default=4_000, ge=20)
    """Events of Temporal's history from which the run goes on in a new Temporal run, at the latest when Temporal
    suggests it: what a worker has to replay after a crash."""


class ToolSpec(Frozen):
    """A tool as the LLM sees it and the policy judges it."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON schema of the arguments."""
    effect: Effect
    timeout: float
    """Seconds that one call may take."""
    undoable: bool = False
    """It can take its effect back (`@tool(undo=…)`)."""


class Agent(Frozen):
    """What a user defines: instructions, the tools by name, the policy."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")
    instructions: str
    """The system message."""
    tools: tuple[str, ...] | None = None
    """Names of tools in the same catalog; None for all of them."""
    verify: tuple[str, ...] = ()
    """Reads without arguments that run when the agent goes on after a long pause (`Limits.stale_after`), so that the
    LLM sees what has changed meanwhile."""
    policy: Policy = Policy()
    llm: str | None = None
    """The provider's name of the LLM; None for the worker's default (`HOLDFAST_LLM`)."""
    llm_options: dict[str, Any] = {}
    """Further fields of the request: `{"temperature": 0}`, `{"reasoning_effort": "low"}`."""
    limits: Limits = Limits()


class AgentSpec(Frozen):
    """An agent as one run uses it, recorded before anything else: a redeployed worker cannot change it."""

    name: str
    instructions: str
    tools: tuple[ToolSpec, ...]
    verify: tuple[str, ...] = ()
    policy: Policy
    llm: str
    llm_options: dict[str, Any] = {}
    limits: Limits

    @cached_property
    def hash(self) -> str:
        """Digest of everything above: two runs with the same hash were told the same and allowed the same.

        Defaults are left out, so that a field added in a later release alters no older hash.
        """
        return digest(self.model_dump(mode="json", exclude_defaults=True))

    def tool(self, name: str) -> ToolSpec | None:
        """The tool of that name, if the agent has it."""
        return next((tool for tool in self.tools if tool.name == name), None)


_SHARED: WeakValueDictionary[str, AgentSpec] = WeakValueDictionary()


def shared(spec: AgentSpec) -> AgentSpec:
    """The one object for all specs that equal `spec`: a thousand runs of an agent hold its tools' schemas once.

    Nothing can tell the one from the other but their memory, so a replay is none the wiser.
    """
    return _SHARED.setdefault(spec.hash, spec)
