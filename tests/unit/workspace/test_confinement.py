"""Confined commands reach only the workspace; if confinement is impossible, no command runs as if confined.

Tests marked `confined` run the real `bwrap` and are skipped, with the reason, if it does not work. If the tests run as
root, most of them run twice: as root and as an ordinary user.
"""

import asyncio
import gc
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from errno import ENOSYS, EPERM
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Agent, Catalog, Effect, Policy, allow
from holdfast.config import programs
from holdfast.config.settings import Settings
from holdfast.config.state_folder import state_folder
from holdfast.core.authority.policy import ToolUse, evaluate
from holdfast.core.tools.decorator import ToolContext
from holdfast.errors import CatalogError
from holdfast.workspace import sandbox as module
from holdfast.workspace import shell
from holdfast.workspace.file_tools import workspace_tools
from holdfast.workspace.sandbox import DEFAULT, MB, Confinement, NotConfined, unavailable_reason
from holdfast.workspace.sandboxed_shell import confined_tool
from holdfast.workspace.seccomp import filter_program, seccomp_filter
from holdfast.workspace.shell import LONGEST_SECONDS, run_command, run_shell

PATIENCE = 120.0
REPOSITORY = Path(__file__).parents[3]
NOBODY = 65_534
WHY_NOT = unavailable_reason(DEFAULT)
confined = pytest.mark.skipif(WHY_NOT is not None, reason=f"commands cannot be confined here: {WHY_NOT}")
run_confined = confined_tool(DEFAULT)


@dataclass(frozen=True)
class CommandResult:
    """The result of a confined command."""

    code: int
    output: str


@dataclass(frozen=True)
class ConfinedWorkspace:
    """A workspace and the user who runs confined commands in it."""

    workspace: Path
    user: int | None

    def run(self, command: str, confinement: Confinement = DEFAULT) -> CommandResult:
        """Run a command to its end."""
        with seccomp_filter() as descriptor:
            ran = subprocess.run(
                confinement.argv(command, self.workspace, seccomp=descriptor),
                cwd=self.workspace,
                env=confinement.environment({"PATH": os.environ["PATH"]}),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=PATIENCE,
                check=False,
                user=self.user,
                group=self.user,
                extra_groups=None if self.user is None else [],
                pass_fds=[descriptor],
            )
        return CommandResult(ran.returncode, ran.stdout.decode("utf-8", "replace"))

    def python(self, code: str, confinement: Confinement = DEFAULT) -> CommandResult:
        """Run Python code with the worker's Python."""
        (self.workspace / "code.py").write_text(code)
        return self.run("python code.py", confinement)


@pytest.fixture(params=["worker", "ordinary"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ConfinedWorkspace]:
    """Yield a workspace of the worker's user; if the worker is root, another one of an ordinary user."""
    user = None
    if request.param == "ordinary":
        if os.getuid() != 0:
            pytest.skip("the worker is an ordinary user already")
        user = NOBODY
        # Root's Python may be in a folder that other users cannot read.
        monkeypatch.setattr(sys, "prefix", "/usr")
        monkeypatch.setattr(sys, "base_prefix", "/usr")
    with tempfile.TemporaryDirectory(prefix="holdfast-confined-") as folder:
        workspace = Path(folder, "workspace")
        workspace.mkdir()
        for path in (workspace.parent, workspace):
            os.chown(path, -1 if user is None else user, -1)
        yield ConfinedWorkspace(workspace, user)


SET_ID = """
import ctypes, os, stat
libc = ctypes.CDLL(None, use_errno=True)
made = []
def attempt(name, act):
    try:
        act()
    except OSError as error:
        made.append(f"{name}: {error.errno}")
    mode = os.stat("tool").st_mode if os.path.exists("tool") else 0
    if mode & 0o6000:
        made.append(f"{name} SET {mode:o}")
def raw(number, *arguments):
    if libc.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), "refused")
fresh = lambda: os.path.exists("tool") and os.unlink("tool")
open("tool", "w").close()
for bits in (0o4755, 0o2755, 0o6755):
    attempt("chmod", lambda: os.chmod("tool", bits))
    with open("tool") as file:
        attempt("fchmod", lambda: os.fchmod(file.fileno(), bits))
    attempt("fchmodat", lambda: os.chmod("tool", bits, dir_fd=os.open(".", os.O_RDONLY)))
    attempt("fchmodat2", lambda: raw(452, -100, b"tool", bits, 0))
    fresh()
    attempt("open", lambda: os.close(os.open("tool", os.O_CREAT | os.O_WRONLY, bits)))
    fresh()
    attempt("mknod", lambda: os.mknod("tool", stat.S_IFREG | bits))
    open("tool", "a").close()
how = (ctypes.c_uint64 * 3)(os.O_CREAT | os.O_WRONLY, 0o4755, 0)
fresh()
attempt("openat2", lambda: raw(437, -100, b"tool", ctypes.byref(how), 24))
print("\\n".join(made))
"""


@confined
def test_no_file_of_the_host_becomes_set_user_id(place: ConfinedWorkspace) -> None:
    """Whichever call is used, no file in the workspace gets a set-id bit, with which it would run as the worker."""
    if place.user is not None:
        pytest.skip("needs the worker's Python")
    ran = place.python(SET_ID)
    assert (ran.code, " SET " in ran.output) == (0, False), ran.output
    attempts = [line.split(": ") for line in ran.output.split("\n") if line]
    assert len(attempts) == 3 * 6 + 1, ran.output
    assert {errno for _, errno in attempts} == {str(EPERM), str(ENOSYS)}
    assert not [path for path in place.workspace.rglob("*") if path.stat().st_mode & 0o6000]


@confined
def test_ordinary_work_is_not_hindered_by_the_filter(place: ConfinedWorkspace) -> None:
    """Files are created with any ordinary mode, made executable, copied, linked, locked, renamed and archived."""
    ran = place.run(
        "umask 022; mkdir d && chmod 1777 d && touch d/a && chmod 0755 d/a && cp -p d/a b && ln b c && mv c e && "
        "flock e true && mktemp -p . >/dev/null && tar cf t.tar d b && tar xpf t.tar && stat -c %a b d"
    )
    assert (ran.code, ran.output.split()) == (0, ["755", "1777"]), ran.output


@confined
def test_calls_that_reach_deep_into_the_kernel_are_rejected(place: ConfinedWorkspace) -> None:
    """Keys, namespaces, mounts and asynchronous I/O are out of reach; i386 calls end the process."""
    if place.user is not None:
        pytest.skip("needs the worker's Python")
    code = """
import ctypes, platform
libc = ctypes.CDLL(None, use_errno=True)
numbers = {"x86_64": (250, 272, 165, 321, 298, 425), "aarch64": (219, 97, 40, 280, 241, 425)}[platform.machine()]
for number in numbers:
    assert libc.syscall(number, 0, 0, 0, 0, 0) < 0
    print(ctypes.get_errno())
"""
    ran = place.python(code)
    assert (ran.code, ran.output.split()) == (0, [str(EPERM)] * 5 + [str(ENOSYS)]), ran.output


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_is_a_program_that_ends(machine: str) -> None:
    """Each jump stays within the program, which is shorter than the kernel allows and ends with a return."""
    program = list(struct.iter_unpack("=HBBI", filter_program(machine)))
    assert len(program) < 4_096
    assert program[-1] == (0x06, 0, 0, 0x7FFF0000)
    for at, (_, true, false, _) in enumerate(program):
        assert at + 1 + max(true, false) < len(program) or program[at][0] == 0x06


@pytest.fixture
def context(tmp_path: Path) -> ToolContext:
    """Return the context of a first attempt in an empty workspace."""
    return ToolContext(thread="t", workspace=tmp_path, key="k", attempt=1)


@pytest.fixture
def uncached() -> Iterator[None]:
    """Clear the cached result of the confinement check before and after the test."""
    unavailable_reason.cache_clear()
    yield
    unavailable_reason.cache_clear()


@pytest.fixture(params=["missing", "forbidden", "hanging"])
def unconfinable(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uncached: None
) -> str:
    """Simulate a machine on which bwrap is missing or fails; return the expected reason."""
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    if request.param == "missing":
        return "bwrap is not installed"
    words = "bwrap: No permissions to create new namespace"
    script = f"echo '{words}' >&2; exit 1" if request.param == "forbidden" else "exec /bin/sleep 300"
    (programs / "bwrap").write_text(f"#!/bin/sh\n{script}\n")
    (programs / "bwrap").chmod(0o755)
    monkeypatch.setattr(module, "PROBE_SECONDS", 0.2)
    return words if request.param == "forbidden" else "timed out"


async def until(condition: Callable[[], bool]) -> None:
    """Poll a condition on other processes."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - the end of a process that is not our child sets no event
            await asyncio.sleep(0.01)


def living_processes(mark: str) -> list[psutil.Process]:
    """Return the living processes with that word on their command line."""
    pids = []
    for process in psutil.process_iter():
        try:
            if mark in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
                pids.append(process)
        except psutil.Error:
            continue
    return pids


# Without bwrap.


def command_tools(tools: list[Any]) -> list[str]:
    """Return the names of the tools that run commands."""
    return [tool.spec.name for tool in tools if tool.spec.name.startswith("run_")]


def test_without_confinement_only_the_plain_tool_is_offered(unconfinable: str) -> None:
    """If commands cannot be confined there is no `run_confined`; the description of `run_command` says why."""
    tools = {tool.spec.name: tool for tool in workspace_tools()}

    assert "run_confined" not in tools
    assert tools["run_command"].spec.effect is Effect.UNSAFE
    assert "not confined" in tools["run_command"].spec.description
    assert (
        f"cannot be confined on this machine: {unavailable_reason(DEFAULT)}." in tools["run_command"].spec.description
    )
    assert unconfinable in str(unavailable_reason(DEFAULT))


def test_a_worker_that_requires_confinement_does_not_start_without_it(unconfinable: str) -> None:
    """`require` refuses to make a catalog and gives the reason."""
    with pytest.raises(CatalogError, match=r"cannot be confined on this machine: .*work-with-files\.md") as raised:
        workspace_tools(confine="require")

    assert unconfinable in str(raised.value)


def test_a_rule_for_one_tool_does_not_match_the_other() -> None:
    """A rule that allows `run_confined` does not match `run_command`, for which the default policy asks."""
    policy = Policy(rules=(allow("run_confined"),))
    uses = [ToolUse(tool.spec.name, tool.spec.effect) for tool in (run_confined, run_command)]

    assert [evaluate(policy, use).verdict for use in uses] == ["allow", "ask"]


def test_an_agent_that_names_a_missing_tool_is_rejected(unconfinable: str) -> None:
    """A worker without `run_confined` does not start if an agent names that tool."""
    with pytest.raises(CatalogError, match="run_confined"):
        Catalog(agents=[Agent(name="a", instructions="x", tools=("run_confined",))], tools=workspace_tools())


async def test_a_confined_command_never_runs_unconfined(context: ToolContext, unconfinable: str) -> None:
    """If commands cannot be confined, a confined command fails."""
    result = ""
    with suppress(OSError):
        result = await run_confined("echo ran > file", timeout_seconds=0.5, context=context)

    assert "[exit code 0]" not in result
    assert not (context.workspace / "file").exists()


def test_never_does_not_probe_the_machine(unconfinable: str) -> None:
    """`never` offers only the plain tool, and bwrap is not tried."""
    assert run_command in workspace_tools(confine="never")
    assert command_tools(workspace_tools(confine="never")) == ["run_command"]
    assert unavailable_reason.cache_info().misses == 0


def test_the_machine_is_probed_once(unconfinable: str) -> None:
    """The reason of a failed probe is cached for the life of the process."""
    reasons = {unavailable_reason(DEFAULT) for _ in range(3)}

    assert 1 == len(reasons) == unavailable_reason.cache_info().misses


# The arguments of bwrap.

words = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=50)
folders = st.lists(st.from_regex(r"[a-z0-9 _.\-]{1,12}", fullmatch=True).filter(lambda name: name not in {".", ".."}))


def options(argv: list[str], name: str, count: int) -> list[tuple[str, ...]]:
    """Return the arguments after each option of that name, before the command."""
    own = argv[: argv.index("--")]
    return [tuple(own[at + 1 : at + 1 + count]) for at, word in enumerate(own) if word == name]


@given(command=words, parts=folders)
def test_only_one_folder_is_writable(command: str, parts: list[str]) -> None:
    """For any command and folder, one folder is writable, no home is visible, and the command is one argument."""
    folder = Path("/nowhere", *parts)
    argv = DEFAULT.argv(command, folder, seccomp=9)
    home = os.path.realpath(Path.home())

    assert command == argv[-1]
    assert [(str(folder), str(folder))] == options(argv, "--bind", 2)
    assert [(str(folder),)] == options(argv, "--chdir", 1)
    assert not {"--dev-bind", "--bind-try", "--share-net", "--cap-add"} & set(argv[: argv.index("--")])
    assert {f"--unshare-{name}" for name in ("user", "ipc", "pid", "net", "uts", "cgroup-try")} <= set(argv)
    assert {"--die-with-parent", "--new-session", "--disable-userns"} <= set(argv)
    sources = {source for source, _ in (*options(argv, "--ro-bind", 2), *options(argv, "--ro-bind-try", 2))}
    assert not {source for source in sources if Path(home).is_relative_to(source)}
    assert not {"/", "/etc", "/root", "/home", "/var", "/run", "/proc", "/sys", "/dev"} & sources
    assert options(argv, "--remount-ro", 1)[-1] == ("/",)


@given(
    limits=st.builds(
        Confinement,
        cpu_seconds=st.integers(1, 10**6),
        memory_bytes=st.integers(16 * MB, 2**50),
        processes=st.integers(8, 10**6),
        file_bytes=st.integers(0, 2**50),
        tmp_bytes=st.integers(MB, 2**50),
    )
)
def test_limits_are_passed_as_arguments(limits: Confinement) -> None:
    """Each limit is passed to the program that sets it."""
    argv = limits.argv("true", Path("/nowhere"), seccomp=9)

    assert {
        f"--cpu={limits.cpu_seconds}",
        f"--as={limits.memory_bytes}",
        f"--nproc={limits.processes}",
        f"--fsize={limits.file_bytes}",
        "--core=0",
    } <= set(argv)
    assert [(str(limits.tmp_bytes),)] * 2 == options(argv, "--size", 1)


@pytest.mark.parametrize("folder", ["/", "home", "above home"])
def test_a_workspace_that_contains_the_home_is_rejected(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that contains the home directory, and the keys in it, is rejected."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (tmp_path / "link").symlink_to(tmp_path)
    folder_path = {"/": Path("/"), "home": tmp_path / "home", "above home": tmp_path / "link"}[folder]

    with pytest.raises(NotConfined, match="contains a home folder"):
        DEFAULT.argv("true", folder_path, seccomp=9)


def test_the_description_lists_the_limits() -> None:
    """The LLM reads the limits of a confined command, with the numbers."""
    limits = Confinement(processes=99, memory_bytes=77 * MB, cpu_seconds=55, file_bytes=33 * MB)
    spec = confined_tool(limits).spec

    for part in ("no network", "99 processes", "77 MB of memory", "55 s", "33 MB"):
        assert part in spec.description
    assert spec.timeout > LONGEST_SECONDS
    assert {"command", "timeout_seconds"} == spec.parameters["properties"].keys()


# With bwrap.


@confined
def test_the_offered_tools_if_bwrap_works() -> None:
    """`auto` offers both tools, `require` only the confined one."""
    assert command_tools(workspace_tools()) == ["run_confined", "run_command"]
    assert command_tools(workspace_tools(confine="require")) == ["run_confined"]


@confined
def test_the_workspace_is_writable(place: ConfinedWorkspace) -> None:
    """The command works in the workspace, and the files that it writes there remain and belong to its user."""
    ran = place.run("pwd; mkdir folder && echo made > folder/file; exit 3")

    made = place.workspace / "folder/file"
    assert (3, f"{place.workspace}\n") == (ran.code, ran.output)
    assert made.read_text() == "made\n"
    assert (os.getuid() if place.user is None else place.user) == made.stat().st_uid


@confined
@pytest.mark.parametrize(
    "path",
    [
        "/etc/here",
        "/usr/here",
        "/here",
        "/dev/here",
        "/proc/sys/kernel/domainname",
        "../here",
        "/home/here",
        "/root/here",
    ],
)
def test_nothing_else_is_writable(place: ConfinedWorkspace, path: str) -> None:
    """Outside the workspace, no path can be created or changed."""
    ran = place.run(f"echo x > {path}")

    # The workspace's parent is in /tmp here, and the command's private /tmp has a writable folder of that name.
    assert ran.code != 0 or path == "../here"
    assert not Path("/etc/here").exists()
    assert not (place.workspace.parent / "here").exists()


@confined
def test_kernel_settings_are_not_writable(place: ConfinedWorkspace) -> None:
    """No kernel setting can be opened for writing; for root, that would be a way out."""
    ran = place.run(
        "find /proc -maxdepth 6 -not -path '/proc/[0-9]*' -type f 2>/dev/null > /tmp/all; wc -l < /tmp/all;"
        r"while read -r f; do (exec 3>>$f) 2>/dev/null && echo $f; done < /tmp/all | grep -v /proc/pressure/"
    )

    count, *writable = ran.output.split()
    assert int(count) > 100
    assert writable == []


@confined
@pytest.mark.parametrize("path", ["../secret", "link", "{outside}/secret", "/proc/1/root{outside}/secret"])
def test_nothing_else_is_readable(place: ConfinedWorkspace, path: str) -> None:
    """Neither `..`, a link, an absolute path nor /proc leads out of the workspace."""
    outside = place.workspace.parent
    (outside / "secret").write_text("hidden")
    (outside / "secret").chmod(0o644)
    (place.workspace / "link").symlink_to(outside / "secret")

    ran = place.run(f"cat {path.format(outside=outside)}")

    assert ran.code != 0
    assert "hidden" not in ran.output


@confined
def test_homes_and_secrets_are_not_visible(place: ConfinedWorkspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """No home, password file, service socket or other user's folder is visible."""
    with tempfile.TemporaryDirectory() as home:
        monkeypatch.setenv("HOME", home)
        Path(home, ".ssh").mkdir()
        Path(home, ".ssh/id_ed25519").write_text("hidden")
        ran = place.run(
            f"cat {home}/.ssh/id_ed25519 $HOME/.ssh/id_ed25519 /root/.ssh/* /etc/shadow;"
            "ls -d /var /run /home /sys /mnt; ls -A /tmp; echo HOME=$HOME"
        )

    assert "hidden" not in ran.output
    assert "root:" not in ran.output
    assert not {"/var", "/run", "/home", "/sys", "/mnt"} & set(ran.output.splitlines())
    assert ran.output.endswith("HOME=/tmp\n")


@confined
def test_tmp_is_private_and_bounded(place: ConfinedWorkspace) -> None:
    """/tmp starts empty, is private to the command, is removed with it, and has a size limit."""
    ran = place.run(
        "head -c 9000000 /dev/zero > /tmp/holdfast-probe; wc -c < /tmp/holdfast-probe", Confinement(tmp_bytes=MB)
    )

    assert f"{MB}\n" == ran.output.splitlines(keepends=True)[-1]
    assert not Path("/tmp/holdfast-probe").exists()


@confined
async def test_the_workers_environment_is_not_visible(context: ToolContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the command's environment nor that of any visible process has the worker's variables."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-hidden")
    monkeypatch.setenv("DATABASE_URL", "postgresql://hidden")

    result = await run_confined("env; cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'", context=context)

    assert result.startswith("[exit code 0]\n")
    assert "HOME=/tmp" in result
    assert "hidden" not in result


@confined
def test_other_processes_are_not_visible(place: ConfinedWorkspace) -> None:
    """The command sees only its own processes and cannot signal the worker."""
    ran = place.run(f"ls -d /proc/[0-9]* | wc -l; kill -0 {os.getpid()}; kill -9 -1; echo still here")

    assert int(ran.output.split()[0]) < 8
    assert psutil.pid_exists(os.getpid())


@confined
@pytest.mark.parametrize("address", ["loopback", "machine", "abstract"])
def test_there_is_no_network(place: ConfinedWorkspace, address: str) -> None:
    """Neither a port of this machine, at any address, nor an abstract socket can be reached."""
    if place.user is not None:
        pytest.skip("needs the worker's Python")
    family = socket.AF_UNIX if address == "abstract" else socket.AF_INET
    with socket.socket(family) as server:
        server.bind(f"\0holdfast-{os.getpid()}" if address == "abstract" else ("0.0.0.0", 0))
        server.listen()
        target = server.getsockname()
        if address != "abstract":
            target = ("127.0.0.1" if address == "loopback" else _own_address(), target[1])
        connect = f"import socket; socket.socket(socket.{family.name}).connect({target!r}); print('reach' + 'ed')"
        ran = place.python(connect)
        reached = subprocess.run([sys.executable, "-c", connect], capture_output=True, text=True, check=False)

    assert reached.stdout == "reached\n"
    assert ran.code != 0
    assert "reached" not in ran.output
    assert "Error" in ran.output


def _own_address() -> str:
    for addresses in psutil.net_if_addrs().values():
        for each in addresses:
            if each.family is socket.AF_INET and not each.address.startswith("127."):
                return each.address
    return "127.0.0.1"


@confined
@pytest.mark.parametrize("named", ["by itself", "by HOLDFAST_HOME"])
def test_the_stack_in_the_workspace_is_hidden(
    place: ConfinedWorkspace, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The embedded stack's folder, with PostgreSQL's socket, is hidden even within the workspace."""
    folder = place.workspace / ("deep/stack" if named == "by HOLDFAST_HOME" else ".holdfast")
    monkeypatch.setenv("HOLDFAST_HOME", str(folder if named == "by HOLDFAST_HOME" else place.workspace.parent))
    folder.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "s"))
        ran = place.run(f"ls -A {folder}; echo x > {folder}/x || echo refused")

    assert ran.output.endswith("refused\n")
    assert "s" not in ran.output.splitlines()


@confined
@pytest.mark.parametrize("reached_by", ["the workspace", "a readable folder"])
def test_the_default_state_folder_is_hidden(
    place: ConfinedWorkspace, reached_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without `HOLDFAST_HOME`, `.holdfast` beside `worker.py` is hidden, including PostgreSQL's socket."""
    monkeypatch.delenv("HOLDFAST_HOME")
    assert state_folder() == Settings.from_env({}, root=REPOSITORY).home
    above = place.workspace if reached_by == "the workspace" else place.workspace.parent
    repository = above / "repository"
    monkeypatch.setattr(programs, "PACKAGE", repository / "holdfast")
    (repository / "holdfast").mkdir(parents=True)
    (repository / "starter.py").touch()
    (repository / "holdfast/starter.py").symlink_to("../starter.py")
    assert state_folder() == repository / ".holdfast"
    path = repository / ".holdfast/postgres/.s.PGSQL.5432"
    path.parent.mkdir(parents=True)
    (repository / "worker.py").touch()
    for each in (repository, *repository.rglob("*")):
        each.chmod(0o755)
    confinement = DEFAULT if reached_by == "the workspace" else Confinement(readable=(repository,))
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        ran = place.run(
            f"ls -A {repository} {repository}/.holdfast; ls {path}; touch {repository}/.holdfast/x", confinement
        )

    assert "worker.py" in ran.output.splitlines()
    assert f"cannot access '{path}'" in ran.output
    assert "postgres" not in ran.output.splitlines()
    assert "cannot touch" in ran.output


@confined
def test_a_workspace_in_the_state_folder_is_visible(place: ConfinedWorkspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run's own folder can be read and written although the rest of the state folder is hidden."""
    home = place.workspace.parent
    monkeypatch.setenv("HOLDFAST_HOME", str(home))
    (home / "fleet.keys").touch()

    ran = place.run(f"touch mine; ls {home} {place.workspace}", Confinement(readable=(home.parent,)))

    assert "mine" in ran.output.splitlines()
    assert "fleet.keys" not in ran.output


@confined
def test_commands_have_no_capabilities_and_make_no_namespaces(place: ConfinedWorkspace) -> None:
    """Even as root, a command has no capabilities, gains none, and cannot make a user namespace."""
    ran = place.run("grep -E 'Cap(Eff|Prm|Bnd)|NoNewPrivs' /proc/self/status; unshare -U true && echo made")

    values = [line.split()[1] for line in ran.output.splitlines() if line.startswith(("Cap", "NoNew"))]
    assert values == ["0" * 16] * 3 + ["1"]
    assert "made" not in ran.output.splitlines()


@confined
def test_python_works(place: ConfinedWorkspace) -> None:
    """The worker's Python and its packages are available."""
    if place.user is not None:
        pytest.skip("needs the worker's Python")
    ran = place.python("import pydantic, sys, multiprocessing; multiprocessing.Lock(); print(sys.prefix)")

    assert (0, f"{sys.prefix}\n") == (ran.code, ran.output)


@confined
def test_the_workers_python_is_read_only(place: ConfinedWorkspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A virtualenv within the workspace cannot be changed if the worker runs on it."""
    (place.workspace / ".venv").mkdir()
    (place.workspace / ".venv/code.py").write_text("worker's")
    monkeypatch.setattr(sys, "prefix", str(place.workspace / ".venv"))

    ran = place.run("cat .venv/code.py; echo x > .venv/code.py || mv .venv other || echo refused; echo made > file")

    assert ran.output.startswith("worker's")
    assert ran.output.endswith("refused\n")
    assert (place.workspace / "file").exists()


@confined
def test_a_catalog_may_make_more_paths_readable(place: ConfinedWorkspace) -> None:
    """Paths that the catalog names are visible and read-only."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        Path(folder, "file").write_text("shown")
        ran = place.run(
            f"cat {folder}/file; echo x > {folder}/x || echo refused", Confinement(readable=(Path(folder),))
        )

    assert ran.output.startswith("shown")
    assert ran.output.endswith("refused\n")


@confined
def test_memory_is_limited(place: ConfinedWorkspace) -> None:
    """An allocation beyond the memory limit fails."""
    ran = place.run("head -c 500000000 /dev/zero | tail | wc -c", Confinement(memory_bytes=100 * MB))

    assert "memory exhausted" in ran.output


@confined
def test_cpu_time_is_limited(place: ConfinedWorkspace) -> None:
    """A process that uses up its CPU time is killed."""
    ran = place.run("while :; do :; done", Confinement(cpu_seconds=1))

    assert ran.code == 128 + signal.SIGKILL or ran.code == 128 + signal.SIGXCPU


@confined
def test_file_size_is_limited(place: ConfinedWorkspace) -> None:
    """A file cannot grow beyond its limit."""
    ran = place.run("head -c 5000000 /dev/zero > big", Confinement(file_bytes=MB))

    assert ran.code != 0
    assert (place.workspace / "big").stat().st_size == MB


@confined
def test_a_fork_bomb_is_limited(place: ConfinedWorkspace) -> None:
    """An ordinary user's fork bomb cannot exceed the limit on processes, and dies with its shell."""
    if (place.user or os.getuid()) == 0:
        pytest.skip("the kernel does not count root's processes: see the next test")
    ran = place.run("bomb() { bomb | bomb & }; bomb; sleep 1; ls -d /proc/[0-9]* | wc -l", Confinement(processes=30))

    assert "Cannot fork" in ran.output or "Resource temporarily unavailable" in ran.output
    bombs = [process for process in psutil.process_iter(["cmdline"]) if "bomb | bomb" in str(process.info["cmdline"])]
    assert bombs == []


@confined
async def test_roots_processes_are_counted(context: ToolContext) -> None:
    """Holdfast counts root's processes; beyond the limit, it ends the command and the result says so."""
    if os.getuid() != 0:
        pytest.skip("the kernel counts: see the test before")
    tool = confined_tool(Confinement(processes=30))
    async with asyncio.timeout(PATIENCE):
        result = await tool("for n in $(seq 300); do sleep 7654 & done; wait", context=context)

    assert result.startswith("[stopped: it had more than 30 processes]\n[the shell was killed by signal 9")
    await until(lambda: not living_processes("7654"))


@confined
async def test_output_is_bounded(context: ToolContext) -> None:
    """The beginning and the end of an endless output are kept until the time limit."""
    result, seconds = "", 0
    for seconds in (1, 10, 60):  # on a busy machine, the confinement may take a second to start
        result = await run_confined("yes", timeout_seconds=seconds, context=context)
        if "bytes left out;" in result:
            break

    assert result.startswith(f"[stopped at the time limit of {seconds} s")
    assert "bytes left out;" in result
    assert len(result) < 101_000


@confined
@pytest.mark.parametrize("start", ["sleep 76543 &", "env -i sleep 76543 &", "(setsid env -i sleep 76543 &)"])
@pytest.mark.parametrize("then", ["echo done", "sleep 76543"])
async def test_background_processes_are_ended(context: ToolContext, start: str, then: str) -> None:
    """Background processes end with the command or at its time limit, and the result says so."""
    result = await run_confined(f"{start}\n{then}", timeout_seconds=0.5 if "sleep" in then else 60, context=context)

    expected = "stopped at the time limit" if "sleep" in then else "[processes left in the background were stopped]"
    assert expected in result
    await until(lambda: not living_processes("76543"))


@confined
async def test_the_end_of_a_pipeline_is_not_lost(context: ToolContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that briefly outlives the shell may still print and is not reported as left behind."""
    monkeypatch.setattr(shell, "GRACE_SECONDS", PATIENCE)  # it ends when the child has closed the pipe
    assert await run_confined("(sleep 0.05; echo late) & echo early", context=context) == "[exit code 0]\nearly\nlate\n"


@confined
async def test_cancellation_kills_everything(context: ToolContext) -> None:
    """A cancelled call leaves no process running."""
    running = asyncio.create_task(run_confined("setsid env -i sleep 87654 & sleep 87654", context=context))
    await until(lambda: len(living_processes("87654")) >= 2)

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    await until(lambda: not living_processes("87654"))


@confined
async def test_commands_die_with_the_worker(tmp_path: Path) -> None:
    """A killed worker leaves no confined command running."""
    code = (
        "import asyncio, sys; from pathlib import Path; from holdfast.workspace.shell import run_shell;"
        "from holdfast.workspace.sandbox import DEFAULT;"
        "asyncio.run(run_shell('env -i sleep 98765 & sleep 98765', Path(sys.argv[1]), seconds=60, confinement=DEFAULT))"
    )
    worker = await asyncio.create_subprocess_exec(sys.executable, "-c", code, str(tmp_path))
    try:
        await until(lambda: len(living_processes("98765")) >= 2)
    finally:
        worker.kill()
        await worker.wait()

    await until(lambda: not living_processes("98765"))


@confined
async def test_the_result_reads_like_that_of_run_command(context: ToolContext) -> None:
    """It has the exit code and both outputs; standard input is empty."""
    assert await run_confined("echo out; echo err >&2; cat; exit 3", context=context) == "[exit code 3]\nout\nerr\n"
    assert (await run_confined("kill -9 $$", context=context)).startswith("[exit code 137]")


@confined
async def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    """Every call closes the descriptors that it opened, including calls that fail."""
    await run_shell("true", tmp_path, seconds=PATIENCE, confinement=DEFAULT)
    gc.collect()  # otherwise those of earlier tests are closed meanwhile, and hide one of this test
    before = psutil.Process().num_fds()

    for command in ("true", "sleep 300 &", "sleep 300"):
        await run_shell(command, tmp_path, seconds=0.2, confinement=DEFAULT)
    with pytest.raises(OSError, match="write_file creates it"):
        await run_shell("true", tmp_path / "missing", seconds=1, confinement=DEFAULT)

    # For root, a last count of processes may still be running in its thread.
    await until(lambda: before == psutil.Process().num_fds())
