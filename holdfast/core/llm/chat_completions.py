"""OpenAI's Chat Completions API, which most other providers and local servers offer, too.

Reference: https://platform.openai.com/docs/api-reference/chat. Fields that other providers add to a message (such as
`reasoning_details`) or to a call (such as `extra_content` with a thought signature) are sent back unchanged.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from holdfast.core.base.canonical import too_deep
from holdfast.core.base.text import is_blank
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
    fitting_name,
    given,
    message_of,
    provider_part,
    recordable,
    text_for,
    text_or,
)
from holdfast.core.llm.blocks import (
    AudioBlock,
    Content,
    FileBlock,
    ImageBlock,
    OtherBlock,
    OutputBlock,
    OutputBlocks,
    ProviderPart,
    ReasoningBlock,
    RefusalBlock,
    TextBlock,
    ToolCall,
    blocks_of,
)
from holdfast.core.llm.chat_stream import ChatStream
from holdfast.core.llm.deltas import ReplyStream, asking_to_stream
from holdfast.core.llm.finish_reasons import CALLS, STOP, finish_reason
from holdfast.core.llm.messages import AnyMessage, AssistantMessage, ToolMessage, Usage, UserMessage
from holdfast.core.llm.options import LLMOptions

_REASONING = ("reasoning_content", "reasoning")
"""Fields in which providers show the reasoning of their LLM."""

_DROPPED = ("role", "content", "tool_calls", "refusal", "audio", "annotations", "function_call")
"""Fields of a reply's message that have a neutral form, or that the API rejects in requests."""

_ARGUMENTS = ("arguments", "parameters", "args", "input")
_OF_CALLS = ("id", "call_id", "type", "function", "index", "name", *_ARGUMENTS)

_AUDIO_FORMATS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


class ChatCompletions:
    """See the module."""

    path = "/chat/completions"

    def __init__(self, issuer: str = "chat_completions", *, max_tokens: str = "max_completion_tokens") -> None:
        """Make the adapter.

        Args:
            issuer: See `Adapter`.
            max_tokens: The field that limits a reply: OpenAI renamed it, and most other servers have `max_tokens`.
        """
        self.issuer = issuer
        self._max_tokens = max_tokens

    def fields(self, options: LLMOptions, *, calls: bool) -> dict[str, Any]:
        """See `Adapter`."""
        return given(
            temperature=options.temperature,
            reasoning_effort=options.effort,
            parallel_tool_calls=options.parallel_calls if calls else None,
            **{self._max_tokens: options.max_tokens},
        )

    def prefix(self, llm: str, options: Mapping[str, Any], tools: Sequence[ToolDescription], system: str) -> bytes:
        """See `Adapter`."""
        head: dict[str, Any] = {"model": llm, **options}
        if tools:
            head["tools"] = [{"type": "function", "function": _described(tool)} for tool in tools]
        return encode_json(head)[:-1] + b',"messages":[' + encode_json({"role": "system", "content": system})

    def encode(self, message: AnyMessage) -> bytes:
        """See `Adapter`."""
        return encode_json(self._wire(message), sort_keys=True)

    def body(self, prefix: bytes, messages: Sequence[bytes], *, calls: bool = True) -> bytes:
        """See `Adapter`."""
        return b",".join([prefix, *messages]) + closing(prefix, calls=calls, no_calls=b'"none"')

    def asking_to_stream(self, body: bytes) -> bytes:
        """See `StreamingAdapter`."""
        options = body.partition(b',"messages":[')[0].partition(b',"tools":[')[0]
        usage = b"" if b'"stream_options":' in options else b',"stream_options":{"include_usage":true}'
        return asking_to_stream(body, b',"messages":[', more=usage)

    def reply_stream(self) -> ReplyStream:
        """See `StreamingAdapter`."""
        return ChatStream()

    def decode(self, answer: Mapping[str, Any], *, ids: str, used: Collection[str] = ()) -> Decoded:
        """See `Adapter`."""
        answer = recordable(answer)
        choice = _choice(answer)
        return Decoded(
            message=self._message(as_dict(choice.get("message")), ids=ids, used=used),
            finish_reason=finish_reason(choice.get("finish_reason")),
            finish_word=as_text(choice.get("native_finish_reason")) or as_text(choice.get("finish_reason")),
            usage=_usage(as_dict(answer.get("usage"))),
            llm=as_text(answer.get("model")),
            holds_reply=bool(choice),
            failure=failure_in(answer) or failure_in(choice),
        )

    # Requests.

    def _wire(self, message: AnyMessage) -> dict[str, Any]:
        match message:
            case UserMessage():
                return {"role": "user", "content": self._input_content(message.content)}
            case ToolMessage():
                text = "".join(text_for(block) for block in blocks_of(message.content))
                content = text_or(text, missing=EMPTY_RESULT)
                return {"role": "tool", "tool_call_id": message.tool_call_id, "content": content}
            case AssistantMessage():
                return self._output(message)

    def _input_content(self, content: Content) -> str | list[dict[str, Any]]:
        if isinstance(content, str):
            return text_or(content, missing=EMPTY_MESSAGE)
        shown = [block for block in content if not (isinstance(block, TextBlock) and is_blank(block.text))]
        return [self._input_block(block) for block in shown] or EMPTY_MESSAGE

    def _input_block(self, block: TextBlock | ImageBlock | FileBlock | AudioBlock) -> dict[str, Any]:
        own = block.issued_by(self.issuer)
        match block:
            case TextBlock():
                return {**own, "type": "text", "text": block.text}
            case ImageBlock() if block.address:
                detail = {"detail": block.detail} if block.detail else {}
                return {"type": "image_url", "image_url": {"url": block.address, **detail}}
            case FileBlock() if own:
                return {"type": "file", "file": own}
            case FileBlock() if block.data:
                return {"type": "file", "file": {"file_data": block.address, "filename": block.name or "file"}}
            case AudioBlock() if block.data and block.media_type in _AUDIO_FORMATS:
                sound = {"data": block.data, "format": _AUDIO_FORMATS[block.media_type]}
                return {"type": "input_audio", "input_audio": sound}
            case _:
                return {"type": "text", "text": text_for(block)}

    def _output(self, message: AssistantMessage) -> dict[str, Any]:
        own = message.provider.data if message.provider and message.provider.issuer == self.issuer else {}
        wire: dict[str, Any] = {**own, "role": "assistant", "content": None}
        parts: list[dict[str, Any]] = []
        calls: list[dict[str, Any]] = []
        for block in blocks_of(message.content):
            issued = block.issued_by(self.issuer)
            match block:
                case ToolCall():
                    function = {"name": fitting_name(block.name), "arguments": block.arguments}
                    calls.append({**issued, "id": block.id, "type": "function", "function": function})
                case RefusalBlock():
                    wire["refusal"] = wire.get("refusal", "") + block.text
                case ReasoningBlock():
                    if field := as_text(issued.get("field")):
                        wire[field] = block.text
                case AudioBlock() if issued:
                    wire["audio"] = issued
                case OtherBlock() if issued:
                    parts.append(issued)
                case TextBlock() if not is_blank(block.text):
                    parts.append({**issued, "type": "text", "text": block.text})
                case _:
                    if text := text_for(block):
                        parts.append({"type": "text", "text": text})
        if parts:
            # Text alone is sent as one string: some servers accept no other form from the assistant.
            alone = all(part.keys() == {"type", "text"} for part in parts)
            wire["content"] = "".join(part["text"] for part in parts) if alone else parts
        if calls:
            wire["tool_calls"] = calls
        elif not parts and not wire.get("refusal") and not wire.get("audio"):
            wire["content"] = EMPTY_MESSAGE
        return wire

    # Replies.

    def _message(self, message: dict[str, Any], *, ids: str, used: Collection[str]) -> AssistantMessage | None:
        blocks: OutputBlocks = (
            *self._reasoning(message),
            *self._content(message.get("content")),
            *self._refusal_and_audio(message),
            *map(self._call, _calls(message)),
        )
        reasoning = [field for field in _REASONING if isinstance(message.get(field), str)]
        rest = {name: value for name, value in message.items() if name not in (*_DROPPED, *reasoning)}
        return message_of(blocks, provider_part(self.issuer, rest), ids=ids, used=used)

    def _reasoning(self, message: dict[str, Any]) -> Iterator[ReasoningBlock]:
        for field in _REASONING:
            if text := as_text(message.get(field)):
                yield ReasoningBlock(text=text, provider=ProviderPart(issuer=self.issuer, data={"field": field}))

    def _content(self, content: Any) -> Iterator[OutputBlock]:
        parts = [{"type": "text", "text": content}] if isinstance(content, str) and content else as_list(content)
        for part in map(as_dict, parts):
            match part:
                case {"type": "text", "text": str(text)} if text:
                    rest = {name: value for name, value in part.items() if name not in ("type", "text")}
                    yield TextBlock(text=text, provider=provider_part(self.issuer, rest))
                case {"type": "output_text" | "input_text", "text": str(text)} | {"text": str(text)} if (
                    text and part.get("type") in (None, "", "output_text", "input_text")
                ):
                    yield TextBlock(text=text)  # the form of other APIs, which this one rejects in requests
                case {"type": "thinking" | "reasoning" | "reasoning_text"}:
                    yield ReasoningBlock(text=_thought(part))
                case {"type": "tool_use" | "tool_call" | "function_call"}:
                    yield self._call(part)
                case {"type": "refusal", "refusal": str(text)} if text:
                    yield RefusalBlock(text=text)
                case {"type": str(kind)} if kind not in ("text", "refusal") and not too_deep(part):
                    yield OtherBlock(text=f"[{kind}]", provider=ProviderPart(issuer=self.issuer, data=part))

    def _refusal_and_audio(self, message: dict[str, Any]) -> Iterator[RefusalBlock | AudioBlock]:
        if text := as_text(message.get("refusal")):
            yield RefusalBlock(text=text)
        audio = as_dict(message.get("audio"))
        if name := as_text(audio.get("id")):
            part = ProviderPart(issuer=self.issuer, data={"id": name})
            yield AudioBlock(transcript=as_text(audio.get("transcript")), provider=part)

    def _call(self, item: dict[str, Any]) -> ToolCall:
        """Decode a call. Some servers do not wrap its name and arguments in `function`."""
        function = as_dict(item.get("function")) or item
        name = function.get("name") or item.get("function")
        rest = {name: value for name, value in item.items() if name not in _OF_CALLS}
        return ToolCall(
            id=as_text(item.get("id")) or as_text(item.get("call_id")),
            name=name if isinstance(name, str) else "",
            arguments=arguments_text(next((function[key] for key in _ARGUMENTS if key in function), None)),
            provider=provider_part(self.issuer, rest),
        )


def _described(tool: ToolDescription) -> dict[str, Any]:
    strict = {"strict": True} if tool.strict else {}
    return {"name": tool.name, "description": tool.description, "parameters": tool.parameters, **strict}


def _choice(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reply. Some servers (GitHub Copilot) have its text in one choice, and its calls in another."""
    first, *others = [as_dict(each) for each in as_list(answer.get("choices"))] or [{}]
    message = as_dict(first.get("message"))
    with_calls = next((each for each in others if _calls(as_dict(each.get("message")))), None)
    if with_calls is None or _calls(message):
        return first
    both = {**as_dict(with_calls["message"]), **{name: value for name, value in message.items() if value}}
    ended = finish_reason(first.get("finish_reason")) in (STOP, CALLS)
    return {**first, **(with_calls if ended else {}), "message": both}


def _calls(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the calls of a message, which has a list, a single call, or one in the form that preceded `tool_calls`."""
    calls = message.get("tool_calls") or message.get("function_call")
    return [as_dict(item) for item in ([calls] if isinstance(calls, dict) else as_list(calls))]


def _thought(part: Mapping[str, Any]) -> str:
    """Return the text of a content part with reasoning, which is a string or a list of parts with text."""
    thought = part.get("thinking") or part.get("reasoning") or part.get("text")
    return as_text(thought) or "".join(as_text(as_dict(each).get("text")) for each in as_list(thought))


def _usage(usage: dict[str, Any]) -> Usage:
    cached = as_dict(usage.get("prompt_tokens_details")).get("cached_tokens")
    return Usage(
        prompt_tokens=as_count(usage.get("prompt_tokens")),
        cached_tokens=as_count(cached),
        completion_tokens=as_count(usage.get("completion_tokens")),
    )
