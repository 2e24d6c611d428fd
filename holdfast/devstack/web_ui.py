"""Finds, starts and stops the guard in front of the embedded Web UI (`web_ui_guard.py`), like the servers.

The Web UI itself listens at an address that no web page can find: on a random one of 16 million loopback addresses
(on Linux), at a free port. Only the guard listens on the well-known port.
"""

import secrets
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from subprocess import Popen

import psutil

from holdfast.config.running_stacks import option
from holdfast.devstack import processes
from holdfast.devstack.ports import HOST, any_free, is_free, pick
from holdfast.devstack.processes import Report
from holdfast.errors import StackError

PROGRAM = Path(__file__).with_name("web_ui_guard.py")


def hidden_address() -> str:
    """Return a random address for the Web UI itself, as `ip:port`."""
    ip = HOST
    if sys.platform.startswith("linux"):  # other systems have only 127.0.0.1
        ip = ".".join(map(str, (127, 1 + secrets.randbelow(254), secrets.randbelow(256), 2 + secrets.randbelow(252))))
    return f"{ip}:{any_free()}"


class WebUI:
    """The guard of one state folder. `started` is the process that this object started, if it did."""

    def __init__(self, home: Path, *, report: Report) -> None:
        self._home = home
        self._log = home / "logs" / "web-ui.log"
        self._report = report
        self.started: psutil.Process | None = None

    def find(self, hint: int | None = None) -> psutil.Process | None:
        """Return the running guard of this folder; `hint` is its recorded process id."""
        return processes.find("python", f"--for={self._home}", hint=hint)

    def ensure(
        self, port: int, behind: str, *, hint: int | None, deadline: float, cancelled: threading.Event
    ) -> tuple[int, int]:
        """Start the guard unless it runs; return its process id and port once it listens.

        Args:
            port: The preferred port; another one is used if it is not free.
            behind: The address of the Web UI itself, as `ip:port`.
            hint: The guard's recorded process id.
            deadline: In seconds of `time.monotonic()`.
            cancelled: Set when the caller no longer waits.

        Raises:
            StackError: The guard ended, or did not listen in time.
        """
        running = self.find(hint)
        if running is not None:
            argv = processes.command_line(running)
            held = option(argv, "--port") or ""
            if held.isdigit() and argv[1:] == self._argv(int(held), behind)[1:]:
                try:
                    self._wait(running.pid, int(held), deadline=deadline, cancelled=cancelled)
                    return running.pid, int(held)
                except StackError:
                    if self.find(running.pid) is not None:
                        raise
                    # It has ended meanwhile, perhaps killed just before: start a new one.
            else:
                self.stop(running)
        while True:
            port = pick(port, "the Web UI", report=self._report)
            process = processes.spawn(self._argv(port, behind), self._log, environ=processes.environment())
            self.started = processes.find_child(process)
            try:
                self._wait(process.pid, port, deadline=deadline, cancelled=cancelled, child=process)
                return process.pid, port
            except StackError:
                # Another process may have taken the port since our check: then try again.
                if process.poll() is None or is_free(port):
                    raise

    def stop(self, process: psutil.Process) -> None:
        """Stop the guard."""
        processes.stop(process, [signal.SIGTERM], grace=3)

    def _argv(self, port: int, behind: str) -> list[str]:
        program = [sys.executable, "-I", str(PROGRAM)]  # isolated from PYTHON… variables
        return [*program, f"--for={self._home}", "--ip", HOST, "--port", str(port), "--to", f"http://{behind}"]

    def _wait(
        self,
        pid: int,
        port: int,
        *,
        deadline: float,
        cancelled: threading.Event,
        child: Popen[bytes] | None = None,
    ) -> None:
        while True:
            # Checks its own socket: if two stacks start at once, another guard may answer at that port.
            with suppress(psutil.Error):
                sockets = psutil.Process(pid).net_connections("tcp")
                if any(each.status == psutil.CONN_LISTEN and each.laddr.port == port for each in sockets):
                    return
            where = f"The guard of the Web UI (pid {pid}, port {port})"
            # A child is not checked by its command line, which a new process lacks at first.
            ended = child.poll() is not None if child else self.find(pid) is None
            processes.pause_while_starting(where, pid, self._log, ended=ended, deadline=deadline, cancelled=cancelled)
