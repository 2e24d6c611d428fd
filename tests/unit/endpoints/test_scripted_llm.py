"""The scripted LLM behaves like the real API, seen through the real client."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletion

from holdfast.config.settings import Settings
from holdfast.endpoints.client import llm_client
from holdfast.errors import LoadError
from holdfast.testing import (
    Conversation,
    Reply,
    ScriptedLLM,
    Unparsed,
    call,
    call_verbatim,
    cut_off,
    default_script,
    disconnect,
    fail,
    hang,
    raw,
    say,
    slow,
    steps,
    together,
)

USER = {"role": "user", "content": "Hello"}


@pytest.fixture
def llm() -> Iterator[ScriptedLLM]:
    """Start a server."""
    with ScriptedLLM() as llm:
        yield llm


@pytest.fixture
def client(llm: ScriptedLLM) -> Iterator[OpenAI]:
    """Return the real client, without retries."""
    with OpenAI(base_url=llm.base_url, api_key="scripted", max_retries=0, timeout=120) as client:
        yield client


def ask(client: OpenAI, *messages: Any, **options: Any) -> ChatCompletion:
    """Send one request with those messages, or with one."""
    sent_messages: Any = messages or (USER,)
    reply = client.chat.completions.create(model="any", messages=list(sent_messages), **options)
    assert isinstance(reply, ChatCompletion)
    return reply


def test_text(llm: ScriptedLLM, client: OpenAI) -> None:
    """`say` is a complete reply, under the requested model's name."""
    llm.script = steps([say("Hi – ✓")])

    reply = ask(client)

    assert reply.choices[0].message.content == "Hi – ✓"
    assert (reply.choices[0].finish_reason, reply.model) == ("stop", "any")
    assert reply.choices[0].message.tool_calls is None


def test_tool_calls(llm: ScriptedLLM, client: OpenAI) -> None:
    """Several calls come in one reply, each with its own id and its arguments verbatim."""
    llm.script = steps([together(call("look", name="x", deep=True), call_verbatim("send", '{"to": '), text="Looking.")])

    choice = ask(client).choices[0]
    calls = [
        (c.id, c.function.name, c.function.arguments) for c in choice.message.tool_calls or [] if c.type == "function"
    ]

    assert (choice.finish_reason, choice.message.content) == ("tool_calls", "Looking.")
    assert calls == [("call_1_1", "look", '{"name": "x", "deep": true}'), ("call_1_2", "send", '{"to": ')]


def test_steps_follow_the_conversation(llm: ScriptedLLM, client: OpenAI) -> None:
    """The reply depends only on the conversation: in any order, repeatedly, after a restart."""
    llm.script = steps([say("one"), say("two")])
    longer = [USER, {"role": "assistant", "content": "one"}, USER]

    assert ask(client, *longer).choices[0].message.content == "two"
    assert ask(client).choices[0].message.content == "one"
    assert ask(client, *longer).choices[0].message.content == "two"
    with pytest.raises(openai.BadRequestError, match="the script has 2 replies"):
        ask(client, *longer, {"role": "assistant", "content": "two"})


def test_a_script_gets_the_conversation(llm: ScriptedLLM, client: OpenAI) -> None:
    """A script gets the messages, the results since the last reply, the tools and the requested model."""
    seen: list[Conversation] = []

    def script(conversation: Conversation) -> Reply:
        seen.append(conversation)
        return say("")

    llm.script = script
    tool_call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Look"}, {"type": "text", "text": " here"}]},
        {"role": "tool", "tool_call_id": "b", "content": "old"},
        {"role": "assistant", "content": None, "tool_calls": [tool_call]},
        {"role": "tool", "tool_call_id": "c", "content": "first"},
        {"role": "tool", "tool_call_id": "d", "content": "second"},
    ]
    offered = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    ask(client, *messages, tools=[offered])

    assert messages == seen[0].messages
    assert (seen[0].replies, seen[0].results) == (1, ["first", "second"])
    assert (seen[0].llm, seen[0].tools, seen[0].last_user_message) == ("any", ["look"], "Look here")


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, openai.BadRequestError),
        (401, openai.AuthenticationError),
        (404, openai.NotFoundError),
        (429, openai.RateLimitError),
        (500, openai.InternalServerError),
        (503, openai.InternalServerError),
    ],
)
def test_errors(status: int, kind: type[openai.APIStatusError], llm: ScriptedLLM, client: OpenAI) -> None:
    """`fail` is the client's own exception, with code and headers."""
    llm.script = steps([fail(status, "no luck", code="some_code", headers={"Retry-After": "7"})])

    with pytest.raises(kind, match="no luck") as caught:
        ask(client)

    assert (caught.value.code, caught.value.response.headers["retry-after"]) == ("some_code", "7")


def test_a_failing_script_is_located(llm: ScriptedLLM, client: OpenAI) -> None:
    """The error is one line with the location in the script. A screen has no room for a stack trace."""

    def script(conversation: Conversation) -> Reply:
        return conversation.results[7]  # type: ignore[return-value]

    llm.script = script
    with pytest.raises(openai.BadRequestError) as caught:  # not retried: it would fail again
        ask(client)
    line = script.__code__.co_firstlineno + 1
    assert f"the script failed: IndexError: list index out of range (in {__file__}, line {line})" in str(caught.value)
    assert "Traceback" not in str(caught.value)
    llm.script = lambda _: "Hi"  # type: ignore[assignment,return-value]
    with pytest.raises(openai.BadRequestError, match="it returned 'Hi', which is not a reply: write say"):
        ask(client)


def test_a_script_is_a_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of replies, which `holdfast.testing.agent` accepts, is rejected at the start, with the correct form."""
    (tmp_path / "replies_in_a_list.py").write_text("from holdfast.testing import say\nscript = [say('Hi')]\n")
    monkeypatch.chdir(tmp_path)
    settings = Settings.from_env({"HOLDFAST_SCRIPT": "replies_in_a_list:script"}, root=tmp_path)
    with (
        pytest.raises(LoadError, match=r"is a list, not a script.* write steps\("),
        llm_client(settings, dev=True, say=print),
    ):
        pass


def test_cut_off(llm: ScriptedLLM, client: OpenAI) -> None:
    """`cut_off` ends a reply at the length limit."""
    llm.script = steps([cut_off("half a")])

    choice = ask(client).choices[0]

    assert (choice.finish_reason, choice.message.content) == ("length", "half a")


def test_malformed_bodies(llm: ScriptedLLM, client: OpenAI) -> None:
    """`raw` sends any body, without choices or not even JSON."""
    llm.script = steps([raw({"object": "chat.completion"})])
    assert ask(client).choices is None

    llm.script = steps([raw(b"<html>")])
    with pytest.raises(ValueError, match=r"."):
        ask(client)


def test_slow_and_hanging_replies_time_out(llm: ScriptedLLM, client: OpenAI) -> None:
    """A client's time limit ends a slow reply and one that never comes."""
    for reply in (slow(say("late"), 60), hang()):
        llm.script = steps([reply])
        with pytest.raises(openai.APITimeoutError):
            ask(client, timeout=0.1)

    llm.script = steps([slow(say("late"), 0.01)])
    assert ask(client).choices[0].message.content == "late"


def test_disconnect(llm: ScriptedLLM, client: OpenAI) -> None:
    """Closing a connection without a reply is a connection error, and the next request works."""
    llm.script = steps([disconnect()])
    with pytest.raises(openai.APIConnectionError) as caught:
        ask(client)
    assert not isinstance(caught.value, openai.APITimeoutError)

    llm.script = default_script
    assert ask(client).choices


def test_default_script(client: OpenAI) -> None:
    """Without a script, the reply identifies itself and says how to get a real LLM."""
    text = ask(client).choices[0].message.content or ""

    assert all(part in text for part in ("scripted LLM", "'Hello'", "OPENAI_API_KEY", "OPENAI_BASE_URL"))


def test_models(client: OpenAI) -> None:
    """`GET /v1/models` lists one LLM."""
    assert [model.id for model in client.models.list()] == ["scripted"]


def test_a_reply_is_streamed_on_request(llm: ScriptedLLM, client: OpenAI) -> None:
    """The chunks add up to the reply, with the usage if that was asked for."""
    llm.script = steps([together(call("look", at="a b"), text="Two words.")])
    with client.chat.completions.stream(
        model="any", messages=[{"role": "user", "content": "x"}], stream_options={"include_usage": True}
    ) as stream:
        completion = stream.get_final_completion()
    (message,) = [choice.message for choice in completion.choices]
    assert message.content == "Two words."
    assert [each.function.arguments for each in message.tool_calls or ()] == ['{"at": "a b"}']
    assert completion.usage is not None
    assert completion.choices[0].finish_reason == "tool_calls"


def test_other_requests_are_rejected(llm: ScriptedLLM, client: OpenAI) -> None:
    """The endpoint names the unsupported part."""
    with pytest.raises(openai.NotFoundError, match="there is /v1/chat/completions"):
        client.post("/images/generations", body={}, cast_to=object)
    with pytest.raises(openai.NotFoundError, match="there is /v1/models"):
        client.models.retrieve("any")
    with pytest.raises(openai.BadRequestError, match="not JSON"):
        client.post("/chat/completions", content=b"{", cast_to=ChatCompletion)

    assert len(llm.requests) == 1


def test_requests_are_recorded_as_bytes(llm: ScriptedLLM, client: OpenAI) -> None:
    """A test sees the exact bytes that were sent, and the headers."""
    body = json.dumps({"model": "m", "messages": [USER]}, indent=3).encode()
    client.post("/chat/completions", content=body, cast_to=ChatCompletion)

    (request,) = llm.requests

    assert body == request.body
    assert request.json()["messages"] == [USER]
    assert request.headers["authorization"] == "Bearer scripted"


def test_the_record_is_bounded() -> None:
    """The newest requests are kept, within both limits."""
    with (
        ScriptedLLM(recorded_requests=3, recorded_bytes=400) as llm,
        OpenAI(base_url=llm.base_url, api_key="x") as client,
    ):
        for number in range(5):
            ask(client, {"role": "user", "content": str(number)})
        assert [request.json()["messages"][0]["content"] for request in llm.requests] == ["2", "3", "4"]

        ask(client, {"role": "user", "content": "x" * 300})
        assert len(llm.requests) == 1


def test_usage(llm: ScriptedLLM, client: OpenAI) -> None:
    """Usage grows with the request, and the previous request's tokens count as cached."""
    first = ask(client).usage
    second = ask(client, USER, {"role": "assistant", "content": "Hi"}, {"role": "user", "content": "x" * 4000}).usage
    assert first
    assert second
    assert first.prompt_tokens_details
    assert second.prompt_tokens_details

    assert first.prompt_tokens_details.cached_tokens == 0
    assert second.prompt_tokens > 1000 > (second.prompt_tokens_details.cached_tokens or 0) > 0
    assert second.completion_tokens > 0
    assert second.prompt_tokens + second.completion_tokens == second.total_tokens


def test_unparsed(client: OpenAI, llm: ScriptedLLM) -> None:
    """An unparsed script gets bytes, which need not be JSON, and its call ids differ as the conversation grows."""
    llm.script = Unparsed(lambda body: say("end") if body.endswith(b"!") else call("look"))
    ids = []
    for body in (b"not", b"json"):
        reply = client.post("/chat/completions", content=body, cast_to=ChatCompletion)
        ids += [tool_call.id for tool_call in reply.choices[0].message.tool_calls or []]

    assert len(set(ids)) == 2
    assert client.post("/chat/completions", content=b"!", cast_to=ChatCompletion).choices[0].message.content == "end"


def test_equal_requests_get_equal_bytes(client: OpenAI) -> None:
    """A reply does not depend on the clock, on randomness or on earlier requests."""
    body = json.dumps({"messages": [USER]}).encode()
    first, second = (client.post("/chat/completions", content=body, cast_to=ChatCompletion) for _ in range(2))

    assert first == second


def test_connections_are_kept(client: OpenAI) -> None:
    """One client's requests share a connection, errors included."""
    before = threading.active_count()
    ask(client)
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("any")
    for _ in range(20):
        ask(client)

    assert before + 1 == threading.active_count()


@pytest.mark.parametrize("reply", [say(""), hang(), slow(say(""), 60)], ids=["idle", "hanging", "slow"])
def test_stop_ends_everything(reply: Reply) -> None:
    """`stop` ends open connections and their threads; calling it twice is harmless."""
    before = threading.active_count()
    came = threading.Event()

    def script(conversation: Conversation) -> Reply:
        came.set()
        return reply

    llm = ScriptedLLM(script).start()
    with OpenAI(base_url=llm.base_url, api_key="x", max_retries=0, timeout=120) as client:

        def ask_and_forget() -> None:
            try:
                ask(client)
            except openai.APIConnectionError:
                return

        asking = threading.Thread(target=ask_and_forget)
        asking.start()
        assert came.wait(5)
        if reply == say(""):
            asking.join(5)
        llm.stop()
        llm.stop()
        asking.join(5)

    assert before == threading.active_count()
    with pytest.raises(RuntimeError, match=r"call start\(\)"):
        _ = llm.base_url


def test_restart_on_the_same_port() -> None:
    """A test simulates an outage by choosing a port, stopping the server, and starting it there again."""
    with ScriptedLLM() as llm:
        port = int(llm.base_url.split(":")[2].split("/")[0])
        with OpenAI(base_url=llm.base_url, api_key="x", max_retries=0) as client:
            ask(client)
            llm.stop()
            with pytest.raises(openai.APIConnectionError):
                ask(client)
            with ScriptedLLM(port=port):
                assert ask(client).choices
