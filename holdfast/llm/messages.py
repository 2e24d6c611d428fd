"""Messages in the format of the Chat Completions API, and their encoding as the bytes of a request.

A message is encoded once, when it enters the transcript; every later request carries those bytes.
"""

import json
from collections import Counter
from typing import Annotated, Any, Literal

from pydantic import Field

from holdfast.base.digests import digest
from holdfast.base.models import Frozen


class ToolCall(Frozen):
    """One tool call, as the LLM requested it."""

    id: str
    """The provider's id of the call, or ours if the provider gave none."""
    name: str
    """The tool's name, verbatim."""
    arguments: str
    """JSON text: in a message as the LLM wrote it; in `ToolCallRequested` and later canonical, as the tool reads it."""
    extra: dict[str, Any] = {}
    """The provider's additional fields (such as thought signatures), which requests must send back."""

    @property
    def digest(self) -> str:
        """Digest of tool and arguments; the order and layout of the arguments do not affect it."""
        try:
            arguments = json.loads(self.arguments or "{}")
        except (ValueError, RecursionError):
            arguments = self.arguments
        return digest([self.name, arguments])

    def wire(self) -> dict[str, Any]:
        """Return the call in the API's format."""
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function, **self.extra}


Content = str | list[dict[str, Any]]
"""The content of a message: text, or the API's content blocks (text, images by URL or base64, files), unchanged."""


def text_of(content: Content | None) -> str:
    """Return the text of a message, with the type of each other content block in brackets."""
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(
        str(block["text"]) if isinstance(block.get("text"), str) else f"[{block.get('type')}]" for block in content
    )


def more_than_text(content: Content | None) -> str:
    """Describe what a message holds besides text (`2 images, file`); empty if it is text alone."""
    if content is None or isinstance(content, str):
        return ""
    kinds = Counter(_KINDS.get(kind := str(block.get("type")), kind[:20]) for block in content if not _is_text(block))
    named = [kind if count == 1 else f"{count:,} {kind}s" for kind, count in kinds.most_common(5)]
    return ", ".join([*named, "more"] if len(kinds) > 5 else named)


_KINDS = {"image_url": "image", "input_audio": "audio", "None": "block"}


def _is_text(block: dict[str, Any]) -> bool:
    return block.get("type") == "text" and isinstance(block.get("text"), str)


MAX_DEPTH = 100
"""Maximum nesting of JSON in a message. Parsers of the recorded events fail at 200 levels, their envelope included."""


def too_deep(value: Any) -> bool:
    """Whether JSON has more than `MAX_DEPTH` levels."""
    level = [value]
    for _ in range(MAX_DEPTH):
        inner = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)]
        level = [each for values in inner for each in values]
    return any(isinstance(each, dict | list) for each in level)


class UserMessage(Frozen):
    """A message to the LLM from a person, or from Holdfast on the run's behalf."""

    role: Literal["user"] = "user"
    content: Content

    def wire(self) -> dict[str, Any]:
        """Return the message in the API's format."""
        return {"role": "user", "content": self.content}


class AssistantMessage(Frozen):
    """What the LLM replied: text, tool calls, or both."""

    role: Literal["assistant"] = "assistant"
    content: Content | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    extra: dict[str, Any] = {}
    """The provider's additional fields (such as refusal or reasoning), which requests must send back."""

    @property
    def text(self) -> str:
        """The reply's text, without content blocks of other types."""
        if isinstance(self.content, list):
            return "".join(str(block.get("text", "")) for block in self.content)
        return self.content or str(self.extra.get("refusal") or "")

    def wire(self) -> dict[str, Any]:
        """Return the message in the API's format."""
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
        """Return the message in the API's format."""
        return {"role": "tool", "tool_call_id": self.tool_call_id, "content": self.content}


Message = Annotated[UserMessage | AssistantMessage | ToolMessage, Field(discriminator="role")]
"""One entry of a transcript."""


class Usage(Frozen):
    """Token counts, as the provider reported them."""

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
    """Encode a message as the bytes that every request carries: compact JSON on one line.

    Keys are sorted, so that a message that was read back from the permanent record, whose JSON is canonical, has the
    same bytes as before.
    """
    return encode_wire(message.wire(), sort_keys=True)


def encode_wire(value: dict[str, Any], *, sort_keys: bool = False) -> bytes:
    """Encode a part of a request as compact JSON. Lone surrogates, which UTF-8 cannot represent, become '?'."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=sort_keys)
    return text.encode("utf-8", "replace")
