"""Only a process that has ended on this machine counts as gone.

The processes and namespaces are real if they can be created here; other states and machines are simulated with a /proc
of the test's own.
"""

import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.worker.takeover import liveness
from holdfast.worker.takeover.liveness import is_gone, this_process
from holdfast.worker.takeover.worker_identity import WorkerIdentity, parse_identity
from tests.unit.worker.test_liveness import identity_of
from tests.unit.worker.test_worker_identity import identities

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are proved to be gone on Linux only")

ASLEEP = "import time; time.sleep(600)"
HALF_A_ZOMBIE = (
    "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(600,)).start();"
    "ctypes.CDLL(None).syscall(60 if __import__('platform').machine() == 'x86_64' else 93, 0)"
)


@dataclass(frozen=True)
class Processes:
    """Processes of this machine."""

    me: WorkerIdentity
    living: Sequence[WorkerIdentity]
    """This process, process 1, and children: asleep, stopped, and one of which only the first thread has ended."""
    dead: Sequence[WorkerIdentity]
    """Killed children: one not reaped yet, and one that was reaped."""


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    """Yield processes in every state."""
    me = this_process()
    assert me is not None
    programs = (ASLEEP, ASLEEP, HALF_A_ZOMBIE, ASLEEP, ASLEEP)
    children = [subprocess.Popen([sys.executable, "-c", program]) for program in programs]
    _, stopped, half, zombie, reaped = children
    known = [identity_of(child.pid, me) for child in children]
    stopped.send_signal(signal.SIGSTOP)
    zombie.kill()
    reaped.kill()
    reaped.wait()
    for child, status in (
        (stopped, psutil.STATUS_STOPPED),
        (half, psutil.STATUS_ZOMBIE),
        (zombie, psutil.STATUS_ZOMBIE),
    ):
        while psutil.Process(child.pid).status() != status:
            time.sleep(0.001)
    yield Processes(me, [me, identity_of(1, me), *known[:3]], known[3:])
    for child in children:
        child.kill()
        child.wait()


@given(st.data())
def test_only_processes_that_ended_here_are_gone(processes: Processes, data: st.DataObject) -> None:
    """With another start time, it is another process, which has ended; elsewhere, nothing is proved."""
    process = data.draw(st.sampled_from([*processes.living, *processes.dead]))
    start = data.draw(st.just(process.started) | st.integers(0, 10**20 - 1))
    scope = data.draw(st.just(process.scope) | st.from_regex(r"[0-9a-f]{16}", fullmatch=True))
    host = data.draw(st.just(process.host) | identities.map(lambda other: other.host))  # proves nothing
    asked = parse_identity(str(replace(process, host=host, scope=scope, started=start)))
    assert asked is not None
    here = scope == processes.me.scope
    assert is_gone(asked, seen_from=processes.me) == (here and (process in processes.dead or start != process.started))


@given(st.integers(1, 3), st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=15))
def test_a_process_in_any_state_lives_until_its_last_thread_has_ended(threads: int, name: str) -> None:
    """In any state and under any name, only a zombie without other threads is gone."""
    me = this_process()
    assert me is not None
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(liveness, "_PROC", Path(folder))
        (Path(folder) / str(me.pid)).mkdir()
        for state in "RSDTtWXxKPIZ?":
            write_stat(Path(folder), me.pid, started=me.started, state=state, threads=threads, name=name)
            assert is_gone(me, seen_from=me) == (state in "ZXx" and threads == 1), state


def write_stat(proc: Path, pid: int, *, started: int, state: str = "S", threads: int = 1, name: str = "python") -> None:
    """Write a process's stat file as the kernel does."""
    fields = [state, *"0" * 16, str(threads), "0", str(started), *"0" * 30]
    (proc / str(pid) / "stat").write_bytes(f"{pid} ({name}) {' '.join(fields)}\n".encode())


@dataclass(frozen=True)
class Machine:
    """The values that distinguish one machine, boot or container from another."""

    host: str
    machine_id: str
    boot_id: str
    pid_namespace: int
    time_namespace: int | None
    """None on kernels before 5.6."""

    def identity(self) -> WorkerIdentity | None:
        """Return the identity of this process on that machine."""
        with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
            proc, pid = Path(folder), os.getpid()
            (proc / str(pid) / "ns").mkdir(parents=True)
            (proc / "self").symlink_to(str(pid))
            (proc / str(pid) / "ns" / "pid").symlink_to(f"pid:[{self.pid_namespace}]")
            if self.time_namespace is not None:
                (proc / str(pid) / "ns" / "time").symlink_to(f"time:[{self.time_namespace}]")
                (proc / str(pid) / "ns" / f"time:[{self.time_namespace}]").touch()
            (proc / "sys/kernel/random").mkdir(parents=True)
            (proc / "sys/kernel/random/boot_id").write_text(self.boot_id + "\n")
            write_stat(proc, pid, started=1)
            patch.setattr(liveness, "_PROC", proc)
            patch.setattr(liveness, "_machine_id", lambda: self.machine_id)
            patch.setattr(platform, "node", lambda: self.host)
            return this_process()


hexes = st.text("0123456789abcdef", min_size=1, max_size=32)
machines = st.builds(
    Machine,
    host=st.text("abc-.", max_size=5),
    machine_id=hexes | st.just(""),
    boot_id=hexes,
    pid_namespace=st.integers(1, 3),
    time_namespace=st.none() | st.integers(1, 3),
)


@given(machines, machines, st.data())
def test_places_are_equal_only_if_all_values_are(one: Machine, two: Machine, data: st.DataObject) -> None:
    """If the host, machine, boot or namespaces differ, no process there counts as gone."""
    names = ("host", "machine_id", "boot_id", "pid_namespace", "time_namespace")
    changed = data.draw(st.sampled_from(names).map(lambda name: {name}) | st.sets(st.sampled_from(names)))
    other = replace(one, **{name: getattr(two, name) for name in sorted(changed)})
    seen, seen_there = one.identity(), other.identity()
    assert seen is not None
    assert seen_there is not None
    assert (seen.scope == seen_there.scope) == (one == other)
    if one != other:
        assert not is_gone(replace(seen_there, pid=2**32 - 1), seen_from=seen)


def in_namespaces(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program in its own process namespace, like a container."""
    argv = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", sys.executable, "-c", program, *arguments]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no unshare here")
    if re.search("(unshare|mount).*(failed|not permitted|denied)", done.stderr):
        pytest.skip(f"namespaces cannot be made here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return done


def test_a_container_and_its_host_do_not_judge_each_other(processes: Processes) -> None:
    """Neither sees the other's processes, so neither counts any of them as gone."""
    program = (
        "import sys; from holdfast.worker.takeover.liveness import *;"
        "from holdfast.worker.takeover.worker_identity import *;"
        "me = this_process(); print(me, [is_gone(parse_identity(each), seen_from=me) for each in sys.argv[1:]])"
    )
    identities = [*map(str, processes.living), *map(str, processes.dead)]
    identity, _, verdicts = in_namespaces(program, *identities).stdout.strip().partition(" ")
    assert verdicts == str([False] * len(identities))
    inside = parse_identity(identity)
    assert inside is not None
    assert inside.scope != processes.me.scope
    assert not is_gone(inside, seen_from=processes.me)  # although it has ended


RECYCLED = """
import subprocess, sys, time
from dataclasses import replace
from pathlib import Path
from holdfast.worker.takeover.liveness import is_gone, this_process
from tests.unit.worker.test_liveness import identity_of

me = this_process()
first = subprocess.Popen(["sleep", "600"])
was = identity_of(first.pid, me)
first.kill()
first.wait()
time.sleep(0.02)  # two ticks of the clock of start times
for _ in range(100):
    Path("/proc/sys/kernel/ns_last_pid").write_text(str(was.pid - 1))
    second = subprocess.Popen(["sleep", "600"])
    if second.pid == was.pid:
        break
    second.kill()
    second.wait()
now = identity_of(second.pid, me)
print(now.pid == was.pid, is_gone(was, seen_from=me), is_gone(now, seen_from=me))
second.kill()
"""


def test_a_process_with_a_reused_id_lives() -> None:
    """The kernel is made to reuse an id: the first process is gone, the second one is not."""
    assert in_namespaces(RECYCLED).stdout.split() == ["True", "True", "False"]
