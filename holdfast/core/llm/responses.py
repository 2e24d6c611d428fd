"""OpenAI's Responses API, without state at the provider: `store` is false, and reasoning is sent back encrypted.

Reference: https://platform.openai.com/docs/api-reference/responses. A message of the assistant is one or more items,
in the order in which they came. Data that the API issued with them (ids, statuses, reasoning, calls of its own tools)
is sent back unchanged. Each request begins with the bytes of the one before, up to the closing tail.

Options with the value None leave out a field that `prefix` would send: `include` is `["reasoning.encrypted_content"]`,
which LLMs that do not reason may reject. Tools in the options, such as the API's own web search, precede the agent's.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

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
    fitting_id,
    fitting_name,
    given,
    message_of,
    recordable,
    text_for,
    text_or,
    without,
)
from holdfast.core.llm.blocks import (
    Content,
    FileBlock,
    ImageBlock,
    OtherBlock,
    OutputBlock,
    ProviderPart,
    ReasoningBlock,
    RefusalBlock,
    TextBlock,
    ToolCall,
    blocks_of,
    more_than_text,
    text_of,
)
from holdfast.core.llm.deltas import ReplyStream, asking_to_stream
from holdfast.core.llm.finish_reasons import CALLS, LENGTH, STOP, finish_reason
from holdfast.core.llm.messages import AnyMessage, AssistantMessage, ToolMessage, Usage, UserMessage
from holdfast.core.llm.options import LLMOptions
from holdfast.core.llm.responses_stream import ResponsesStream

_INCLUDE = ["reasoning.encrypted_content"]


class Responses:
    """See the module.

    The provider part of a text or a refusal has `part`, the other fields of its content part, and on the first of a
    message item `item`, the other fields of that item; a part without `item` belongs to the item before it.
    """

    path = "/responses"

    def __init__(self, issuer: str = "responses") -> None:
        self.issuer = issuer

    def fields(self, options: LLMOptions, *, calls: bool) -> dict[str, Any]:
        """See `Adapter`."""
        return given(
            temperature=options.temperature,
            reasoning=None if options.effort is None else {"effort": options.effort},
            max_output_tokens=options.max_tokens,
            parallel_tool_calls=options.parallel_calls if calls else None,
        )

    def prefix(self, llm: str, options: Mapping[str, Any], tools: Sequence[ToolDescription], system: str) -> bytes:
        """See `Adapter`."""
        head = without({"model": llm, "store": False, "include": _INCLUDE, **options})
        if system:
            head["instructions"] = system
        if described := [*as_list(head.pop("tools", None)), *map(_tool, tools)]:
            head["tools"] = described  # after all options
        return encode_json(head)[:-1] + b',"input":['

    def encode(self, message: AnyMessage) -> bytes:
        """See `Adapter`. Empty for a message that has nothing to send."""
        return b",".join(encode_json(item, sort_keys=True) for item in self._items(message))

    def body(self, prefix: bytes, messages: Sequence[bytes], *, calls: bool = True) -> bytes:
        """See `Adapter`."""
        return prefix + b",".join(filter(None, messages)) + closing(prefix, calls=calls, no_calls=b'"none"')

    def asking_to_stream(self, body: bytes) -> bytes:
        """See `StreamingAdapter`."""
        return asking_to_stream(body, b',"input":[')

    def reply_stream(self) -> ReplyStream:
        """See `StreamingAdapter`."""
        return ResponsesStream()

    def decode(self, answer: Mapping[str, Any], *, ids: str, used: Collection[str] = ()) -> Decoded:
        """See `Adapter`."""
        answer = recordable(answer)
        output = answer.get("output")
        items = [as_dict(item) for item in as_list(output)]
        refuses = any(map(_refuses, items))
        blocks = (block for item in items for block in self._blocks(item, refuses=refuses))
        message = message_of(blocks, ids=ids, used=used)
        return Decoded(
            message=message,
            finish_reason=_finish_reason(answer, message),
            finish_word=_finish_word(answer),
            unfinished=_unfinished(output),
            usage=_usage(as_dict(answer.get("usage"))),
            llm=as_text(answer.get("model")),
            holds_reply=isinstance(output, list),
            failure=failure_in(answer),
        )

    # Requests.

    def _items(self, message: AnyMessage) -> list[dict[str, Any]]:
        match message:
            case UserMessage():
                content = self._input_content(message.content, EMPTY_MESSAGE)
                return [{"type": "message", "role": "user", "content": content}]
            case ToolMessage():
                output = {
                    "call_id": fitting_id(message.tool_call_id),
                    "output": self._input_content(message.content, EMPTY_RESULT),
                }
                return [{"type": "function_call_output", **output}]
            case AssistantMessage():
                return self._output(message)

    def _input_content(self, content: Content, missing: str) -> str | list[dict[str, Any]]:
        if not more_than_text(content):
            return text_or(text_of(content), missing=missing)
        shown = [block for block in blocks_of(content) if not (isinstance(block, TextBlock) and is_blank(block.text))]
        return [self._input_block(block) for block in shown]

    def _input_block(self, block: OutputBlock) -> dict[str, Any]:
        own = block.issued_by(self.issuer)
        match block:
            case ImageBlock() if own or block.address:
                source = {"image_url": block.address} if block.address else {}
                return {"detail": block.detail or "auto", **source, **own, "type": "input_image"}
            case FileBlock() if own:
                return {**own, "type": "input_file"}
            case FileBlock() if block.data:
                return {"type": "input_file", "file_data": block.address, "filename": block.name or "file"}
            case FileBlock() if block.url:
                return {"type": "input_file", "file_url": block.url}
            case TextBlock():
                return {"type": "input_text", "text": block.text}
            case _:
                return {"type": "input_text", "text": text_for(block)}

    def _output(self, message: AssistantMessage) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        for block in blocks_of(message.content):
            own = block.issued_by(self.issuer)
            match block:
                case ToolCall():
                    call = {"call_id": fitting_id(block.id), "name": fitting_name(block.name)}
                    items.append({**own, "type": "function_call", **call, "arguments": block.arguments})
                case ReasoningBlock() | OtherBlock() if own:
                    items.append(own)
                case TextBlock() | RefusalBlock() if own:
                    if "item" in own or not _continues(items, list):
                        items.append(
                            {**as_dict(own.get("item")), "type": "message", "role": "assistant", "content": []}
                        )
                    items[-1]["content"].append(_part(block, as_dict(own.get("part"))))
                case _ if text := text_for(block):
                    # The form for text that the API did not issue itself.
                    if not _continues(items, str):
                        items.append({"type": "message", "role": "assistant", "content": ""})
                    items[-1]["content"] += text
        return items

    # Replies.

    def _blocks(self, item: dict[str, Any], *, refuses: bool) -> Iterator[OutputBlock]:
        match item:
            case {"type": "message"}:
                yield from self._message(item, refuses=refuses)
            case {"type": "function_call"}:
                rest = without(item, "type", "call_id", "name", "arguments")
                yield ToolCall(
                    id=as_text(item.get("call_id")),
                    name=as_text(item.get("name")),
                    arguments=arguments_text(item.get("arguments")),
                    provider=ProviderPart(issuer=self.issuer, data=rest) if rest else None,
                )
            case {"type": "reasoning"}:
                parts = map(as_dict, as_list(item.get("content")) or as_list(item.get("summary")))
                text = "\n\n".join(filter(None, (as_text(part.get("text")) for part in parts)))
                yield ReasoningBlock(text=text, provider=ProviderPart(issuer=self.issuer, data=without(item)))
            case {"type": str(kind)}:
                yield OtherBlock(text=f"[{kind}]", provider=ProviderPart(issuer=self.issuer, data=item))

    def _message(self, item: dict[str, Any], *, refuses: bool) -> Iterator[TextBlock | RefusalBlock]:
        rest = {"item": without(item, "type", "role", "content")}
        for part in map(as_dict, as_list(item.get("content"))):
            if refuses and is_blank(as_text(part.get("text") or part.get("refusal"))):
                continue  # `message_of` would drop it, and with the first part the fields of the message
            provider = ProviderPart(issuer=self.issuer, data={**rest, "part": without(part, "type", "text", "refusal")})
            match part:
                case {"type": "output_text" | "text", "text": str(text)} if text:
                    yield TextBlock(text=text, provider=provider)
                case {"type": "refusal", "refusal": str(text)} if text:
                    yield RefusalBlock(text=text, provider=provider)
                case _:
                    continue
            rest = {}


def _refuses(item: dict[str, Any]) -> bool:
    parts = map(as_dict, as_list(item.get("content")))
    return any(part.get("type") == "refusal" and part.get("refusal") for part in parts)


def _tool(tool: ToolDescription) -> dict[str, Any]:
    described = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", **described, "strict": tool.strict}


def _continues(items: list[dict[str, Any]], kind: type) -> bool:
    """Whether the last item is a message with content of this type."""
    return bool(items) and items[-1]["type"] == "message" and isinstance(items[-1]["content"], kind)


def _part(block: TextBlock | RefusalBlock, rest: dict[str, Any]) -> dict[str, Any]:
    if isinstance(block, RefusalBlock):
        return {**rest, "type": "refusal", "refusal": block.text}
    return {"annotations": [], **rest, "type": "output_text", "text": block.text}


def _finish_word(answer: Mapping[str, Any]) -> str:
    details = as_dict(answer.get("incomplete_details"))
    return as_text(details.get("reason")) or as_text(answer.get("status"))


def _finish_reason(answer: Mapping[str, Any], message: AssistantMessage | None) -> str:
    """Return the reason that the reply ended. Details of an incomplete reply take precedence over its status."""
    status, details = answer.get("status"), as_dict(answer.get("incomplete_details"))
    reason = finish_reason(status)
    if details:
        reason = finish_reason(details.get("reason") or "incomplete")
        return reason if reason not in (STOP, CALLS) else LENGTH
    if reason != STOP:
        return reason
    return CALLS if message and message.tool_calls else STOP


def _unfinished(output: Any) -> frozenset[int]:
    """Return the indices of the calls whose status is not that of a complete item."""
    calls = [item for item in map(as_dict, as_list(output)) if item.get("type") == "function_call"]
    return frozenset(at for at, item in enumerate(calls) if finish_reason(item.get("status")) != STOP)


def _usage(usage: dict[str, Any]) -> Usage:
    return Usage(
        prompt_tokens=as_count(usage.get("input_tokens")),
        cached_tokens=as_count(as_dict(usage.get("input_tokens_details")).get("cached_tokens")),
        completion_tokens=as_count(usage.get("output_tokens")),
    )
