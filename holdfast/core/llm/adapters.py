"""What an adapter of a provider's API does: it translates requests to its format, and replies from it. Pure.

1. `encode` is called once for each message; its bytes are kept, and every later request carries them. They depend on
   nothing but the message, so that each request begins with the bytes of the one before. The module of an adapter
   that joins messages into turns says what holds of its requests.
2. What one provider issued (`ProviderPart`) is sent to that provider alone. Everything else reaches every provider, as
   text where its API has no form for it.
3. Reading never raises for what a provider or an LLM wrote: `Decoded.message` is None where there is nothing to keep.
"""

import json
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from holdfast.core.base.canonical import canonical, digest, portable
from holdfast.core.base.text import is_blank
from holdfast.core.llm.blocks import (
    AudioBlock,
    Block,
    FileBlock,
    ImageBlock,
    ProviderPart,
    ReasoningBlock,
    RefusalBlock,
    SaidBlock,
    SaidBlocks,
    TextBlock,
    ToolCall,
)
from holdfast.core.llm.messages import MAX_DEPTH, AnyMessage, AssistantMessage, Usage, too_deep
from holdfast.core.llm.thoughts import without_thoughts

EMPTY_MESSAGE, EMPTY_RESULT = "[an empty message]", "[an empty result]"
"""What a message or a tool's result is sent as that shows nothing: several providers refuse it."""


@dataclass(frozen=True)
class ToolDescription:
    """A tool as requests describe it to the LLM."""

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
    """Why the reply ended (`holdfast.core.llm.finish_reasons`)."""
    finish_word: str = ""
    """The provider's own word for that."""
    unfinished: frozenset[int] = frozenset()
    """The calls, by index, that the provider marks as incomplete."""
    usage: Usage = field(default_factory=Usage)
    llm: str = ""
    """The provider's name of the LLM that replied."""
    holds_reply: bool = True
    """False where the body is not a reply of this API at all."""
    failure: str = ""
    """What the provider says went wrong, in a response whose HTTP status is that of a success; empty if nothing did."""


class Adapter(Protocol):
    """The format of one API."""

    issuer: str
    """Names the API in provider parts, or the one of its providers that the adapter is for; recorded with them."""
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
        """Encode a message; empty if the API has no form for any of it."""

    def body(self, prefix: bytes, messages: Sequence[bytes], *, calls: bool = True) -> bytes:
        """Join a whole request.

        Args:
            prefix: From `prefix`.
            messages: From `encode`, in order.
            calls: False to forbid tool calls in the reply.
        """

    def decode(self, answer: Mapping[str, Any], *, ids: str, used: Collection[str] = ()) -> Decoded:
        """Read the body of a successful response.

        Args:
            answer: The body, parsed.
            ids: Prefix of the ids of calls to which the provider gave none, or one that is in use.
            used: The ids of earlier calls in the transcript: some servers count from 0 in each reply, and other APIs
                refuse an id that comes twice.
        """


def encode_json(value: Any, *, sort_keys: bool = False) -> bytes:
    """Encode a part of a request as compact JSON. Lone surrogates, which UTF-8 cannot represent, become '?'."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=sort_keys)
    return text.encode("utf-8", "replace")


def closing(prefix: bytes, *, calls: bool, no_calls: bytes) -> bytes:
    """Return what follows the messages of a request.

    Args:
        prefix: The request up to the messages.
        calls: False to forbid tool calls in the reply; an API refuses that where there are no tools.
        no_calls: The value of `tool_choice` that forbids them.
    """
    return b"]}" if calls or b'"tools":' not in prefix else b'],"tool_choice":' + no_calls + b"}"


def arguments_text(given: Any) -> str:
    """Return a call's arguments as JSON text. Some APIs and endpoints send them as an object; none are null or `[]`."""
    return given if isinstance(given, str) else encode_json({} if given is None or given == [] else given).decode()


def some_text(text: str, *, missing: str) -> str:
    """Return text that every API accepts: several refuse one that is empty or blank."""
    return missing if is_blank(text) else text


def words_for(block: Block) -> str:
    """Return text that stands for a block in an API that has no form for it; empty for what others need not see."""
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


def issued(issuer: str, data: Mapping[str, Any]) -> ProviderPart | None:
    """Return a provider part with what is left of `data` without empty values and deep nesting; None if nothing is."""
    kept = {name: value for name, value in data.items() if value not in (None, [], {}, "") and not too_deep(value)}
    return ProviderPart(issuer=issuer, data=kept) if kept else None


def without(item: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return a JSON object without these fields, and without those that are null: APIs refuse some of their own."""
    return {name: value for name, value in item.items() if value is not None and name not in names}


def message_of(
    blocks: Iterable[SaidBlock], provider: ProviderPart | None = None, *, ids: str, used: Collection[str] = ()
) -> AssistantMessage | None:
    """Return the message with a reply's blocks, each call with an id of its own; None if it is nothing but reasoning.

    Thoughts in its text become reasoning.

    Args:
        blocks: What the LLM wrote, in order.
        provider: What belongs to the message as a whole.
        ids: See `Adapter.decode`.
        used: See `Adapter.decode`.
    """
    content = tuple(
        block.model_copy(update={"provider": _as_recorded(block.provider)})
        for block in _with_ids(tuple(without_thoughts(blocks)), ids=ids, used=used)
    )
    if all(isinstance(block, ReasoningBlock) or _shows_nothing(block) for block in content):
        return None
    if any(isinstance(block, RefusalBlock) for block in content):  # blank text beside it would hide it
        content = tuple(block for block in content if not _shows_nothing(block))
    return AssistantMessage(content=content, provider=_as_recorded(provider))


def _shows_nothing(block: SaidBlock) -> bool:
    return isinstance(block, TextBlock | RefusalBlock) and is_blank(block.text)


def _as_recorded(part: ProviderPart | None) -> ProviderPart | None:
    """Return a provider part as it is read back from the log: 5.0 is 5 there, and what no JSON can hold is replaced."""
    if part is None:
        return None
    return part.model_copy(update={"data": json.loads(canonical(portable(part.data)))})


def _with_ids(blocks: SaidBlocks, *, ids: str, used: Collection[str]) -> SaidBlocks:
    """Give an id to each call without one, and another to each whose id an earlier call has."""
    given = {block.id for block in blocks if isinstance(block, ToolCall)}
    used = set(used)
    unique: list[SaidBlock] = []
    index = 0
    for block in blocks:
        if isinstance(block, ToolCall):
            if not block.id or block.id in used:
                name = f"{ids}_{index}"
                while name in given | used:
                    name += "_"
                block = block.model_copy(update={"id": name})
            used.add(block.id)
            index += 1
        unique.append(block)
    return tuple(unique)


_FITS = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def fitting_id(call_id: str) -> str:
    """Return the id of a call as every API accepts it: as it is, or a digest of it if it is long or has other signs."""
    return call_id if _FITS.fullmatch(call_id) else f"call_{digest(call_id)[:32]}"


def fitting_name(name: str) -> str:
    """Return the name of a called tool as every API accepts it. Those of tools fit; an LLM may write another."""
    return name if _FITS.fullmatch(name) else re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64] or "unnamed"


def recordable(value: Any, levels: int = MAX_DEPTH + 10) -> Any:
    """Return JSON in which everything can be recorded and sent.

    Lone surrogates become '?', NaN and infinity become text, and null stands for what is nested more deeply than
    `levels`: enough above `MAX_DEPTH` that arguments which are cut off here are refused as too deep.
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
    """Return what the `error` of a response says; empty if it has none."""
    error = answer.get("error")
    given = as_dict(error)
    return as_text(given.get("message")) or as_text(given.get("code")) or as_text(error)


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
