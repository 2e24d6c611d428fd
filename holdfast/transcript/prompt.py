"""The prompt: what an agent is sent, assembled from the tiers of its memory, the same bytes for whoever asks.

1. What changes goes last. The agent (its LLM, options and tools, then the system message: instructions, skills,
   strategies) is the same for all of a run; then comes the transcript, whose messages are frozen as they enter, among
   them what was recalled of standing memory and of files when the run began. So each request begins with the bytes of
   the one before it.
2. Each tier of memory has a budget (`holdfast.agents.agent.Memory`); what has no room is said in its place. The
   transcript has what is left, of what a whole request may come to before it is folded (`Limits.compaction_tokens`).
3. Assembling decodes and encodes nothing but the agent, once: 1,000 messages are joined in well under 2 ms.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.agents.agent import AgentSpec, SkillSpec
from holdfast.llm.messages import encode_wire
from holdfast.llm.tokens import BYTES_PER_TOKEN, size_of, tokens_of
from holdfast.memory.recalled import RecalledTier

SKILLS_TITLE = (
    "## Skills\n\n"
    "Instructions for certain tasks. Before you begin with one that a skill is about, load it with read_skill."
)
STRATEGIES_TITLE = "## Strategies that were learnt in earlier runs"

RECALLED = ("standing", "files")
"""The tiers that are recalled when a run begins, and enter its transcript."""


@dataclass(frozen=True)
class Tier:
    """A part of the prompt."""

    name: str
    text: str
    budget: int = 0
    """Tokens at the most, estimated; 0 for no bound."""
    elsewhere: str = ""
    """What of the text is of other tiers: the transcript holds what was recalled."""

    @property
    def chars(self) -> int:
        """How long it is."""
        return max(0, len(self.text) - len(self.elsewhere))

    @property
    def tokens(self) -> int:
        """Tokens, estimated."""
        return max(0, tokens_of(self.text) - tokens_of(self.elsewhere))


def system_tiers(spec: AgentSpec) -> tuple[Tier, ...]:
    """What the system message is made of, in its order."""
    return (
        Tier("instructions", spec.instructions),
        Tier("skills", skills_text(spec), spec.memory.skills),
        Tier("strategies", strategies_text(spec), spec.memory.strategies),
    )


def tiers_of(spec: AgentSpec, recalled: Sequence[RecalledTier], messages: Sequence[bytes]) -> tuple[Tier, ...]:
    """What a request is made of, in words that people use: the agent, what it recalled, and the transcript.

    Args:
        spec: The agent.
        recalled: What was recalled, as far as the messages hold it.
        messages: The transcript, encoded.
    """
    instructions, skills, strategies = system_tiers(spec)
    tools = encode_wire({"tools": tools_of(spec)}).decode() if spec.tools else ""
    standing, files = ("\n\n".join(each.text for each in recalled if each.tier == tier) for tier in RECALLED)
    transcript = b"\n".join(messages).decode()
    return (
        instructions,
        Tier("tools", tools),
        skills,
        strategies,
        Tier("standing", standing, spec.memory.standing),
        Tier("files", files, spec.memory.files),
        Tier("transcript", transcript, elsewhere=standing + files),
    )


def request_prefix(spec: AgentSpec) -> bytes:
    """Everything of a request before its first message but one: the same bytes for every step of a run.

    They depend on what the agent is alone, not on the order of fields in a spec: one that went through the permanent
    record, whose JSON is canonical, has lost it.
    """
    head: dict[str, object] = {"model": spec.llm, **_in_order(spec.llm_options)}
    if spec.tools:
        head["tools"] = tools_of(spec)
    text = "\n\n".join(tier.text for tier in system_tiers(spec) if tier.text)
    system = encode_wire({"role": "system", "content": text})
    return encode_wire(head)[:-1] + b',"messages":[' + system


def request_body(prefix: bytes, messages: Sequence[bytes], *, tail: bytes = b"") -> bytes:
    """The whole request: prefix and messages, joined without decoding any of them; `tail` follows the messages."""
    return b",".join([prefix, *messages]) + b"]" + tail + b"}"


def tools_of(spec: AgentSpec) -> list[dict[str, Any]]:
    """The agent's tools as the API spells them."""
    return [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": _in_order(tool.parameters)},
        }
        for tool in spec.tools
    ]


def skills_text(spec: AgentSpec) -> str:
    """Names and descriptions of the agent's skills, as many as the budget has room for, and how many more there are."""
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
    """What the agent has learnt to do."""
    return f"{STRATEGIES_TITLE}\n\n{spec.strategies}" if spec.strategies else ""


def strategies_room(tokens: int) -> int:
    """Tokens that are left for the strategies themselves, of the tier's budget."""
    return max(0, tokens - tokens_of(f"{STRATEGIES_TITLE}\n\n"))


def _in_order(value: Any) -> Any:
    """JSON in an order of its own: by name, but what a schema requires first, as its function has it.

    An LLM writes a call's arguments in the order of the schema; a path is better known before the content.
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
    return f"[left out, for they cannot be used: {words if len(words) <= 300 else words[:299] + '…'}]"
