"""A server of the three APIs on loopback: it checks requests with the SDKs' types, and builds replies from them."""

import json
import re
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

from openai.types import chat, completion_usage, responses
from openai.types.chat import chat_completion, chat_completion_message_function_tool_call
from openai.types.responses import response_reasoning_item, response_usage

from holdfast.config.settings import Settings
from holdfast.endpoints.scripted_server import stream_events
from tests.support.sdk_types import check_request
from tests.support.values import Wire
from tests.support.wire_streams import EVENTS, encoded

ROUTES = {
    "/v1/chat/completions": "chat_completions",
    "/v1/responses": "responses",
    "/v1/messages": "anthropic_messages",
}


@dataclass(frozen=True)
class Answer:
    """What a server sends: a reply of its API, or an error."""

    text: str = ""
    call: tuple[str, Wire] | None = None
    """A tool and its arguments."""
    status: int = 200
    message: str = "no"
    """Of an error."""
    headers: Wire = field(default_factory=dict)
    pause: bool = False
    """Pause the turn, after a search of the provider's own (Messages API)."""
    hang: bool = False
    """Close the connection without an answer."""
    streams: bool | None = None
    """Whether to stream; None to do as the request asks."""
    breaks: int = 0
    """If streamed: send only so many events; 0 for all."""
    error: bool = False
    """If it breaks off: report an error at the end."""
    held: Callable[[], None] = lambda: None
    """If streamed: called before the last event, or before the break."""


@dataclass(frozen=True)
class Received:
    """A request."""

    api: str
    headers: Wire
    body: bytes

    @property
    def json(self) -> Wire:
        """The body, decoded."""
        decoded: Wire = json.loads(self.body)
        return decoded


Script = Callable[[Received], Answer]


class FakeLLMs(AbstractContextManager["FakeLLMs"]):
    """The server. `answers` maps each API to its answers in order, or to a function of the request."""

    def __init__(self, **answers: Sequence[Answer] | Script) -> None:
        self.answers: dict[str, list[Answer] | Script] = {
            api: given if callable(given) else list(given) for api, given in answers.items()
        }
        self.received: list[Received] = []
        self.problems: list[str] = []
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        assert not self.problems, self.problems

    @property
    def root(self) -> str:
        """The server's address."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def of(self, api: str) -> list[Received]:
        """Return the requests of an API."""
        return [each for each in self.received if each.api == api]

    def settings(self, **more: str) -> Settings:
        """Return settings whose endpoints are this server."""
        environ = {
            "OPENAI_API_KEY": "sk-openai-key-0000",
            "OPENAI_BASE_URL": f"{self.root}/v1",
            "ANTHROPIC_API_KEY": "sk-ant-key-11111",
            "ANTHROPIC_BASE_URL": self.root,
            **more,
        }
        return Settings.from_env(environ, root=Path("/nowhere"))

    def answer(self, received: Received) -> Answer:
        """Return the answer to a request, which must be valid."""
        self.received.append(received)
        try:
            check_request(received.api, received.json)
        except Exception as error:
            self.problems.append(f"{received.api}: {error}")
        answers = self.answers.get(received.api, [])
        if callable(answers):
            return answers(received)
        return answers.pop(0) if answers else Answer(status=418, message="no answer is left")


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, llms: FakeLLMs) -> None:
        self.llms = llms
        super().__init__(("127.0.0.1", 0), _Connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Do not log clients that disconnected."""


class _Connection(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""

    def do_POST(self) -> None:
        """Answer."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        api = ROUTES.get(self.path)
        if api is None:
            self.server.llms.problems.append(f"no {self.path} here")
            self.send_error(404)
            return
        answer = self.server.llms.answer(Received(api, headers, body))
        if answer.hang:
            self.close_connection = True
            return
        request = json.loads(body)
        if answer.status == 200 and (request.get("stream") if answer.streams is None else answer.streams):
            self._stream(api, answer, request)
            return
        sent = _reply(api, answer, request) if answer.status == 200 else {"error": {"message": answer.message}}
        encoded = json.dumps(sent).encode()
        self.send_response(answer.status)
        for name, value in {"request-id": "req_1", **answer.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(encoded)))
        self.end_headers()
        self.wfile.write(encoded)

    def _stream(self, api: str, answer: Answer, request: Wire) -> None:
        self.send_response(200)
        self.send_header("request-id", "req_1")
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        events = _events(api, _reply(api, answer, request))
        sent = events[: answer.breaks or None]
        for number, event in enumerate(sent, 1):
            if number == len(events):
                answer.held()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
        if answer.breaks:
            answer.held()
            error = b'event: error\ndata: {"type": "error", "error": {"message": "overloaded"}}\n\n'
            if not answer.error:
                self.close_connection = True
                return
            self.wfile.write(b"%x\r\n%s\r\n" % (len(error), error))
        self.wfile.write(b"0\r\n\r\n")


def _events(api: str, reply: Wire) -> list[bytes]:
    if api == "chat_completions":
        return list(stream_events(reply))
    return [encoded(event) for event in EVENTS[api.partition("_")[0]](reply, _words)]


def _words(text: str) -> list[str]:
    return re.findall(r"\S+\s*|\s+", text)


def _reply(api: str, answer: Answer, request: Wire) -> Wire:
    number = len(request.get("messages") or request.get("input") or ())
    build = {"chat_completions": _chat, "responses": _responses, "anthropic_messages": _messages}[api]
    return build(answer, number, request["model"])


def _chat(answer: Answer, number: int, model: str) -> Wire:
    calls: Any = None
    if answer.call:
        name, arguments = answer.call
        function = chat_completion_message_function_tool_call.Function(name=name, arguments=json.dumps(arguments))
        calls = [chat.ChatCompletionMessageFunctionToolCall(id=f"call_{number}", type="function", function=function)]
    called = {"tool_calls": calls} if calls else {}
    message = chat.ChatCompletionMessage(role="assistant", content=answer.text or None, **called)
    reply = chat.ChatCompletion(
        id="chatcmpl-1",
        object="chat.completion",
        created=1,
        model=model,
        choices=[chat_completion.Choice(index=0, finish_reason="tool_calls" if calls else "stop", message=message)],
        usage=completion_usage.CompletionUsage(prompt_tokens=100, completion_tokens=10, total_tokens=110),
    )
    return reply.model_dump(mode="json", exclude_unset=True)


def _responses(answer: Answer, number: int, model: str) -> Wire:
    summary = response_reasoning_item.Summary(type="summary_text", text="Hm.")
    items: list[Any] = [
        responses.ResponseReasoningItem(
            id=f"rs_{number}", type="reasoning", summary=[summary], encrypted_content=f"sealed-by-{model}-{number}"
        )
    ]
    if answer.text:
        part = responses.ResponseOutputText(type="output_text", text=answer.text, annotations=[])
        items.append(
            responses.ResponseOutputMessage(
                id=f"msg_{number}", type="message", role="assistant", status="completed", content=[part]
            )
        )
    if answer.call:
        name, arguments = answer.call
        items.append(
            responses.ResponseFunctionToolCall(
                id=f"fc_{number}",
                type="function_call",
                call_id=f"call_{number}",
                name=name,
                arguments=json.dumps(arguments),
                status="completed",
            )
        )
    usage = response_usage.ResponseUsage(
        input_tokens=100,
        input_tokens_details=response_usage.InputTokensDetails(cached_tokens=60, cache_write_tokens=0),
        output_tokens=10,
        output_tokens_details=response_usage.OutputTokensDetails(reasoning_tokens=5),
        total_tokens=110,
    )
    reply = responses.Response(
        id="resp_1",
        object="response",
        created_at=1,
        model=model,
        output=items,
        parallel_tool_calls=True,
        tool_choice="auto",
        tools=[],
        status="completed",
        usage=usage,
    )
    return reply.model_dump(mode="json", exclude_none=True, by_alias=True)


def _messages(answer: Answer, number: int, model: str) -> Wire:
    from anthropic import types as anthropic  # when it is needed: it takes longer than all other imports of a test

    blocks: list[Any] = [
        anthropic.ThinkingBlock(type="thinking", thinking="Hm.", signature=f"signed-by-{model}-{number}")
    ]
    if answer.text:
        blocks.append(anthropic.TextBlock(type="text", text=answer.text))
    if answer.pause:
        query: Wire = {"query": f"search {number}"}
        blocks.append(
            anthropic.ServerToolUseBlock(
                type="server_tool_use",
                id=f"srvtoolu_{number}",
                name="web_search",
                input=query,
                caller=anthropic.DirectCaller(type="direct"),
            )
        )
    if answer.call:
        name, arguments = answer.call
        blocks.append(anthropic.ToolUseBlock(type="tool_use", id=f"toolu_{number}", name=name, input=arguments))
    usage = anthropic.Usage(
        input_tokens=40, cache_read_input_tokens=50, cache_creation_input_tokens=10, output_tokens=10
    )
    reply = anthropic.Message(
        id="msg_1",
        type="message",
        role="assistant",
        model=model,
        content=blocks,
        stop_reason="pause_turn" if answer.pause else "tool_use" if answer.call else "end_turn",
        usage=usage,
    )
    return reply.model_dump(mode="json", exclude_unset=True)
