"""The model server of `bench.llm` with a log of calls, each reported as soon as it is answered.

Run as a program, it prints its port, then a line for each call: its step, and its arrival time (`time.monotonic`).
With two arguments, tokens and seconds, it writes so many tokens of text before each answer, one in so many seconds, and
streams them to clients that ask for it. A token is `STEP.NUMBER@TIME`, the time at which it is sent.
"""

import asyncio
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.llm import reply

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_ASKED = re.compile(rb'"id": "call_(\d+)"')
_STREAMED = re.compile(rb'"stream": ?true')
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
)
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"


@dataclass(frozen=True)
class Pace:
    """The text before each answer."""

    tokens: int = 0
    seconds: float = 0.0
    """From one token to the next."""


@dataclass(frozen=True)
class Call:
    """One model call."""

    step: int
    """The step requested by the answer; 0 if there is none: at the end, and for a summary."""
    arrived: float
    """Seconds of `time.monotonic`, a clock that all processes of a machine share."""


class ModelServer:
    """The benchmark's view of a running model server."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdout is not None
        self._lines = process.stdout
        port = self._lines.readline().decode().strip()
        if not port:
            raise RuntimeError(f"the model server ended while starting, with exit code {process.wait()}")
        self.url = f"http://127.0.0.1:{port}/v1"
        self.calls: list[Call] = []
        """Every call so far, in order."""
        self._changed = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def wait_for(self, number: int, *, timeout: float) -> bool:
        """Wait until that many calls have been answered; return False after the time-out."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self.calls) >= number, timeout)

    def _read(self) -> None:
        for line in self._lines:
            step, arrived = line.split()
            with self._changed:
                self.calls.append(Call(int(step), float(arrived)))
                self._changed.notify_all()


@contextmanager
def serve_model(pace: Pace = Pace()) -> Iterator[ModelServer]:
    """Run the server during the block."""
    argv = [sys.executable, "-m", "bench.peers.llm", str(pace.tokens), str(pace.seconds)]
    root = Path(__file__).resolve().parent.parent.parent
    # As in `bench.llm`, it ends when its input is closed.
    with subprocess.Popen(
        argv, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        yield ModelServer(process)
        assert process.stdin is not None
        process.stdin.close()


def step_of(answer: bytes) -> int:
    """Return the step requested by an answer; 0 if there is none."""
    asked = _ASKED.search(answer)
    return int(asked[1]) if asked else 0


def token(step: int, number: int) -> str:
    """Return a token that is sent now."""
    return f"{step}.{number}@{time.monotonic():.6f} "


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pace: Pace) -> None:
    """Serve one keep-alive connection."""
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = _LENGTH.search(head)
            body = await reader.readexactly(int(length[1]) if length else 0)
            arrived = time.monotonic()
            answer = reply(body)
            step = step_of(answer)
            if _STREAMED.search(body):
                await _stream(writer, json.loads(answer), step, pace)
            else:
                if pace.tokens:
                    answer = await _write_text(json.loads(answer), step, pace)
                writer.write(_HEAD % len(answer) + answer)
                await writer.drain()
            print(step, arrived, flush=True)
    except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
        writer.close()  # the worker disconnected or was killed, or this server ends


async def _write_text(answer: dict[str, Any], step: int, pace: Pace) -> bytes:
    """Return the whole answer once its text is written."""
    text = ""
    for number in range(pace.tokens):
        text += token(step, number)
        await asyncio.sleep(pace.seconds)
    answer["choices"][0]["message"]["content"] = text
    return json.dumps(answer).encode()


async def _stream(writer: asyncio.StreamWriter, answer: dict[str, Any], step: int, pace: Pace) -> None:
    """Send the answer in chunks, each token of its text as it is written."""
    message = answer["choices"][0]["message"]
    calls = [{"index": n, **call} for n, call in enumerate(message.get("tool_calls") or ())]
    common = {key: answer[key] for key in ("id", "created", "model")} | {"object": "chat.completion.chunk"}

    async def send(delta: dict[str, Any], finish_reason: str | None = None, usage: Any = None) -> None:
        choices = [] if usage else [{"index": 0, "delta": delta, "finish_reason": finish_reason}]
        await _send(writer, f"data: {json.dumps({**common, 'choices': choices, 'usage': usage})}\n\n".encode())

    writer.write(_STREAM_HEAD)
    await send({"role": "assistant", "content": ""})
    for number in range(pace.tokens):
        await send({"content": token(step, number)})
        await asyncio.sleep(pace.seconds)
    if calls:
        await send({"tool_calls": calls})
    await send({}, "tool_calls" if calls else "stop")
    await send({}, usage=answer["usage"])
    await _send(writer, b"data: [DONE]\n\n")
    writer.write(b"0\r\n\r\n")
    await writer.drain()


async def _send(writer: asyncio.StreamWriter, event: bytes) -> None:
    writer.write(b"%x\r\n%s\r\n" % (len(event), event))
    await writer.drain()


async def _serve(pace: Pace) -> None:
    server = await asyncio.start_server(partial(_answer, pace=pace), "127.0.0.1", 0, limit=2**26)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve(Pace(int(sys.argv[1]), float(sys.argv[2]))))
