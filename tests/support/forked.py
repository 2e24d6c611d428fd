"""Run `starter.py`, `worker.py` or `python -c` to its end, in forked processes that skip the imports.

A server process imports them once and forks a child for each run: the same code, arguments, environment, folder and
exit code as in a new process, but saves a second or two of CPU time each. A test of how a process starts uses a
real one.
"""

import array
import atexit
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).parents[2]
SECONDS = 120.0


@dataclass(frozen=True)
class Ended:
    """The result of a process that has ended."""

    code: int
    out: bytes
    err: bytes


def run(
    program: str, words: Sequence[str], *, environ: Mapping[str, str], folder: Path = ROOT, stdin: int | None = None
) -> Ended:
    """Run `starter`, `worker` or `-c` with its code to its end; its standard input is that open file, or empty.

    Raises:
        TimeoutError: It did not end in time and was killed.
    """
    request = {"program": program, "words": list(words), "environ": dict(environ), "folder": str(folder)}
    with (
        socket.socket(socket.AF_UNIX) as connection,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
        Path(os.devnull).open("rb") as nothing,
    ):
        connection.settimeout(SECONDS)
        connection.connect(_server())
        files = array.array("i", [nothing.fileno() if stdin is None else stdin, out.fileno(), err.fileno()])
        connection.sendmsg([b"!"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
        connection.sendall(json.dumps(request).encode() + b"\n")
        answer = b""
        while part := connection.recv(100):
            answer += part
        pid, code = (int(word) for word in answer.split())
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # the processes that it left behind
        out.seek(0)
        err.seek(0)
        return Ended(code, out.read(), err.read())


@cache
def _server() -> str:
    """Start the server once per test process, and return the path of its socket."""
    folder = tempfile.mkdtemp(prefix="holdfast-forks-")
    address = f"{folder}/socket"
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "TEMPORAL_"))}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.forked", address], cwd=ROOT, env=environ, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"

    def stop() -> None:
        process.terminate()
        process.wait()
        for left in (Path(address), Path(folder)):
            with suppress(OSError):
                left.rmdir() if left.is_dir() else left.unlink()

    atexit.register(stop)
    return address


def serve(address: str) -> NoReturn:
    """Fork a child for each request, until the parent process ends."""
    import holdfast.audit.evidence.replay
    import holdfast.audit.evidence.verify
    import holdfast.cli.checks.report
    import holdfast.cli.main
    import holdfast.cli.screens.prompt_screens
    import holdfast.cli.screens.watch
    import holdfast.doctor.examine
    import holdfast.starter
    import holdfast.worker.__main__  # noqa: F401

    gc.freeze()
    parent = os.getppid()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(16)
        listener.settimeout(1)
        print("ready", flush=True)
        while os.getppid() == parent:
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            with connection:
                if not os.fork():
                    listener.close()
                    _attend(connection)
    os._exit(0)


def _attend(connection: socket.socket) -> NoReturn:
    """Run one program in a child, wait for its end, and send its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    connection.settimeout(None)
    _, files, _, _ = socket.recv_fds(connection, 1, 3)
    text = b""
    while not text.endswith(b"\n"):
        text += connection.recv(65_536)
    if not (pid := os.fork()):
        connection.close()
        _become(json.loads(text), files)
    _, status = os.waitpid(pid, 0)
    connection.sendall(f"{pid} {os.waitstatus_to_exitcode(status)}".encode())
    os._exit(0)


def _become(request: dict[str, Any], files: Sequence[int]) -> NoReturn:
    """Run the program in this process."""
    import typer

    os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environ"])
    sys.path[0] = str(ROOT)
    sys.argv = [f"{request['program']}.py", *request["words"]]
    code = 1
    try:
        match request["program"]:
            case "starter":
                from holdfast import starter

                starter.main()
            case "worker":
                from holdfast.worker import __main__ as worker

                typer.run(worker.main)
            case _:
                sys.argv = ["-c", *request["words"][1:]]
                exec(compile(request["words"][0], "<string>", "exec"), {"__name__": "__main__"})
                code = 0
    except Exception:
        traceback.print_exc()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(bool(end.code))
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        os._exit(code)


if __name__ == "__main__":
    serve(sys.argv[1])
