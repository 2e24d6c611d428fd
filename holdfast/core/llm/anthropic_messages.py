"""Anthropic's Messages API.

Reference: https://docs.claude.com/en/api/messages. The API requires alternating turns of user and assistant, and all
results of a reply's calls first in the next turn. So `body` joins consecutive messages of users and tools into one
turn. For two consecutive requests in a thread:

1. The second request has the blocks of the first, in the same roles, then more; no block changes or moves.
2. It also begins with the bytes of the first up to the closing tail (`]}`), if a reply follows the first request. If
   that reply was rejected and left out, it does so up to the end of the last turn's blocks.

The provider's cache has two breakpoints (`cache_control`): the end of the agent's own part, tools and system message,
which all its runs share; and, as the provider moves it with each request, the end of the request. Fields with the value
None leave out a field that `prefix` would send. Tools in the fields, such as the API's own web search, precede the
agent's. A turn that the API pauses (`pause_turn`) continues when it gets its blocks back.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from holdfast.core.base.canonical import too_deep
from holdfast.core.llm.adapters import (
    EMPTY_MESSAGE,
    EMPTY_RESULT,
    Decoded,
    ToolDescription,
    arguments_text,
    as_count,
    as_dict,
    as_list,
    as_text,
    closing,
    encode_json,
    failure_in,
    fitting_id,
    fitting_name,
    given,
    message_of,
    recordable,
    text_for,
    without,
)
from holdfast.core.llm.blocks import (
    Content,
    FileBlock,
    ImageBlock,
    Media,
    OtherBlock,
    OutputBlock,
    ProviderPart,
    ReasoningBlock,
    TextBlock,
    ToolCall,
    blocks_of,
)
from holdfast.core.llm.deltas import ReplyStream, asking_to_stream
from holdfast.core.llm.finish_reasons import finish_reason
from holdfast.core.llm.messages import AnyMessage, AssistantMessage, ToolMessage, Usage, UserMessage
from holdfast.core.llm.messages_stream import MessagesStream
from holdfast.core.llm.options import LLMOptions

MAX_TOKENS = 16_384
"""Default for `max_tokens`, which the API requires."""

_USER = b'{"role":"user","content":['
_ASSISTANT = b'{"role":"assistant","content":['
_END = b"]}"
_RESULT = b'{"type":"tool_result",'
_ONE_CALL = b'"tool_choice":{"type":"auto","disable_parallel_tool_use":true},'
"""At the very beginning of a request, where `body` finds it, because `tool_choice` can also forbid calls."""

_EFFORTS: Mapping[str, str] = {"minimal": "low"}
"""Words of other APIs for the effort, and this one's. `none` switches thinking off."""

_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")


class AnthropicMessages:
    """See the module."""

    path = "/v1/messages"

    def __init__(self, issuer: str = "anthropic_messages") -> None:
        self.issuer = issuer

    def fields(self, options: LLMOptions, *, calls: bool) -> dict[str, Any]:
        """See `Adapter`. The API has no temperature."""
        effort = None if options.effort in (None, "none") else {"effort": _EFFORTS.get(options.effort, options.effort)}
        one_call = {"type": "auto", "disable_parallel_tool_use": True}
        return given(
            output_config=effort,
            thinking={"type": "disabled"} if options.effort == "none" else None,
            max_tokens=options.max_tokens,
            tool_choice=one_call if calls and options.parallel_calls is False else None,
        )

    def prefix(self, llm: str, options: Mapping[str, Any], tools: Sequence[ToolDescription], system: str) -> bytes:
        """See `Adapter`."""
        head = without({"model": llm, "max_tokens": MAX_TOKENS, "cache_control": {"type": "ephemeral"}, **options})
        cached = {"cache_control": head["cache_control"]} if head.get("cache_control") else {}
        if described := [*as_list(head.pop("tools", None)), *map(_tool, tools)]:
            head["tools"] = described  # after all options
        if system.strip():
            head["system"] = [{"type": "text", "text": system, **cached}]
        elif tools:
            head["tools"][-1] |= cached
        if head.get("tool_choice") == {"type": "auto", "disable_parallel_tool_use": True}:
            head = {"tool_choice": head.pop("tool_choice"), **head}
        return encode_json(head)[:-1] + b',"messages":['

    def encode(self, message: AnyMessage) -> bytes:
        """See `Adapter`. Empty for a message of the assistant that has nothing to send."""
        match message:
            case UserMessage():
                blocks = self._input_content(message.content) or [_text(EMPTY_MESSAGE)]
                return _USER + b",".join(encode_json(block, sort_keys=True) for block in blocks) + _END
            case ToolMessage():
                return _USER + self._result(message) + _END
            case AssistantMessage():
                output = b",".join(self._output(message))
                return _ASSISTANT + output + _END if output else b""

    def body(self, prefix: bytes, messages: Sequence[bytes], *, calls: bool = True) -> bytes:
        """See `Adapter`."""
        turns: list[bytes] = []
        for is_user, group in groupby(filter(None, messages), lambda message: message.startswith(_USER)):
            if is_user:
                blocks = [message.removeprefix(_USER).removesuffix(_END) for message in group]
                blocks.sort(key=lambda block: not block.startswith(_RESULT))
                turns.append(_USER + b",".join(blocks) + _END)
            else:
                turns += group
        if not calls and prefix.startswith(b"{" + _ONE_CALL):
            prefix = b"{" + prefix.removeprefix(b"{" + _ONE_CALL)
        return prefix + b",".join(turns) + closing(prefix, calls=calls, no_calls=b'{"type":"none"}')

    def asking_to_stream(self, body: bytes) -> bytes:
        """See `StreamingAdapter`."""
        return asking_to_stream(body, b',"messages":[')

    def reply_stream(self) -> ReplyStream:
        """See `StreamingAdapter`."""
        return MessagesStream()

    def decode(self, answer: Mapping[str, Any], *, ids: str, used: Collection[str] = ()) -> Decoded:
        """See `Adapter`."""
        answer = recordable(answer)
        content = answer.get("content")
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        return Decoded(
            message=message_of(
                (block for item in as_list(content) for block in self._block(as_dict(item))), ids=ids, used=used
            ),
            finish_reason=finish_reason(answer.get("stop_reason")),
            finish_word=as_text(answer.get("stop_reason")),
            usage=_usage(as_dict(answer.get("usage"))),
            llm=as_text(answer.get("model")),
            holds_reply=isinstance(content, list),
            paused=answer.get("stop_reason") == "pause_turn",
            failure=failure_in(answer),
        )

    # Requests.

    def _result(self, message: ToolMessage) -> bytes:
        result: dict[str, Any] = {"tool_use_id": fitting_id(message.tool_call_id)}
        result["content"] = self._input_content(message.content) or [_text(EMPTY_RESULT)]
        if message.failed:
            result["is_error"] = True
        return _RESULT + encode_json(result, sort_keys=True)[1:]  # the type is first, for `body` to find

    def _input_content(self, content: Content) -> list[dict[str, Any]]:
        return [wire for block in blocks_of(content) if (wire := self._input_block(block))]

    def _input_block(self, block: OutputBlock) -> dict[str, Any]:
        own = block.issued_by(self.issuer)
        match block:
            case ImageBlock() if source := own or _image(block):
                return {**source, "type": "image"}
            case FileBlock() if source := own or _document(block):
                return {**({"title": block.name} if block.name else {}), **source, "type": "document"}
            case _:
                return _text(text_for(block))

    def _output(self, message: AssistantMessage) -> Iterator[bytes]:
        for block in blocks_of(message.content):
            own = block.issued_by(self.issuer)
            wire: dict[str, Any] = {}
            match block:
                case ToolCall():
                    call = {**own, "type": "tool_use", "id": fitting_id(block.id), "name": fitting_name(block.name)}
                    yield encode_json(call, sort_keys=True)[:-1] + b',"input":' + _input(block.arguments) + b"}"
                case ReasoningBlock() if own:
                    wire = own if "data" in own else {**own, "type": "thinking", "thinking": block.text}
                case OtherBlock() if own:
                    wire = own
                case TextBlock():
                    wire = {**own, **text} if (text := _text(block.text)) else {}
                case _:
                    wire = _text(text_for(block))
            if wire:
                yield encode_json(wire, sort_keys=True)

    # Replies.

    def _block(self, item: dict[str, Any]) -> Iterator[OutputBlock]:
        match item:
            case {"type": "text" | "output_text", "text": str(text)} if text:
                rest = without(item, "type", "text")
                yield TextBlock(text=text, provider=ProviderPart(issuer=self.issuer, data=rest) if rest else None)
            case {"type": "tool_use"}:
                rest = without(item, "type", "id", "name", "input")
                yield ToolCall(
                    id=as_text(item.get("id")),
                    name=as_text(item.get("name")),
                    arguments=arguments_text(item.get("input")),
                    provider=ProviderPart(issuer=self.issuer, data=rest) if rest else None,
                )
            case {"type": "thinking"}:
                data = {"signature": "", **without(item, "type", "thinking", "data")}
                text = as_text(item.get("thinking"))
                yield ReasoningBlock(text=text, provider=ProviderPart(issuer=self.issuer, data=data))
            case {"type": "redacted_thinking", "data": str()}:
                yield ReasoningBlock(provider=ProviderPart(issuer=self.issuer, data=without(item)))
            case {"type": str(kind)} if kind not in ("text", "output_text", "redacted_thinking"):
                yield OtherBlock(text=f"[{kind}]", provider=ProviderPart(issuer=self.issuer, data=without(item)))


def _tool(tool: ToolDescription) -> dict[str, Any]:
    described = {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
    return {**described, **({"strict": True} if tool.strict else {})}


def _text(text: str) -> dict[str, Any]:
    """Return a text block; empty for blank text, which the API rejects."""
    return {"type": "text", "text": text} if text.strip() else {}


def _source(block: Media) -> dict[str, Any]:
    by_url = {"type": "url", "url": block.url}
    return {"source": by_url if block.url else {"type": "base64", "media_type": block.media_type, "data": block.data}}


def _image(block: ImageBlock) -> dict[str, Any]:
    """Return the source of an image; empty if the API does not support its media type."""
    return _source(block) if block.url or block.media_type in _IMAGES else {}


def _document(block: FileBlock) -> dict[str, Any]:
    """Return the source of a document; empty if the API does not support its media type."""
    if block.media_type == "application/pdf" or (block.url and not block.media_type):
        return _source(block)
    if not (block.media_type.startswith("text/") and block.data):
        return {}
    try:
        text = block.content().decode()
    except ValueError:
        return {}
    return {"source": {"type": "text", "media_type": "text/plain", "data": text}} if text.strip() else {}


def _input(arguments: str) -> bytes:
    """Return the arguments as an object, in their order; text that is no object, such as a cut-off one, is wrapped."""
    try:
        parsed = json.loads(arguments)
        if isinstance(parsed, dict) and not too_deep(parsed):
            text = json.dumps(parsed, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
            return text.encode("utf-8", "replace")
    except (ValueError, RecursionError):
        pass
    return encode_json({"arguments": arguments})


def _usage(usage: dict[str, Any]) -> Usage:
    cached = as_count(usage.get("cache_read_input_tokens"))
    written = as_count(usage.get("cache_creation_input_tokens"))
    return Usage(
        prompt_tokens=as_count(usage.get("input_tokens")) + cached + written,
        cached_tokens=cached,
        completion_tokens=as_count(usage.get("output_tokens")),
        cache_write_tokens=written,
    )
