"""What an adapter of a provider's API does: it translates requests to its format, and replies from it. Pure.

1. `encode` is called once for each message; its bytes are kept, and every later request carries them. They depend on
   nothing but the message, so that each request begins with the bytes of the one before.
2. What one provider issued (`ProviderPart`) is sent to that provider alone. Everything else reaches every provider, as
   text where its API has no form for it.
3. Reading never raises for what a provider or an LLM wrote: `Decoded.message` is None where there is nothing to keep.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from holdfast.llm.blocks import Block, FileBlock, Media, ProviderPart, ToolCall
from holdfast.llm.messages import AnyMessage, AssistantMessage, Usage, too_deep


@dataclass(frozen=True)
class ToolDescription:
    """A tool as the LLM is told about it."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """The JSON schema of its parameters, in the order in which the LLM is to write them."""


@dataclass(frozen=True)
class Decoded:
    """A provider's reply."""

    message: AssistantMessage | None
    """None where the reply has no content."""
    finish_reason: str = "stop"
    """`stop`, `tool_calls`, `length` or `content_filter`; another reason in the provider's own word."""
    usage: Usage = field(default_factory=Usage)
    llm: str = ""
    """The provider's name of the LLM that replied."""
    holds_reply: bool = True
    """False where the body is not a reply of this API at all."""


class Adapter(Protocol):
    """The format of one API."""

    issuer: str
    """Names the API in provider parts. It is recorded, and never changes."""
    path: str
    """Where requests are posted, below the endpoint's base URL."""

    def prefix(self, llm: str, options: Mapping[str, Any], tools: Sequence[ToolDescription], system: str) -> bytes:
        """Encode the part of a request that is the same in every step of a run.

        Args:
            llm: The LLM's name.
            options: Further fields of the request, verbatim.
            tools: The agent's tools.
            system: The system message.
        """

    def encode(self, message: AnyMessage) -> bytes:
        """Encode a message."""

    def body(self, prefix: bytes, messages: Sequence[bytes], *, calls: bool = True) -> bytes:
        """Join a whole request.

        Args:
            prefix: From `prefix`.
            messages: From `encode`, in order.
            calls: False to forbid tool calls in the reply.
        """

    def decode(self, answer: Mapping[str, Any], *, ids: str) -> Decoded:
        """Read the body of a successful response.

        Args:
            answer: The body, parsed.
            ids: Prefix of the ids of calls to which the provider gave none, or a duplicate.
        """


def encode_json(value: Any, *, sort_keys: bool = False) -> bytes:
    """Encode a part of a request as compact JSON. Lone surrogates, which UTF-8 cannot represent, become '?'."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=sort_keys)
    return text.encode("utf-8", "replace")


def words_for(block: Block) -> str:
    """Return text that stands for a block in an API that has no form for it; empty for what others need not see."""
    match block:
        case Media():
            name = block.name if isinstance(block, FileBlock) else ""
            kind = type(block).model_fields["type"].default
            what = " ".join(filter(None, [kind, name or block.url]))
            return f"[{what}: it cannot be shown here]"
        case _:
            return str(getattr(block, "text", ""))


def issued(issuer: str, data: Mapping[str, Any]) -> ProviderPart | None:
    """Return a provider part with what is left of `data` without empty values and deep nesting; None if nothing is."""
    kept = {name: value for name, value in data.items() if value not in (None, [], {}, "") and not too_deep(value)}
    return ProviderPart(issuer=issuer, data=kept) if kept else None


def unique_ids(calls: Sequence[ToolCall], *, ids: str) -> list[ToolCall]:
    """Give an id to each call without one, and another to each whose id an earlier call has."""
    used: set[str] = set()
    unique: list[ToolCall] = []
    for index, call in enumerate(calls):
        name = call.id if call.id and call.id not in used else f"{ids}_{index}"
        used.add(name)
        unique.append(call if name == call.id else call.model_copy(update={"id": name}))
    return unique


def as_dict(value: Any) -> dict[str, Any]:
    """Return `value` if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """Return `value` if it is a JSON array, else an empty one."""
    return value if isinstance(value, list) else []


def as_text(value: Any) -> str:
    """Return `value` if it is text, else an empty one."""
    return value if isinstance(value, str) else ""


def as_count(value: Any) -> int:
    """Return `value` if it is a positive whole number, else 0."""
    return value if isinstance(value, int) and value > 0 else 0
