"""The throwaway Temporal server that a process starts once, and that stops when the process ends."""

import atexit
import logging
import os
import subprocess
import sys
import threading
from dataclasses import dataclass

from holdfast.core.mac.seals import FleetKeys
from holdfast.errors import StackError

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Server:
    """A running server."""

    address: str
    """`host:port`."""
    seals: FleetKeys
    """The fleet key of this process, which no other process has."""
    process: subprocess.Popen[str]


_STARTING = threading.Lock()
_running: list[Server] = []
"""At most one."""


def shared_server() -> Server:
    """Return this process's server; start it if it is not running. Blocks while it starts.

    Raises:
        StackError: It cannot be started.
    """
    with _STARTING:
        if _running and _running[0].process.poll() is not None:
            _, errors = _running.pop().process.communicate()
            _log.error("the throwaway Temporal server has ended, and is replaced: %s", errors.strip())
        if not _running:
            _running.append(_start())
        return _running[0]


def _start() -> Server:
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast.devstack.throwaway"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        start_new_session=True,  # a Ctrl-C in the terminal must not reach it before the tests have cleaned up
        text=True,
    )
    assert process.stdout
    address = process.stdout.readline().strip()
    if not address:
        _, errors = process.communicate()
        raise StackError(f"no Temporal server could be started: {errors.strip()}")
    atexit.register(process.communicate)  # closes its input, and waits for its end
    return Server(address, FleetKeys({"test": os.urandom(32)}), process)
