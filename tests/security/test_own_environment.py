"""A command that a run starts tries to read the secrets of its worker."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.composition.hardening import ROOT_NOTICE

REPOSITORY = Path(__file__).parents[2]
SECRET = "sk-parent-4711-secret"
WORKER = """
import asyncio, concurrent.futures.thread, ctypes, os, sys
from pathlib import Path
from holdfast.workspace.shell import run_shell
from holdfast.composition.hardening import PR_SET_DUMPABLE, protect_process

uid, close = int(sys.argv[1]), sys.argv[2] == "close"
if uid:
    os.setgroups([]); os.setgid(uid); os.setuid(uid)
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)  # as a process that was started by this user has it
if close:
    protect_process()
assert os.environ["OPENAI_API_KEY"] == sys.argv[4][::-1]
getenv = ctypes.CDLL(None).getenv
getenv.restype = ctypes.c_char_p
assert getenv(b"PGPASSWORD").decode() == sys.argv[4][::-1]  # what libpq reads
command = sys.argv[3].replace("PARENT", str(os.getpid()))
print(asyncio.run(run_shell(command, Path("/tmp"), seconds=20)).output)
os._exit(0)
"""


def seen(command: str, *, close: bool, uid: int = 0) -> str:
    """Return the output of a command of `run_command`, with a worker that has protected itself or not."""
    done = subprocess.run(
        [sys.executable, "-c", WORKER, str(uid), "close" if close else "open", command, SECRET[::-1]],
        cwd=REPOSITORY,
        env={**os.environ, "OPENAI_API_KEY": SECRET, "PGPASSWORD": SECRET},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run as another user")


@linux
def test_a_command_does_not_read_the_workers_environment() -> None:
    """The command fails through its parent's process id and by searching all processes, even as root."""
    look = "cat /proc/PARENT/environ /proc/$PPID/environ | tr '\\0' '\\n'; ps eww PARENT 2>/dev/null"

    assert SECRET in seen(look, close=False)
    assert SECRET not in seen(look, close=True)


@linux
@root
def test_a_command_of_the_same_user_cannot_inspect_the_worker() -> None:
    """The kernel denies processes of the same user the worker's environment, memory and files."""
    files = ("environ", "mem", "maps", "fd/0")
    opening = "head -c 1 < /proc/PARENT/$f > /dev/null 2>&1 || exec 3< /proc/PARENT/$f && echo OPEN $f"
    look = f"for f in {' '.join(files)}; do ({opening}); done; true"

    opened = seen(look, close=False, uid=54321)
    assert all(f"OPEN {each}" in opened for each in files), opened
    assert "OPEN" not in seen(look, close=True, uid=54321)


def test_a_worker_that_runs_as_root_warns() -> None:
    """The warning is one line with advice."""
    assert "\n" not in ROOT_NOTICE
    assert "account of its own" in ROOT_NOTICE
