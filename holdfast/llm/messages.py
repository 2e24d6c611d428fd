"""Messages as the Chat Completions API speaks them, and their encoding: the bytes that the LLM is sent.

A message is encoded once, when it enters the transcript, and those bytes are what every later request carries.
"""

import json
from collections import Counter
from typing import Annotated, Any, Literal

from pydantic import Field

from holdfast.base.digests import digest
from holdfast.base.models import Frozen


class ToolCall(Frozen):
    """One call of a tool, as the LLM asked for it."""

    id: str
    """The provider's id of the call (or ours, where the provider gave none)."""
    name: str
    """The tool's name, verbatim."""
    arguments: str
    """JSON text. In a message as the LLM wrote it; in `ToolCallRequested` and later as the tool reads it, canonical."""
    extra: dict[str, Any] = {}
    """Further fields of the provider (thought signatures and the like) that it wants back."""

    @property
    def digest(self) -> str:
        """Digest of tool and arguments; equal arguments in another order or layout have the same digest."""
        try:
            arguments = json.loads(self.arguments or "{}")
        except (ValueError, RecursionError):
            arguments = self.arguments
        return digest([self.name, arguments])

    def wire(self) -> dict[str, Any]:
        """The call as the API spells it."""
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function, **self.extra}


Content = str | list[dict[str, Any]]
"""What a message says: text, or the API's content blocks (text, images by URL or base64, files) as they were given."""


def text_of(content: Content | None) -> str:
    """The text of a message; content blocks that are not text are named in brackets."""
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(
        str(block["text"]) if isinstance(block.get("text"), str) else f"[{block.get('type')}]" for block in content
    )


def more_than_text(content: Content | None) -> str:
    """What a message holds besides text, in words (`2 images, file`); empty where it is text alone."""
    if content is None or isinstance(content, str):
        return ""
    kinds = Counter(_KINDS.get(kind := str(block.get("type")), kind[:20]) for block in content if not _is_text(block))
    named = [kind if count == 1 else f"{count:,} {kind}s" for kind, count in kinds.most_common(5)]
    return ", ".join([*named, "more"] if len(kinds) > 5 else named)


_KINDS = {"image_url": "image", "input_audio": "audio", "None": "block"}


def _is_text(block: dict[str, Any]) -> bool:
    return block.get("type") == "text" and isinstance(block.get("text"), str)


MAX_DEPTH = 100
"""Levels of JSON in what a message holds. Those who read what we record give up at 200, all around it included."""


def too_deep(value: Any) -> bool:
    """Whether JSON has more than `MAX_DEPTH` levels."""
    level = [value]
    for _ in range(MAX_DEPTH):
        inner = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)]
        level = [each for values in inner for each in values]
    return any(isinstance(each, dict | list) for each in level)


class UserMessage(Frozen):
    """What a person (or Holdfast on the run's behalf) says to the LLM."""

    role: Literal["user"] = "user"
    content: Content

    def wire(self) -> dict[str, Any]:
        """The message as the API spells it."""
        return {"role": "user", "content": self.content}


class AssistantMessage(Frozen):
    """What the LLM replied: text, tool calls, or both."""

    role: Literal["assistant"] = "assistant"
    content: Content | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    extra: dict[str, Any] = {}
    """Further fields of the provider (refusal, reasoning and the like) that it wants back."""

    @property
    def text(self) -> str:
        """The reply's text; content blocks that are not text are left out."""
        if isinstance(self.content, list):
            return "".join(str(block.get("text", "")) for block in self.content)
        return self.content or str(self.extra.get("refusal") or "")

    def wire(self) -> dict[str, Any]:
        """The message as the API spells it."""
        message: dict[str, Any] = {"role": "assistant", "content": self.content, **self.extra}
        if self.tool_calls:
            message["tool_calls"] = [call.wire() for call in self.tool_calls]
        return message


class ToolMessage(Frozen):
    """The result of one tool call, as the LLM reads it."""

    role: Literal["tool"] = "tool"
    tool_call_id: str
    content: str

    def wire(self) -> dict[str, Any]:
        """The message as the API spells it."""
        return {"role": "tool", "tool_call_id": self.tool_call_id, "content": self.content}


Message = Annotated[UserMessage | AssistantMessage | ToolMessage, Field(discriminator="role")]
"""One entry of a transcript."""


class Usage(Frozen):
    """Tokens, as the provider reported them."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    """The part of `prompt_tokens` that the provider read from its cache."""
    completion_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
        )


def encode(message: UserMessage | AssistantMessage | ToolMessage) -> bytes:
    """The message as the bytes that every request carries: compact JSON on one line.

    Keys are sorted, so that the bytes depend on what the message says alone: a message that went through the
    permanent record, whose JSON is canonical, is sent as it was before.
    """
    return encode_wire(message.wire(), sort_keys=True)


def encode_wire(value: dict[str, Any], *, sort_keys: bool = False) -> bytes:
    """Any part of a request as compact JSON. Lone surrogates, which UTF-8 cannot carry, become '?'."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=sort_keys)
    return text.encode("utf-8", "replace")
