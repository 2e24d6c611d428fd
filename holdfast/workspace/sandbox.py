"""Confines commands with bubblewrap (`bwrap`): sets their limits, and tests whether it works on this machine.

1. A command sees only the folders listed here: programs and libraries, read-only, and the workspace.
2. The state folder, which holds keys and PostgreSQL's socket, is hidden in every visible folder that contains it.
3. An installed `bwrap` proves nothing, because many containers forbid its system calls: `unavailable_reason` tries it.
4. There is no fallback: a command that cannot be confined does not run.
"""

import asyncio
import os
import platform
import pwd
import shutil
import subprocess
import sys
import tempfile
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil
from pydantic import Field

from holdfast.config.state_folder import state_folder
from holdfast.core.base.models import Definition
from holdfast.workspace.seccomp import is_supported, seccomp_filter

MB = 1024**2
PROBE_SECONDS = 10.0
"""Time limit of the trial in `unavailable_reason`."""
COUNT_EVERY = 0.2
"""Seconds between counts of a command's processes."""

_NAMESPACES = ("user", "ipc", "pid", "net", "uts", "cgroup-try")
_PROGRAMS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_CONFIGURATION = (
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "passwd", "group", "nsswitch.conf", "hosts"),
    *("localtime", "timezone", "ssl/openssl.cnf", "ssl/certs"),
)
"""The files of /etc that programs need to start; none is secret."""
_HOME = "/tmp"  # noqa: S108  # the sandbox's own, empty and private

# The shell around a command: background processes may print for half a second more, and a note reports them.
_WRAPPER = r"""/bin/sh -c "$1"
code=$? n=0
while set -- /proc/[0-9]*; [ $# -gt 2 ] && [ $n -lt 10 ]; do n=$((n + 1)); sleep 0.05; done
[ $# -gt 2 ] && printf '\n[processes left in the background were stopped]\n'
exit $code"""


class NotConfined(Exception):
    """The command cannot be confined as requested; it did not run."""


class Confinement(Definition):
    """The limits of a confined command; the tool limits its time. docs/how-to/work-with-files.md lists the rest."""

    cpu_seconds: int = Field(default=600, ge=1)
    """CPU time of each process."""
    memory_bytes: int = Field(default=4_096 * MB, ge=16 * MB)
    """Address space of each process."""
    processes: int = Field(default=256, ge=8)
    """Processes and threads at a time. The kernel exempts root, so for a worker run by root we count processes."""
    file_bytes: int = Field(default=1_024 * MB, ge=0)
    """Size of each file that it writes."""
    tmp_bytes: int = Field(default=512 * MB, ge=MB)
    """Size of /tmp, and again of /dev/shm. Both use memory."""
    readable: tuple[Path, ...] = ()
    """More files and folders that it may read, such as /opt/java, under the same path."""

    def argv(self, command: str, folder: Path, *, seccomp: int, network: bool = False) -> list[str]:
        """Return the program and arguments that run `/bin/sh -c command` in `folder`, confined.

        Args:
            command: The command line.
            folder: The workspace.
            seccomp: The descriptor of a `seccomp_filter`, which the process has to inherit.
            network: Give it access to the network.

        Raises:
            NotConfined: The folder contains a home folder.
        """
        limits = {
            "cpu": self.cpu_seconds,
            "as": self.memory_bytes,
            "nproc": self.processes,
            "fsize": self.file_bytes,
            "core": 0,
        }
        namespaces = [name for name in _NAMESPACES if not (network and name == "net")]
        configuration = (*_CONFIGURATION, *(("resolv.conf",) if network else ()))
        return [
            *("bwrap", *(f"--unshare-{name}" for name in namespaces), "--disable-userns", "--cap-drop", "ALL"),
            *("--die-with-parent", "--new-session", "--seccomp", str(seccomp)),
            *_mounts(_PROGRAMS),
            *(word for name in configuration for word in ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")),
            # Root may write to /proc/sys even without capabilities, which gives access to the machine.
            *("--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys"),
            *("--dev", "/dev", "--size", str(self.tmp_bytes)),
            *("--tmpfs", "/dev/shm", "--remount-ro", "/dev"),  # noqa: S108  # the sandbox's own
            *("--size", str(self.tmp_bytes), "--tmpfs", _HOME),
            *_workspace(folder.absolute(), [*_python(), *map(str, self.readable)]),
            # Set inside the sandbox: outside, the other processes of the worker's user would count, too.
            *("--remount-ro", "/", "--", "prlimit", *(f"--{name}={limit}" for name, limit in limits.items()), "--"),
            *("/bin/sh", "-c", _WRAPPER, "sh", command),
        ]

    def environment(self, passed: dict[str, str]) -> dict[str, str]:
        """Derive the environment of a confined command from an unconfined one; the worker's Python is last on PATH."""
        kept = {name: value for name, value in passed.items() if not name.startswith("SSL_CERT_")}
        path = [*filter(None, [passed.get("PATH", os.defpath)]), f"{sys.prefix}/bin"]
        return kept | {"HOME": _HOME, "TMPDIR": _HOME, "PATH": os.pathsep.join(path)}


def reading_argv(
    program: Sequence[str], *, readable: Sequence[Path], writable: Sequence[Path], folder: Path
) -> list[str]:
    """Return the arguments that run one of our programs confined to certain folders.

    Args:
        program: A system program with its arguments.
        readable: Folders that it may read, without links in their paths.
        writable: Folders that it may also write to.
        folder: The working directory.
    """
    bwrap = shutil.which("bwrap") or "bwrap"  # the full path: the program runs without PATH
    return [
        *(bwrap, *(f"--unshare-{name}" for name in _NAMESPACES), "--disable-userns", "--cap-drop", "ALL"),
        *("--die-with-parent", "--new-session"),
        *_mounts(_PROGRAMS),
        *("--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"),
        *("--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys", "--dev", "/dev", "--tmpfs", _HOME),
        *(word for path in readable for word in ("--ro-bind", str(path), str(path))),
        *(word for path in writable for word in ("--bind", str(path), str(path))),
        *("--remount-ro", "/", "--chdir", str(folder), "--", *program),
    ]


DEFAULT = Confinement()
"""The limits of `run_confined` if the catalog sets none."""


def _mounts(paths: tuple[str, ...]) -> Iterator[str]:
    """Mount system folders read-only; /bin and others are links on most systems, and stay links."""
    for path in paths:
        if Path(path).is_symlink():
            yield from ("--symlink", str(Path(path).readlink()), path)
        else:
            yield from ("--ro-bind-try", path, path)


def _python() -> list[str]:
    """The folders of the worker's Python, except those below /usr and those that contain a home."""
    folders = [sys.base_prefix, os.path.realpath(sys.base_prefix), sys.prefix]
    return [path for path in dict.fromkeys(folders) if not Path(path).is_relative_to("/usr") and not _holds_home(path)]


def _holds_home(path: str | Path) -> bool:
    real = Path(os.path.realpath(path))
    return real == Path("/") or any(home.is_relative_to(real) for home in _homes())


def _homes() -> Iterator[Path]:
    """The user's home, by the environment and by the user database."""
    homes = [os.environ.get("HOME", "")]
    with suppress(KeyError):
        homes.append(pwd.getpwuid(os.getuid()).pw_dir)
    yield from (Path(os.path.realpath(home)) for home in homes if Path(home).is_absolute() and home != "/")


def _workspace(folder: Path, readable: list[str]) -> Iterator[str]:
    """Mount the workspace read-write and the readable paths read-only, also within the workspace.

    The state folder is hidden in all of them; a workspace inside the state folder stays visible.
    """
    if _holds_home(folder):
        raise NotConfined(f"{folder} contains a home folder, which a confined command must not see; use one below it")
    within = [path for path in readable if Path(path).is_relative_to(folder)]
    outside = [path for path in readable if path not in within]
    for path in outside:
        yield from ("--ro-bind", path, path)
    visible = [*(path for path in _PROGRAMS if not Path(path).is_symlink()), *outside]
    covered = [hidden for path in visible for hidden in _state_folders_in(Path(path), state_folder())]
    yield from (word for hidden in covered for word in ("--tmpfs", hidden))
    yield from ("--bind", str(folder), str(folder), "--chdir", str(folder))
    for path in within:
        yield from ("--ro-bind", path, path)
    for hidden in _state_folders_in(folder, state_folder(), folder / ".holdfast"):
        yield from ("--tmpfs", hidden, "--remount-ro", hidden)
    yield from (word for hidden in covered for word in ("--remount-ro", hidden))


def _state_folders_in(folder: Path, *candidates: Path) -> list[str]:
    """Return the paths, below a visible folder, of those candidates that are folders in it."""
    base = os.path.realpath(folder)
    real = dict.fromkeys(os.path.realpath(path) for path in candidates)
    hidden = [path for path in real if path != base and Path(path).is_relative_to(base) and Path(path).is_dir()]
    return [str(folder / os.path.relpath(path, base)) for path in hidden]


@cache
def unavailable_reason(confinement: Confinement) -> str | None:
    """Return why commands cannot be confined on this machine; None if they can. Tries it once, with `true`."""
    if not sys.platform.startswith("linux"):
        return "bubblewrap needs Linux"
    if shutil.which("bwrap") is None:
        return "bwrap is not installed; it comes with the package bubblewrap"
    if not is_supported():
        return f"there is no system call filter for {platform.machine()}"
    try:
        with tempfile.TemporaryDirectory() as folder, seccomp_filter() as descriptor:
            ran = subprocess.run(
                confinement.argv("true", Path(folder), seccomp=descriptor),
                pass_fds=[descriptor],
                env=confinement.environment({"PATH": os.environ["PATH"]} if "PATH" in os.environ else {}),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=PROBE_SECONDS,
                check=False,
            )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"a trial failed: {error}"
    if ran.returncode == 0:
        return None
    lines = ran.stderr.decode("utf-8", "replace").strip().splitlines()
    return f"a trial ended with exit code {ran.returncode}" + (f": {lines[-1][:300]}" if lines else "")


@dataclass
class Count:
    """Whether a command had too many processes."""

    exceeded: bool = False


@asynccontextmanager
async def limit_processes(process: Process, confinement: Confinement | None) -> AsyncIterator[Count]:
    """Kill a confined command with too many processes; needed only for root, which the kernel does not limit."""
    count = Count()
    if confinement is None or os.getuid() != 0:
        yield count
        return
    watching = asyncio.create_task(_watch(process, confinement.processes, count))
    try:
        yield count
    finally:
        watching.cancel()
        await asyncio.wait({watching})


async def _watch(process: Process, most: int, count: Count) -> None:
    while await asyncio.to_thread(_descendants, process.pid) <= most:  # noqa: ASYNC110 - a fork in another process sets no event
        await asyncio.sleep(COUNT_EVERY)
    with suppress(ProcessLookupError):
        process.kill()
        count.exceeded = True


def _descendants(pid: int) -> int:
    with suppress(psutil.Error):
        return len(psutil.Process(pid).children(recursive=True))
    return 0
