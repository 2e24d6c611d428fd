"""An agent as data: what a catalog offers (`Agent`), and what a run records of it (`AgentSpec`)."""

from functools import cached_property
from typing import Any
from weakref import WeakValueDictionary

from pydantic import Field

from holdfast.authority.policy import Policy
from holdfast.base.digests import digest
from holdfast.base.models import Frozen
from holdfast.tools.spec import ToolSpec


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
    compaction_tokens: int = Field(default=100_000, ge=1)
    """Tokens of a request and its reply, as the provider counts them, from which the transcript is folded. Four
    fifths of the LLM's context window are a good choice."""
    idle_limit: float = Field(default=0, ge=0)
    """Seconds that a run stays open for follow-up messages after the LLM has answered; 0 to finish at once."""
    local_seconds: float = Field(default=1, ge=0, le=5)
    """Seconds that a call of a tool that reads may take as a local activity, which costs half of what an ordinary one
    does. Signals wait that long. A call that takes longer is made again as an ordinary activity, and from then on all
    calls of that tool are; 0 to make none a local activity."""
    stale_after: float = Field(default=86_400, gt=0)
    """Seconds since the agent last acted after which its `verify` tools run before anything else."""
    history_events: int = Field(default=4_000, ge=20)
    """Events of Temporal's history from which the run goes on in a new Temporal run, at the latest when Temporal
    suggests it: what a worker has to replay after a crash."""


class Memory(Frozen):
    """What an agent's prompt has of its memory beyond the thread: tokens of each at the most, estimated; 0 for none."""

    skills: int = Field(default=2_000, ge=0)
    """Names and descriptions of skills; their bodies are loaded when the LLM asks for them."""
    strategies: int = Field(default=0, ge=0)
    """What the agent has learnt to do, in the workspace's `.agents/STRATEGIES.md`."""
    standing: int = Field(default=0, ge=0)
    """Standing memories: of the agent, of the person who gives the task, and global ones."""
    files: int = Field(default=0, ge=0)
    """The workspace's TASKS.md, progress.txt, ERRORS.md, LEARNINGS.md and features.json."""
    workspace_skills: bool = False
    """Also the skills in the workspace's `.agents/skills`: whoever writes there instructs the agent."""
    semantic: bool = False
    """The agent has the tools `remember`, `remember_always`, `recall` and `forget`."""


class SkillSpec(Frozen):
    """A skill as a run records it: what the prompt says of it, and where its files are."""

    name: str
    description: str
    files: dict[str, str]
    """Path → address of the artifact; `SKILL.md` among them."""


class Agent(Frozen):
    """What a user defines: instructions, the tools by name, the policy."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")
    instructions: str
    """The system message."""
    tools: tuple[str, ...] | None = None
    """Names of tools in the same catalog; None for all of them."""
    skills: tuple[str, ...] | None = None
    """Names of skills in the same catalog; None for all of them."""
    memory: Memory = Memory()
    verify: tuple[str, ...] = ()
    """Reads without arguments that run when the agent goes on after a long pause (`Limits.stale_after`), whatever its
    reason, so that the LLM sees what has changed meanwhile."""
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
    skills: tuple[SkillSpec, ...] = ()
    strategies: str = ""
    """What it has learnt to do, word for word."""
    memory: Memory = Memory()
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

    @cached_property
    def minds_trust(self) -> bool:
        """Whether it matters to any of its tools or rules what the LLM has read."""
        tools = any(tool.trusted_only or tool.wants_origin for tool in self.tools)
        return tools or any("trust" in rule.when for rule in self.policy.rules)

    def tool(self, name: str) -> ToolSpec | None:
        """The tool of that name, if the agent has it."""
        return next((tool for tool in self.tools if tool.name == name), None)


_SHARED: WeakValueDictionary[str, AgentSpec] = WeakValueDictionary()


def shared(spec: AgentSpec) -> AgentSpec:
    """The one object for all specs that equal `spec`: a thousand runs of an agent hold its tools' schemas once.

    Nothing can tell the one from the other but their memory, so a replay is none the wiser.
    """
    return _SHARED.setdefault(spec.hash, spec)
