"""The messages of a transcript, in a form that belongs to no provider, and their encoding for digests.

A message enters the log and the transcript's digest in this form; an adapter (`holdfast.core.llm.adapters`) makes of it
what an API is sent. Another adapter can therefore continue the same thread.
"""

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


class UserMessage(Frozen):
    """A message to the LLM from a person, or from Holdfast on the run's behalf."""

    role: Literal["user"] = "user"
    content: Content


class AssistantMessage(Definition):
    """What the LLM replied: blocks of text, reasoning, tool calls and others, in the order in which they came."""

    role: Literal["assistant"] = "assistant"
    content: ReplyContent = ""
    provider: ProviderPart | None = None
    """What goes back to the provider with the message as a whole."""

    @property
    def text(self) -> str:
        """The reply's text; of a reply without text, the reason that the LLM gives for declining."""
        blocks = blocks_of(self.content)
        text = "".join(block.text for block in blocks if isinstance(block, TextBlock))
        return text or "".join(block.text for block in blocks if isinstance(block, RefusalBlock))

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The reply's tool calls, in order."""
        if isinstance(self.content, str):
            return ()
        return tuple(block for block in self.content if isinstance(block, ToolCall))


class ToolMessage(Frozen):
    """The result of one tool call, as the LLM reads it."""

    role: Literal["tool"] = "tool"
    tool_call_id: str
    tool: str = ""
    """The tool's name, as the LLM wrote it: some APIs want it back."""
    content: Content
    failed: bool = False
    """The call did not do what it was to do."""


AnyMessage = UserMessage | AssistantMessage | ToolMessage
Message = Annotated[AnyMessage, Field(discriminator="role")]
"""One entry of a transcript."""

_MESSAGE: TypeAdapter[AnyMessage] = TypeAdapter(Message)


class Usage(Definition):
    """Token counts, as the provider reported them; where it reported none, as `call_llm` estimated them."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    """The part of `prompt_tokens` that the provider read from its cache."""
    completion_tokens: int = 0
    cache_write_tokens: int = 0
    """The part of `prompt_tokens` that the provider wrote into its cache, where it has a price of its own."""

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
        )


def encode(message: AnyMessage) -> bytes:
    """Encode a message as its line in the transcript: canonical JSON, which the transcript's digests are over."""
    return canonical({"role": message.role, **message.model_dump(mode="json", exclude_defaults=True)})


def decode(line: bytes) -> AnyMessage:
    """Read a line of a transcript.

    Raises:
        ValueError: It is no message.
    """
    return _MESSAGE.validate_json(line)


def from_json(value: Any) -> AnyMessage:
    """Read a message from its JSON, parsed.

    Raises:
        ValueError: It is no message.
    """
    return _MESSAGE.validate_python(value)


MAX_DEPTH = 100
"""Maximum nesting of JSON in a message. Parsers of the recorded events fail at 200 levels, their envelope included."""


def too_deep(value: Any) -> bool:
    """Whether JSON has more than `MAX_DEPTH` levels."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        inner = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)]
        if not inner:
            return False
        level = [each for values in inner for each in values]
    return True


MAX_TEXT_BYTES = 200_000
"""Maximum size of the text of a message, content blocks included; longer text belongs in a file in the workspace."""

MAX_BLOCKS_BYTES = 1_000_000
"""Maximum size of a message in content blocks, images included: Temporal allows payloads of 2 MB."""

_CONTENT: TypeAdapter[Content] = TypeAdapter(Content)


def read_content(given: Any) -> Content:
    """Read what somebody sends: text, or a list of content blocks as JSON.

    Raises:
        ValueError: It is neither; the message names each place.
    """
    try:
        return _CONTENT.validate_python(given)
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, item['loc'][1:]))}: {item['msg']}" for item in error.errors()]
        raise ValueError("; ".join(problems)) from None


def content_json(content: Content) -> Any:
    """Return content as JSON: text, or a list of blocks."""
    return _CONTENT.dump_python(content, mode="json")


def unfit(content: Content) -> str:
    """Return why a person's message or task cannot be stored as it is; empty if it can."""
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
    """Return how a message or a task exceeds the size limit; empty if it does not."""
    size, what = len(text_of(content).encode("utf-8", "replace")), "bytes of text"
    limit = MAX_TEXT_BYTES
    if size <= limit and not isinstance(content, str):
        size, limit, what = size_of(content), MAX_BLOCKS_BYTES, "bytes"
    return f"has {size:,} {what}, but the limit is {limit:,}" if size > limit else ""
