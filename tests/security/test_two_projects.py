"""Two projects on one machine: a folder whose stack is stopped never contacts the current owner of its port."""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client
from temporalio.service import RPCError

import holdfast
from holdfast import Policy
from holdfast.client.connect import connect, connect_config, own_stack, stack_config
from holdfast.client.interventions import intervene
from holdfast.client.own_stack import OwnStack
from holdfast.client.threads import Threads
from holdfast.composition.components import Components
from holdfast.config.running_stacks import is_running
from holdfast.config.settings import Settings
from holdfast.config.stack_file import Stack, read_stack, record_fault, write_stack
from holdfast.core.mac.seals import FleetKeys
from holdfast.devstack import processes
from holdfast.devstack.ports import Ports, any_free
from holdfast.devstack.temporal_server import TemporalServer
from holdfast.devstack.web_ui import hidden_address
from holdfast.encryption.fleet_keys import ensure_key, with_stack_key
from holdfast.errors import AnswerForged, ServerUnreachable, SettingsError
from holdfast.gateway.http.serving import listen
from holdfast.testing import call, say, steps
from tests.support import forked
from tests.support.people import clerk
from tests.support.rig import StartRig, status_of

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0


def record(home: Path, address: str, **changes: object) -> Stack:
    """Write the record of a stack that `home` had at an address, and return it."""
    home.mkdir(mode=0o700, exist_ok=True)
    port = int(address.rpartition(":")[2])
    stack = Stack(
        temporal_address=address,
        namespace="default",
        ui_url="",
        database_url="",
        temporal_port=port,
        ui_port=1,
        http_port=1,
        fleet_keys=str(ensure_key(home)),
    ).model_copy(update=changes)
    write_stack(home, stack)
    return stack


def ended_pid() -> int:
    """Return the id of a process that has ended."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return ended.pid


def command(home: Path, program: str, *words: str, **given: str) -> tuple[int, str]:
    """Run a program in the state folder; return the exit code and the output."""
    environ = {name: text for name, text in os.environ.items() if not name.startswith(("HOLDFAST_", "TEMPORAL_"))}
    environ |= {"HOLDFAST_HOME": str(home), **given}
    if program != "gateway.py":
        ended = forked.run(program.removesuffix(".py"), words, environ=environ, folder=home.parent)
        return ended.code, (ended.out + ended.err).decode()
    ran = subprocess.run(
        [sys.executable, str(ROOT / program), *words],
        cwd=home.parent,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    return ran.returncode, ran.stdout + ran.stderr


STATES = ("stopped", "died", "reused")
"""The record after the stack was stopped, after a SIGKILL, and once another process has its process id."""


@pytest.fixture(params=STATES)
def stale(request: pytest.FixtureRequest, stack: Stack, tmp_path: Path) -> Path:
    """Return the state folder of a project whose stack had the port that the session's stack has now."""
    pid = {"stopped": None, "died": ended_pid(), "reused": stack.temporal_pid}[request.param]
    record(tmp_path / "a", stack.temporal_address, temporal_pid=pid, postgres_pid=pid)
    return tmp_path / "a"


async def test_no_client_connects_to_another_projects_stack(stale: Path, stack: Stack) -> None:
    """Components, as used by worker, gateway and command line, and the Python client name both folders in the error."""
    message = rf"{stale} has no running stack; there is {Path(stack.fleet_keys).parent}"
    with pytest.raises(ServerUnreachable, match=message):
        await connect(connect_config({}, home=stale))
    with pytest.raises(ServerUnreachable, match=message):
        async with holdfast.Client.connect(home=stale, by="ann"):
            pass
    settings = Settings.from_env({"HOLDFAST_HOME": str(stale)}, root=stale)
    async with AsyncExitStack() as cleanup:
        parts = Components(settings, {}, cleanup=cleanup)
        assert parts.database_url is None
        with pytest.raises(ServerUnreachable, match=message):
            await parts.client()


async def test_no_verb_reads_or_steers_another_projects_run(rig: StartRig, stack: Stack, tmp_path: Path) -> None:
    """Every kind of verb ends with 4 and the message of `doctor`, and the other project's history does not change."""
    home = tmp_path / "a"
    record(home, stack.temporal_address, temporal_pid=ended_pid())
    async with rig(clerk(Policy()), steps([call("pay", cents=5), say("Done.")])) as r:
        run = await r.start("pay")
        await status_of(run, "waiting_approval")
        queue = {"HOLDFAST_TASK_QUEUE": r.task_queue}
        for words in (
            ["list"],
            ["show", run.id],
            ["approve", run.id, "1"],
            ["cancel", run.id],
            ["say", run.id, "hello"],
            ["start", "x", "--thread", f"a-{run.id}"],
            ["schedule", "list"],
        ):
            code, output = await asyncio.to_thread(command, home, "starter.py", *words, **queue)
            assert (code, f"{home} has no running stack; there is {Path(stack.fleet_keys).parent}" in output) == (
                4,
                True,
            )
        kinds = {EventType.Name(event.event_type) async for event in run.fetch_history_events()}
        assert not [kind for kind in kinds if "SIGNAL" in kind or "UPDATE_" in kind or "CANCEL" in kind]
        assert not [each async for each in r.client.list_workflows(f"WorkflowId = 'a-{run.id}'")]


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("other", "sealed with the fleet key"),
        pytest.param("dev", "does not come from a worker", marks=pytest.mark.extended),
    ],
)
async def test_a_run_of_another_fleet_gets_no_decision(rig: StartRig, stack: Stack, key: str, why: str) -> None:
    """Even at a shared server, a worker that cannot seal its answers with our key is sent nothing."""
    async with rig(clerk(Policy()), steps([call("pay", cents=5), say("Done.")])) as r:
        run = await r.start("pay")
        await status_of(run, "waiting_approval")
        client = await connect(stack_config(stack), seals=FleetKeys({key: os.urandom(32)}))
        payload = {"decision": "approve", "request": "1", "by": "ann"}
        with pytest.raises(AnswerForged, match=why):
            await intervene(Threads(client, answer_within=PATIENCE), run.id, "decide", payload)
        assert (await status_of(run, "waiting_approval"))["pending"]
        kinds = {EventType.Name(event.event_type) async for event in run.fetch_history_events()}
        assert not [kind for kind in kinds if "SIGNAL" in kind or "UPDATE_" in kind]
        assert (await intervene(Threads(r.client), run.id, "decide", payload)).outcome == "accepted"


@pytest.mark.parametrize("program", ["worker.py", pytest.param("gateway.py", marks=pytest.mark.extended)])
def test_no_server_process_of_ours_starts_there(stack: Stack, tmp_path: Path, program: str) -> None:
    """A worker would execute the other project's tasks, and a gateway would serve its runs: both exit with 4."""
    home = tmp_path / "a"
    record(home, stack.temporal_address, temporal_pid=ended_pid())
    (tokens := home / "tokens.yaml").write_text(f"tokens:\n  - {{name: bot, sha256: {'a' * 64}, scopes: [read]}}\n")
    tokens.chmod(0o600)
    environ = {"DATABASE_URL": stack.database_url, "OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}
    code, said = command(home, program, **environ, HOLDFAST_GATEWAY_PORT="0", HOLDFAST_GATEWAY_TOKENS=str(tokens))
    assert (code, "has no running stack; there is" in said) == (4, True), said


@contextmanager
def listener() -> Iterator[tuple[str, list[bytes]]]:
    """Run a program at a port that reads its input, and is no Temporal server."""
    got: list[bytes] = []
    with socket.create_server(("127.0.0.1", any_free())) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    got.append(connection.recv(100))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}", got
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(PATIENCE)


async def test_nothing_is_sent_to_an_unrelated_program(tmp_path: Path) -> None:
    """Any program at the port of a stopped stack gets no byte, and the error reports that it is there."""
    with listener() as (address, got):
        record(tmp_path / "a", address, temporal_pid=ended_pid())
        environ = {"TEMPORAL_API_KEY": "sk-other", "TEMPORAL_GRPC_META_AUTHORIZATION": "Bearer x"}
        with pytest.raises(ServerUnreachable, match=f"has no running stack; there is .*{address}"):
            await connect(connect_config(environ, home=tmp_path / "a"))
    assert not any(got)


def test_a_key_for_another_server_is_not_sent_to_the_stack(tmp_path: Path) -> None:
    """An API key in the environment belongs to the server that the environment names, and here it names none."""
    record(tmp_path / "a", "127.0.0.1:29996")
    config = connect_config({"TEMPORAL_API_KEY": "sk-other", "TEMPORAL_NAMESPACE": "mine"}, home=tmp_path / "a")
    assert {name: value for name, value in config.items() if name != "plugins"} == {
        "target_host": "127.0.0.1:29996",
        "namespace": "mine",
    }


def test_a_folder_that_never_had_a_stack_adopts_none(stack: Stack, tmp_path: Path) -> None:
    """Without a record, the default address means any server there except the stack of another folder."""
    own = OwnStack(tmp_path / "none")
    with pytest.raises(ServerUnreachable, match=f"there is {Path(stack.fleet_keys).parent}"):
        own.check(stack.temporal_address)
    with listener() as (address, got):
        own.check(address)
    assert not got


def test_a_copied_folder_does_not_own_the_stack_of_its_original(stack: Stack, tmp_path: Path) -> None:
    """Record, fleet key and databases are copied with a project, but the record counts in one folder only."""
    original = Path(stack.fleet_keys).parent
    copy = tmp_path / "copy"
    copy.mkdir(mode=0o700)
    for name in ("stack.json", "fleet.keys"):
        shutil.copy2(original / name, copy / name)
    assert read_stack(original) is not None
    assert read_stack(copy) is None
    assert f"it is the record of {original}" in record_fault(copy)
    changed = stack.model_copy(update={"fleet_keys": str(copy / "fleet.keys")})
    write_stack(copy, changed)
    assert not is_running(copy, changed), "another folder's server has that process id and that port"
    assert is_running(original, stack)


def test_the_folders_key_is_not_used_with_another_server(stack: Stack, tmp_path: Path) -> None:
    """A program that brings its own connection to that port gets neither the key nor the record of the folder."""
    home = tmp_path / "a"
    record(home, stack.temporal_address, temporal_pid=ended_pid())
    settings = Settings.from_env({"HOLDFAST_HOME": str(home)}, root=home)
    assert with_stack_key(settings, {"target_host": stack.temporal_address}).fleet_keys is None


def test_a_named_server_is_the_users_choice(stack: Stack, tmp_path: Path) -> None:
    """`TEMPORAL_ADDRESS` has no identity to compare, so it is used unchecked."""
    record(tmp_path / "a", stack.temporal_address)
    config = connect_config({"TEMPORAL_ADDRESS": stack.temporal_address}, home=tmp_path / "a")
    assert own_stack(config) is None


def test_a_second_gateway_at_one_port_does_not_start() -> None:
    """The error names the address and the settings; the first gateway's callers are not split between two."""
    with listen("127.0.0.1", 0) as first, pytest.raises(SettingsError, match="Choose another port with --port"):
        listen("127.0.0.1", first.getsockname()[1])


def test_another_users_server_is_not_mistaken_for_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anyone can start a program with our database on its command line, so the process must be this user's."""
    program = tmp_path / "temporal"
    program.symlink_to(Path(sys.executable).resolve())
    home = tmp_path / "a"
    home.mkdir(mode=0o700)
    argv = [str(program), "-I", "-c", "input()", "--db-filename", str(home / "temporal.db"), "--port", "29995"]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE)
    try:
        ours = record(home, "127.0.0.1:29995", temporal_pid=process.pid)
        assert is_running(home, ours)
        assert not is_running(home, ours.model_copy(update={"temporal_address": "127.0.0.1:29994"}))
        assert processes.find("temporal", str(home / "temporal.db")) is not None
        monkeypatch.setattr(os, "geteuid", lambda: 54_321)
        assert not is_running(home, ours)
        assert processes.find("temporal", str(home / "temporal.db")) is None
    finally:
        process.kill()
        process.communicate()


@contextmanager
def temporal(home: Path, ports: Ports) -> Iterator[Stack]:
    """Run the Temporal server of a state folder, with its record; kill it at the end."""
    server = TemporalServer(home, report=print)
    pid, address = server.ensure(
        ports,
        web_ui=hidden_address(),
        hint=None,
        owned=True,
        deadline=time.monotonic() + PATIENCE,
        cancelled=threading.Event(),
    )
    try:
        yield record(home, f"127.0.0.1:{address.grpc}", temporal_pid=pid)
    finally:
        assert server.started
        server.started.kill()
        server.started.wait(PATIENCE)


@pytest.mark.slow
async def test_a_stack_that_is_replaced_under_a_client_gets_no_more_requests(tmp_path: Path) -> None:
    """After a kill, another project's stack has the port: a connected client sends nothing there, and a worker ends."""
    ports = Ports(any_free(), any_free(), any_free())
    homes = [tmp_path / name for name in "ab"]
    for home in homes:
        home.mkdir(mode=0o700)
    own = OwnStack(homes[0])
    with temporal(homes[0], ports) as first:
        client = await connect(connect_config({}, home=homes[0]))
        assert [each async for each in client.list_workflows()] == []
        watching = asyncio.create_task(own.until_replaced(first.temporal_address))
    with temporal(homes[1], ports) as second:
        assert second.temporal_address == first.temporal_address
        with pytest.raises(RPCError, match="another program has its port; nothing was sent"):
            await client.start_workflow("Anything", id="from-a", task_queue="q", rpc_timeout=None)
        with pytest.raises(ServerUnreachable, match="has no running stack"):
            await Threads(client).state("from-a")
        with pytest.raises(ServerUnreachable, match=rf"there is {homes[1]}"):
            await asyncio.wait_for(watching, PATIENCE)
        with pytest.raises(RPCError, match="another program has its port"):
            await client.get_workflow_handle("from-a").result()
        theirs = await Client.connect(second.temporal_address)
        assert [each.id async for each in theirs.list_workflows()] == []
    with temporal(homes[0], ports):
        assert [each async for each in client.list_workflows()] == [], "its own stack is back, at the same port"
