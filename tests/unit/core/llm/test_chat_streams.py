"""A streamed reply is the reply that the API would have sent whole, or it is none."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.activities.llm_calls.llm_replies import NotAReply, read_reply
from holdfast.core.llm.chat_stream import ChatStream
from holdfast.core.llm.deltas import Delta
from holdfast.core.llm.event_stream import EventParser
from tests.support.chat_streams import chat_streams
from tests.support.examples import examples
from tests.support.neutral import BY_NAME
from tests.support.runs import ADAPTER, agent_spec
from tests.support.values import Wire


def streamed(*pieces: bytes) -> tuple[list[Delta], Wire]:
    """Return the deltas and the body of a stream."""
    stream = ChatStream()
    deltas = [delta for piece in pieces for delta in stream.feed(piece)]
    return deltas, dict(stream.end())


def data(*chunks: Any) -> bytes:
    """Return a stream's body."""
    return b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in chunks)


def piece(delta: Wire, **choice: Any) -> Wire:
    """Return a chunk with one delta."""
    return {"choices": [{"index": 0, "delta": delta, **choice}]}


def joined(deltas: list[Delta], kind: str, call: int | None = None) -> str:
    """Join the deltas of a kind."""
    return "".join(delta.text for delta in deltas if (delta.kind, delta.call) == (kind, call))


@settings(max_examples=examples(15, 1_000))
@given(st.data())
def test_a_stream_is_read_as_the_reply_that_it_is_made_of(drawn: st.DataObject) -> None:
    """However a server cuts a reply and the network cuts its bytes, it decodes as the whole reply would, and the deltas
    of its text, refusal and arguments are those of the recorded message.
    """
    reply = drawn.draw(BY_NAME["chat"].replies)
    body = b"".join(drawn.draw(chat_streams(reply)))
    size = drawn.draw(st.sampled_from([1, 7, 64, len(body)]))
    deltas, answer = streamed(*(body[at : at + size] for at in range(0, len(body), size)))
    expected = ADAPTER.decode(reply, ids="c")
    assert ADAPTER.decode(answer, ids="c") == expected
    message = answer["choices"][0]["message"]
    assert joined(deltas, "text") == (message.get("content") or "")
    assert joined(deltas, "refusal") == (message.get("refusal") or "")
    for number, call in enumerate(message.get("tool_calls", ())):
        assert joined(deltas, "arguments", number) == call["function"]["arguments"]


@settings(max_examples=examples(2, 100), deadline=None)
@given(st.data())
def test_a_stream_cut_at_any_byte_is_no_reply_or_the_whole_one(drawn: st.DataObject) -> None:
    """A connection may break anywhere: half a reply is never taken for a reply, and no word is lost."""
    reply = drawn.draw(BY_NAME["chat"].replies)
    body = b"".join(drawn.draw(chat_streams(reply)))
    whole = ADAPTER.decode(reply, ids="c").message
    step = examples(7, 1)
    for length in range(drawn.draw(st.integers(0, step - 1)), len(body), step):
        try:
            read = read_reply(body[:length], adapter=ADAPTER, spec=agent_spec(), tools={}, step_id="c")
        except NotAReply:
            continue
        assert read.message == whole


def _is_piece(event: bytes) -> bool:
    """Whether nothing in the API tells this event from another one: Chat Completions numbers no pieces."""
    data = event.partition(b"data: ")[2].strip()
    choices = json.loads(data).get("choices", ()) if data.startswith(b"{") else ()
    return any(value for choice in choices for name, value in choice["delta"].items() if name != "role")


@settings(max_examples=examples(15, 1_000), deadline=None)
@given(st.data())
def test_events_without_words_may_come_twice_late_or_not_at_all(drawn: st.DataObject) -> None:
    """The role, the reason of the end, usage, `[DONE]`, empty choices and keep-alives: the reply is the whole one, or
    it is none.
    """
    reply = drawn.draw(BY_NAME["chat"].replies)
    events = drawn.draw(chat_streams(reply))
    at = drawn.draw(st.sampled_from([n for n, event in enumerate(events) if not _is_piece(event)]))
    to = drawn.draw(st.integers(0, len(events)))
    match drawn.draw(st.sampled_from(["twice", "moved", "lost"])):
        case "twice":
            events.insert(to, events[at])
        case "moved":
            events.insert(to, events.pop(at))
        case _:
            del events[at]
    try:
        read = read_reply(b"".join(events), adapter=ADAPTER, spec=agent_spec(), tools={}, step_id="c")
    except NotAReply:
        return
    assert read.message == ADAPTER.decode(reply, ids="c").message


def test_an_early_done_ends_no_reply() -> None:
    """Words that follow `[DONE]` belong to the reply; if the connection breaks among them, there is none."""
    done, end = b"data: [DONE]\n\n", data(piece({}, finish_reason="stop"))
    first, second = data(piece({"content": "I will "})), data(piece({"content": "not"}))
    read = read_reply(first + done + second + end, adapter=ADAPTER, spec=agent_spec(), tools={}, step_id="c")
    assert read.message is not None
    assert read.message.text == "I will not"
    with pytest.raises(NotAReply):
        read_reply(first + done + second, adapter=ADAPTER, spec=agent_spec(), tools={}, step_id="c")


@pytest.mark.parametrize("place", range(4))
def test_an_error_in_a_stream_makes_it_no_reply(place: int) -> None:
    """A provider reports errors inside HTTP 200, at any place, as a field or as an event of its own."""
    events = [
        data(piece({"content": "I will "})),
        data(piece({"content": "not"})),
        data(piece({}, finish_reason="stop")),
    ]
    for error in (
        data({"error": {"message": "overloaded", "code": 529}}),
        b'event: error\ndata: {"message": "overloaded"}\n\n',
        data({"choices": [{"index": 0, "delta": {}, "error": {"message": "overloaded"}, "finish_reason": "error"}]}),
    ):
        body = b"".join([*events[:place], error, *events[place:], b"data: [DONE]\n\n"])
        with pytest.raises(NotAReply, match="overloaded"):
            read_reply(body, adapter=ADAPTER, spec=agent_spec(), tools={}, step_id="c")


def test_a_part_that_cannot_be_read_makes_it_no_reply() -> None:
    """A word may be missing, so the call is made again."""
    body = (
        data(piece({"content": "a"}))
        + b'data: {"choices": [{"del\n\n'
        + data(piece({"content": "c"}, finish_reason="stop"))
    )
    with pytest.raises(NotAReply, match="cannot be read"):
        read_reply(body, adapter=ADAPTER, spec=agent_spec(), tools={}, step_id="c")


def test_parallel_calls_that_share_an_index_are_told_apart_by_their_ids() -> None:
    """Some servers give each call the index 0, or none at all."""
    for index in ({"index": 0}, {}):
        calls = [{**index, "id": name, "function": {"name": name, "arguments": "{}"}} for name in ("a", "b")]
        _, answer = streamed(data(*(piece({"tool_calls": [call]}) for call in calls), piece({}, finish_reason="stop")))
        found = answer["choices"][0]["message"]["tool_calls"]
        assert [(call["id"], call["function"]["name"]) for call in found] == [("a", "a"), ("b", "b")]


def test_thoughts_before_the_text_are_reasoning() -> None:
    """A reader sees no tag, and no thought as a part of the answer, wherever the stream is cut."""
    text = "<think>Is it <b>?</think>\n\nIt is."
    for size in range(1, len(text)):
        deltas, answer = streamed(
            data(
                *(piece({"content": text[at : at + size]}) for at in range(0, len(text), size)),
                piece({}, finish_reason="stop"),
            )
        )
        assert (joined(deltas, "reasoning"), joined(deltas, "text")) == ("Is it <b>?", "It is.")
        message = ADAPTER.decode(answer, ids="c").message
        assert message is not None
        assert message.text == "It is."


def test_a_text_that_only_begins_like_a_thought_is_text() -> None:
    """Nothing is held back for longer than it may be a tag."""
    deltas, _ = streamed(data(piece({"content": "<thi"}), piece({"content": "n>"}, finish_reason="stop")))
    assert joined(deltas, "text") == "<thin>"


def test_an_entry_of_a_providers_own_field_is_joined_by_its_index() -> None:
    """Such fields are sent back to the provider, so they must be as it would have sent them whole."""
    details = [{"type": "reasoning.text", "index": 0, "text": "a"}, {"type": "reasoning.text", "index": 0, "text": "b"}]
    _, answer = streamed(
        data(*(piece({"reasoning_details": [each]}) for each in details), piece({"content": "x"}, finish_reason="stop"))
    )
    assert answer["choices"][0]["message"]["reasoning_details"] == [{**details[0], "text": "ab"}]


@given(
    st.binary(max_size=200)
    | st.builds(
        lambda parts: b"".join(parts),
        st.lists(st.sampled_from([b"data:", b"\r", b"\n", b"{}", b'{"choices":[0,{}]}', b"[DONE]", b": x"])),
    )
)
def test_any_bytes_are_read_without_an_exception(body: bytes) -> None:
    """An endpoint may send anything, and the way in which it arrives does not matter."""
    whole, single = ChatStream(), ChatStream()
    whole.feed(body)
    for at in range(len(body)):
        single.feed(body[at : at + 1])
    assert whole.end() == single.end()


def test_events_are_parsed_by_the_rules_of_the_standard() -> None:
    """Lines end with LF, CR or CRLF; comments and unknown fields are skipped; several lines of data are one."""
    parser = EventParser()
    body = b"\xef\xbb\xbfevent: a\rdata: 1\r\ndata:2\n: no\nid: 7\n\r\n\ndata: 3\n"
    events = [event for at in range(len(body)) for event in parser.feed(body[at : at + 1])]
    assert [*events, *parser.end()] == [("a", "1\n2"), ("", "3")]
