"""The messages of a transcript, in a provider-neutral form, and their encoding for digests.

The log and the transcript's digest have messages in this form; an adapter (`holdfast.core.llm.adapters`) translates
them for an API. So another adapter can continue the same thread.
"""

from datetime import datetime
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from holdfast.core.base.canonical import canonical, unportable
from holdfast.core.base.models import Definition, Frozen
from holdfast.core.llm.blocks import (
    Content,
    Media,
    ProviderPart,
    RefusalBlock,
    ReplyContent,
    TextBlock,
    ToolCall,
    blocks_of,
    text_of,
)


class _Timed:
    """A message with a time that is not part of it: neither its digest nor a request to an LLM has it."""

    @cached_property
    def at(self) -> datetime | None:
        """When a person's message arrived, or a reply or a result was recorded; None unless `Thread.messages` returned
        it.
        """
        return None


class UserMessage(_Timed, Frozen):
    """A message to the LLM from a person, or from Holdfast on the run's behalf."""

    role: Literal["user"] = "user"
    content: Content


class AssistantMessage(_Timed, Definition):
    """The LLM's reply: blocks of text, reasoning, tool calls and others, in the order in which they came."""

    role: Literal["assistant"] = "assistant"
    content: ReplyContent = ""
    provider: ProviderPart | None = None
    """Data to send back to the provider with the message as a whole."""

    @property
    def text(self) -> str:
        """The reply's text; if it has none, the LLM's reason for declining."""
        blocks = blocks_of(self.content)
        text = "".join(block.text for block in blocks if isinstance(block, TextBlock))
        return text or "".join(block.text for block in blocks if isinstance(block, RefusalBlock))

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The reply's tool calls, in order."""
        if isinstance(self.content, str):
            return ()
        return tuple(block for block in self.content if isinstance(block, ToolCall))


class ToolMessage(_Timed, Frozen):
    """The result of one tool call, as the LLM reads it."""

    role: Literal["tool"] = "tool"
    tool_call_id: str
    tool: str = ""
    """The tool's name, as the LLM wrote it: some APIs require it."""
    content: Content
    failed: bool = False
    """Whether the call failed."""


AnyMessage = UserMessage | AssistantMessage | ToolMessage
Message = Annotated[AnyMessage, Field(discriminator="role")]
"""One entry of a transcript."""

_MESSAGE: TypeAdapter[AnyMessage] = TypeAdapter(Message)


class Usage(Definition):
    """Token counts, as the provider reported them or, if it reported none, as `call_llm` estimated them."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    """The part of `prompt_tokens` that the provider read from its cache."""
    completion_tokens: int = 0
    cache_write_tokens: int = 0
    """The part of `prompt_tokens` that the provider wrote into its cache, if that has a different price."""

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
        )


def encode(message: AnyMessage) -> bytes:
    """Encode a message as its line in the transcript: canonical JSON, which the transcript's digests cover."""
    return canonical({"role": message.role, **message.model_dump(mode="json", exclude_defaults=True)})


def decode(line: bytes) -> AnyMessage:
    """Decode a line of a transcript.

    Raises:
        ValueError: It is not a message.
    """
    return _MESSAGE.validate_json(line)


def from_json(value: Any) -> AnyMessage:
    """Decode a message from parsed JSON.

    Raises:
        ValueError: It is not a message.
    """
    return _MESSAGE.validate_python(value)


def with_time(message: AnyMessage, at: datetime) -> AnyMessage:
    """Return a message with the time at which it came."""
    timed = message.model_copy()
    timed.__dict__["at"] = at  # as the cached property does: no field, so it is in no digest
    return timed


MAX_TEXT_BYTES = 200_000
"""Maximum size of the text of a message, content blocks included; longer text belongs in a file in the workspace."""

MAX_BLOCKS_BYTES = 1_000_000
"""Maximum size of a message in content blocks, images included: Temporal allows payloads of 2 MB."""

_CONTENT: TypeAdapter[Content] = TypeAdapter(Content)


def read_content(value: Any) -> Content:
    """Validate content from outside: text, or a list of content blocks as JSON.

    Raises:
        ValueError: It is neither; the message has the path of each problem.
    """
    try:
        return _CONTENT.validate_python(value)
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, item['loc'][1:]))}: {item['msg']}" for item in error.errors()]
        raise ValueError("; ".join(problems)) from None


def content_json(content: Content) -> Any:
    """Return content as JSON: text, or a list of blocks."""
    return _CONTENT.dump_python(content, mode="json")


def unfit(content: Content) -> str:
    """Return the reason that a person's message or task cannot be stored; empty if it can."""
    for block in blocks_of(content):
        if block.provider is not None and not (isinstance(block, Media) and not block.address):
            return f"has a {block.type} block with a `provider` part, which only a provider can issue"
        if isinstance(block, Media):
            try:
                block.content()
            except ValueError as error:
                return f"has a {block.type} block whose `data` is not base64 ({error})"
    why = unportable(content_json(content))
    return f"holds {why}" if why else ""


def size_of(content: Content) -> int:
    """Return the size of a message in bytes of JSON."""
    return len(canonical(content_json(content)))


def too_long(content: Content) -> str:
    """Describe how a message or a task exceeds the size limit; empty if it does not."""
    size, unit = len(text_of(content).encode("utf-8", "replace")), "bytes of text"
    limit = MAX_TEXT_BYTES
    if size <= limit and not isinstance(content, str):
        size, limit, unit = size_of(content), MAX_BLOCKS_BYTES, "bytes"
    return f"has {size:,} {unit}, but the limit is {limit:,}" if size > limit else ""
