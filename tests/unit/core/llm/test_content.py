"""Content stays unchanged: every block, byte for byte, from the event through the record to the LLM."""

import base64
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.activities.llm_calls.llm_replies import read_reply
from holdfast.client.start_options import check_task
from holdfast.core.authority.interventions import read_message
from holdfast.core.base.canonical import MAX_DEPTH, MAX_INTEGER, canonical
from holdfast.core.llm.blocks import ImageBlock, TextBlock
from holdfast.core.llm.messages import AssistantMessage, Usage, UserMessage, content_json, decode, encode, read_content
from holdfast.core.log.event_log import EventLog, event_line
from holdfast.core.log.events import AgentEvent, LLMReplied, UserMessageReceived
from holdfast.core.log.stored_lines import read_lines, run_events
from holdfast.core.log.upcasters import decode_event
from holdfast.core.run.contracts.error_types import TASK_MALFORMED
from holdfast.core.run.contracts.llm_calls import LLMReply
from holdfast.core.run.contracts.runs import RunInput
from holdfast.core.run.contracts.tool_calls import ToolOutcome
from holdfast.core.run.machine.machine import AgentRun
from holdfast.core.tools.results import result_text
from holdfast.core.transcript.transcript import Transcript
from holdfast.errors import TaskInvalid
from tests.support.runs import ADAPTER, NOW, agent_spec, loaded_thread, through_json

PIXEL = base64.b64encode(bytes(range(256))).decode()
BLOCKS: dict[str, dict[str, Any]] = {
    "text": {"type": "text", "text": "naïve 😀 日本語 \u2028 \x00 \x1f"},
    "image by URL": {"type": "image", "url": "https://example.com/a.png?b=1&c=%20", "detail": "low"},
    "image in base64": {"type": "image", "data": PIXEL, "media_type": "image/png"},
    "image by a provider's id": {"type": "image", "provider": {"issuer": "responses", "data": {"file_id": "f"}}},
    "audio": {"type": "audio", "data": PIXEL, "media_type": "audio/wav"},
    "file": {"type": "file", "data": PIXEL, "media_type": "application/pdf", "name": "ä.pdf"},
}
EXTRAS: dict[str, Any] = {
    "reasoning_content": "hm … 😀",
    "reasoning_details": [{"type": "reasoning.encrypted", "data": PIXEL, "index": 0, "score": 0.1}],
}
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-MAX_INTEGER, MAX_INTEGER)
    | st.floats(-MAX_INTEGER, MAX_INTEGER)
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
    return run_events("t", read_lines("t", 0, lines))


def messages_of(events: list[AgentEvent]) -> list[bytes]:
    """Return the encoded transcript."""
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
def test_a_block_of_a_persons_message_reaches_the_llm_unchanged(name: str) -> None:
    """A block stays the same in a task and in a follow-up, in the run, in the next Temporal run, and rebuilt from the
    record.
    """
    values = [BLOCKS["text"], BLOCKS[name]]
    content = read_content(values)
    assert content_json(content) == values
    thread = loaded_thread(task=content)
    assert thread.messages()[0] == {"role": "user", "content": values}
    assert thread.say(values, when_busy="interrupt") == "interrupting"
    wire = json.loads(ADAPTER.encode(UserMessage(content=content)))
    assert json.loads(thread.sent[-1].body)["messages"][1:] == 2 * [wire]
    sent = thread.transcript_lines()
    assert sent == messages_of(from_record(thread.log))
    assert sent == 2 * [encode(UserMessage(content=content))]
    thread.continue_suggested = True
    thread.reply(LLMReply(rejected="it is empty."))
    while not thread.snapshots:
        thread.archive()
    assert thread.transcript_lines()[:2] == sent


def test_one_plain_text_has_one_form() -> None:
    """A list with one text block becomes that text, so that both have one digest."""
    assert read_content([{"type": "text", "text": "hi"}]) == "hi"
    assert read_content([]) == ""
    assert encode(UserMessage(content=(TextBlock(text="hi"),))) == encode(UserMessage(content="hi"))


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ({"type": "hologram", "text": "x"}, "expected tags: 'text', 'image', 'file', 'audio'"),
        ({"type": "image_url", "image_url": {"url": "https://example.com"}}, "image_url"),
        ({"text": "x"}, "0: Unable to extract tag"),
        ({"type": "text"}, "0.text.text: Field required"),
        ({"type": "text", "text": "x", "bold": True}, "0.text.bold: Extra inputs are not permitted"),
        ({"type": "image"}, "give either `url` or `data`"),
        ({"type": "image", "url": "https://example.com", "data": PIXEL, "media_type": "image/png"}, "give either"),
        ({"type": "image", "url": "file:///etc/passwd"}, "begins with https://"),
        ({"type": "image", "data": PIXEL}, "needs a `media_type`"),
        ({"type": "image", "data": "no base64", "media_type": "image/png"}, "not base64"),
        ({"type": "image", "data": PIXEL, "media_type": "image/png\r\nX-Evil: 1"}, "media_type"),
        ({"type": "text", "text": "x", "provider": {"issuer": "x", "data": {"role": "system"}}}, "can issue"),
        ({"type": "tool_call", "id": "1", "name": "pay", "arguments": "{}"}, "tool_call"),
    ],
)
def test_a_block_without_a_form_is_rejected_with_its_location(block: dict[str, Any], words: str) -> None:
    """In follow-up messages and in tasks, no part is dropped silently and none is passed on unchecked."""
    thread = loaded_thread()
    content = [{"type": "text", "text": "look"}, block]
    assert thread.say(content) == "malformed"
    message = read_message({"message": content})
    assert isinstance(message, tuple)
    assert words in message[1].replace(".1.", ".0.").replace("1:", "0:")
    with pytest.raises(TaskInvalid):
        check_task(content)


@given(st.text(), st.dictionaries(st.text(min_size=1), JSON, max_size=3), JSON)
def test_unknown_fields_of_a_reply_survive_the_record(text: str, extra: dict[str, Any], arguments: Any) -> None:
    """Unknown fields of the message and of its calls go back unchanged, and so do the verbatim arguments."""
    extra = {f"x{name}": value for name, value in extra.items() if value not in (None, [], {}, "")}
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": json.dumps(arguments)}, **extra}
    values = {"role": "assistant", "content": text or None, "tool_calls": [call], **EXTRAS, **extra}
    body = json.dumps({"choices": [{"message": values}]}).encode()
    message = read_reply(body, adapter=ADAPTER, spec=agent_spec(), tools={}, step_id="s").message
    assert message is not None
    (line,) = replied(message)
    assert json.loads(ADAPTER.encode(decode(line))) == values


def test_a_lone_surrogate_becomes_a_question_mark_on_entry() -> None:
    """UTF-8 cannot encode it: in replies and tool results it becomes '?'; in people's messages it is rejected."""
    body = b'{"choices": [{"message": {"content": "a\\ud800b", "details": ["\\udfff"]}}]}'
    reply = read_reply(body, adapter=ADAPTER, spec=agent_spec(), tools={}, step_id="s")
    assert reply.message is not None
    assert json.loads(ADAPTER.encode(reply.message)) == {"role": "assistant", "content": "a?b", "details": ["?"]}
    assert ToolOutcome(status="ok", content=result_text("caf\udce9")).content == "caf?"
    thread = loaded_thread()
    assert thread.say("a\ud800b") == "malformed"
    assert thread.say([{"type": "text", "text": "a\ud800b"}]) == "malformed"


def nested(levels: int) -> Any:
    """Return lists nested to this depth."""
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@given(st.integers(1, 400))
@example(MAX_DEPTH - 2)
@example(MAX_DEPTH - 1)
def test_json_too_deep_for_readers_does_not_enter(levels: int) -> None:
    """Readers accept two hundred levels: deeper people's messages are rejected, a provider's extra fields left out."""
    block = {"type": "text", "text": "x", "deep": nested(levels)}
    thread = loaded_thread()
    assert thread.say([block]) == "malformed"
    message = {"content": [block, {"type": "text", "text": "y"}], "details": nested(levels + 1)}
    body = json.dumps({"choices": [{"message": message}]}).encode()
    reply = read_reply(body, adapter=ADAPTER, spec=agent_spec(), tools={}, step_id="s").message
    assert reply is not None
    thread.reply(LLMReply(message=reply))
    through_json(RunInput(snapshot=thread.run._log.archived.model_copy(update={"tail": tuple(thread.log)})))


def test_an_invalid_task_fails_the_run_with_a_reason() -> None:
    """Bytes that are not base64 fail the run with a typed error, and its log stays readable."""
    begin = RunInput(task=(TextBlock(text="x"), ImageBlock(data="?", media_type="image/png")))
    run = AgentRun(begin, thread="t", run_id="r", first_run_id="r", at=NOW, started_at=NOW)
    assert (run.state.outcome, run.state.failure) == ("failed", TASK_MALFORMED)
    assert "is not base64" in run.state.result
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
