"""How a provider's response is read. No response can break a run."""

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import to_json

from holdfast.activities.llm_calls.llm_replies import NotAReply, read_reply
from holdfast.activities.llm_calls.retry_after import LONGEST, retry_after
from holdfast.core.agents.agent import AgentSpec, Limits
from holdfast.core.run.contracts.llm_calls import LLMReply
from tests.support.runs import ADAPTER, agent_spec

ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda x: st.lists(x) | st.dictionaries(st.text(), x),
    max_leaves=6,
)


def read(body: bytes | dict[str, Any], spec: AgentSpec | None = None) -> LLMReply:
    """Read a response's body."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read_reply(content, adapter=ADAPTER, spec=spec or agent_spec(), tools={}, step_id="call_3")


def answer(message: Any, **choice: Any) -> dict[str, Any]:
    """Return a body with one choice."""
    return {"model": "m", "choices": [{"message": message, **choice}]}


def test_a_plain_reply_is_read() -> None:
    """The reply has text, usage and the name of the answering model."""
    usage = {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}
    reply = read(answer({"content": "hi"}, finish_reason="stop") | {"usage": usage})
    assert reply.message is not None
    assert (reply.message.text, reply.rejected, reply.llm) == ("hi", "", "m")
    assert (reply.usage.prompt_tokens, reply.usage.cached_tokens, reply.usage.completion_tokens) == (9, 4, 2)


def test_a_stream_is_read_even_if_nobody_asked_for_it() -> None:
    """Some proxies always stream."""
    reply = read(b'data: {"choices": [{"delta": {"content": "hi"}}]}\n\ndata: [DONE]\n')
    assert reply.message is not None
    assert reply.message.text == "hi"


def test_missing_and_duplicate_call_ids_are_replaced() -> None:
    """Unique ids let every call be answered, and keep results from being confused."""
    call = {"function": {"name": "look", "arguments": "{}"}}
    reply = read(answer({"tool_calls": [call, call | {"id": "a"}, call | {"id": "a"}, call | {"id": ""}]}))
    assert reply.message is not None
    assert [each.id for each in reply.message.tool_calls] == ["call_3_0", "a", "call_3_2", "call_3_3"]


def test_calls_beyond_the_agents_limit_do_not_run() -> None:
    """The LLM reads how many calls a reply may make; the default of 100 changes no agent's hash."""
    calls = [{"id": f"c{number}", "function": {"name": "look", "arguments": "{}"}} for number in range(101)]
    assert list(read(answer({"tool_calls": calls})).problems) == ["c100"]
    few = agent_spec(limits=Limits(max_calls=2))
    reply = read(answer({"tool_calls": calls[:3]}), few)
    assert reply.problems == {"c2": "a reply may make at most 2 calls; make this one in the next reply"}
    assert agent_spec().hash == agent_spec(limits=Limits(max_steps=50, max_calls=100)).hash
    assert "max_calls" not in agent_spec().model_dump_json(exclude_defaults=True)


def test_arguments_may_be_an_object() -> None:
    """Some endpoints send arguments as an object and not as an encoded string."""
    reply = read(answer({"tool_calls": [{"id": "a", "function": {"name": "look", "arguments": {"x": 1}}}]}))
    assert reply.message is not None
    assert reply.message.tool_calls[0].arguments == '{"x":1}'


def test_fields_the_api_rejects_in_requests_are_left_out() -> None:
    """Null, empty and output-only fields are dropped; reasoning is kept."""
    message = {"content": "x", "refusal": None, "annotations": [1], "audio": {"id": 1}, "reasoning_content": "hm"}
    reply = read(answer(message))
    assert reply.message is not None
    wire = json.loads(ADAPTER.encode(reply.message))
    assert wire == {"role": "assistant", "content": "x", "reasoning_content": "hm"}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (answer(None), "it is empty"),
        (answer({"content": ""}), "it is empty"),
        (answer({"content": "and"}, finish_reason="length"), "cut off"),
        (answer({"content": ""}, finish_reason="content_filter"), "the provider's content filter withheld it"),
        (answer(None, finish_reason="content_filter"), "the provider's content filter withheld it"),
        (answer({"content": "and"}, finish_reason="content_filter"), "the provider's content filter cut it off"),
    ],
)
def test_an_unusable_reply_gives_the_reason(body: bytes | dict[str, Any], words: str) -> None:
    """The reason is a sentence the LLM can act on."""
    assert words in read(body).rejected


@pytest.mark.parametrize(
    "message",
    [{"refusal": "I can not help with that."}, {"tool_calls": [{"id": "a", "function": {"name": "look"}}]}],
)
def test_a_refusal_and_calls_stand_though_a_content_filter_ended_the_reply(message: dict[str, Any]) -> None:
    """The LLM's own refusal is its answer, and its calls are judged like any others."""
    assert read(answer(message, finish_reason="content_filter")).rejected == ""


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"<html>busy</html>", "no reply of this API: <html>busy</html>"),
        (b'{"choices": [{"message": {"content": "cut', "no reply of this API: {"),
        (b"", "the body is empty"),
        (b"  \n", "the body is empty"),
        (b"null", "no reply of this API: null"),
        (b"[]", "no reply of this API: []"),
        (b"\xff\x00", "no reply of this API"),
        ({"choices": []}, "no reply of this API"),
        ({"choices": [None]}, "no reply of this API"),
        ({"detail": "not here"}, "not here"),
        ({"error": {"message": "overloaded", "code": 529}}, "the provider reports an error: overloaded"),
        ({"error": "overloaded"}, "the provider reports an error: overloaded"),
        (answer({"content": ""}, error={"message": "lost upstream"}), "lost upstream"),
        (answer({"content": "I w"}, finish_reason="error", error={"message": "lost upstream"}), "lost upstream"),
        (b'data: {"choices": [{"delta": {"content": "hi"}}]}\n\n', "the stream ended before"),
        (b': keep-alive\n\ndata: {"choices": []}\n', "the stream ended before"),
        (b"event: message_start\ndata: {}\n", "the stream ended before"),
    ],
)
def test_a_body_without_a_reply_is_a_fault_of_the_endpoint(body: bytes | dict[str, Any], words: str) -> None:
    """The adapter raises an error that describes the body, so that it never becomes a message to the LLM."""
    with pytest.raises(NotAReply) as raised:
        read(body)
    assert words in str(raised.value)


def read_or_refuse(body: bytes | dict[str, Any]) -> LLMReply | None:
    """Read a response's body; None if it is no reply."""
    try:
        return read(body)
    except NotAReply:
        return None


@given(ANY | st.dictionaries(st.sampled_from(["choices", "usage", "model"]), ANY))
def test_any_json_is_read_without_an_exception(body: Any) -> None:
    """Any JSON is either rejected or read as a reply that Temporal can record."""
    to_json(read_or_refuse(json.dumps(body).encode()))


@given(st.dictionaries(st.sampled_from(["content", "tool_calls", "refusal", "role", "reasoning"]), ANY))
def test_any_message_is_read_without_an_exception(message: Any) -> None:
    """Any content of a choice gives a reply that Temporal can record."""
    to_json(read(answer(message)))


@given(st.binary())
def test_any_bytes_are_read_without_an_exception(body: bytes) -> None:
    """Bytes that are not JSON are rejected."""
    reply = read_or_refuse(body)
    assert reply is None or reply.message is None or b"content" in body


def test_a_lone_surrogate_is_replaced() -> None:
    """JSON allows it but no encoding does, so it must not reach the history."""
    reply = read(b'{"choices": [{"message": {"content": "a\\ud800b"}}]}')
    assert reply.message is not None
    assert reply.message.text == "a?b"


def test_deep_nesting_does_not_crash_a_worker() -> None:
    """A hundred thousand nested brackets are rejected."""
    with pytest.raises(NotAReply):
        read(b"[" * 100_000)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "2"}, 2),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "1e99"}, None),
        ({"retry-after": "99999999"}, LONGEST.total_seconds()),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "soon"}, None),
        ({}, None),
    ],
)
def test_retry_after_is_respected_within_bounds(headers: dict[str, str], seconds: float | None) -> None:
    """The header has seconds or milliseconds and is bounded; an invalid value is ignored."""
    expected = None if seconds is None else timedelta(seconds=seconds)
    assert retry_after(headers) == expected


def test_retry_after_may_be_a_date() -> None:
    """HTTP allows a date in place of seconds."""
    delay = retry_after({"retry-after": format_datetime(datetime.now(UTC) + timedelta(seconds=30))})
    assert delay is not None
    assert timedelta(seconds=20) < delay <= timedelta(seconds=30)
