"""Hides the secrets of this process from other processes of the same user.

1. /proc shows only a few harmless variables of its environment. The process keeps its own copy of all.
2. Only root can trace the process or read its memory. A worker that runs as root therefore prints a warning.
"""

import ctypes
import os
import sys
from contextlib import suppress

from holdfast.devstack.processes import PASSED

PR_SET_DUMPABLE = 4

ROOT_NOTICE = (
    "Running as root: a command that a run starts, unless it is confined, can read and change everything on this "
    "machine, including this worker's memory. Run the worker under an account of its own."
)


def protect_process() -> None:
    """Hide the environment and memory of this process. Call it early; variables set later are never exposed."""
    _erase_environment()
    if sys.platform.startswith("linux"):
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def is_root() -> bool:
    """Whether this process runs as root."""
    return os.geteuid() == 0


def _erase_environment() -> None:
    """Overwrite the initial values of the environment.

    /proc shows the memory that the kernel filled at the start, even if the environment changes later. So each
    value is set again, for which the C library makes a copy, and the original bytes are overwritten.
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
