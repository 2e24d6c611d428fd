"""The model server of `bench.llm` with a log of calls, each reported as soon as it is answered.

Run as a program, it prints its port, then a line for each call: its step, and its arrival time (`time.monotonic`).
"""

import asyncio
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.llm import reply

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_ASKED = re.compile(rb'"id": "call_(\d+)"')
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"


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
def serve_model() -> Iterator[ModelServer]:
    """Run the server during the block."""
    argv = [sys.executable, "-m", "bench.peers.llm"]
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


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve one keep-alive connection."""
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = _LENGTH.search(head)
            body = await reader.readexactly(int(length[1]) if length else 0)
            arrived = time.monotonic()
            answer = reply(body)
            writer.write(_HEAD % len(answer) + answer)
            await writer.drain()
            print(step_of(answer), arrived, flush=True)
    except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
        writer.close()  # the worker disconnected or was killed, or this server ends


async def _serve() -> None:
    server = await asyncio.start_server(_answer, "127.0.0.1", 0, limit=2**26)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve())
