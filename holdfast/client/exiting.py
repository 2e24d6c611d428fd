"""Let the Temporal SDK's native threads finish before the interpreter ends.

Such a thread passes the answer of a request to Python, and the program may end as soon as it has the answer. A thread
that is still in Python while the interpreter is finalized aborts the process or blocks it: after printing its results,
the program ends with SIGABRT or SIGSEGV, or not at all.
"""

import atexit
import sys
import threading
import time
from functools import cache

MOST_SECONDS = 3.0
"""Maximum number of seconds by which the end of a program is delayed."""

_LOOK_SECONDS = 0.01
_LOOKS = 5


@cache
def finish_at_exit() -> None:
    """Wait for native threads when the program ends. Called for each connection; it registers once."""
    atexit.register(wait_for_native_threads)


def wait_for_native_threads() -> None:
    """Wait until no native thread has been in Python for a moment, but at most `MOST_SECONDS`."""
    deadline = time.monotonic() + MOST_SECONDS
    quiet = 0
    while quiet < _LOOKS and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)  # releases the interpreter to a thread that waits for it
        quiet = 0 if _native_threads() else quiet + 1


def _native_threads() -> set[int]:
    """Return the threads that run Python code but were not started by Python."""
    # Python makes a dummy for a native thread that requests the current thread, as a log record does.
    own = {each.ident for each in threading.enumerate() if not isinstance(each, threading._DummyThread)}
    return sys._current_frames().keys() - own
