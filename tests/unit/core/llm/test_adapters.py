"""The neutral form of messages loses nothing that an API issued, and each API continues others' threads."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.llm.adapters import Adapter
from holdfast.core.llm.blocks import (
    ImageBlock,
    OtherBlock,
    ProviderPart,
    ReasoningBlock,
    RefusalBlock,
    TextBlock,
    ToolCall,
    text_of,
)
from holdfast.core.llm.messages import AnyMessage, AssistantMessage, ToolMessage, Usage, UserMessage, decode, encode
from tests.support.examples import examples
from tests.support.neutral import APIS, MESSAGES, Api, drawn
from tests.support.sdk_types import check_message, sent_messages
from tests.support.values import Wire

ADAPTERS = [api.adapter for api in APIS]
each_api = pytest.mark.parametrize("api", APIS, ids=lambda api: api.adapter.issuer)
each_adapter = pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: adapter.issuer)

_ADDED = ("reasoning", "reasoning_content", "reasoning_details")
"""Fields that other providers add to OpenAI's format, and that OpenAI's types therefore lack."""


def request_of(adapter: Adapter, *messages: AnyMessage) -> list[Wire]:
    """Return the messages or items of a request with these messages."""
    encoded = [adapter.encode(message) for message in messages]
    sent = sent_messages(json.loads(adapter.body(adapter.prefix("m", {}, [], ""), encoded)))
    return [message for message in sent if message.get("role") != "system"]


def without_added(message: Wire) -> Wire:
    """Return a message with only the fields of OpenAI's types."""
    return {name: value for name, value in message.items() if name not in _ADDED}


@given(MESSAGES)
@settings(max_examples=examples(15, 500))
def test_a_line_of_the_transcript_is_the_message(message: AnyMessage) -> None:
    """A message encoded for the transcript is read back with the same line, and is sent alike from then on.

    A number may change its type: a provider's 5.0 is 5 in canonical JSON.
    """
    line = encode(message)
    read = decode(line)
    assert b"\n" not in line
    assert encode(read) == line
    assert decode(encode(read)) == read
    assert (read.role, text_of(read.content)) == (message.role, text_of(message.content))


@each_api
def test_a_reply_goes_back_in_the_providers_form(api: Api) -> None:
    """A reply returns to its API verbatim, through the transcript, in a form that the API's SDK accepts."""

    @given(api.replies)
    @settings(max_examples=examples(30, 400))
    def check(reply: Wire) -> None:
        message = api.adapter.decode(reply, ids="step").message
        if message is None:
            return
        assert decode(encode(message)) == message
        sent = request_of(api.adapter, decode(encode(message)))
        assert sent == api.wants(reply)
        for each in sent:
            check_message(api.adapter.issuer, without_added(each))

    check()


@pytest.mark.parametrize(
    ("adapter", "answer"),
    [
        (ADAPTERS[0], {"choices": [{"message": {"content": None, "reasoning_content": "Hm."}}]}),
        (ADAPTERS[1], {"output": [{"type": "reasoning", "summary": []}, {"type": "message", "content": []}]}),
        (ADAPTERS[2], {"content": [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": ""}]}),
    ],
    ids=lambda value: getattr(value, "issuer", ""),
)
def test_a_reply_of_reasoning_alone_has_no_message(adapter: Adapter, answer: Wire) -> None:
    """A reply without text or other content is empty, though it is a reply."""
    decoded = adapter.decode(answer, ids="step")
    assert (decoded.message, decoded.holds_reply) == (None, True)


@pytest.mark.parametrize("source", APIS, ids=lambda api: f"from {api.adapter.issuer}")
@pytest.mark.parametrize("target", ADAPTERS, ids=lambda adapter: f"to {adapter.issuer}")
def test_every_api_continues_every_others_thread(source: Api, target: Adapter) -> None:
    """A thread with a reply of one API, and the results of its calls, is a request that the other's SDK accepts."""
    for reply in drawn(source.replies, examples(25, 80)):
        message = source.adapter.decode(reply, ids="step").message
        if message is None:
            continue
        results = [ToolMessage(tool_call_id=call.id, content="done") for call in message.tool_calls]
        sent = request_of(target, UserMessage(content="go"), message, *results)
        for each in sent:
            check_message(target.issuer, without_added(each) if target.issuer == source.adapter.issuer else each)
        text = json.dumps(sent)
        assert all(json.dumps(block.text)[1:-1] in text for block in _texts(message) if block.text.strip())
        assert text.count('"look"') == sum(call.name == "look" for call in message.tool_calls)


def _texts(message: AssistantMessage) -> list[TextBlock | RefusalBlock]:
    return [block for block in message.content if isinstance(block, TextBlock | RefusalBlock)]


@each_adapter
def test_parts_of_another_provider_are_not_sent(adapter: Adapter) -> None:
    """Provider parts and reasoning of another issuer are not sent; refusals and the issuer's own parts are, as text."""
    part = ProviderPart(issuer="elsewhere", data={"signature": "SEALED", "item": {}, "field": "SEALED"})
    message = AssistantMessage(
        content=(
            ReasoningBlock(text="THOUGHT", provider=part),
            TextBlock(text="said", provider=part),
            OtherBlock(text="[a search]", provider=part),
            RefusalBlock(text="declined", provider=part),
            ToolCall(id="c", name="look", arguments="{}", provider=part),
        ),
        provider=part,
    )
    sent = adapter.encode(message)
    assert b"SEALED" not in sent
    assert b"THOUGHT" not in sent
    assert all(text in sent for text in (b"said", b"[a search]", b"declined", b"look"))


_UNSOUND = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=()), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def deep(levels: int) -> Any:
    """Return JSON with that many levels."""
    value: Any = "x"
    for _ in range(levels):
        value = {"a": value}
    return value


def levels_of(value: Any) -> int:
    """Return the number of levels of JSON."""
    levels, level = 0, [value]
    while level:
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
        levels += 1
    return levels


_WAY = ("choices", "message", "output", "content")
"""Fields that lead to the text an LLM wrote."""


def replace_in(reply: Any, path: list[int], value: Any) -> Any:
    """Return a reply with `value` somewhere in it, most often in the LLM's own text."""
    if not path or not isinstance(reply, dict | list):
        return value
    if isinstance(reply, list):
        at = path[0] % (len(reply) + 1)
        return [*reply[:at], replace_in(reply[at] if at < len(reply) else None, path[1:], value), *reply[at + 1 :]]
    names = [*(name for name in _WAY if name in reply), *sorted(reply), "added"]
    name = names[path[0] % len(names)]
    return {**reply, name: replace_in(reply.get(name), path[1:], value)}


def check_sound(message: AssistantMessage) -> None:
    """Check that a message can be recorded and read back, and that every adapter can send both forms."""
    line = encode(message)
    assert levels_of(json.loads(line.decode(), parse_constant=pytest.fail)) < 120
    assert decode(line) == message
    for adapter in ADAPTERS:
        sent = adapter.encode(message)
        assert sent == adapter.encode(decode(line))
        assert levels_of(json.loads(f"[{sent.decode()}]", parse_constant=pytest.fail)) < 130


@each_api
def test_reading_never_raises(api: Api) -> None:
    """For any JSON, the adapter reads a message that can be recorded, read back and sent; or none."""
    replies = drawn(api.replies, 40)

    @given(st.sampled_from(replies), st.lists(st.integers(0, 2) | st.integers(0, 20), max_size=8), _UNSOUND)
    @settings(max_examples=examples(20, 1_000))
    def check(reply: Wire, path: list[int], value: Any) -> None:
        answer = replace_in(reply, path, value)
        message = api.adapter.decode(answer if isinstance(answer, dict) else {}, ids="step").message
        if message:
            check_sound(message)
            ids = [call.id for call in message.tool_calls]
            assert len({*ids}) == len(ids)
            assert all(ids)

    check()


@each_api
@pytest.mark.parametrize(
    "value", [float("nan"), float("-inf"), "\ud800", {"\udfff": "x"}, deep(300), 10**400], ids=range(6)
)
def test_values_that_json_cannot_hold_are_replaced(api: Api, value: Any) -> None:
    """A reply with numbers or characters that parsers reject, or with too many levels, is read without them."""
    call = {"id": "c", "call_id": "c", "name": "look", "input": {"a": value}, "arguments": {"a": value}, "added": value}
    text = {"text": str(value)[:9], "annotations": [value], "citations": [value], "added": value}
    answers: dict[str, Wire] = {
        "chat_completions": {
            "choices": [
                {
                    "message": {
                        "content": [{"type": "text", **text}, {"type": "other", "a": value}],
                        "tool_calls": [{**call, "function": call}],
                        "added": value,
                    }
                }
            ]
        },
        "responses": {
            "output": [
                {"type": "message", "added": value, "content": [{"type": "output_text", **text}]},
                {"type": "function_call", **call},
                {"type": "reasoning", "summary": [value], "added": value},
                {"type": "other", "a": value},
            ]
        },
        "anthropic_messages": {
            "content": [
                {"type": "text", **text},
                {"type": "tool_use", **call},
                {"type": "thinking", "thinking": str(value)[:9], "added": value},
                {"type": "other", "a": value},
            ]
        },
    }
    message = api.adapter.decode(answers[api.adapter.issuer], ids="step").message
    assert message is not None
    assert len(message.tool_calls) == 1
    check_sound(message)


@each_api
def test_arguments_that_are_too_deep_stay_so(api: Api) -> None:
    """Arguments that come as an object are not cut to a depth at which a tool would read them."""
    nested = deep(150)
    answers: dict[str, Wire] = {
        "chat_completions": {"choices": [{"message": {"tool_calls": [{"function": {"arguments": nested}}]}}]},
        "responses": {"output": [{"type": "function_call", "arguments": nested}]},
        "anthropic_messages": {"content": [{"type": "tool_use", "input": nested}]},
    }
    message = api.adapter.decode(answers[api.adapter.issuer], ids="step").message
    assert message is not None
    assert message.tool_calls[0].arguments.count("{") > 100


@each_api
def test_calls_have_ids_of_their_own(api: Api) -> None:
    """A call without an id, or with one already taken, gets an id that no other call of the reply has."""
    names = ["", "step_0", "a", "a", "", "step_5"]
    answers: dict[str, Wire] = {
        "chat_completions": {"choices": [{"message": {"tool_calls": [{"id": name} for name in names]}}]},
        "responses": {"output": [{"type": "function_call", "call_id": name} for name in names]},
        "anthropic_messages": {"content": [{"type": "tool_use", "id": name} for name in names]},
    }
    message = api.adapter.decode(answers[api.adapter.issuer], ids="step").message
    assert message is not None
    assert [call.id for call in message.tool_calls] == ["step_0_", "step_0", "a", "step_3", "step_4", "step_5"]
    later = api.adapter.decode(answers[api.adapter.issuer], ids="step_", used={"a", "step_5"}).message
    assert later is not None
    assert [call.id for call in later.tool_calls] == ["step__0", "step_0", "step__2", "step__3", "step__4", "step__5"]


def test_a_reply_in_two_choices_is_one() -> None:
    """A server that has the text in one choice and the calls in another has made one reply; a cut text stays cut."""
    chat = ADAPTERS[0]
    call = {"id": "a", "function": {"name": "look", "arguments": "{}"}}
    text = {"message": {"content": "I look.", "tool_calls": []}, "finish_reason": "stop"}
    calls = {"message": {"content": None, "tool_calls": [call]}, "finish_reason": "tool_calls"}

    def decoded(*choices: Wire) -> tuple[str, list[str], str]:
        reply = chat.decode({"choices": list(choices)}, ids="step")
        assert reply.message is not None
        return reply.message.text, [each.name for each in reply.message.tool_calls], reply.finish_reason

    assert decoded(text, calls) == ("I look.", ["look"], "tool_calls")
    assert decoded(text | {"finish_reason": "length"}, calls) == ("I look.", ["look"], "length")
    assert decoded(calls, calls, text) == ("", ["look"], "tool_calls")
    assert decoded(text, text) == ("I look.", [], "stop")
    broken = chat.decode({"choices": [text, calls | {"error": {"message": "lost"}}]}, ids="step")
    assert broken.failure == "lost"


@pytest.mark.parametrize(
    ("issuer", "answer", "reason"),
    [
        (
            "responses",
            {"output": [], "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
            "length",
        ),
        (
            "responses",
            {"output": [], "incomplete_details": {"reason": "content_filter"}, "status": "incomplete"},
            "content_filter",
        ),
        ("responses", {"output": [], "status": "failed", "error": {"message": "no"}}, "error"),
        ("responses", {"output": [{"type": "function_call"}], "status": "completed"}, "tool_calls"),
        ("responses", {"output": [], "status": "completed"}, "stop"),
        ("anthropic_messages", {"content": [], "stop_reason": "end_turn"}, "stop"),
        ("anthropic_messages", {"content": [], "stop_reason": "stop_sequence"}, "stop"),
        ("anthropic_messages", {"content": [], "stop_reason": "tool_use"}, "tool_calls"),
        ("anthropic_messages", {"content": [], "stop_reason": "max_tokens"}, "length"),
        ("anthropic_messages", {"content": [], "stop_reason": "model_context_window_exceeded"}, "length"),
        ("anthropic_messages", {"content": [], "stop_reason": "refusal"}, "content_filter"),
        ("anthropic_messages", {"content": [], "stop_reason": "pause_turn"}, "pause_turn"),
    ],
)
def test_why_a_reply_ended_has_one_vocabulary(issuer: str, answer: Wire, reason: str) -> None:
    """Reasons that all APIs have share one word each; others keep the provider's."""
    (adapter,) = (adapter for adapter in ADAPTERS if adapter.issuer == issuer)
    decoded = adapter.decode(answer, ids="step")
    assert decoded.finish_reason == reason
    assert decoded.holds_reply
    assert decoded.failure == ("no" if reason == "error" else "")


def test_usage_counts_all_of_the_prompt() -> None:
    """The prompt's tokens include those that the provider read from its cache or wrote to it."""
    chat, responses, anthropic = ADAPTERS
    details = {"cached_tokens": 4}
    counts = {"input_tokens": 1, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 5, "output_tokens": 2}
    values = {"prompt_tokens": 10, "completion_tokens": 2, "prompt_tokens_details": details}
    usage = Usage(prompt_tokens=10, cached_tokens=4, completion_tokens=2)
    assert usage == chat.decode({"usage": values}, ids="").usage
    values = {"input_tokens": 10, "output_tokens": 2, "input_tokens_details": details}
    assert usage == responses.decode({"usage": values}, ids="").usage
    written = usage.model_copy(update={"cache_write_tokens": 5})
    assert written == anthropic.decode({"usage": counts}, ids="").usage


@each_adapter
def test_a_body_of_another_kind_is_not_read_as_a_reply(adapter: Adapter) -> None:
    """An error with the HTTP status of a success is not a reply, and its message is kept."""
    decoded = adapter.decode({"error": {"message": "overloaded", "code": 529}}, ids="step")
    assert (decoded.message, decoded.holds_reply, decoded.failure) == (None, False, "overloaded")


def test_media_have_one_form() -> None:
    """Bytes are passed as bytes, not as a data URL, so that no adapter has to read one."""
    with pytest.raises(ValueError, match="instead of a data URL"):
        ImageBlock(url="data:image/png;base64,iVBORw0KGgo=")
