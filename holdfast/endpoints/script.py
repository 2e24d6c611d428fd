"""Scripts: the replies of the scripted LLM, as a pure function of the conversation.

    script = steps([together(call("read_file", path="a"), call("read_file", path="b")), say("Read both.")])

Because it is pure, a script survives restarts of the worker and of the server.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

JSON = dict[str, Any]
LLM_NAME = "scripted"
"""The name under which `GET /v1/models` lists the scripted LLM; it accepts any name."""


@dataclass(frozen=True)
class Conversation:
    """The input of a script: the request, and nothing else."""

    request: JSON
    """The request's body."""

    @cached_property
    def messages(self) -> list[JSON]:
        """The messages, the system message included."""
        return list(self.request.get("messages", []))

    @property
    def llm(self) -> str:
        """The LLM asked for."""
        return str(self.request.get("model", LLM_NAME))

    @property
    def tools(self) -> list[str]:
        """Names of the tools on offer."""
        return [tool["function"]["name"] for tool in self.request.get("tools", [])]

    @cached_property
    def replies(self) -> int:
        """The number of assistant messages in the conversation."""
        return sum(message.get("role") == "assistant" for message in self.messages)

    @property
    def results(self) -> list[str]:
        """The tool results since the last reply, in order."""
        fresh: list[str] = []
        for message in reversed(self.messages):
            if message.get("role") == "assistant":
                break
            if message.get("role") == "tool":
                fresh.append(_text(message))
        return fresh[::-1]

    @property
    def last_user_message(self) -> str:
        """The last user message; empty if there is none."""
        return next((_text(message) for message in reversed(self.messages) if message.get("role") == "user"), "")


def _text(message: JSON) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(str(block.get("text", "")) for block in content)


@dataclass(frozen=True)
class Reply:
    """The server's reaction to one request. The functions below build it."""

    text: str | None = None
    calls: tuple[tuple[str, str], ...] = ()
    """Tool calls: name, and arguments verbatim."""
    finish_reason: str | None = None
    """None for `tool_calls` or `stop`, as fits."""
    body: bytes | None = None
    """The complete body, verbatim, instead of a completion."""
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    seconds: float = 0
    """How long the server waits before it replies."""
    pause: Callable[[int], object] | None = None
    """If the reply is streamed: called before each further piece, with its number, and may block."""
    end: Literal["reply", "hang", "disconnect"] = "reply"


Script = Callable[[Conversation], Reply]
"""Returns the reply to a conversation. It must not keep state between calls."""


@dataclass(frozen=True)
class Unparsed:
    """A script that gets the raw bytes of a request: without parsing, each request costs the same."""

    reply: Callable[[bytes], Reply]


def say(text: str) -> Reply:
    """A reply of text, and no tool calls."""
    return Reply(text=text)


def call(name: str, /, **arguments: Any) -> Reply:
    """A reply that calls one tool; `together` combines several."""
    return Reply(calls=((name, json.dumps(arguments, ensure_ascii=False)),))


def call_verbatim(name: str, arguments: str) -> Reply:
    """A call whose arguments are any text, such as truncated JSON."""
    return Reply(calls=((name, arguments),))


def together(*calls: Reply, text: str | None = None) -> Reply:
    """One reply that makes all those calls in parallel, and says `text` as well."""
    return Reply(text=text, calls=tuple(each for reply in calls for each in reply.calls))


def cut_off(text: str) -> Reply:
    """A reply of text that ends at the length limit."""
    return Reply(text=text, finish_reason="length")


def raw(payload: JSON | bytes, *, status: int = 200) -> Reply:
    """A verbatim body, such as a completion without choices, or bytes that are not JSON."""
    return Reply(body=payload if isinstance(payload, bytes) else json.dumps(payload).encode(), status=status)


def fail(status: int, message: str, *, code: str | None = None, headers: Mapping[str, str] | None = None) -> Reply:
    """An error in the API's format: 401, 404, 429 with `headers={"Retry-After": "1"}`, 500."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    error = {"message": message, "type": kind, "param": None, "code": code}
    return replace(raw({"error": error}, status=status), headers=tuple((headers or {}).items()))


def slow(reply: Reply, seconds: float) -> Reply:
    """The same reply, delayed by that many seconds."""
    return replace(reply, seconds=seconds)


def paced(reply: Reply, seconds: float) -> Reply:
    """The same reply; if it is streamed, with that many seconds before each further word."""
    return replace(reply, pause=lambda number: time.sleep(seconds))


def hang() -> Reply:
    """No reply: the connection stays open until the client or the server ends it."""
    return Reply(end="hang")


def disconnect() -> Reply:
    """No reply: the connection is closed."""
    return Reply(end="disconnect")


def steps(replies: Sequence[Reply]) -> Script:
    """A script that gives the replies in order: the next one when the conversation has those before it.

    A conversation that continues after the last reply gets a 400 that says so. An error among the replies is repeated
    on every retry, because the conversation does not advance: replace `ScriptedLLM.script` to end it.
    """
    fixed = tuple(replies)

    def script(conversation: Conversation) -> Reply:
        if conversation.replies < len(fixed):
            return fixed[conversation.replies]
        return fail(400, f"the script has {len(fixed)} replies, and this conversation has had all of them")

    return script


def default_script(conversation: Conversation) -> Reply:
    """The reply of a worker without a key: that no LLM is configured, and how to configure one."""
    return say(
        "This is Holdfast's scripted LLM: no API key is set, so no LLM has read "
        f"{conversation.last_user_message[:200]!r}. Set OPENAI_API_KEY (and OPENAI_BASE_URL, for an endpoint other "
        "than OpenAI's) and start the worker again; the run and everything in it stay as they are."
    )
