"""Keeps a process of ours to itself: other processes of the same user do not read its secrets.

1. Its environment, as /proc shows it, is emptied of all but a few harmless variables. The process keeps its own copy.
2. Nobody but root can trace it or read its memory. Root can, always: so a worker that is root says so.
"""

import ctypes
import os
import sys
from contextlib import suppress

from holdfast.runtime.devstack.processes import PASSED

PR_SET_DUMPABLE = 4

ROOT_NOTICE = (
    "Running as root: a command that a run starts, unless it is confined, can read and change everything on this "
    "machine, this worker's memory too. Use an account of its own."
)


def close_to_others() -> None:
    """Hide this process from others of the same user. Call it early; what is set later was never shown."""
    _erase_environment()
    if sys.platform.startswith("linux"):
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def is_root() -> bool:
    """Whether this process is root's."""
    return os.geteuid() == 0


def _erase_environment() -> None:
    """Overwrite the values that the process was started with.

    The kernel shows the memory that it filled at the start, however the environment changes afterwards. So each value
    is set anew, for which the C library makes a copy, and the bytes of the first one are overwritten.
    """
    try:
        getenv = ctypes.CDLL(None).getenv
    except (OSError, AttributeError):
        return
    getenv.restype, getenv.argtypes = ctypes.c_void_p, [ctypes.c_char_p]
    for name, value in list(os.environb.items()):
        if name.decode("ascii", "replace") in PASSED or not value:
            continue
        first = getenv(name)
        os.environb[name] = value
        if first and getenv(name) != first and ctypes.string_at(first) == value:
            ctypes.memset(first, 0, len(value))
