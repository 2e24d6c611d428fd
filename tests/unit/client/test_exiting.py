"""A program waits for the SDK's native threads before it ends."""

import _thread
import subprocess
import sys
import threading
import time

from holdfast.client.exiting import wait_for_native_threads

ENDING = """
import _thread, threading, time
from holdfast.client.exiting import finish_at_exit

inside = threading.Event()

def answer():
    inside.set()
    time.sleep(0.2)
    print("handed over", flush=True)

finish_at_exit()
finish_at_exit()
_thread.start_new_thread(answer, ())
inside.wait()
"""


def test_it_waits_for_a_thread_that_python_did_not_start() -> None:
    """The wait is over only after a native thread has left Python."""
    inside, left = threading.Event(), []

    def answer() -> None:
        threading.current_thread()  # registers a dummy thread, as a log record does
        inside.set()
        time.sleep(0.1)
        left.append("left")

    _thread.start_new_thread(answer, ())
    inside.wait()
    wait_for_native_threads()
    assert left == ["left"]


def test_a_program_ends_after_its_native_threads() -> None:
    """The interpreter is finalized only after the thread has returned its answer."""
    ran = subprocess.run([sys.executable, "-c", ENDING], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "handed over\n", "")
