"""Replies of the three APIs, generated from the types in the providers' own SDKs, and the form each expects back."""

from typing import Any

from anthropic import types as anthropic
from hypothesis import strategies as st
from openai.types import chat, completion_usage, responses
from openai.types.chat import chat_completion
from openai.types.responses import response_output_text, response_reasoning_item, response_usage

from holdfast.core.base.text import is_blank
from tests.support.values import BLANK, COUNT, IDENT, NAME, OBJECT, TEXT, Wire


def _maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


# OpenAI's Responses API.

_CITATION = st.builds(
    response_output_text.AnnotationURLCitation,
    type=st.just("url_citation"),
    start_index=COUNT,
    end_index=COUNT,
    title=TEXT,
    url=TEXT,
)
_OUTPUT_TEXT = st.builds(
    responses.ResponseOutputText,
    type=st.just("output_text"),
    text=TEXT,
    annotations=st.lists(_CITATION, max_size=2),
    logprobs=_maybe(st.just([])),
)
_OUTPUT_REFUSAL = st.builds(responses.ResponseOutputRefusal, type=st.just("refusal"), refusal=TEXT)
_MESSAGE = st.builds(
    responses.ResponseOutputMessage,
    id=IDENT,
    type=st.just("message"),
    role=st.just("assistant"),
    status=st.sampled_from(["completed", "incomplete"]),
    phase=_maybe(st.sampled_from(["commentary", "final_answer"])),
    content=st.lists(_OUTPUT_TEXT | _OUTPUT_REFUSAL, min_size=1, max_size=3),
)
_REASONING = st.builds(
    responses.ResponseReasoningItem,
    id=IDENT,
    type=st.just("reasoning"),
    summary=st.lists(
        st.builds(response_reasoning_item.Summary, type=st.just("summary_text"), text=TEXT),
        max_size=2,
    ),
    content=_maybe(
        st.lists(st.builds(response_reasoning_item.Content, type=st.just("reasoning_text"), text=TEXT), max_size=2)
    ),
    encrypted_content=_maybe(TEXT),
)
_FUNCTION_CALL = st.builds(
    responses.ResponseFunctionToolCall,
    id=_maybe(IDENT),
    type=st.just("function_call"),
    call_id=IDENT,
    name=NAME,
    arguments=st.sampled_from(["{}", '{"z": 1, "a": [1.0]}', '{"cut": "o']),
    status=_maybe(st.just("completed")),
)
_WEB_SEARCH = st.builds(
    responses.ResponseFunctionWebSearch,
    id=IDENT,
    type=st.just("web_search_call"),
    status=st.just("completed"),
    action=st.just({"type": "search", "query": "weather"}),
)


@st.composite
def responses_replies(draw: st.DrawFn) -> Wire:
    """Return the body of a reply of the Responses API."""
    items = draw(st.lists(_MESSAGE | _REASONING | _FUNCTION_CALL | _WEB_SEARCH, min_size=1, max_size=5))
    calls = [item for item in items if isinstance(item, responses.ResponseFunctionToolCall)]
    for index, call in enumerate(calls):
        call.call_id += f"_{index}"
    usage = response_usage.ResponseUsage(
        input_tokens=draw(COUNT),
        input_tokens_details=response_usage.InputTokensDetails(cached_tokens=draw(COUNT), cache_write_tokens=0),
        output_tokens=draw(COUNT),
        output_tokens_details=response_usage.OutputTokensDetails(reasoning_tokens=0),
        total_tokens=0,
    )
    reply = responses.Response(
        id="resp_1",
        object="response",
        created_at=1,
        model="m",
        output=list(items),
        parallel_tool_calls=True,
        tool_choice="auto",
        tools=[],
        status="completed",
        usage=usage,
    )
    return reply.model_dump(mode="json", exclude_none=True, by_alias=True)


def responses_wants(reply: Wire) -> list[Wire]:
    """Return the items that the API expects back: those of its output, verbatim, but no blank text beside a refusal."""
    parts = [part for item in reply["output"] for part in item.get("content") or [] if item["type"] == "message"]
    if not any(part["type"] == "refusal" for part in parts):
        return list(reply["output"])
    kept = [_without_blanks(item) if item["type"] == "message" else item for item in reply["output"]]
    return [item for item in kept if item["type"] != "message" or item["content"]]


def _without_blanks(message: Wire) -> Wire:
    return message | {"content": [*filter(_shows, message["content"])]}


def _shows(part: Wire) -> bool:
    return not is_blank(str(part.get("text", part.get("refusal", ""))))


# OpenAI's Chat Completions API.

_FUNCTION = {
    "name": NAME,
    "arguments": st.sampled_from(["{}", '{"z": 1, "a": [1.0]}', '{"cut": "o']),
}
_TOOL_CALL = st.builds(
    chat.ChatCompletionMessageFunctionToolCall,
    id=IDENT,
    type=st.just("function"),
    function=st.fixed_dictionaries(_FUNCTION),
)
_AUDIO = st.builds(chat.ChatCompletionAudio, id=IDENT, data=TEXT, expires_at=COUNT, transcript=TEXT)


@st.composite
def chat_replies(draw: st.DrawFn) -> Wire:
    """Return the body of a reply of the Chat Completions API, some with the fields that other providers add."""
    calls = draw(st.lists(_TOOL_CALL, max_size=3))
    for index, call in enumerate(calls):
        call.id += f"_{index}"
    added: dict[str, Any] = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "reasoning_content": TEXT,
                "reasoning": TEXT,
                "reasoning_details": st.just([{"type": "reasoning.encrypted", "data": "x"}]),
            },
        )
    )
    message = chat.ChatCompletionMessage(
        role="assistant",
        content=draw(_maybe(TEXT)),
        refusal=draw(st.none() | st.none() | TEXT),
        audio=draw(st.none() | st.none() | _AUDIO),
        tool_calls=list(calls) or None,
        **added,
    )
    usage = completion_usage.CompletionUsage(
        prompt_tokens=draw(COUNT),
        completion_tokens=draw(COUNT),
        total_tokens=0,
        prompt_tokens_details=completion_usage.PromptTokensDetails(cached_tokens=draw(COUNT)),
    )
    reply = chat.ChatCompletion(
        id="chatcmpl-1",
        object="chat.completion",
        created=1,
        model="m",
        choices=[chat_completion.Choice(index=0, finish_reason="tool_calls" if calls else "stop", message=message)],
        usage=usage,
    )
    return reply.model_dump(mode="json", exclude_unset=True)


def chat_wants(reply: Wire) -> list[Wire]:
    """Return the message that the API expects back: only an audio's id, and no nulls except the content."""
    message = {name: value for name, value in reply["choices"][0]["message"].items() if value is not None}
    if audio := message.get("audio"):
        message["audio"] = {"id": audio["id"]}
    if message.get("refusal") and is_blank(message.get("content", "")):  # blank text beside a refusal would hide it
        message.pop("content", None)
    if is_blank(message.get("refusal", "")):
        message.pop("refusal", None)
    return [{"content": None, **message}]


# Anthropic's Messages API.

_LOCATION = st.builds(
    anthropic.CitationCharLocation,
    type=st.just("char_location"),
    cited_text=TEXT,
    document_index=COUNT,
    document_title=_maybe(TEXT),
    start_char_index=COUNT,
    end_char_index=COUNT,
)
_FOUND = st.builds(
    anthropic.WebSearchResultBlock,
    type=st.just("web_search_result"),
    encrypted_content=TEXT,
    title=TEXT,
    url=TEXT,
    page_age=_maybe(TEXT),
)
_BLOCK = st.one_of(
    st.builds(
        anthropic.TextBlock,
        type=st.just("text"),
        text=TEXT | BLANK,
        citations=_maybe(st.lists(_LOCATION, min_size=1, max_size=2)),
    ),
    st.builds(anthropic.ThinkingBlock, type=st.just("thinking"), thinking=st.just("") | TEXT, signature=TEXT),
    st.builds(anthropic.RedactedThinkingBlock, type=st.just("redacted_thinking"), data=TEXT),
    st.builds(anthropic.ToolUseBlock, type=st.just("tool_use"), id=IDENT, name=NAME, input=OBJECT),
    st.builds(
        anthropic.ServerToolUseBlock,
        type=st.just("server_tool_use"),
        id=IDENT,
        name=st.just("web_search"),
        input=OBJECT,
        caller=st.just({"type": "direct"}),
    ),
    st.builds(
        anthropic.WebSearchToolResultBlock,
        type=st.just("web_search_tool_result"),
        tool_use_id=IDENT,
        content=st.lists(_FOUND, max_size=2),
    ),
)
_ANTHROPIC_USAGE = st.builds(
    anthropic.Usage,
    input_tokens=COUNT,
    output_tokens=COUNT,
    cache_read_input_tokens=_maybe(COUNT),
    cache_creation_input_tokens=_maybe(COUNT),
)


@st.composite
def anthropic_replies(draw: st.DrawFn) -> Wire:
    """Return the body of a reply of the Messages API."""
    blocks = draw(st.lists(_BLOCK, min_size=1, max_size=5))
    calls = [block for block in blocks if isinstance(block, anthropic.ToolUseBlock)]
    for index, call in enumerate(calls):
        call.id += f"_{index}"
    reply = anthropic.Message(
        id="msg_1",
        type="message",
        role="assistant",
        model="m",
        content=list(blocks),
        stop_reason="tool_use" if calls else "end_turn",
        usage=draw(_ANTHROPIC_USAGE),
    )
    return reply.model_dump(mode="json", exclude_unset=True)


def anthropic_wants(reply: Wire) -> list[Wire]:
    """Return the message that the API expects back: its blocks, verbatim except for nulls and the blank text that it
    rejects.
    """
    kept = [{name: value for name, value in block.items() if value is not None} for block in reply["content"]]
    blocks = [block for block in kept if block["type"] != "text" or block["text"].strip()]
    return [{"role": "assistant", "content": blocks}] if blocks else []
