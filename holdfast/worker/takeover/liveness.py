"""Proves that processes of this scope have ended. Works on Linux; elsewhere it proves nothing.

1. A scope is one boot of one machine, seen from one process id namespace and one time namespace. In it, a process id
   with a start time names one process permanently. Nothing is concluded about processes of other scopes.
2. A process is gone if the kernel says that it does not exist, if its id now has another start time, or if it is a
   zombie whose threads have all ended. A stopped or frozen process is alive.
3. Information that cannot be read proves nothing.
"""

import hashlib
import os
import platform
from pathlib import Path

from holdfast.worker.takeover.worker_identity import WorkerIdentity, host_in_identity

_PROC = Path("/proc")
_NAMESPACES = ("pid", "time")
_STATE, _THREADS, _STARTED = 0, 17, 19
"""Positions in `/proc/PID/stat` after the command's name: state, num_threads and starttime of proc_pid_stat(5)."""


def this_process() -> WorkerIdentity | None:
    """Return this process's identity; None if it cannot be determined. A forked process must call this again."""
    try:
        if str((_PROC / "self").readlink()) != str(os.getpid()):
            return None  # another namespace's /proc: its process ids are not ours
        boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        spaces = [str((_PROC / "self/ns" / name).readlink()) for name in _NAMESPACES if _has(name)]
        _, _, started = _stat(os.getpid())
    except (OSError, ValueError):
        return None
    if not boot or not spaces:
        return None
    host = platform.node()
    scope = hashlib.sha256("\n".join([host, _machine_id(), boot, *spaces]).encode()).hexdigest()[:16]
    return WorkerIdentity(host_in_identity(host), scope, os.getpid(), started)


def is_gone(other: WorkerIdentity, *, seen_from: WorkerIdentity) -> bool:
    """Whether a process has provably ended.

    Args:
        other: The process.
        seen_from: `this_process()`.
    """
    if other.scope != seen_from.scope:
        return False
    try:
        os.kill(other.pid, 0)  # not /proc, which may hide other users' processes
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        pass  # the process exists, and belongs to another user
    try:
        state, threads, started = _stat(other.pid)
    except (OSError, ValueError):
        return False
    # The first thread of a dying process is a zombie while other threads may still write in the kernel.
    return started != other.started or (state in "ZXx" and threads <= 1)


def _stat(pid: int) -> tuple[str, int, int]:
    """Return state, number of threads and start time."""
    # The command's name, in parentheses, may contain any character.
    fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    if len(fields) <= _STARTED:
        raise ValueError(f"/proc/{pid}/stat is incomplete")
    return fields[_STATE].decode("ascii"), int(fields[_THREADS]), int(fields[_STARTED])


def _has(namespace: str) -> bool:
    return namespace == "pid" or (_PROC / "self/ns" / namespace).exists()  # kernels before 5.6 have no time namespaces


def _machine_id() -> str:
    """Return the machine id, which distinguishes clones of a running virtual machine; empty without one."""
    try:
        return Path("/etc/machine-id").read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
