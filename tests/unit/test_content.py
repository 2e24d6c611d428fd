"""Content stays unchanged: every block, byte for byte, from the event through the record to the LLM."""

import base64
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.activities.llm_replies import read_reply
from holdfast.base.digests import MAX_INTEGER, canonical
from holdfast.llm.messages import MAX_DEPTH, AssistantMessage, ToolCall, Usage, UserMessage, encode
from holdfast.log.event_log import EventLog, event_line
from holdfast.log.events import AgentEvent, LLMReplied, MessageTaken, UserMessageReceived
from holdfast.log.stored_lines import read_lines
from holdfast.log.upcasters import decode_event
from holdfast.run.contracts import TASK_MALFORMED, LLMReply, RunInput, ToolOutcome
from holdfast.run.machine import AgentRun
from holdfast.tools.decorator import result_text
from holdfast.transcript.transcript import Transcript
from tests.unit.runs import NOW, agent_spec, loaded_thread, through_json

PIXEL = base64.b64encode(bytes(range(256))).decode()
BLOCKS: dict[str, dict[str, Any]] = {
    "text": {"type": "text", "text": "naïve 😀 日本語 \u2028 \x00 \x1f"},
    "image by URL": {"type": "image_url", "image_url": {"url": "https://example.com/a.png?b=1&c=%20", "detail": "low"}},
    "image in base64": {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
    "audio": {"type": "input_audio", "input_audio": {"data": PIXEL, "format": "wav"}},
    "file": {"type": "file", "file": {"filename": "ä.pdf", "file_data": f"data:application/pdf;base64,{PIXEL}"}},
    "keys out of order": {"z": 1, "type": "text", "a": {"y": None, "b": []}, "text": ""},
    "floats": {"type": "x", "numbers": [0.1, 1e22, 1.5e-7, -0.0, 1.0, 5e-324, 1.7976931348623157e308, 1e30]},
    "of tomorrow": {"type": "hologram", "deep": {"er": [[{"and": {"er": True}}]]}},
}
EXTRAS: dict[str, Any] = {
    "refusal": "I will not.",
    "reasoning_content": "hm … 😀",
    "reasoning_details": [{"type": "reasoning.encrypted", "data": PIXEL, "index": 0, "score": 0.1}],
}
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-MAX_INTEGER, MAX_INTEGER)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)
TEXT = st.text(min_size=1).filter(str.strip)


def as_recorded(value: Any) -> Any:
    """Return JSON as a reader of the log has it: 1.0 is 1 there."""
    return json.loads(canonical(value))


def from_record(events: list[AgentEvent]) -> list[AgentEvent]:
    """Return the events from the permanent record, after checking that each is serialized to the same line."""
    lines = [event_line(event) for event in events]
    assert [event_line(decode_event(line)) for line in lines] == lines
    return read_lines("t", 0, lines)


def messages_of(events: list[AgentEvent]) -> list[bytes]:
    """The encoded transcript."""
    transcript = Transcript()
    for event in events:
        transcript.add(event)
    return transcript.messages


def replied(message: AssistantMessage) -> list[bytes]:
    """Return a reply's bytes before and after the record, after checking that they are the same."""
    log = EventLog()
    reply = through_json(LLMReply(message=message))
    assert reply.message is not None
    event = LLMReplied(message=reply.message, transcript_length=0, usage=Usage(), finish_reason="stop", llm="m")
    event = log.append(event, at=NOW)
    before = [encode(AssistantMessage.model_validate(as_recorded(message.model_dump())))]
    assert before == messages_of([event]) == messages_of(log.events) == messages_of(from_record(log.events))
    return before


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_of_a_persons_message_reaches_the_llm_as_given(name: str) -> None:
    """As a task and as a follow-up, in the run, in the next Temporal run, and rebuilt from the record."""
    content = as_recorded([BLOCKS["text"], BLOCKS[name]])
    thread = loaded_thread(task=content)
    assert thread.messages()[0] == {"role": "user", "content": content}
    assert thread.say(content, when_busy="interrupt") == "interrupting"
    assert json.loads(thread.sent[-1].body)["messages"][1:] == 2 * [{"role": "user", "content": content}]
    sent = thread.transcript_lines()
    assert sent == messages_of(from_record(thread.log))
    assert sent == 2 * [encode(UserMessage(content=content))]
    thread.continue_suggested = True
    thread.reply(LLMReply(rejected="it is empty."))
    while not thread.snapshots:
        thread.archive()
    assert thread.transcript_lines()[:2] == sent


@given(TEXT, st.lists(st.dictionaries(st.text(), JSON, max_size=3), max_size=3))
def test_any_blocks_reach_the_llm_as_given(text: str, blocks: list[dict[str, Any]]) -> None:
    """Blocks of unknown types are passed on; nothing in them is added, dropped or re-spelt."""
    content = [{"type": "text", "text": text}, *blocks]
    thread = loaded_thread()
    thread.say(content, when_busy="interrupt")
    (received,) = [event for event in thread.log if isinstance(event, MessageTaken)]
    assert thread.messages()[-1] == {"role": "user", "content": as_recorded(content)}
    assert messages_of(from_record(thread.log)) == thread.transcript_lines()
    assert received.message == 3


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_of_a_reply_is_sent_back_as_it_came(name: str) -> None:
    """A reply in content blocks is the same from history and from the record, byte for byte."""
    (encoded,) = replied(AssistantMessage(content=[BLOCKS[name]]))
    assert json.loads(encoded)["content"] == as_recorded([BLOCKS[name]])


@given(st.none() | st.text(), st.dictionaries(st.text(min_size=1), JSON, max_size=3), JSON)
def test_unknown_fields_of_a_reply_survive_the_record(text: str | None, extra: dict[str, Any], arguments: Any) -> None:
    """Unknown fields of the message and of its calls, and the verbatim arguments."""
    extra = {f"x{name}": value for name, value in extra.items()}
    call = ToolCall(id="c", name="look", arguments=json.dumps(arguments), extra=extra)
    (encoded,) = replied(AssistantMessage(content=text, tool_calls=(call,), extra={**EXTRAS, **extra}))
    wire = json.loads(encoded)
    assert {name: wire[name] for name in EXTRAS} == EXTRAS
    assert {name: wire["tool_calls"][0][name] for name in extra} == as_recorded(extra)
    assert wire["tool_calls"][0]["function"]["arguments"] == json.dumps(arguments)


def test_the_bytes_depend_only_on_the_content_of_a_message() -> None:
    """A different order of keys gives the same bytes, as the record's JSON is sorted."""
    block = BLOCKS["keys out of order"]
    other = dict(reversed(list(block.items())))
    assert list(other) != list(block)
    assert encode(UserMessage(content=[block])) == encode(UserMessage(content=[other]))


def test_a_lone_surrogate_becomes_a_question_mark_on_entry() -> None:
    """UTF-8 cannot encode it: in replies and tool results it becomes '?'; in people's messages it is refused."""
    body = b'{"choices": [{"message": {"content": "a\\ud800b", "reasoning": ["\\udfff"]}}]}'
    reply = read_reply(body, spec=agent_spec(), tools={}, step_id="s")
    assert reply.message == AssistantMessage(content="a?b", extra={"reasoning": ["?"]})
    assert ToolOutcome(status="ok", content=result_text("caf\udce9")).content == "caf?"
    thread = loaded_thread()
    assert thread.say("a\ud800b") == "malformed"
    assert thread.say([{"type": "text", "text": "a\ud800b"}]) == "malformed"
    assert json.loads(encode(UserMessage(content="a\ud800b")))["content"] == "a?b", "nor can it get any further"


def nested(levels: int) -> Any:
    """Return a list in a list, and so on."""
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@given(st.integers(1, 400))
@example(MAX_DEPTH - 2)
@example(MAX_DEPTH - 1)
def test_json_too_deep_for_readers_does_not_enter(levels: int) -> None:
    """Readers accept two hundred levels: people's messages are refused before, a provider's extra fields left out."""
    block = {"type": "text", "text": "x", "deep": nested(levels)}
    thread = loaded_thread()
    fits = levels <= MAX_DEPTH - 2
    assert thread.say([block]) == ("queued" if fits else "malformed")
    message = {"content": [block, {"type": "text", "text": "y"}], "reasoning": nested(levels + 1)}
    body = json.dumps({"choices": [{"message": message}]}).encode()
    reply = read_reply(body, spec=agent_spec(), tools={}, step_id="s").message
    assert reply is not None
    thread.reply(LLMReply(message=reply))
    through_json(RunInput(snapshot=thread.run._archiving.recorded.model_copy(update={"tail": tuple(thread.log)})))


def test_an_invalid_task_fails_the_run_with_a_reason() -> None:
    """A number that is invalid in JSON: the run fails with a typed error, and its log can be read."""
    begin = RunInput(task=[{"type": "text", "text": "x", "share": float("nan")}])
    run = AgentRun(begin, thread="t", run_id="r", first_run_id="r", at=NOW, started_at=NOW)
    assert (run.state.outcome, run.state.failure) == ("failed", TASK_MALFORMED)
    assert "give it as text" in run.state.result
    assert read_lines("t", 0, run.log.page(0).split(b"\n"))[-1] == run.log.events[-1]


def test_a_text_reply_is_one_event_with_its_text() -> None:
    """The LLM's text is in the log, and in the next request."""
    thread = loaded_thread(idle_limit=60)
    thread.reply(LLMReply(message=AssistantMessage(content="hello 😀")))
    (event,) = [event for event in thread.log if isinstance(event, LLMReplied)]
    assert event.message is not None
    assert event.message.content == "hello 😀"
    thread.say("more")
    assert [message["content"] for message in thread.messages()] == ["the task", "hello 😀", "more"]
    assert isinstance(thread.log[1], UserMessageReceived)
