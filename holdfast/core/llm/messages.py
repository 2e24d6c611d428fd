"""The messages of a transcript, in a form that belongs to no provider, and their encoding for digests.

A message enters the log and the transcript's digest in this form; an adapter (`holdfast.core.llm.adapters`) makes of it
what an API is sent. Another adapter can therefore continue the same thread.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from holdfast.core.base.canonical import canonical
from holdfast.core.base.models import Definition, Frozen
from holdfast.core.llm.blocks import Content, ProviderPart, RefusalBlock, ReplyContent, TextBlock, ToolCall, blocks_of


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
