"""Which processes of this very place have ended, for sure. On Linux; elsewhere nothing is proved.

1. A place is one start of one machine, seen from one process id namespace and one time namespace: there, a process id
   with a start time names one process for ever. Of another place's processes nothing is concluded.
2. Gone is what the kernel says does not exist, what has another start time (the number is used again), and a zombie
   whose threads have all ended. A process that is stopped or frozen lives.
3. What cannot be read is no proof.
"""

import hashlib
import os
import platform
from pathlib import Path

from holdfast.runtime.takeover.worker_identity import WorkerIdentity, host_in_identity

_PROC = Path("/proc")
_NAMESPACES = ("pid", "time")
_STATE, _THREADS, _STARTED = 0, 17, 19
"""Positions in `/proc/PID/stat` behind the command's name: state, num_threads and starttime of proc_pid_stat(5)."""


def this_process() -> WorkerIdentity | None:
    """This process's identity; None where it cannot be established. A forked process has to ask anew."""
    try:
        if str((_PROC / "self").readlink()) != str(os.getpid()):
            return None  # another namespace's /proc: its numbers are not ours
        boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        spaces = [str((_PROC / "self/ns" / name).readlink()) for name in _NAMESPACES if _has(name)]
        _, _, started = _stat(os.getpid())
    except (OSError, ValueError):
        return None
    if not boot or not spaces:
        return None
    host = platform.node()
    place = hashlib.sha256("\n".join([host, _machine_id(), boot, *spaces]).encode()).hexdigest()[:16]
    return WorkerIdentity(host_in_identity(host), place, os.getpid(), started)


def is_gone(other: WorkerIdentity, *, seen_from: WorkerIdentity) -> bool:
    """Whether a process has provably ended.

    Args:
        other: The process.
        seen_from: `this_process()`.
    """
    if other.place != seen_from.place:
        return False
    try:
        os.kill(other.pid, 0)  # unlike /proc, which may hide other users' processes
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        pass  # it exists, and is not ours
    try:
        state, threads, started = _stat(other.pid)
    except (OSError, ValueError):
        return False
    # The first thread of a dying process is a zombie while others may still be in the kernel, writing.
    return started != other.started or (state in "ZXx" and threads <= 1)


def _stat(pid: int) -> tuple[str, int, int]:
    """State, number of threads and start time."""
    # The command's name, in parentheses, may hold anything.
    fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    if len(fields) <= _STARTED:
        raise ValueError(f"/proc/{pid}/stat is cut short")
    return fields[_STATE].decode("ascii"), int(fields[_THREADS]), int(fields[_STARTED])


def _has(namespace: str) -> bool:
    return namespace == "pid" or (_PROC / "self/ns" / namespace).exists()  # kernels before 5.6 have one time


def _machine_id() -> str:
    """Tells machines apart whose memory was copied while they ran; empty without one."""
    try:
        return Path("/etc/machine-id").read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
