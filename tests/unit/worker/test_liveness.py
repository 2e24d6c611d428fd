"""A process counts as gone only with proof; a false proof would take work from a living worker."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from hypothesis import given

from holdfast.worker.takeover import liveness
from holdfast.worker.takeover.liveness import is_gone, this_process
from holdfast.worker.takeover.worker_identity import WorkerIdentity, parse_identity
from tests.unit.worker.test_worker_identity import identities

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are proved to be gone on Linux only")


@pytest.fixture
def me() -> WorkerIdentity:
    """Return the identity of this process."""
    identity = this_process()
    assert identity is not None
    return identity


@pytest.fixture
def child() -> Iterator["subprocess.Popen[bytes]"]:
    """Yield a sleeping process."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield child
    child.kill()
    child.wait()


def identity_of(pid: int, me: WorkerIdentity) -> WorkerIdentity:
    """Return the identity of another process of this machine."""
    started = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return replace(me, pid=pid, started=int(started))


def test_a_visible_process_lives(me: WorkerIdentity, child: "subprocess.Popen[bytes]") -> None:
    """This process, a child, a stopped one and process 1 all live."""
    assert not is_gone(me, seen_from=me)
    sleeper = identity_of(child.pid, me)
    assert not is_gone(sleeper, seen_from=me)
    child.send_signal(signal.SIGSTOP)
    while psutil.Process(child.pid).status() != psutil.STATUS_STOPPED:
        time.sleep(0.001)
    assert not is_gone(sleeper, seen_from=me)
    assert not is_gone(identity_of(1, me), seen_from=me)


def test_a_killed_process_is_gone(me: WorkerIdentity, child: "subprocess.Popen[bytes]") -> None:
    """It is gone both as a zombie and after it has been reaped."""
    sleeper = identity_of(child.pid, me)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE
    assert is_gone(sleeper, seen_from=me)
    child.wait()
    assert is_gone(sleeper, seen_from=me)


def test_a_zombie_with_living_threads_lives(me: WorkerIdentity) -> None:
    """Although its first thread has ended, another one may still have an effect."""
    program = (
        "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(600,)).start();"
        "ctypes.CDLL(None).syscall(60 if __import__('platform').machine() == 'x86_64' else 93, 0)"
    )
    with subprocess.Popen([sys.executable, "-c", program]) as child:
        while psutil.Process(child.pid).status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.001)
        assert not is_gone(identity_of(child.pid, me), seen_from=me)
        child.kill()


def test_a_reused_process_id_is_another_process(me: WorkerIdentity) -> None:
    """A process with the same id but another start time is a different one."""
    assert is_gone(replace(me, started=me.started - 1), seen_from=me)


@given(identities)
def test_processes_elsewhere_are_never_gone(other: WorkerIdentity) -> None:
    """A process of another machine, container or boot may live although it does not exist here."""
    me = this_process()
    assert me is not None
    assert not is_gone(other, seen_from=me)
    assert not is_gone(replace(other, host=me.host), seen_from=me)


def test_unreadable_process_information_is_no_proof(
    me: WorkerIdentity, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without /proc, or with another namespace's, this process has no identity and no existing process is gone."""
    monkeypatch.setattr(liveness, "_PROC", tmp_path)
    assert this_process() is None
    assert not is_gone(replace(me, started=me.started - 1), seen_from=me)
    (tmp_path / "self").symlink_to("1")
    assert this_process() is None
    (tmp_path / str(me.pid)).mkdir()
    for text in (b"", b"1 (python", b"1 (py) S 1 2", b"1 (py) S" + b" x" * 30):
        (tmp_path / str(me.pid) / "stat").write_bytes(text)
        assert not is_gone(replace(me, started=me.started - 1), seen_from=me)


def test_a_forked_process_is_another_one(me: WorkerIdentity) -> None:
    """A forked process has its own identity in the same environment."""
    program = (
        "import os; from holdfast.worker.takeover.liveness import this_process; child = os.fork();"
        "child and os.waitpid(child, 0); print(this_process(), flush=True)"
    )
    lines = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    identities = [parse_identity(line) for line in lines]
    assert len({me, *identities}) == 3
    assert {each.scope for each in identities if each} == {me.scope}
