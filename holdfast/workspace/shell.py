"""Runs shell commands with a time limit and bounded output, and kills every process that they leave behind.

`run_command` is not a sandbox: a command may do everything that the worker's user may. The policy decides which run.
`sandboxed_shell.py` has the tool whose commands reach the workspace only.
"""

import asyncio
import errno
import os
import secrets
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import psutil
from pydantic import Field

from holdfast.core.tools.decorator import ToolContext, tool
from holdfast.workspace.sandbox import Confinement, NotConfined, limit_processes
from holdfast.workspace.seccomp import seccomp_filter

DEFAULT_SECONDS = 60.0
"""Time limit of a command if the LLM gives none."""
LONGEST_SECONDS = 600.0
"""The longest time limit the LLM may ask for."""
GRACE_SECONDS = 0.5
"""How long to wait for the end of the output after the shell has ended."""
KEPT_BYTES = 50_000
"""Bytes of output kept from the start, and again from the end."""

_PASSED = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TERM", "VIRTUAL_ENV"}
    | {"SSL_CERT_FILE", "SSL_CERT_DIR"}
)
_MARK = "HOLDFAST_COMMAND"


def command_environment() -> dict[str, str]:
    """Return the part of the worker's environment that commands see: an allow-list, so that no secret reaches them."""
    return {name: value for name, value in os.environ.items() if name in _PASSED or name.startswith("LC_")}


class Output:
    """The output of a program: its first and last bytes, and the count of the bytes dropped between them."""

    def __init__(self, *, kept: int = KEPT_BYTES) -> None:
        self._kept = kept
        self._head = bytearray()
        self._tail = bytearray()
        self._size = 0

    def add(self, chunk: bytes) -> None:
        """Append the next bytes."""
        self._size += len(chunk)
        room = self._kept - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:]
        if len(self._tail) > 2 * self._kept:
            del self._tail[: -self._kept]

    def text(self) -> str:
        """Return the output, with a note in place of dropped bytes; invalid UTF-8 shows as U+FFFD."""
        tail = self._tail[-self._kept :]
        left_out = self._size - len(self._head) - len(tail)
        if not left_out:
            return (self._head + tail).decode("utf-8", "replace")
        gap = f"\n[{left_out:,} bytes left out; send the output to a file to read all of it]\n"
        return self._head.decode("utf-8", "replace") + gap + tail.decode("utf-8", "replace")


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    exit_code: int | None
    """None: the command was stopped at its time limit. Negative: the shell was killed by that signal."""
    output: str
    """Standard output and error, merged."""
    left_running: bool = False
    """Whether processes left in the background were killed. For a confined command, the output says so instead."""
    too_many: bool = False
    """Whether it was stopped because it had more processes than its confinement allows."""


class NotStarted(OSError):
    """The command cannot be started, so it has done nothing."""


async def run_shell(command: str, folder: Path, *, seconds: float, confinement: Confinement | None = None) -> Outcome:
    """Run `/bin/sh -c command` in `folder`, confined if a confinement is given.

    At the time limit and on cancellation, the shell and everything it started is killed.

    Raises:
        NotStarted: The command cannot be started; the message says why.
        NotConfined: A command cannot be confined to this folder.
        ValueError: The command has a NUL character.
    """
    if "\0" in command:
        raise ValueError("the command has a NUL character, which a command cannot contain; leave it out")
    loop = asyncio.get_running_loop()
    output, mark = Output(), secrets.token_hex(16)
    # Not asyncio's pipe: with it, `wait()` would not return while a background child holds it open.
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    closed: asyncio.Future[None] = loop.create_future()

    def read() -> None:
        with suppress(BlockingIOError):
            if chunk := os.read(reading, 65_536):
                output.add(chunk)
                return
            loop.remove_reader(reading)
            closed.set_result(None)

    try:
        try:
            process = await _start(command, folder, stdout=writing, mark=mark, confinement=confinement)
        finally:
            os.close(writing)
        loop.add_reader(reading, read)
        exit_code = None
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds), limit_processes(process, confinement) as count:
                    exit_code = await process.wait()
                    await asyncio.wait({closed}, timeout=GRACE_SECONDS)
        finally:
            left_running = await _kill_all(process, mark=mark)
        await asyncio.wait({closed}, timeout=GRACE_SECONDS)
    finally:
        loop.remove_reader(reading)
        os.close(reading)
    # The processes of a confined command die with its shell; any still seen here were seen by chance.
    left_running = left_running and confinement is None
    return Outcome(exit_code, output.text(), left_running=left_running, too_many=count.exceeded)


@contextmanager
def _invocation(
    command: str, folder: Path, confinement: Confinement | None
) -> Iterator[tuple[list[str], dict[str, str], list[int]]]:
    """Yield the arguments, the environment and the descriptors to inherit of a process that runs the command."""
    environment = command_environment()
    if confinement is None:
        yield ["/bin/sh", "-c", command], environment, []
        return
    with seccomp_filter() as descriptor:
        yield confinement.argv(command, folder, seccomp=descriptor), confinement.environment(environment), [descriptor]


async def _start(
    command: str, folder: Path, *, stdout: int, mark: str, confinement: Confinement | None
) -> asyncio.subprocess.Process:
    with _invocation(command, folder, confinement) as (argv, environment, descriptors):
        starting = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                *argv,
                cwd=folder,
                env=environment | {_MARK: mark},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=stdout,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
                pass_fds=descriptors,
            )
        )
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            # asyncio would kill the shell here, but not what the shell has already started.
            await _kill_all(await starting, mark=mark)
            raise
        except OSError as error:
            advice = "the workspace folder does not exist yet: write_file creates it with its first file"
            if error.filename == argv[0]:
                advice = f"check that {argv[0]} is installed"
            if error.errno == errno.E2BIG:
                advice = "write a long command to a script with write_file, and run that"
            raise NotStarted(f"the command cannot be started ({error.strerror}); {advice}") from None


async def _kill_all(process: asyncio.subprocess.Process, *, mark: str) -> bool:
    """SIGKILL the shell's process group and every process with the command's mark in its environment.

    The mark also finds daemons that left the group and the session. Returns whether there were any processes.
    """
    any_left = _kill_group(process.pid)
    for _ in range(20):  # the next round finds what forked during this one
        marked = await asyncio.to_thread(_marked, mark)
        if not marked:
            break
        any_left = True
        for daemon in marked:
            with suppress(psutil.Error):
                daemon.kill()
        await asyncio.sleep(0.01)
    with suppress(TimeoutError):  # a process stuck in the kernel survives SIGKILL, but the call must end
        async with asyncio.timeout(5):
            await process.wait()
    return any_left


def _kill_group(group: int) -> bool:
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):  # macOS returns EPERM if only zombies are left
        return False
    return True


def _marked(mark: str) -> list[psutil.Process]:
    """Find processes started with that mark in their environment; one that cleared the mark is missed."""
    marked = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.environ().get(_MARK) == mark:
                marked.append(process)
    return marked


TimeLimit = Annotated[float, Field(gt=0, le=LONGEST_SECONDS)]
"""Seconds that the LLM may ask for."""
TOOL_SECONDS = LONGEST_SECONDS + 60
"""Time limit of the tools themselves, with room for starting and ending a command."""
BEFORE_START = (NotStarted, NotConfined, ValueError)
"""The errors that `run_shell` raises before a command has done anything."""


@tool(effect="unsafe", timeout=TOOL_SECONDS, not_done_on=BEFORE_START)
async def run_command(command: str, timeout_seconds: TimeLimit = DEFAULT_SECONDS, *, context: ToolContext) -> str:
    """Run a shell command in the workspace; returns its exit code and its output (stdout and stderr merged).

    It runs with /bin/sh, without a terminal and with an empty standard input.
    Processes that it leaves in the background are stopped when it ends.
    It is not confined: it can use the network, and read and change everything that the worker's user can.

    Args:
        context: Filled in by Holdfast.
        command: The command line, such as `python -m pytest -q | tail -20`.
        timeout_seconds: The command and its children are killed after this many seconds.
    """
    seconds = min(timeout_seconds, LONGEST_SECONDS)
    return outcome_text(await run_shell(command, context.workspace, seconds=seconds), seconds)


def outcome_text(outcome: Outcome, seconds: float) -> str:
    """Format the outcome of a command with that time limit for the LLM."""
    code = outcome.exit_code
    if code is None:
        first = f"[stopped at the time limit of {seconds:g} s: the command and its children were killed]"
    elif code < 0:
        first = f"[the shell was killed by signal {-code} ({signal.strsignal(-code)})]"
    else:
        first = f"[exit code {code}]"
    if outcome.left_running and code is not None:
        first += "\n[processes left in the background were stopped]"
    return f"{first}\n{outcome.output}"
