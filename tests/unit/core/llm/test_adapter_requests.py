"""Requests: their bytes, that each begins with the one before, and the requirements of single APIs."""

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest

from holdfast.core.llm.adapters import Adapter, ToolDescription
from holdfast.core.llm.anthropic_messages import AnthropicMessages
from holdfast.core.llm.blocks import AudioBlock, FileBlock, ImageBlock, ProviderPart, TextBlock, ToolCall
from holdfast.core.llm.chat_completions import ChatCompletions
from holdfast.core.llm.messages import AnyMessage, AssistantMessage, ToolMessage, UserMessage, decode, encode
from holdfast.core.llm.responses import Responses
from tests.support.examples import examples
from tests.support.neutral import Thread, thread
from tests.support.sdk_types import check_message, check_request, sent_messages
from tests.support.values import Wire
from tests.unit.core.llm.test_adapters import ADAPTERS, each_adapter, without_added

THREADS = examples(20, 1_000)
GOLDEN = Path(__file__).parents[2] / "golden"

_LOOK = ToolDescription("look", "Look somewhere.", {"type": "object", "properties": {"z": {}, "a": {}}})


def requests(adapter: Adapter, thread: Thread) -> list[bytes]:
    """Return the requests of a thread's LLM calls."""
    prefix = adapter.prefix("m", {}, [_LOOK], "Work.")
    encoded = [adapter.encode(message) for message in thread.messages]
    return [adapter.body(prefix, encoded[:position]) for position in thread.calls]


@pytest.mark.parametrize("adapter", [ChatCompletions(), Responses()], ids=lambda adapter: adapter.issuer)
def test_each_request_begins_with_the_one_before(adapter: Adapter) -> None:
    """Over a thread of several issuers, a request up to its tail is a prefix of the next one."""
    for seed in range(THREADS):
        for before, after in pairwise(requests(adapter, thread(seed))):
            assert after.startswith(before.removesuffix(b"]}")), seed


def test_each_request_to_anthropic_begins_with_the_one_before() -> None:
    """The blocks of a request begin the next one's, and so do its bytes up to its tail if a reply follows, else up to
    the end of its last turn's blocks.
    """
    adapter = AnthropicMessages()
    replied = 0
    for seed in range(THREADS):
        generated = thread(seed)
        bodies = requests(adapter, generated)
        for position, (before, after) in zip(generated.calls, pairwise(bodies), strict=False):
            first, second = (
                [(turn["role"], block) for turn in json.loads(body)["messages"] for block in turn["content"]]
                for body in (before, after)
            )
            assert second[: len(first)] == first, seed
            reply = generated.messages[position]
            if isinstance(reply, AssistantMessage) and adapter.encode(reply):
                replied += 1
                assert after.startswith(before.removesuffix(b"]}")), seed
            else:
                assert after.startswith(before.removesuffix(b"]}]}")), seed
    assert replied > THREADS


@each_adapter
def test_a_thread_that_is_read_back_from_the_transcript_is_the_same_request(adapter: Adapter) -> None:
    """Every worker sends the same bytes for a thread, whether it has the messages at hand or reads them back."""
    for seed in range(THREADS):
        generated = thread(seed)
        stored = Thread([decode(encode(message)) for message in generated.messages], generated.calls)
        assert requests(adapter, stored) == requests(adapter, generated), seed


@each_adapter
def test_a_thread_of_several_issuers_is_valid_for_the_sdk(adapter: Adapter) -> None:
    """Whichever API replied before, each message of a request is of the SDK's type."""
    for seed in range(THREADS // 5):
        request = json.loads(requests(adapter, thread(seed))[-1], parse_constant=pytest.fail)
        for message in sent_messages(request):
            check_message(adapter.issuer, without_added(message))


def test_the_turns_follow_anthropics_rules() -> None:
    """User turns never follow each other; results of a turn's calls come first in the next, each exactly once; no text
    is blank; ids and names have only characters that the API allows.
    """
    for seed in range(THREADS):
        turns = json.loads(requests(AnthropicMessages(), thread(seed))[-1])["messages"]
        open_calls: list[str] = []
        for before, turn in pairwise([{"role": "assistant"}, *turns]):
            assert (before["role"], turn["role"]) != ("user", "user"), seed
            kinds = [block["type"] for block in turn["content"]]
            results = [block["tool_use_id"] for block in turn["content"] if block["type"] == "tool_result"]
            assert kinds[: len(results)] == ["tool_result"] * len(results), seed
            assert results == open_calls, seed
            open_calls = [block["id"] for block in turn["content"] if block["type"] == "tool_use"]
            assert all(re.fullmatch("[a-zA-Z0-9_-]+", name) for name in open_calls), seed
        assert not re.search(r'"text": "(\\n| )*"', json.dumps(turns)), seed


def test_calls_and_results_of_responses_have_the_same_ids() -> None:
    """Each call's id is at most 64 characters long, and its output has the same id."""
    for seed in range(THREADS):
        items = json.loads(requests(Responses(), thread(seed))[-1])["input"]
        calls = [item["call_id"] for item in items if item["type"] == "function_call"]
        assert calls == [item["call_id"] for item in items if item["type"] == "function_call_output"], seed
        assert all(len(name) <= 64 for name in calls), seed


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        ('{"z": 1, "a": [1.0, null]}', '{"z":1,"a":[1.0,null]}'),
        ('{"cut": "o', None),
        ("[1]", None),
        ("", None),
        ('{"n": NaN}', None),
        ('{"n": 1e999}', None),
        ('{"n": ' + "1" * 5000 + "}", None),
        ('{"a":' * 101 + "1" + "}" * 101, None),
        ('{"a":' * 3000 + "1" + "}" * 3000, None),
        (r'{"a": "\ud800"}', '{"a":"?"}'),
    ],
    ids=range(10),
)
def test_anthropic_gets_arguments_as_an_object(arguments: str, sent: str | None) -> None:
    """Arguments are sent in the LLM's order; text that not every parser reads as an object is wrapped in one."""
    call = ToolCall(id="c", name="look", arguments=arguments)
    wire = AnthropicMessages().encode(AssistantMessage(content=(call,)))
    expected = sent or json.dumps({"arguments": arguments}, separators=(",", ":"))
    assert wire.decode().endswith(f'"input":{expected}}}]}}')


def test_results_precede_what_a_person_said_meanwhile() -> None:
    """Anthropic's turn after calls begins with all their results; an earlier message from a person follows them."""
    adapter = AnthropicMessages()
    thread: list[AnyMessage] = [
        AssistantMessage(content=tuple(ToolCall(id=name, name="look", arguments="{}") for name in "ab")),
        ToolMessage(tool_call_id="a", content="one"),
        UserMessage(content="hurry"),
        ToolMessage(tool_call_id="b", content=" "),
        UserMessage(content=""),
    ]
    _, turn = json.loads(adapter.body(adapter.prefix("m", {}, [], ""), list(map(adapter.encode, thread))))["messages"]
    assert [block.get("tool_use_id") or block["text"] for block in turn["content"]] == [
        "a",
        "b",
        "hurry",
        "[an empty message]",
    ]
    check_message(adapter.issuer, turn)


# Golden bytes.

_REPLIES: dict[str, Wire] = {
    "chat_completions": {
        "choices": [
            {
                "message": {
                    "role": "assistant",
                    "content": "Looking.",
                    "reasoning_content": "Hm.",
                    "tool_calls": [
                        {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"z":1,"a":2}'}}
                    ],
                }
            }
        ]
    },
    "responses": {
        "output": [
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [{"type": "summary_text", "text": "Hm."}],
                "encrypted_content": "gA",
            },
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "phase": "commentary",
                "content": [
                    {"type": "output_text", "text": "Look", "annotations": []},
                    {"type": "output_text", "text": "ing.", "annotations": [], "logprobs": []},
                ],
            },
            {
                "type": "web_search_call",
                "id": "ws_1",
                "status": "completed",
                "action": {"type": "search", "query": "q"},
            },
            {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "look", "arguments": '{"z":1,"a":2}'},
        ]
    },
    "anthropic_messages": {
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "Eq"},
            {"type": "redacted_thinking", "data": "Em"},
            {"type": "text", "text": "Looking."},
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}},
            {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
            {"type": "tool_use", "id": "functions.look:0", "name": "look", "input": {"z": 1, "a": 2}},
        ]
    },
}
"""One reply of each API, in its own format."""

_IMAGE = ImageBlock(data="iVBORw0KGgo=", media_type="image/png")
_SEEN = (TextBlock(text="seen:"), _IMAGE, FileBlock(data="JVBERi0=", media_type="application/pdf", name="a.pdf"))


def golden_threads() -> list[list[AnyMessage]]:
    """Return a short thread, and for each API one that it began."""
    cut_off = ToolCall(id="c1", name="functions.look", arguments='{"a": "cut o')
    short: list[AnyMessage] = [
        UserMessage(content="Grüße"),
        AssistantMessage(content=(cut_off, TextBlock(text="One moment."))),
        ToolMessage(tool_call_id="c1", content="", failed=True),
        UserMessage(content=(TextBlock(text=" "), AudioBlock(url="https://a.example/b.wav", transcript="Hurry."))),
    ]
    threads = [short]
    for adapter in ADAPTERS:
        reply = adapter.decode(_REPLIES[adapter.issuer], ids="step").message
        assert reply is not None
        results = [ToolMessage(tool_call_id=call.id, content=_SEEN) for call in reply.tool_calls]
        threads.append([UserMessage(content=(TextBlock(text="What is this?"), _IMAGE)), reply, *results])
    return threads


@each_adapter
def test_the_bytes_of_requests_stay_as_they_are(adapter: Adapter) -> None:
    """Requests equal those of the golden file, which the SDK accepts: other bytes would miss every provider's cache."""
    prefix = adapter.prefix("m", {"metadata": {"user_id": "u"}}, [_LOOK], "Work.")
    bodies = [adapter.body(prefix, list(map(adapter.encode, thread))) for thread in golden_threads()]
    for body in bodies:
        request = json.loads(body)
        check_request(adapter.issuer, {**request, **_without_added(request)})
    assert b"\n".join(bodies) + b"\n" == (GOLDEN / f"{adapter.issuer}.jsonl").read_bytes()


def _without_added(request: Wire) -> Wire:
    if "input" in request:
        return {}
    return {"messages": [without_added(message) for message in request["messages"]]}


@each_adapter
def test_calls_can_be_forbidden(adapter: Adapter) -> None:
    """The tail forbids calls if there are tools; the rest of the request stays the same."""
    messages = [adapter.encode(UserMessage(content="hi"))]
    with_tools, without_tools = (adapter.prefix("m", {}, tools, '"tools":') for tools in ([_LOOK], []))
    forbidden, allowed = (adapter.body(with_tools, messages, calls=calls) for calls in (False, True))
    check_request(adapter.issuer, json.loads(forbidden))
    assert "none" in str(json.loads(forbidden)["tool_choice"])
    assert forbidden.startswith(allowed.removesuffix(b"]}"))
    assert "tool_choice" not in json.loads(adapter.body(without_tools, messages, calls=False))


@pytest.mark.parametrize(
    ("adapter", "field"),
    [(Responses(), "include"), (Responses(), "store"), (AnthropicMessages(), "cache_control")],
    ids=lambda value: value if isinstance(value, str) else value.issuer,
)
def test_options_replace_an_adapters_own_fields(adapter: Adapter, field: str) -> None:
    """An option replaces the adapter's own value of a field; None leaves the field out."""
    head = json.loads(adapter.body(adapter.prefix("m", {}, [], ""), []))
    assert head[field] is not None
    assert json.loads(adapter.body(adapter.prefix("m", {field: "x"}, [], ""), []))[field] == "x"
    assert field not in json.loads(adapter.body(adapter.prefix("m", {field: None}, [], ""), []))


@pytest.mark.parametrize("adapter", [Responses(), AnthropicMessages()], ids=lambda adapter: adapter.issuer)
def test_tools_of_the_provider_precede_the_agents(adapter: Adapter) -> None:
    """Tools in the options, which the provider runs itself, are sent with the agent's."""
    search = {"type": "web_search"}
    prefix = adapter.prefix("m", {"tools": [search]}, [_LOOK], "")
    assert [tool.get("name") for tool in json.loads(adapter.body(prefix, []))["tools"]] == [None, "look"]
    assert json.loads(adapter.body(adapter.prefix("m", {"tools": [search]}, [], ""), []))["tools"] == [search]


def test_media_that_a_provider_stores_go_back_by_its_id() -> None:
    """An image or file by a provider's id is sent to that provider; others get a text instead."""
    issued: dict[str, tuple[Wire, Wire]] = {
        "chat_completions": ({"file_id": "f1"}, {"type": "file", "file": {"file_id": "f1"}}),
        "responses": ({"file_id": "f1"}, {"type": "input_file", "file_id": "f1"}),
        "anthropic_messages": (
            {"source": {"type": "file", "file_id": "f1"}},
            {"type": "document", "source": {"type": "file", "file_id": "f1"}},
        ),
    }
    for adapter in ADAPTERS:
        for issuer, (data, wire) in issued.items():
            message = UserMessage(content=(FileBlock(provider=ProviderPart(issuer=issuer, data=data)),))
            (sent,) = json.loads(b"[" + adapter.encode(message) + b"]")
            check_message(adapter.issuer, sent)
            if issuer == adapter.issuer:
                assert sent["content"] == [wire]
            else:
                assert "[file: it cannot be shown here]" in str(sent)
