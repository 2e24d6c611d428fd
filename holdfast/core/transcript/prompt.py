"""The prompt: the bytes of a request to the LLM, assembled deterministically from the tiers of an agent's memory.

1. Changing parts come last. The agent (its LLM, options and tools, then the system message: instructions, skills,
   strategies) stays the same for the whole run. The transcript follows; its messages are frozen on entry, including the
   standing memory and files recalled when the run began. Each request therefore begins with the bytes of the previous
   one.
2. Each tier of memory has a token budget (`holdfast.core.agents.agent.Memory`), and the prompt notes what it omits. The
   transcript has the rest of a request's tokens, up to the trigger of context compaction
   (`Limits.compaction_tokens`).
3. Assembly encodes only the agent, once, and decodes nothing: 1,000 messages are joined in well under 2 ms.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from holdfast.core.agents.agent import AgentSpec, SkillSpec
from holdfast.core.llm.adapters import Adapter, ToolDescription, encode_json
from holdfast.core.llm.names import Api, split_reference
from holdfast.core.llm.strict_schemas import strict_problem, strict_schema
from holdfast.core.llm.tokens import BYTES_PER_TOKEN, size_of, tokens_of
from holdfast.core.memory.recalled import RecalledTier

SKILLS_TITLE = (
    "## Skills\n\n"
    "Instructions for certain tasks. Before you begin a task that a skill covers, load the skill with read_skill."
)
STRATEGIES_TITLE = "## Strategies learned in earlier runs"

RECALLED = ("standing", "files")
"""The tiers that are recalled when a run begins and enter its transcript."""


@dataclass(frozen=True)
class Tier:
    """A part of the prompt."""

    name: str
    text: str
    budget: int = 0
    """Maximum size in estimated tokens; 0 for no limit."""
    elsewhere: str = ""
    """The part of the text that belongs to other tiers: the transcript contains the recalled ones."""

    @property
    def chars(self) -> int:
        """Length in characters."""
        return max(0, len(self.text) - len(self.elsewhere))

    @property
    def tokens(self) -> int:
        """Estimated number of tokens."""
        return max(0, tokens_of(self.text) - tokens_of(self.elsewhere))


def system_tiers(spec: AgentSpec) -> tuple[Tier, ...]:
    """Return the parts of the system message, in order."""
    return (
        Tier("instructions", spec.instructions),
        Tier("skills", skills_text(spec), spec.memory.skills),
        Tier("strategies", strategies_text(spec), spec.memory.strategies),
    )


def tiers_of(spec: AgentSpec, recalled: Sequence[RecalledTier], messages: Sequence[bytes]) -> tuple[Tier, ...]:
    """Return the parts of a request, for display: the agent, the recalled memory, and the transcript.

    Args:
        spec: The agent.
        recalled: The recalled tiers that the messages contain.
        messages: The transcript, encoded.
    """
    instructions, skills, strategies = system_tiers(spec)
    tools = encode_json([tool.shown for tool in tools_of(spec)]).decode() if spec.tools else ""
    standing, files = ("\n\n".join(each.text for each in recalled if each.tier == tier) for tier in RECALLED)
    transcript = b"\n".join(messages).decode()
    return (
        instructions,
        Tier("tools", tools),
        skills,
        strategies,
        Tier("standing", standing, spec.memory.standing),
        Tier("files", files, spec.memory.file_tokens),
        Tier("transcript", transcript, elsewhere=standing + files),
    )


def request_prefix(spec: AgentSpec, adapter: Adapter, *, reference: str = "", api: Api = "chat") -> bytes:
    """Encode the part of a request that describes the agent: the same bytes for every step of a run.

    The bytes do not depend on the order of fields in the spec, because a spec that was read back from the permanent
    record, whose JSON is canonical, has lost that order.

    Args:
        spec: The agent.
        adapter: The adapter of the LLM's API.
        reference: Which of the agent's LLMs, as `ENDPOINT/LLM`; empty for a plain name at the default endpoint.
        api: That API.
    """
    text = "\n\n".join(tier.text for tier in system_tiers(spec) if tier.text)
    endpoint, llm = split_reference(reference) if reference else ("chat", spec.llm)
    own = {**spec.llm_options, **spec.options.fields.get(endpoint, {})}
    fields = {**adapter.fields(spec.options, calls=bool(spec.tools)), **_in_order(own)}
    tools = tools_of(spec)
    if spec.options.strict:
        tools = [_strict(tool, api) for tool in tools]
    return adapter.prefix(llm, fields, tools, text)


def _strict(tool: ToolDescription, api: Api) -> ToolDescription:
    """Return a tool's description with a schema that the provider enforces, if it can."""
    if strict_problem(tool.parameters, api):
        return tool
    return replace(tool, strict=True, parameters=strict_schema(tool.parameters, api))


def tools_of(spec: AgentSpec) -> list[ToolDescription]:
    """Return the agent's tools as requests describe them to the LLM."""
    return [ToolDescription(tool.name, tool.description, _in_order(tool.parameters)) for tool in spec.tools]


def skills_text(spec: AgentSpec) -> str:
    """List names and descriptions of the agent's skills within the budget, and the number of those omitted."""
    usable = [skill for skill in spec.skills if skill.files]
    left_out = [skill for skill in spec.skills if not skill.files]
    if not spec.skills or not spec.memory.skills:
        return ""
    broken = _left_out_line(left_out)
    room = spec.memory.skills * BYTES_PER_TOKEN - size_of(SKILLS_TITLE) - size_of(broken) - len(_more_line(10**6)) - 4
    lines: list[str] = []
    for skill in usable:
        line = f"- {skill.name}: {skill.description}"
        room -= size_of(line) + 1
        if room < 0:
            break
        lines.append(line)
    if more := len(usable) - len(lines):
        lines.append(_more_line(more))
    if broken:
        lines.append(broken)
    return f"{SKILLS_TITLE}\n\n" + "\n".join(lines)


def strategies_text(spec: AgentSpec) -> str:
    """Return the section of the prompt with the agent's strategies."""
    return f"{STRATEGIES_TITLE}\n\n{spec.strategies}" if spec.strategies else ""


def strategies_room(tokens: int) -> int:
    """Return the tokens of the tier's budget that remain for the strategies themselves."""
    return max(0, tokens - tokens_of(f"{STRATEGIES_TITLE}\n\n"))


def _in_order(value: Any) -> Any:
    """Order JSON by name, but a schema's required properties first, in the order of the function's parameters.

    An LLM writes a call's arguments in the order of the schema, and should write a path before the content.
    """
    if isinstance(value, list):
        return [_in_order(each) for each in value]
    if not isinstance(value, dict):
        return value
    ordered = {name: _in_order(value[name]) for name in sorted(value)}
    properties, required = ordered.get("properties"), ordered.get("required")
    if isinstance(properties, dict) and isinstance(required, list):
        places = {name: place for place, name in enumerate(required) if isinstance(name, str)}
        names = sorted(properties, key=lambda name: (places.get(name, len(places)), name))
        ordered["properties"] = {name: properties[name] for name in names}
    return ordered


def _more_line(more: int) -> str:
    return f"[and {more:,} more: read_skill without a name lists them]"


def _left_out_line(skills: Sequence[SkillSpec]) -> str:
    if not skills:
        return ""
    words = "; ".join(f"{skill.name}: {skill.description}" for skill in skills)
    return f"[left out because they cannot be used: {words if len(words) <= 300 else words[:299] + '…'}]"
