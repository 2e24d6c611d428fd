"""An LLM with constant response time: an OpenAI-compatible HTTP server in a separate process.

1. It reads every request to the end but does not parse it. It finds the run's length in the first bytes (`steps=400`
   in the task) and the step in the last ones (the id of the last tool call, or a context summary). With
   `first=100xNAME` in the task, the first reply makes 100 calls of `FIRST[NAME]` and one of `settle`; the steps follow.
2. It keeps connections alive, and asyncio disables Nagle's algorithm.

Run as a program, it prints its port, and ends when its standard input is closed.
"""

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HEAD = 16_384
"""Bytes at the start of a body that contain the task, after the tools."""
TAIL = 4096
"""Bytes at the end of a body that contain the last tool result."""

_STEPS = re.compile(rb"steps=(\d+)")
_CALL = re.compile(rb'"tool_call_id":"call_(\d+)"|Made so far: (\d+)\.')
_USES = re.compile(rb"uses=(\w+)")
_THEN = re.compile(rb"then=(\w+)")
_FIRST = re.compile(rb"first=(\d+)x(\w+)")
_MADE_FIRST = b'"tool_call_id":"first_'
_EVENT = re.compile(rb"event=([\w.-]+)")
FIRST: dict[str, tuple[str, dict[str, object]]] = {
    "rest": ("run_agent", {"agent": "rest", "task": "Answer at once: steps=0"}),
    "wait": ("run_agent", {"agent": "wait", "task": "Have it approved: steps=0 then=pay", "background": True}),
    "note": ("note", {"text": "Answer at once: steps=0"}),
}
"""Tool and arguments of the calls in a first reply, by the name in the task."""
_SUMMARIZE = b"Reply with the summary only; call no tool."
"""The end of Holdfast's request for a context summary (`holdfast.core.run.rules.compaction.INSTRUCTION`)."""
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


def reply(body: bytes | bytearray) -> bytes:
    """Return the response's body: another tool call, until the run has made all its steps."""
    length = _STEPS.search(body[:HEAD])
    answered = ["".join(map(bytes.decode, groups)) for groups in _CALL.findall(body[-TAIL:])]
    step = int(answered[-1]) + 1 if answered else 1
    message: dict[str, object] = {"role": "assistant", "content": "All steps are made."}
    if _SUMMARIZE in body[-200:]:
        message["content"] = f"Made so far: {step - 1}."
    elif not answered and (first := _FIRST.search(body[:HEAD])) and _MADE_FIRST not in body[-TAIL:]:
        tool, first_arguments = FIRST[first[2].decode()]
        function: dict[str, str] = {"name": tool, "arguments": json.dumps(first_arguments)}
        first_calls = [{"id": f"first_{n}", "type": "function", "function": function} for n in range(int(first[1]))]
        first_calls.append({"id": "first_last", "type": "function", "function": {"name": "settle", "arguments": "{}"}})
        message = {"role": "assistant", "content": None, "tool_calls": first_calls}
    elif (name := _tool(body, step, int(length[1]) if length else 0)) is not None:
        event = _EVENT.search(body[:HEAD])
        arguments = {"name": event[1].decode()} if event and name == "wait_for_event" else {"n": step}
        function = {"name": name, "arguments": json.dumps(arguments)}
        calls = [{"id": f"call_{step}", "type": "function", "function": function}]
        message = {"role": "assistant", "content": None, "tool_calls": calls}
    answer = {
        "id": "chatcmpl-bench",
        "object": "chat.completion",
        "created": 0,
        "model": "bench",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": len(body) // 4, "completion_tokens": 20, "total_tokens": len(body) // 4 + 20},
    }
    return json.dumps(answer).encode()


def _tool(body: bytes | bytearray, step: int, length: int) -> str | None:
    """Return the tool to call: `observe`, or the one in `uses=act`; after the last step, the one in `then=pay`."""
    if step <= length:
        uses = _USES.search(body[:HEAD])
        return uses[1].decode() if uses else "observe"
    then = _THEN.search(body[:HEAD])
    return then[1].decode() if then and step == length + 1 else None


class _Connection(asyncio.Protocol):
    """One keep-alive connection."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._start = 0
        """The start of the body; 0 until the header is complete."""
        self._end = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while self._complete():
            body = reply(self._received[self._start : self._end])
            head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
            self._transport.write(head + body)
            del self._received[: self._end]
            self._start = self._end = 0

    def _complete(self) -> bool:
        if not self._start:
            end = self._received.find(b"\r\n\r\n")
            if end < 0:
                return False
            length = _LENGTH.search(self._received, 0, end)
            self._start = end + 4
            self._end = self._start + (int(length[1]) if length else 0)
        return len(self._received) >= self._end


@contextmanager
def serve_llm() -> Iterator[str]:
    """Run the server during the block.

    Yields:
        Its base URL.
    """
    argv = [sys.executable, "-m", __name__]
    root = Path(__file__).resolve().parent.parent
    # In its own session, out of reach of Ctrl-C in the terminal: it ends when its input is closed.
    with subprocess.Popen(
        argv, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        port = process.stdout.readline().decode().strip()
        if not port:
            raise RuntimeError(f"the LLM server ended while starting, with exit code {process.wait()}")
        yield f"http://127.0.0.1:{port}/v1"


async def _serve() -> None:
    server = await asyncio.get_running_loop().create_server(_Connection, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve())
