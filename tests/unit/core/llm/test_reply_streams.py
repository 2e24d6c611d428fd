"""A stream of the Responses or the Messages API is read as the reply that the API would have sent whole, or as none.

`test_chat_streams` has the streams of Chat Completions.
"""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.activities.llm_calls.llm_replies import NotAReply, read_reply
from holdfast.core.llm.adapters import Decoded, ToolDescription
from holdfast.core.llm.anthropic_messages import AnthropicMessages
from holdfast.core.llm.deltas import Delta, deltas_of
from holdfast.core.llm.messages import AssistantMessage
from holdfast.core.llm.responses import Responses
from holdfast.core.run.contracts.llm_calls import LLMReply
from tests.support.examples import examples
from tests.support.neutral import BY_NAME
from tests.support.runs import agent_spec
from tests.support.values import Wire
from tests.support.wire_streams import EVENTS, check_events, encoded, events_of, streams_of

ADAPTERS: dict[str, Any] = {"responses": Responses(), "anthropic": AnthropicMessages()}
APIS = pytest.mark.parametrize("api", ADAPTERS)
NUMBERED = "sequence_number"

Texts = dict[tuple[str, int | None], str]


def streamed(api: str, *pieces: bytes) -> tuple[list[Delta], Wire]:
    """Return the deltas and the body of a stream."""
    stream = ADAPTERS[api].reply_stream()
    deltas = [delta for piece in pieces for delta in stream.feed(piece)]
    return deltas, dict(stream.end())


def texts_of(deltas: Any) -> Texts:
    """Join deltas by kind and call, without reasoning."""
    texts: Texts = {}
    for delta in deltas:
        if delta.kind != "reasoning":
            texts[delta.kind, delta.call] = texts.get((delta.kind, delta.call), "") + delta.text
    return texts


def worded(texts: Texts) -> Texts:
    """Return the texts that somebody could read: a refusal of one control character is none."""
    return {key: text for key, text in texts.items() if any(each.isprintable() and each != " " for each in text)}


def read(api: str, body: bytes) -> LLMReply:
    """Read a body as `call_llm` does."""
    return read_reply(body, adapter=ADAPTERS[api], spec=agent_spec(), tools={}, step_id="c")


def comparable(decoded: Decoded | LLMReply) -> Any:
    """Return a reply with the arguments of its calls as values: a stream has them as the LLM wrote them."""
    message = decoded.message
    wire = message.model_dump(mode="json") if message else None
    for block in wire["content"] if wire and isinstance(wire["content"], list) else ():
        if block.get("type") == "tool_call":
            try:
                block["arguments"] = json.loads(block["arguments"])
            except ValueError:
                continue
    return wire, decoded.finish_reason, decoded.usage


@APIS
@settings(max_examples=examples(15, 1_000), deadline=None)
@given(st.data())
def test_a_stream_is_read_as_the_reply_that_it_is_made_of(api: str, drawn: st.DataObject) -> None:
    """However a server cuts a reply and the network cuts its bytes, it is decoded as the whole reply would be.

    The joined deltas are the text, refusal and arguments of the recorded message.
    """
    reply = drawn.draw(BY_NAME[api].replies)
    body = drawn.draw(streams_of(api, reply))
    size = drawn.draw(st.sampled_from([1, 7, 64, len(body)]))
    deltas, answer = streamed(api, *(body[at : at + size] for at in range(0, len(body), size)))
    decoded = ADAPTERS[api].decode(answer, ids="c")
    assert comparable(decoded) == comparable(ADAPTERS[api].decode(reply, ids="c"))
    if decoded.message is not None:
        assert worded(texts_of(deltas)) == worded(texts_of(deltas_of(decoded.message)))


@APIS
@settings(max_examples=examples(2, 60), deadline=None)
@given(st.data())
def test_a_stream_cut_at_any_byte_is_no_reply_or_the_whole_one(api: str, drawn: st.DataObject) -> None:
    """A connection may break anywhere: half a reply is never taken for a reply, and no word or token count is lost."""
    reply = drawn.draw(BY_NAME[api].replies)
    body = drawn.draw(streams_of(api, reply))
    whole = comparable(ADAPTERS[api].decode(reply, ids="c"))
    step = examples(7, 1)
    for length in range(drawn.draw(st.integers(0, step - 1)), len(body), step):
        try:
            found = read(api, body[:length])
        except NotAReply:
            continue
        assert comparable(found) == whole


def _is_piece(event: Wire) -> bool:
    """Whether nothing in the API tells two of these events from each other."""
    return NUMBERED not in event and event["type"] == "content_block_delta"


@APIS
@settings(max_examples=examples(20, 1_000), deadline=None)
@given(st.data())
def test_events_that_come_twice_late_or_not_at_all_lose_and_double_no_word(api: str, drawn: st.DataObject) -> None:
    """The reply is the whole one, or it is none; what a reader has seen of it is its beginning.

    Pieces of one block of the Messages API have no number: two that are equal may be two words.
    """
    reply = drawn.draw(BY_NAME[api].replies)
    events = drawn.draw(events_of(api, reply))
    at = drawn.draw(st.sampled_from([n for n, event in enumerate(events) if not _is_piece(event)]))
    to = drawn.draw(st.integers(0, len(events)))
    match drawn.draw(st.sampled_from(["twice", "moved", "lost"])):
        case "twice":
            events.insert(to, events[at])
        case "moved":
            events.insert(to, events.pop(at))
        case _:
            del events[at]
    body = b"".join(map(encoded, events))
    try:
        found = read(api, body)
    except NotAReply:
        return
    whole = ADAPTERS[api].decode(reply, ids="c")
    assert comparable(found) == comparable(whole)
    recorded = texts_of(deltas_of(found.message))
    for key, text in worded(texts_of(streamed(api, body)[0])).items():
        assert recorded.get(key, "").strip().startswith(text.strip()) or not found.message


@pytest.mark.parametrize("place", range(1, 6))
@APIS
def test_an_error_in_a_stream_makes_it_no_reply(api: str, place: int) -> None:
    """A provider reports errors inside HTTP 200, at any place and even after its last event."""
    events = [encoded(event) for event in whole_stream(api)]
    place = min(place, len(events)) if place < 5 else len(events)
    forms: list[Wire] = [
        {"type": "error", "error": {"type": "overloaded_error", "message": "overloaded"}},
        {"type": "error", "code": "server_error", "message": "overloaded", "param": None},
        {"error": {"message": "overloaded", "code": 529}, "type": None},
    ]
    for error in forms:
        body = b"".join([*events[:place], encoded(error), *events[place:]])
        if place == len(events):
            assert read(api, body).message is not None, "it had ended before"
            continue
        with pytest.raises(NotAReply, match="overloaded"):
            read(api, body)


def whole_stream(api: str, text: str = "I will not") -> list[Wire]:
    """Return the events of a short reply, three characters at a time."""
    if api == "responses":
        part = {"type": "output_text", "text": text, "annotations": []}
        item = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
        reply: Wire = {**_RESPONSE, "status": "completed", "output": [item]}
    else:
        usage = {"input_tokens": 3, "output_tokens": 2}
        reply = {"id": "m", "type": "message", "role": "assistant", "model": "m", "usage": usage}
        reply |= {"content": [{"type": "text", "text": text}], "stop_reason": "end_turn"}
    return EVENTS[api](reply, lambda text: [text[at : at + 3] for at in range(0, len(text), 3)])


_RESPONSE: Wire = {
    "id": "r",
    "object": "response",
    "created_at": 1,
    "model": "m",
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}


def test_a_failed_response_is_no_reply() -> None:
    """The Responses API has a status of its own for a reply that broke off, with the reason."""
    events = whole_stream("responses")
    error = {"code": "server_error", "message": "The model had an error"}
    failed = {**events[-1]["response"], "status": "failed", "output": [], "error": error}
    events[-1] = {**events[-1], "type": "response.failed", "response": failed}
    with pytest.raises(NotAReply, match="had an error"):
        read("responses", b"".join(map(encoded, events)))


def test_a_reply_that_was_cut_off_by_its_limit_is_a_reply_that_says_so() -> None:
    """`response.incomplete` ends a stream, too, even if the server leaves the status out."""
    events = whole_stream("responses")
    cut = {**events[-1]["response"], "incomplete_details": {"reason": "max_output_tokens"}}
    del cut["status"]
    events[-1] = {**events[-1], "type": "response.incomplete", "response": cut}
    found = read("responses", b"".join(map(encoded, events)))
    assert found.finish_reason == "length"
    assert "length limit" in found.rejected


def test_a_last_event_without_the_output_has_the_items_before_it() -> None:
    """Some servers send each item whole, and the last event without them; if one of those is lost, it is no reply."""
    events = whole_stream("responses")
    events[-1]["response"]["output"] = []
    body = b"".join(map(encoded, events))
    assert read("responses", body).message == AssistantMessage.model_validate(
        ADAPTERS["responses"].decode(whole_stream("responses")[-1]["response"], ids="c").message
    )
    done = next(encoded(event) for event in events if event["type"] == "response.output_item.done")
    with pytest.raises(NotAReply):
        read("responses", body.replace(done, b"data: {cut\n\n"))


def test_a_stream_whose_first_events_come_late_is_not_previewed() -> None:
    """A reader would see the end of a text as its beginning; the reply itself is in the last event."""
    events = whole_stream("responses")
    late = next(at for at, event in enumerate(events) if event["type"] == "response.output_text.delta") + 1
    body = b"".join(map(encoded, [events[late], *events]))
    deltas, answer = streamed("responses", body)
    assert deltas == []
    assert ADAPTERS["responses"].decode(answer, ids="c").message.text == "I will not"


def test_items_without_an_index_are_told_apart_by_their_ids() -> None:
    """llama.cpp sends no `output_index`, and calls without an `id`: each delta belongs to the item that it names."""
    calls: list[Wire] = [
        {"type": "function_call", "call_id": f"fc_{name}", "name": name, "arguments": f'{{"at": "{name}"}}'}
        for name in ("look", "pay")
    ]
    events: list[Wire] = [{"type": "response.created", "response": {"id": "r", "status": "in_progress"}}]
    for call in calls:
        events.append({"type": "response.output_item.added", "item": {**call, "arguments": ""}})
        events += (
            {"type": "response.function_call_arguments.delta", "item_id": call["call_id"], "delta": each}
            for each in (call["arguments"][:4], call["arguments"][4:])
        )
        events.append({"type": "response.output_item.done", "item": call})
    for output in (calls, []):
        last = {"type": "response.completed", "response": {**_RESPONSE, "status": "completed", "output": output}}
        body = b"".join(map(encoded, [*events, last]))
        deltas, answer = streamed("responses", body)
        message = ADAPTERS["responses"].decode(answer, ids="c").message
        assert [(call.name, call.arguments) for call in message.tool_calls] == [
            (call["name"], call["arguments"]) for call in calls
        ]
        assert texts_of(deltas) == texts_of(deltas_of(message))
        assert {(each.call, each.tool) for each in deltas} == {(0, "look"), (1, "pay")}


def test_a_request_that_is_too_long_is_recognised_by_the_error_alone() -> None:
    """The first events of a stream repeat the agent's instructions, which may be about anything."""
    words = "This model's maximum context length is 8 tokens. However, your messages resulted in 9 tokens."
    events = whole_stream("responses")
    for event in events[:2]:
        event["response"]["instructions"] = words
    for message, too_long in (("overloaded", False), (words, True)):
        error = {"type": "error", "code": None, "message": message, "param": None}
        with pytest.raises(NotAReply) as raised:
            read("responses", b"".join(map(encoded, [*events[:2], error])))
        assert raised.value.too_long is too_long


def test_usage_is_merged_from_the_first_and_the_last_event() -> None:
    """Counts grow during a reply; a server that sends 0 at the end has not taken back what it counted before."""
    events = whole_stream("anthropic")
    events[0]["message"]["usage"] = {"input_tokens": 40, "cache_read_input_tokens": 50, "output_tokens": 1}
    events[-2]["usage"] = {"input_tokens": 0, "output_tokens": 9, "cache_creation_input_tokens": 10}
    usage = read("anthropic", b"".join(map(encoded, events))).usage
    assert (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens) == (100, 50, 9)
    assert usage.cache_write_tokens == 10


@APIS
def test_thoughts_before_the_text_are_reasoning(api: str) -> None:
    """Servers without a parser for thoughts offer these APIs, too."""
    body = b"".join(map(encoded, whole_stream(api, "<think>Is it <b>?</think>\n\nIt is.")))
    deltas, answer = streamed(api, body)
    message = ADAPTERS[api].decode(answer, ids="c").message
    assert message is not None
    assert message.text == "It is."
    assert "".join(delta.text for delta in deltas if delta.kind == "text") == "It is."
    assert "".join(delta.text for delta in deltas if delta.kind == "reasoning") == "Is it <b>?"


@APIS
@settings(max_examples=examples(5, 100), deadline=None)
@given(st.data())
def test_the_streams_of_these_tests_are_of_the_sdks_types(api: str, drawn: st.DataObject) -> None:
    """A provider's own client reads them."""
    check_events(api, drawn.draw(events_of(api, drawn.draw(BY_NAME[api].replies))))


@APIS
@given(
    body=st.binary(max_size=200)
    | st.builds(
        lambda parts: b"".join(parts),
        st.lists(
            st.sampled_from(
                [
                    b"data:",
                    b"\n\n",
                    b"{}",
                    b'{"type":"message_start","message":{"usage":[]}}',
                    b'{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","citations":3}}',
                    b'{"type":"content_block_delta","index":0,"delta":{"text":[],"partial_json":"[","citation":{}}}',
                    b'{"type":"content_block_stop","index":0}',
                    b'{"type":"response.output_item.done","output_index":[],"item":null}',
                    b'{"type":"response.output_text.delta","output_index":{},"content_index":[],"delta":"a"}',
                    b'{"type":"response.completed","response":{"output":3}}',
                    b'{"type":{},"error":[]}',
                ]
            )
        ),
    )
)
def test_any_bytes_are_read_without_an_exception(api: str, body: bytes) -> None:
    """An endpoint may send anything, and the way in which it arrives does not matter."""
    _, whole = streamed(api, body)
    _, single = streamed(api, *(body[at : at + 1] for at in range(len(body))))
    assert whole == single


@APIS
def test_a_request_for_a_stream_is_the_same_request_with_one_more_field(api: str) -> None:
    """Options of the agent decide, if they have `stream` themselves; parameters of tools of that name do not."""
    adapter = ADAPTERS[api]
    schema = {"type": "object", "properties": {"stream": {"type": "boolean"}}}
    tools = [ToolDescription("watch", "Watch.", schema)]
    hosted = {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}
    for options, asked in (({}, True), (hosted, True), ({**hosted, "stream": False}, False)):
        plain = adapter.body(adapter.prefix("m", options, tools, 'A "stream": it flows.'), [])
        body = adapter.asking_to_stream(plain)
        assert (body != plain) is asked
        assert json.loads(body) == {**json.loads(plain), "stream": asked}
        assert body.startswith(plain[:-1])
