"""Agents as data: the definition in a catalog (`Agent`), and the resolved form that a run records (`AgentSpec`)."""

import json
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal
from weakref import WeakValueDictionary

from pydantic import Field, PlainSerializer, PlainValidator, field_serializer, field_validator, model_validator

from holdfast.core.agents.names import agent_id, id_if_any, names_of
from holdfast.core.agents.run_functions import ToolSet, is_function
from holdfast.core.agents.templates import Template
from holdfast.core.authority.interventions import REFINE_TOOL
from holdfast.core.authority.policy import Policy
from holdfast.core.base.canonical import canonical, digest
from holdfast.core.base.models import Definition, Frozen
from holdfast.core.budget.budget import Budget
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.llm.names import name_problem, order_problem, split_reference
from holdfast.core.llm.options import LLMOptions
from holdfast.core.nodes import Nodes
from holdfast.core.tools.progress_file import DEFAULT_FILE, Commits, require_name
from holdfast.core.tools.spec import FINAL_RESULT, ToolSpec
from holdfast.core.tools.subagents import SUBAGENT_TOOLS
from holdfast.core.tools.triggers import polled_call

WhenBlocked = Literal["wait", "fail"]
"""What a run does if it cannot continue without a person: `wait` for one, or `fail` with the cause."""


class Limits(Definition):
    """Limits of one agent run. A run that reaches one is blocked, not lost; `retry` grants the same amount again."""

    max_steps: int = Field(default=100, ge=1)
    """Maximum number of LLM calls."""
    max_rejected_replies: int = Field(default=3, ge=1)
    """Maximum number of consecutive unusable replies (empty, truncated, or without a valid tool call)."""
    repeats_slowed: int = Field(default=3, ge=0)
    """Number of times that a call may have the same result, with nothing new in between, before each repetition is
    delayed, by 2, 4, … 300 seconds; 0 for never."""
    repeats_warned: int = Field(default=5, ge=0)
    """Number of times after which each such result tells the LLM how often it has occurred; 0 for never."""
    repeats_asked: int = Field(default=10, ge=0)
    """Number of times after which people are asked before the call runs again. A call that is rejected as often, in the
    same way, blocks the run. 0 for neither."""
    unanswered_slowed: int = Field(default=2, ge=0)
    """Number of steps in a row in which calls of a tool may get no answer (a time-out, a broken connection, a lost
    worker) before its next call is delayed, by 2 to 300 seconds; 0 for never."""
    max_calls: int = Field(default=100, ge=1, le=500)
    """Maximum number of tool calls that one reply may make. Further calls do not run; the LLM reads that it must make
    them in its next reply."""
    tool_result_chars: int = Field(default=8_000, ge=200, le=400_000)
    """Maximum length of a tool result in the transcript, in characters (8,000 are about 2,000 tokens)."""
    max_worker_deaths: int = Field(default=3, ge=1)
    """Number of worker crashes (for example out of memory) during one tool call after which it is not attempted again:
    a read then fails, and a person is asked about the outcome of an effect."""
    llm_timeout: float = Field(default=600, gt=0)
    """Seconds that one attempt at an LLM call may take."""
    compaction_tokens: int = Field(default=100_000, ge=1)
    """Size of a request and its reply, in tokens as the provider counts them, that triggers context compaction. Four
    fifths of the LLM's context window is a good choice."""
    idle_limit: float = Field(default=0, ge=0)
    """Seconds that a run stays open for follow-up messages after the LLM's answer; 0 to finish at once."""
    local_seconds: float = Field(default=1, ge=0, le=5)
    """Seconds that a call of a read-only tool may take as a local activity, which costs half as much as a regular one
    but delays signals. A call that takes longer is repeated as a regular activity, and so are all later calls of that
    tool; 0 to use no local activities."""
    poll_seconds: float = Field(default=2, ge=0.1, le=86_400)
    """Seconds between two polls of `check_back` at first and after a new result; then the delays grow."""
    poll_ceiling: float = Field(default=300, ge=0.1, le=604_800)
    """Maximum number of seconds between two polls of `check_back`."""
    stale_after: float = Field(default=86_400, gt=0)
    """Seconds of inactivity after which the agent's `verify` tools run before anything else."""
    max_subagents: int = Field(default=100, ge=0, le=1_000)
    """Number of sub-agents that one run may start."""
    subagents_at_once: int = Field(default=10, ge=1, le=1_000)
    """Number of sub-agents that one run may have at the same time; further ones start when one has ended."""
    max_depth: int = Field(default=3, ge=0, le=20)
    """Maximum number of agents between a run and a person; the lowest limit among the runs above applies, too."""
    history_events: int = Field(default=4_000, ge=20)
    """Number of events in Temporal's history at which the run continues as new; it does so earlier if Temporal
    suggests it. Bounds what a worker must replay after a crash."""


PROGRESS_TOKENS = 2_000
"""The budget for the workspace's files with `Memory(progress=True)` if `files` is 0."""


class Memory(Definition):
    """Budgets for the memory in an agent's prompt beyond the thread, in estimated tokens for each tier; 0 for none."""

    skills: int = Field(default=2_000, ge=0)
    """Names and descriptions of skills; the LLM loads their content when it needs it."""
    strategies: int = Field(default=0, ge=0)
    """Strategies that the agent has learned, in the workspace's `.agents/STRATEGIES.md`."""
    standing: int = Field(default=0, ge=0)
    """Standing memory of the agent and of the person who gives the task, and global standing memory."""
    files: int = Field(default=0, ge=0)
    """The workspace's TASKS.md, progress.txt, ERRORS.md, LEARNINGS.md and features.json."""
    workspace_skills: bool = False
    """Whether to add the skills in the workspace's `.agents/skills`; their text instructs the agent."""
    semantic: bool = False
    """Whether the agent has the tools `remember`, `remember_always`, `recall` and `forget`."""
    progress: bool = False
    """Whether each run maintains the workspace's progress.txt: the agent has the tool `update_progress`, and the run
    itself records its task when it begins, each call with an effect, and its progress when it ends or is blocked."""
    progress_file: str = DEFAULT_FILE
    """Path of that file in the workspace."""
    commits: Commits = "progress"
    """What each note in it commits, if the workspace is in a git repository: nothing (`none`), the file itself, or all
    work since the last commit (`work`). Applies with `progress`."""
    learn: bool = False
    """Whether each run asks the LLM what to remember before it ends. The agent has the tool `note_learning`, and with
    `semantic` also `remember`."""

    @field_validator("progress_file")
    @classmethod
    def _check_progress_file(cls, value: str) -> str:
        return require_name(value)

    @property
    def file_tokens(self) -> int:
        """The budget for the workspace's files; never 0 with `progress`, so that the LLM always sees progress.txt."""
        return self.files or (PROGRESS_TOKENS if self.progress else 0)


class SkillSpec(Frozen):
    """A skill as a run records it: its entry in the prompt, and the addresses of its files."""

    name: str
    description: str
    files: dict[str, str]
    """Path → address of the artifact; includes `SKILL.md`."""


if TYPE_CHECKING:
    from holdfast.core.tools.decorator import Tool


# Workflows load this module for `AgentSpec`. They define no agents, so they need not load what reads tools.
def _tools(given: Any) -> "tuple[Tool | str, ...]":
    from holdfast.core.agents.references import references
    from holdfast.core.tools.decorator import Tool

    return references(given, Tool, field="tools", otherwise="not a tool; decorate the function with @tool")


def _tools_or_function(given: Any) -> "tuple[Tool | str, ...] | ToolSet":
    if isinstance(given, ToolSet):
        return given
    return ToolSet(given) if is_function(given) else _tools(given)


def _names_or_nothing(tools: Any) -> tuple[str, ...] | None:
    """Return names, and nothing of a function: a run records what it returns."""
    return None if isinstance(tools, ToolSet) else names_of(tools)


def _agents(given: Any) -> "tuple[Agent | str, ...]":
    from holdfast.core.agents.references import references

    listed = references(given, Agent, field="subagents", otherwise="not an agent; list agents, or their names")
    return tuple(id_if_any(each) if isinstance(each, str) else each for each in listed)


if TYPE_CHECKING:
    _Tools = Sequence[Tool | str]
    _ToolsOrFunction = Sequence[Tool | str] | Callable[..., Any] | ToolSet
    _Agents = Sequence["Agent | str"]
    _Nodes = Sequence[str]
else:
    _Nodes = Nodes
    _Tools = Annotated[Any, PlainValidator(_tools), PlainSerializer(names_of)]
    _ToolsOrFunction = Annotated[Any, PlainValidator(_tools_or_function), PlainSerializer(_names_or_nothing)]
    _Agents = Annotated[Any, PlainValidator(_agents), PlainSerializer(names_of)]


class Agent(Definition):
    """An agent as a user defines it: instructions, tools, skills, policy and limits."""

    name: str = Field(max_length=64)
    """Its id, which commands, policies and the log use. A name with spaces becomes the title, and its words, joined by
    hyphens, the id: `Refund agent` has the id `refund-agent`."""
    instructions: str | Template | Callable[..., Any]
    """The system message; or a template or a function that gives it to each run
    (`holdfast.core.agents.run_functions`)."""
    tools: _ToolsOrFunction = ()
    """Its tools: objects made by `@tool`, or names of tools in the same catalog; or a function that returns, for each
    run, the names of those that it has."""
    context: Any = Field(default=None, exclude=True)
    """The pydantic model of each run's typed context; None for no context."""
    skills: tuple[str, ...] | None = None
    """Names of skills in the same catalog; None for all of them."""
    memory: Memory = Memory()
    verify: _Tools = ()
    """Those of its tools, read-only and without arguments, that run when the agent resumes after any long pause
    (`Limits.stale_after`), so that the LLM sees any changes."""
    policy: Policy = Policy()
    llm: str | Sequence[str] | None = None
    """The LLM: `gpt-5-mini` at the default endpoint, or `anthropic/claude-sonnet-5`, `openai/…`, `chat/…` or
    `ENDPOINT/…`. A list is a fallback order: each takes over while those before it fail. None for the worker's default
    (`HOLDFAST_LLM`)."""
    llm_options: LLMOptions | dict[str, Any] = {}
    """Options for any API (`LLMOptions(temperature=0, effort="low")`); or additional fields of the request, verbatim:
    `{"temperature": 0}`, `{"reasoning_effort": "low"}`."""
    limits: Limits = Limits()
    dormancy: bool = False
    """Whether the agent has the tools `sleep_until`, `wait_for_event`, `check_back` and `wait_for_run`, with which it
    puts itself to sleep, and `run_status`."""
    publishes: bool = False
    """Whether the agent has the tools `publish_event` and `wake_run`, with which it sends events to other runs of the
    same requester, if both names are proven."""
    refines: bool = False
    """Whether the agent has the tool `refine_task`, with which it asks people to change its own task."""
    subagents: _Agents = ()
    """The agents that it may run, with the tools `run_agent` and `agent_result`: objects, or names of agents in the
    same catalog."""
    description: str = ""
    """Its purpose in one line, for the agents that may run it."""
    title: str = Field(default="", max_length=100)
    """The name that people and other agents read beside the id; by default the name as written, if that is no id."""
    budget: Budget | None = None
    """Limits of each run's steps, tokens, money and time; None for no limit. A start may only lower them."""
    result: Any = Field(default=None, exclude=True)
    """The type of each run's result: a pydantic model, or another type that has a JSON schema; None for text."""
    when_blocked: WhenBlocked = "wait"
    """`fail` for an agent that works unattended: a run that would wait for a person fails, with the cause. A start, and
    the run above a sub-agent, may say so for a single run."""
    nodes: _Nodes = ()
    """The nodes that may execute its runs: names, labels (`region=eu`) and keys of nodes (`holdfast.core.nodes`), any
    of which is enough; empty for every node. A start may only narrow that."""

    @field_serializer("instructions", when_used="json")
    def _without_functions(self, value: Any) -> Any:
        """Return a template's text, and nothing of a function: a run records what it returns."""
        if isinstance(value, Template):
            return value.text
        return None if callable(value) else value

    @property
    def functions(self) -> tuple[tuple[str, Callable[..., Any]], ...]:
        """Its functions that decide for each run, each with what it decides: `instructions` or `tools`."""
        texts = [("instructions", self.instructions)] if callable(self.instructions) else []
        return (*texts, *([("tools", self.tools.function)] if isinstance(self.tools, ToolSet) else []))

    @field_validator("llm")
    @classmethod
    def _check_llm(cls, llm: str | Sequence[str] | None) -> str | tuple[str, ...] | None:
        if llm is not None and (why := name_problem(llm) if isinstance(llm, str) else order_problem(llm)):
            raise ValueError(why)
        return llm if llm is None or isinstance(llm, str) else tuple(llm)

    @field_validator("title")
    @classmethod
    def _check_title(cls, title: str) -> str:
        if not title.isprintable():
            raise ValueError("a title is one line of printable characters")
        return title

    @model_validator(mode="before")
    @classmethod
    def _identify(cls, given: Any) -> Any:
        """Separate the id from the name as written."""
        if not isinstance(given, dict) or not isinstance(name := given.get("name"), str):
            return given
        identified = agent_id(name)
        return given if identified == name else {"title": name, **given, "name": identified}

    @property
    def listed_tools(self) -> "tuple[Tool | str, ...]":
        """The tools that it lists; none if a function selects its tools."""
        return self.tools if isinstance(self.tools, tuple) else ()

    @property
    def tool_names(self) -> tuple[str, ...]:
        """The names of the tools that it lists."""
        return names_of(self.listed_tools)

    @property
    def verifier_names(self) -> tuple[str, ...]:
        """The names of the tools that verify."""
        return names_of(self.verify)

    @property
    def introduction(self) -> str:
        """Its title and description, for the agents that may run it."""
        return ": ".join(filter(None, (self.title, self.description)))

    @property
    def subagent_names(self) -> tuple[str, ...]:
        """The ids of its sub-agents."""
        return names_of(self.subagents)


class AgentSpec(Frozen):
    """An agent as one run uses it. The run records it first, so that a redeployed worker cannot change it."""

    name: str
    instructions: str
    tools: tuple[ToolSpec, ...]
    skills: tuple[SkillSpec, ...] = ()
    strategies: str = ""
    """The strategies that it has learned, verbatim."""
    memory: Memory = Memory()
    verify: tuple[str, ...] = ()
    policy: Policy
    llm: str
    """The first LLM, as its endpoint names it."""
    llm_options: dict[str, Any] = {}
    limits: Limits
    subagents: tuple[str, ...] = ()
    budget: Budget | None = None
    context: dict[str, Any] | None = None
    """The JSON schema of its typed context; None for no context."""
    when_blocked: WhenBlocked = "wait"
    nodes: tuple[str, ...] = ()
    """The nodes that may execute its runs; empty for every node."""
    llms: tuple[str, ...] = ()
    """Its LLMs in order, each as `ENDPOINT/LLM`; none if `llm` is a plain name at the default endpoint. Recorded from
    feature level 2 on."""
    options: LLMOptions = LLMOptions()
    """Recorded from feature level 2 on."""

    @cached_property
    def hash(self) -> str:
        """Digest of all fields, format `agent/1`: runs with the same hash have the same instructions, tools and policy.

        It omits defaults, so that a field added in a later release does not change older hashes.
        """
        return digest(["agent/1", self.recorded])

    @cached_property
    def recorded(self) -> dict[str, Any]:
        """The JSON of all fields except defaults, as it is read from the log: canonical JSON writes 5.0 as 5."""
        fields: dict[str, Any] = json.loads(canonical(self.model_dump(mode="json", exclude_defaults=True)))
        return fields

    def governed_by(self, policy: Policy) -> "AgentSpec":
        """Return the agent with another policy."""
        return AgentSpec(**{**{name: getattr(self, name) for name in AgentSpec.model_fields}, "policy": policy})

    @cached_property
    def depends_on_trust(self) -> bool:
        """Whether any of its tools or rules depends on the trust level of the content that the LLM has read."""
        tools = any(tool.trusted_only or tool.wants_origin for tool in self.tools)
        return tools or bool(self.subagents) or any("trust" in rule.when for rule in self.policy.rules)

    @cached_property
    def can_sleep(self) -> bool:
        """Whether it has a tool that makes it dormant."""
        return any(
            tool.kind == "runtime" and tool.name not in (REFINE_TOOL, FINAL_RESULT, *SUBAGENT_TOOLS)
            for tool in self.tools
        )

    @cached_property
    def gives_result(self) -> bool:
        """Whether it has a result type, so that a call of `final_result` returns its result."""
        tool = self.tool(FINAL_RESULT)
        return tool is not None and tool.kind == "runtime"

    def tool(self, name: str) -> ToolSpec | None:
        """Return the tool with this name, if the agent has it."""
        for tool in self.tools:
            if tool.name == name:
                return tool
        return None

    def polled_call(self, call: ToolCall) -> ToolCall | None:
        """Return the call that this call polls; None if it polls none or cannot be read."""
        tool = self.tool(call.name)
        return polled_call(call) if tool and tool.kind == "runtime" else None

    def calls_of(self, call: ToolCall) -> tuple[ToolCall, ...]:
        """Return all calls that a call may run: itself, and the call that it polls, if any."""
        polled = self.polled_call(call)
        return (call, polled) if polled else (call,)


def llms_of(spec: AgentSpec) -> tuple[str, ...]:
    """Return the names of an agent's LLMs in order, each as its endpoint names it."""
    return tuple(split_reference(each)[1] for each in spec.llms) or (spec.llm,)


_SHARED: WeakValueDictionary[str, AgentSpec] = WeakValueDictionary()


def shared(spec: AgentSpec) -> AgentSpec:
    """Return one shared object for all specs equal to `spec`, as read from the log (`recorded`).

    A thousand runs then share its tools' schemas, its hash and its JSON. Equal specs are interchangeable, so sharing
    them does not affect replay.
    """
    fields = spec.model_dump_json(exclude_defaults=True)  # takes a tenth of the time of its hash
    known = _SHARED.get(fields)
    return _SHARED.setdefault(fields, AgentSpec.model_validate(spec.recorded)) if known is None else known
