"""The scripted LLM: an OpenAI-compatible endpoint on loopback that replies according to a script.

    with ScriptedLLM(steps([call("read_file", path="notes.md"), say("Done.")])) as llm:
        client = llm.client()

1. A script is a pure function of the conversation: it survives restarts of the worker and of this server.
2. The server uses real sockets, so that the client, its errors and its time-outs are those of production.
3. `/v1/embeddings` returns vectors for any text, with any script (`holdfast.endpoints.scripted_embeddings`).
"""

import json
import re
import socket
import threading
import traceback
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

from holdfast.endpoints.script import JSON, LLM_NAME, Conversation, Reply, Script, Unparsed, default_script, fail, raw
from holdfast.endpoints.scripted_embeddings import embeddings_reply

if TYPE_CHECKING:
    import openai  # in the extra `worker`, which a process that only serves may lack


@dataclass(frozen=True)
class Request:
    """One request as received."""

    headers: Mapping[str, str]
    """By lower-case name."""
    body: bytes

    def json(self) -> JSON:
        """The body, decoded."""
        decoded: JSON = json.loads(self.body)
        return decoded


class ScriptedLLM:
    """The endpoint. A context manager; or call `start` and `stop`.

    Args:
        script: Computes the replies. Assign the attribute of that name to replace it at any time, such as to start
            or end an outage.
        port: 0 for any free port.
        recorded_requests: The most requests to keep, the newest ones.
        recorded_bytes: The most bytes of requests to keep.
    """

    def __init__(
        self,
        script: Script | Unparsed = default_script,
        *,
        port: int = 0,
        recorded_requests: int = 1_000,
        recorded_bytes: int = 64_000_000,
    ) -> None:
        self.script = script
        self._port = port
        self._most_requests = recorded_requests
        self._most_bytes = recorded_bytes
        self._requests: deque[Request] = deque()
        self._bytes = 0
        self._lock = threading.Lock()
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def base_url(self) -> str:
        """The value for OPENAI_BASE_URL.

        Raises:
            RuntimeError: The server is not running.
        """
        if self._server is None:
            raise RuntimeError("the scripted LLM is not running; call start(), or use it in a `with` statement")
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def client(self) -> "openai.AsyncOpenAI":
        """Return a client of this server, without the environment's proxy, its own retries, and TLS.

        Raises:
            RuntimeError: The server is not running.
        """
        import openai

        from holdfast.endpoints.http_client import http_client

        direct = http_client(self.base_url)
        return openai.AsyncOpenAI(api_key="scripted", base_url=self.base_url, max_retries=0, http_client=direct)

    @property
    def requests(self) -> list[Request]:
        """The recorded requests for a completion, oldest first."""
        with self._lock:
            return list(self._requests)

    def start(self) -> Self:
        """Listen on 127.0.0.1.

        Raises:
            OSError: The port is taken.
        """
        if self._server is None:
            self._server = _Server(self, self._port)
            self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="scripted-llm")
            self._thread.daemon = True
            self._thread.start()
        return self

    def stop(self) -> None:
        """Close every connection and end every thread; does nothing if the server is not running."""
        if self._server is not None and self._thread is not None:
            self._server.stop()
            self._thread.join()
        self._server = self._thread = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def record(self, request: Request) -> None:
        """Keep a request, and drop the oldest ones beyond the limits."""
        with self._lock:
            self._requests.append(request)
            self._bytes += len(request.body)
            while self._requests and (len(self._requests) > self._most_requests or self._bytes > self._most_bytes):
                self._bytes -= len(self._requests.popleft().body)


class _Server(ThreadingHTTPServer):
    """Tracks its connections, so that `stop` can end them."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, llm: ScriptedLLM, port: int) -> None:
        self.llm = llm
        self.stopping = threading.Event()
        self._lock = threading.Lock()
        self._open: dict[threading.Thread, socket.socket] = {}
        super().__init__(("127.0.0.1", port), _Connection)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a connection's thread, registered before it runs: so none can appear after `shutdown`."""
        arguments = (request, client_address)
        thread = threading.Thread(target=self.process_request_thread, args=arguments, name="scripted-llm", daemon=True)
        with self._lock:
            self._open[thread] = request
        thread.start()

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve one connection, in its thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                del self._open[threading.current_thread()]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Do not log clients that disconnected."""

    def stop(self) -> None:
        """Stop listening, then end open connections."""
        self.shutdown()
        self.stopping.set()
        self.server_close()
        with self._lock:
            left = dict(self._open)
        for connection in left.values():
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # closed already
        for thread in left:
            thread.join(5)


class _Connection(BaseHTTPRequestHandler):
    """One client's connection, kept alive for any number of requests."""

    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        """List the one LLM."""
        if self.path.rstrip("/") == "/v1/models":
            listed = {"id": LLM_NAME, "object": "model", "created": 0, "owned_by": "holdfast"}
            self._send(raw({"object": "list", "data": [listed]}), b"")
        else:
            self._send(fail(404, f"no {self.path} here; there is /v1/models, and to POST to /v1/chat/completions"), b"")

    def do_POST(self) -> None:
        """Complete a chat, or embed texts."""
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            self.close_connection = True
            self._send(fail(411, "a request needs a Content-Length"), b"")
            return
        body = self.rfile.read(int(length))
        path = self.path.rstrip("/")
        if path == "/v1/embeddings":
            status, answer = embeddings_reply(body)
            self._send(raw(answer, status=status), body)
            return
        if path != "/v1/chat/completions":
            self._send(fail(404, f"no {self.path} here; there is /v1/chat/completions and /v1/embeddings"), body)
            return
        llm = self.server.llm
        llm.record(Request({name.lower(): value for name, value in self.headers.items()}, body))
        script = llm.script
        try:
            if isinstance(script, Unparsed):
                self._send(script.reply(body), body)
                return
            try:
                conversation = Conversation(json.loads(body))
            except ValueError as error:
                self._send(fail(400, f"the body is not JSON: {error}"), body)
                return
            self._send(_checked(script(conversation)), body, conversation)
        except ConnectionError:
            raise
        except Exception as error:  # report any error of the script in the client's error
            # Not a 5xx: the next attempt would fail like this one.
            self._send(fail(400, f"the script failed: {_summary(error)}"), body)

    def _send(self, reply: Reply, request_body: bytes, conversation: Conversation | None = None) -> None:
        if reply.seconds:
            self.server.stopping.wait(reply.seconds)
        if reply.end != "reply":
            self.close_connection = True
            if reply.end == "hang":
                self.connection.recv(1)  # returns when the client or `stop` ends the connection
            return
        if reply.body is None and conversation is not None and conversation.request.get("stream"):
            self._stream(reply, conversation, request_body)
            return
        body = _encoded(_completion(reply, request_body, conversation)) if reply.body is None else reply.body
        head = [f"HTTP/1.1 {reply.status} {self.responses.get(reply.status, ('Status',))[0]}"]
        head += [f"{name}: {value}" for name, value in reply.headers]
        if not any(name.lower() == "content-type" for name, _ in reply.headers):
            head.append("Content-Type: application/json")
        head += [f"Content-Length: {len(body)}", "", ""]
        self.wfile.write("\r\n".join(head).encode("latin-1") + body)  # one write: one segment, one wake-up

    def _stream(self, reply: Reply, conversation: Conversation, request_body: bytes) -> None:
        options = conversation.request.get("stream_options") or {}
        completion = _completion(reply, request_body, conversation)
        usage = bool(options.get("include_usage"))
        events = list(stream_events(completion, usage=usage))
        finish = len(events) - 2 - usage  # the usage and the end of the stream follow at once
        head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        sent = head.encode()
        for number, event in enumerate(events):
            if reply.pause is not None and 0 < number <= finish:
                self.wfile.write(sent)
                sent = b""
                reply.pause(number)
            sent += b"%x\r\n%s\r\n" % (len(event), event)
        self.wfile.write(sent + b"0\r\n\r\n")


def _checked(reply: object) -> Reply:
    if not isinstance(reply, Reply):
        raise TypeError(f"it returned {reply!r:.100}, which is not a reply: write say(…), call(…) or together(…)")
    return reply


def _summary(error: Exception) -> str:
    """The error, and the line of the script that raised it."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = f" (in {last.filename}, line {last.lineno})" if last.filename != __file__ else ""
    return f"{type(error).__name__}: {error}{place}"


def _completion(reply: Reply, request_body: bytes, conversation: Conversation | None) -> JSON:
    """The body of a completion. Ids depend only on the conversation: the same request gets the same bytes."""
    step = f"{len(request_body):x}" if conversation is None else str(conversation.replies + 1)
    message: JSON = {"role": "assistant", "content": reply.text}
    if reply.calls:
        message["tool_calls"] = [
            {"id": f"call_{step}_{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for number, (name, arguments) in enumerate(reply.calls, 1)
        ]
    finish = reply.finish_reason or ("tool_calls" if reply.calls else "stop")
    return {
        "id": f"chatcmpl-{len(request_body):x}",
        "object": "chat.completion",
        "created": 0,
        "model": LLM_NAME if conversation is None else conversation.llm,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}],
        "usage": _usage(request_body, json.dumps(message)),
    }


def _encoded(value: JSON) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")


def _usage(request_body: bytes, replied: str) -> JSON:
    """Token counts at four bytes per token. The bytes up to the last reply count as cached: the previous request."""
    prompt, completion = len(request_body) // 4 + 1, len(replied) // 4 + 1
    seen = max(request_body.rfind(b'"role":"assistant"'), request_body.rfind(b'"role": "assistant"'), 0)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": seen // 4},
    }


_WORD = re.compile(r"\s*\S+\s*|\s+")


def stream_events(completion: JSON, *, usage: bool = True) -> Iterator[bytes]:
    """Yield the server-sent events of a completion, word by word.

    Args:
        completion: The body of the completion without streaming.
        usage: Whether the usage was asked for.
    """
    (choice,) = completion["choices"]
    message = choice["message"]
    head = {**completion, "object": "chat.completion.chunk"}
    del head["choices"], head["usage"]

    def event(delta: JSON, finish: str | None = None) -> bytes:
        return _event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    yield event({"role": "assistant", "content": ""})
    for word in _WORD.findall(message["content"] or ""):
        yield event({"content": word})
    for index, call in enumerate(message.get("tool_calls", ())):
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        yield event({"tool_calls": [{**call, "index": index, "function": {"name": name, "arguments": ""}}]})
        for word in _WORD.findall(arguments):
            yield event({"tool_calls": [{"index": index, "function": {"arguments": word}}]})
    yield event({}, choice["finish_reason"])
    if usage:
        yield _event({**head, "choices": [], "usage": completion["usage"]})
    yield b"data: [DONE]\n\n"


def _event(value: JSON) -> bytes:
    return b"data: " + _encoded(value) + b"\n\n"
