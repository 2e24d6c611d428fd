"""Runs an MCP server as a child process, and carries its messages over stdin and stdout.

1. The environment is empty but for PATH and the variables that the catalog declares; the process is confined.
2. A message is bounded, and so is the rubbish between messages: a server that exceeds a limit is stopped.
3. The whole process group is killed at the end of the block. If the worker is killed, the kernel kills the process.
"""

import asyncio
import os
import shlex
import shutil
import signal
import sys
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification, jsonrpc_message_adapter

from holdfast.core.agents.mcp_servers import MCP
from holdfast.mcp.limits import MAX_MESSAGE_BYTES, ServerMisbehaved, Verdict
from holdfast.mcp.notices import Notices
from holdfast.workspace.sandbox import Confinement, unavailable_reason
from holdfast.workspace.seccomp import seccomp_filter

MAX_RUBBISH: Final = 50
"""Lines that are no messages after which a server is stopped. Some print a greeting."""
STOP_SECONDS: Final = 2.0
"""How long a server may take to end after its stdin is closed, and again after SIGTERM."""
STDERR_BYTES: Final = 2_000
"""How much of the end of a server's stderr is kept, to explain why it ended."""

_KEPT: Final = ("notifications/tools/list_changed", "notifications/cancelled")
"""Notifications that matter; others are dropped as they are read, so that no number of them takes memory."""
_NOTICES: Final = ("notifications/message", "notifications/progress")
"""Notifications that help people to look, and are dropped if there are too many."""


@asynccontextmanager
async def stdio_transport(
    server: MCP, secrets: Mapping[str, str], verdict: Verdict, notices: Notices
) -> AsyncIterator[Any]:
    """Start a server, and yield the streams of its messages.

    Args:
        server: Its command.
        secrets: The values of the variables that it declares.
        verdict: Receives the reason if the server ends or misbehaves.
        notices: Says whether another notice is kept.

    Raises:
        ServerMisbehaved: The command cannot be started, or not confined.
    """
    with _folder(server) as folder:
        process = await _start(server, secrets, folder)
        to_session, read = anyio.create_memory_object_stream[Any](0)
        write, from_session = anyio.create_memory_object_stream[Any](0)
        tail: deque[bytes] = deque(maxlen=4)
        tasks = [
            asyncio.create_task(_read(process, to_session, verdict, tail, notices)),
            asyncio.create_task(_write(process, from_session)),
            asyncio.create_task(_read_stderr(process, tail)),
        ]
        try:
            yield read, write
        finally:
            with anyio.CancelScope(shield=True):
                await _stop(process)
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
                for stream in (to_session, read, write, from_session):
                    stream.close()


@contextmanager
def _folder(server: MCP) -> Iterator[Path]:
    if server.folder is not None:
        yield Path(server.folder).absolute()
    else:
        with tempfile.TemporaryDirectory(prefix="holdfast-mcp-", ignore_cleanup_errors=True) as folder:
            yield Path(folder)


async def _start(server: MCP, secrets: Mapping[str, str], folder: Path) -> asyncio.subprocess.Process:
    environment = {"PATH": os.environ.get("PATH", os.defpath), **server.filled(server.env, secrets)}
    command = [str(word) for word in server.command]
    if not server.confined:
        # If the worker is killed, the kernel kills the process; a server that ignores the end of stdin would remain.
        guard = [setpriv, "--pdeathsig", "KILL", "--"] if (setpriv := shutil.which("setpriv")) else []
        return await _spawn(server, [*guard, *command], environment, folder, [])
    confinement = _confinement(server)
    if why := await asyncio.to_thread(unavailable_reason, confinement):
        raise ServerMisbehaved(
            f"its command cannot be confined: {why}. Install bubblewrap, or run it with the rights of the worker: "
            f"MCP({server.name!r}, confined=False, …)"
        )
    with seccomp_filter() as descriptor:
        line = f"exec {shlex.join(command)}"
        argv = confinement.argv(line, folder, seccomp=descriptor, network=server.network)
        return await _spawn(server, argv, confinement.environment(environment), folder, [descriptor])


def _confinement(server: MCP) -> Confinement:
    return Confinement(
        readable=tuple(Path(path).absolute() for path in server.readable),
        memory_bytes=server.memory_bytes,
        cpu_seconds=10 * 365 * 86_400,  # it lives as long as the worker
    )


async def _spawn(
    server: MCP, argv: list[str], environment: dict[str, str], folder: Path, descriptors: list[int]
) -> asyncio.subprocess.Process:
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *argv,
            cwd=folder,
            env=environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            pass_fds=descriptors,
            limit=MAX_MESSAGE_BYTES,
        )
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        await _stop(await starting)
        raise
    except OSError as error:
        raise ServerMisbehaved(f"{server.command[0]!r} cannot be started: {error.strerror}") from None


async def _read(
    process: asyncio.subprocess.Process, session: Any, verdict: Verdict, tail: deque[bytes], notices: Notices
) -> None:
    """Pass the server's messages to the session, until it ends or misbehaves."""
    assert process.stdout is not None
    rubbish = 0
    try:
        while True:
            try:
                line = await process.stdout.readuntil()
            except asyncio.LimitOverrunError:
                verdict.reach(f"it sent a message of more than {MAX_MESSAGE_BYTES:,} bytes")
                return
            except asyncio.IncompleteReadError:
                await asyncio.sleep(0)  # stderr may say why
                said = b"".join(tail)[-STDERR_BYTES:].decode("utf-8", "replace").strip()
                verdict.reach("it ended" + (f"; its last words: {said}" if said else ""))
                return
            if not line.strip():
                await asyncio.sleep(0)  # a flood must not keep the loop from the other runs
                continue
            try:
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            except (ValueError, RecursionError):
                rubbish += 1
                if rubbish > MAX_RUBBISH:
                    verdict.reach(f"it wrote more than {MAX_RUBBISH} lines to stdout that are no messages")
                    return
                continue
            if isinstance(message, JSONRPCNotification) and message.method not in _KEPT:
                await asyncio.sleep(0)  # see above
                if message.method not in _NOTICES:
                    continue
                if not notices.has_room:
                    notices.drop()
                    continue
            await session.send(SessionMessage(message))
    except (anyio.ClosedResourceError, anyio.BrokenResourceError):
        return  # the session has ended
    finally:
        session.close()


async def _write(process: asyncio.subprocess.Process, session: Any) -> None:
    assert process.stdin is not None
    with suppress(OSError, anyio.ClosedResourceError):
        async for sent in session:
            text = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
            process.stdin.write(text.encode("utf-8", "replace") + b"\n")
            await process.stdin.drain()


async def _read_stderr(process: asyncio.subprocess.Process, tail: deque[bytes]) -> None:
    assert process.stderr is not None
    while piece := await process.stderr.read(STDERR_BYTES):
        tail.append(piece)


async def _stop(process: asyncio.subprocess.Process) -> None:
    """End the server: close its stdin, then SIGTERM, then SIGKILL, and kill what its process group still has."""
    if process.stdin is not None:
        process.stdin.close()
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        if number is not None:
            _signal_group(process.pid, number)
        if await _ends(process):
            break
    _signal_group(process.pid, signal.SIGKILL)
    transport = getattr(process, "_transport", None)  # a grandchild may hold the pipes open
    if transport is not None:
        transport.close()


async def _ends(process: asyncio.subprocess.Process) -> bool:
    # Not `wait()`: it also waits for the end of the pipes, which a grandchild may hold open.
    for _ in range(int(STOP_SECONDS / 0.02)):
        if process.returncode is not None:
            return True
        await asyncio.sleep(0.02)
    return False


def _signal_group(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


if sys.platform == "win32":  # pragma: no cover
    raise ImportError("MCP servers over stdio need a POSIX system")
