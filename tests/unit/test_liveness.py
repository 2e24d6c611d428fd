"""Gone is only what is proved to be gone: with a false proof, a living worker would lose its work."""

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

from holdfast.runtime.takeover import liveness
from holdfast.runtime.takeover.liveness import is_gone, this_process
from holdfast.runtime.takeover.worker_identity import WorkerIdentity, parse_identity
from tests.unit.test_worker_identity import identities

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are proved to be gone on Linux only")


@pytest.fixture
def me() -> WorkerIdentity:
    """This process."""
    found = this_process()
    assert found is not None
    return found


@pytest.fixture
def child() -> Iterator["subprocess.Popen[bytes]"]:
    """A process that sleeps."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield child
    child.kill()
    child.wait()


def identity_of(pid: int, me: WorkerIdentity) -> WorkerIdentity:
    """Another process of this place."""
    started = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return replace(me, pid=pid, started=int(started))


def test_a_process_lives_while_it_can_be_seen(me: WorkerIdentity, child: "subprocess.Popen[bytes]") -> None:
    """This one, another one, a stopped one, and process 1, which may be somebody else's."""
    assert not is_gone(me, seen_from=me)
    sleeper = identity_of(child.pid, me)
    assert not is_gone(sleeper, seen_from=me)
    child.send_signal(signal.SIGSTOP)
    while psutil.Process(child.pid).status() != psutil.STATUS_STOPPED:
        time.sleep(0.001)
    assert not is_gone(sleeper, seen_from=me)
    assert not is_gone(identity_of(1, me), seen_from=me)


def test_a_process_is_gone_when_it_was_killed(me: WorkerIdentity, child: "subprocess.Popen[bytes]") -> None:
    """As a zombie that nobody has reaped yet, and after that."""
    sleeper = identity_of(child.pid, me)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE
    assert is_gone(sleeper, seen_from=me)
    child.wait()
    assert is_gone(sleeper, seen_from=me)


def test_a_zombie_with_living_threads_lives(me: WorkerIdentity) -> None:
    """Its first thread has ended; another one may still have an effect."""
    program = (
        "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(600,)).start();"
        "ctypes.CDLL(None).syscall(60 if __import__('platform').machine() == 'x86_64' else 93, 0)"
    )
    with subprocess.Popen([sys.executable, "-c", program]) as child:
        while psutil.Process(child.pid).status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.001)
        assert not is_gone(identity_of(child.pid, me), seen_from=me)
        child.kill()


def test_a_number_that_is_used_again_is_another_process(me: WorkerIdentity) -> None:
    """The process that has the number now was started at another time."""
    assert is_gone(replace(me, started=me.started - 1), seen_from=me)


@given(identities)
def test_processes_of_another_place_are_nobodys_to_judge(other: WorkerIdentity) -> None:
    """Another machine, container or boot, whatever its name: there may be no such process here, and it lives there."""
    me = this_process()
    assert me is not None
    assert not is_gone(other, seen_from=me)
    assert not is_gone(replace(other, host=me.host), seen_from=me)


def test_what_cannot_be_read_is_no_proof(me: WorkerIdentity, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without /proc, or with that of another namespace, this process has no identity, and one that exists lives."""
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
    """It has an identity of its own, in the same place."""
    program = (
        "import os; from holdfast.runtime.takeover.liveness import this_process; child = os.fork();"
        "child and os.waitpid(child, 0); print(this_process(), flush=True)"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    found = [parse_identity(line) for line in told]
    assert len({me, *found}) == 3
    assert {each.place for each in found if each} == {me.place}
