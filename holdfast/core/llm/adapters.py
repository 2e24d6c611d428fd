"""Adapters: translate requests to the format of a provider's API, and replies from it. Pure.

1. `encode` is called once for each message, and every later request reuses its bytes. They depend only on the message,
   so that each request begins with the bytes of the one before. The module of an adapter that joins messages into turns
   states which guarantee holds for its requests.
2. Data that a provider issued (`ProviderPart`) is sent to that provider alone. Everything else is sent to every
   provider, as text if its API has no form for it.
3. `decode` never raises because of the content of a reply: `Decoded.message` is None if there is nothing to record.
"""

import json
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from holdfast.core.base.canonical import MAX_DEPTH, canonical, digest, portable, too_deep
from holdfast.core.base.text import is_blank
from holdfast.core.llm.blocks import (
    AudioBlock,
    Block,
    FileBlock,
    ImageBlock,
    OutputBlock,
    OutputBlocks,
    ProviderPart,
    ReasoningBlock,
    RefusalBlock,
    TextBlock,
    ToolCall,
)
from holdfast.core.llm.messages import AnyMessage, AssistantMessage, Usage
from holdfast.core.llm.options import LLMOptions
from holdfast.core.llm.thoughts import without_thoughts

EMPTY_MESSAGE, EMPTY_RESULT = "[an empty message]", "[an empty result]"
"""Sent in place of a blank message or tool result, which several providers reject."""


@dataclass(frozen=True)
class ToolDescription:
    """A tool as described to the LLM in requests."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """The JSON schema of its parameters, in the order in which the LLM should write them."""
    strict: bool = False
    """Whether the provider keeps arguments to that schema."""

    @property
    def shown(self) -> dict[str, Any]:
        """The description, for display."""
        return {"name": self.name, "description": self.description, "parameters": self.parameters}


@dataclass(frozen=True)
class Decoded:
    """A provider's reply."""

    message: AssistantMessage | None
    """None if the reply has no content."""
    finish_reason: str = "stop"
    """The reason that the reply ended (`holdfast.core.llm.finish_reasons`)."""
    finish_word: str = ""
    """The provider's own word for that reason."""
    unfinished: frozenset[int] = frozenset()
    """The calls, by index, that the provider marks as incomplete."""
    usage: Usage = field(default_factory=Usage)
    llm: str = ""
    """The provider's name of the LLM that replied."""
    holds_reply: bool = True
    """False if the body is not a reply of this API at all."""
    paused: bool = False
    """The provider paused a long turn, and continues it if it gets the reply back as it is."""
    failure: str = ""
    """The provider's error message, in a response with the HTTP status of a success; empty if there was no error."""


class Adapter(Protocol):
    """The format of one API."""

    issuer: str
    """The name of the API, or of the one provider that the adapter is for; recorded in provider parts."""
    path: str
    """The path for requests, below the endpoint's base URL."""

    def fields(self, options: LLMOptions, *, calls: bool) -> dict[str, Any]:
        """Translate options that are set into fields of a request.

        Args:
            options: The options; their `fields` and `strict` are not for adapters.
            calls: Whether the agent has tools.
        """

    def prefix(self, llm: str, options: Mapping[str, Any], tools: Sequence[ToolDescription], system: str) -> bytes:
        """Encode the part of a request that is the same in every step of a run.

        Args:
            llm: The LLM's name.
            options: Additional fields of the request, verbatim.
            tools: The agent's tools.
            system: The system message.
        """

    def encode(self, message: AnyMessage) -> bytes:
        """Encode a message; empty if the API has no form for any of it."""

    def body(self, prefix: bytes, messages: Sequence[bytes], *, calls: bool = True) -> bytes:
        """Assemble a request.

        Args:
            prefix: The result of `prefix`.
            messages: Results of `encode`, in order.
            calls: False to forbid tool calls in the reply.
        """

    def decode(self, answer: Mapping[str, Any], *, ids: str, used: Collection[str] = ()) -> Decoded:
        """Decode the body of a successful response.

        Args:
            answer: The body, parsed.
            ids: Prefix of the ids for calls that have none from the provider, or one that is already in use.
            used: The ids of earlier calls in the transcript: some servers count from 0 in each reply, and other APIs
                reject duplicate ids.
        """


def encode_json(value: Any, *, sort_keys: bool = False) -> bytes:
    """Encode a part of a request as compact JSON. Lone surrogates, which UTF-8 cannot represent, become '?'."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=sort_keys)
    return text.encode("utf-8", "replace")


def closing(prefix: bytes, *, calls: bool, no_calls: bytes) -> bytes:
    """Return the end of a request, after its messages.

    Args:
        prefix: The request up to the messages.
        calls: False to forbid tool calls in the reply; ignored without tools, because an API would reject that.
        no_calls: The value of `tool_choice` that forbids them.
    """
    return b"]}" if calls or b'"tools":' not in prefix else b'],"tool_choice":' + no_calls + b"}"


def arguments_text(arguments: Any) -> str:
    """Return a call's arguments as JSON text. Some APIs send an object instead, and null or `[]` for no arguments."""
    if isinstance(arguments, str):
        return arguments
    return encode_json({} if arguments is None or arguments == [] else arguments).decode()


def text_or(text: str, *, missing: str) -> str:
    """Return the text, or `missing` if it is blank, because several APIs reject blank text."""
    return missing if is_blank(text) else text


def text_for(block: Block) -> str:
    """Return text in place of a block, for an API that has no form for it; empty for reasoning."""
    match block:
        case ReasoningBlock():
            return ""
        case AudioBlock(transcript=transcript) if transcript:
            return transcript
        case ImageBlock() | FileBlock() | AudioBlock():
            name = block.name if isinstance(block, FileBlock) else ""
            return f"[{' '.join(filter(None, [block.type, name or block.url]))}: it cannot be shown here]"
        case _:
            return str(getattr(block, "text", ""))


def provider_part(issuer: str, data: Mapping[str, Any]) -> ProviderPart | None:
    """Make a provider part from `data`, without empty and deeply nested values; None if no others are left."""
    rest = {name: value for name, value in data.items() if value not in (None, [], {}, "") and not too_deep(value)}
    return ProviderPart(issuer=issuer, data=rest) if rest else None


def given(**fields: Any) -> dict[str, Any]:
    """Return the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def without(item: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return a JSON object without these fields and without null fields, because APIs reject some nulls they sent."""
    return {name: value for name, value in item.items() if value is not None and name not in names}


def message_of(
    blocks: Iterable[OutputBlock], provider: ProviderPart | None = None, *, ids: str, used: Collection[str] = ()
) -> AssistantMessage | None:
    """Make the message of a reply, with a unique id for each call; None if it has nothing but reasoning.

    Thoughts in its text become reasoning.

    Args:
        blocks: The blocks that the LLM wrote, in order.
        provider: The provider part of the message as a whole.
        ids: See `Adapter.decode`.
        used: See `Adapter.decode`.
    """
    content = tuple(
        block.model_copy(update={"provider": _as_recorded(block.provider)})
        for block in _with_ids(tuple(without_thoughts(blocks)), ids=ids, used=used)
    )
    if all(isinstance(block, ReasoningBlock) or _shows_nothing(block) for block in content):
        return None
    if any(isinstance(block, RefusalBlock) for block in content):  # blank text beside a refusal would hide it
        content = tuple(block for block in content if not _shows_nothing(block))
    return AssistantMessage(content=content, provider=_as_recorded(provider))


def _shows_nothing(block: OutputBlock) -> bool:
    return isinstance(block, TextBlock | RefusalBlock) and is_blank(block.text)


def _as_recorded(part: ProviderPart | None) -> ProviderPart | None:
    """Return a provider part as the log will return it: with 5 for 5.0, and without values that JSON lacks."""
    if part is None:
        return None
    return part.model_copy(update={"data": json.loads(canonical(portable(part.data)))})


def _with_ids(blocks: OutputBlocks, *, ids: str, used: Collection[str]) -> OutputBlocks:
    """Give a new id to each call that has none, or whose id is already in use."""
    own = {block.id for block in blocks if isinstance(block, ToolCall)}
    used = set(used)
    unique: list[OutputBlock] = []
    index = 0
    for block in blocks:
        if isinstance(block, ToolCall):
            if not block.id or block.id in used:
                name = f"{ids}_{index}"
                while name in own | used:
                    name += "_"
                block = block.model_copy(update={"id": name})
            used.add(block.id)
            index += 1
        unique.append(block)
    return tuple(unique)


_FITS = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def fitting_id(call_id: str) -> str:
    """Return a call id that every API accepts: the id itself, or its digest if it is long or has other characters."""
    return call_id if _FITS.fullmatch(call_id) else f"call_{digest(call_id)[:32]}"


def fitting_name(name: str) -> str:
    """Return a name for a called tool that every API accepts. Names of tools always are; an LLM may write others."""
    return name if _FITS.fullmatch(name) else re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64] or "unnamed"


def recordable(value: Any, levels: int = MAX_DEPTH + 10) -> Any:
    """Return JSON that can be recorded and sent.

    Lone surrogates become '?', NaN and infinity become text, and values nested more deeply than `levels` become null.
    That limit is far enough above `MAX_DEPTH` that arguments cut off here are later rejected as too deep.
    """
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case float() if not math.isfinite(value):
            return str(value)
        case dict() | list() if not levels:
            return None
        case dict():
            return {recordable(name): recordable(each, levels - 1) for name, each in value.items()}
        case list():
            return [recordable(each, levels - 1) for each in value]
        case _:
            return value


def failure_in(answer: Mapping[str, Any]) -> str:
    """Return the message in the `error` of a response; empty if there is none."""
    error = answer.get("error")
    fields = as_dict(error)
    return as_text(fields.get("message")) or as_text(fields.get("code")) or as_text(error)


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
