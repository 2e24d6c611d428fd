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
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from subprocess import Popen
from urllib.parse import urlencode
from urllib.request import ProxyHandler, Request, build_opener

import psutil

from holdfast.config.programs import setup_command
from holdfast.config.running_stacks import TEMPORAL_DATABASE, option
from holdfast.core.temporal.search_attributes import SEARCH_ATTRIBUTES
from holdfast.devstack import processes
from holdfast.devstack.ports import HOST, Ports
from holdfast.devstack.processes import Report
from holdfast.errors import StackError

NAMESPACE = "default"

# By default, the development server dispatches 20 workflow tasks a second per shard, which costs 100 ms a step, and
# delays retries and timers by up to a second. It also accepts 10,000 signals a run; at 90 KB each, a flood would reach
# the history limit of 50 MB, which ends the run, long before that. And it gives each attempt at a workflow task more
# time than the last, up to ten minutes: a run whose worker was killed in ten attempts would wait for that time to pass.
DYNAMIC_CONFIG: dict[str, int | str] = {
    "history.transferProcessorMaxPollRPS": 2000,
    "history.transferProcessorMaxPollHostRPS": 5000,
    "history.timerProcessorMaxTimeShift": "20ms",
    "history.maximumSignalsPerExecution": 400,
    "history.workflowTaskRetryMaxInterval": "10s",
}

# The server delays the next Temporal run after one that took less than this interval. If it skips that delay, it
# repeats the earlier skips, and timers fire late.
SKIPPING: dict[str, int | str] = {
    "frontend.WorkflowTimeSkippingEnabled": True,
    "history.workflowIdReuseMinimalInterval": "0s",
}
"""Lets every client skip time for any run: for tests, and for trying out later behaviour."""

# The development server reads the search attributes from its database again for each value that a run sets. Other
# servers cache them for a minute. This one may, too, because it registers ours before it answers.
CACHED_ATTRIBUTES: dict[str, int | str] = {"system.forceSearchAttributesCacheRefreshOnRead": False}
"""Saves an eighth of the server's CPU when a thousand runs wake."""

# A queue of the development server has four partitions, which cost a sixth of its CPU. A server that already has tasks
# cannot do without the other three: they may have some.
ONE_PARTITION: dict[str, int | str] = {
    "matching.numTaskqueueReadPartitions": 1,
    "matching.numTaskqueueWritePartitions": 1,
}
"""For a server that begins without data, and whose tests each have a queue of their own."""

HTTP_HOSTS = "frontend.httpAllowedHosts"


class TemporalServer:
    """The Temporal server of one state folder. `started` is the process that this object started, if any.

    Args:
        home: The state folder.
        report: Receives lines of progress.
        config: The server's dynamic configuration.
    """

    def __init__(self, home: Path, *, report: Report, config: Mapping[str, int | str] = DYNAMIC_CONFIG) -> None:
        self._database = home / TEMPORAL_DATABASE
        self.log = home / "logs" / "temporal.log"
        self._report = report
        self._config = config
        self.started: psutil.Process | None = None

    def find(self, hint: int | None = None) -> psutil.Process | None:
        """Return the running server of this folder, if any; `hint` is its recorded process id."""
        return processes.find("temporal", str(self._database), hint=hint)

    def web_ui(self, hint: int | None = None) -> str | None:
        """Return the address of the running server's Web UI, as `ip:port`; None if no server runs or names one."""
        running = self.find(hint)
        argv = processes.command_line(running) if running else []
        ip, port = option(argv, "--ui-ip"), option(argv, "--ui-port")
        return f"{ip}:{port}" if ip and port else None

    def allows_skipping(self, hint: int | None = None) -> bool:
        """Return whether the running server lets clients skip time."""
        running = self.find(hint)
        return running is not None and set(_config_options(SKIPPING)) <= set(processes.command_line(running))

    def ensure(
        self,
        preferred: Ports,
        *,
        web_ui: str,
        hint: int | None,
        owned: bool,
        deadline: float,
        cancelled: threading.Event,
    ) -> tuple[int, Ports]:
        """Start the server unless it runs; return its process id and ports once it answers.

        `web_ui` is the address for its Web UI, as `ip:port`, behind our guard.

        Only an owner replaces a running server that was started with other arguments, such as by another release.
        `deadline` is in seconds of `time.monotonic()`.

        Raises:
            StackError: The binary is missing, or the server ended or did not answer in time.
        """
        running = self.find(hint)
        if running is not None:
            argv = processes.command_line(running)
            ports = _ports(argv, ui=preferred.ui)
            secret = _secret_host(argv)
            expected = self._argv("", ports, web_ui=web_ui, secret_host=secret) if ports else []
            is_current = argv[1:] == expected[1:] and self._database.exists()
            if ports and (is_current or not owned):
                try:
                    self._wait_until_ready(running.pid, ports, secret, deadline=deadline, cancelled=cancelled)
                    return running.pid, ports
                except StackError:
                    if self.find(running.pid) is not None:
                        raise
                    # It has ended meanwhile, perhaps killed just before: start a new one.
            else:
                self._report(f"Temporal (pid {running.pid}) was started with other settings; restarting it")
                self.stop(running)
        return self._start(preferred, web_ui, deadline=deadline, cancelled=cancelled)

    def stop(self, process: psutil.Process) -> None:
        """Shut the server down cleanly, which takes about a second."""
        processes.stop(process, [signal.SIGTERM], grace=15)

    def _start(
        self, preferred: Ports, web_ui: str, *, deadline: float, cancelled: threading.Event
    ) -> tuple[int, Ports]:
        binary = find_binary()
        self._check_database()
        while True:
            ports = preferred.or_free(report=self._report)
            secret = f"{secrets.token_hex(16)}.invalid"
            argv = self._argv(binary, ports, web_ui=web_ui, secret_host=secret)
            process = processes.spawn(argv, self.log, environ=processes.environment())
            self.started = processes.find_child(process)
            try:
                self._wait_until_ready(
                    process.pid, ports, secret, deadline=deadline, cancelled=cancelled, child=process
                )
                return process.pid, ports
            except StackError:
                # Another process may have taken a port since our check: then try again.
                if process.poll() is None or ports.all_free():
                    raise

    def _argv(self, binary: str, ports: Ports, *, web_ui: str, secret_host: str) -> list[str]:
        ui_ip, _, ui_port = web_ui.rpartition(":")
        argv = [binary, "server", "start-dev", "--ip", HOST, "--port", str(ports.grpc)]
        argv += ["--ui-ip", ui_ip, "--ui-port", ui_port, "--http-port", str(ports.http)]
        # A web page can post to any port of this machine, and the HTTP API accepts that. A page cannot guess this host.
        argv += ["--dynamic-config-value", f"{HTTP_HOSTS}={json.dumps([secret_host])}"]
        argv += ["--db-filename", str(self._database), "--ui-disable-news-fetch", "--log-level", "warn"]
        # As fast as in memory, and kill -9 loses nothing, because the operating system holds the write-ahead log.
        argv += ["--sqlite-pragma", "journal_mode=wal", "--sqlite-pragma", "synchronous=normal"]
        argv += _config_options({**self._config, **CACHED_ATTRIBUTES})
        for name, kind in SEARCH_ATTRIBUTES.items():
            argv += ["--search-attribute", f"{name}={kind}"]
        return argv

    def _check_database(self) -> None:
        """Check that the server can use its database file; remove one whose first set-up was interrupted."""
        if any(character in str(self._database) for character in "?#%"):
            # The server passes the path to SQLite as a URL without quoting it, and would write to another file.
            raise StackError(
                f"Temporal's database cannot be at {self._database}: the path contains one of ? # %. "
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
            complete = True  # damaged, not incomplete: we keep it, and the server reports the damage
        if not complete:
            # The namespace is created before anything can be stored, so no data is lost.
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
            processes.pause_while_starting(where, pid, self.log, ended=ended, deadline=deadline, cancelled=cancelled)


def _answers(ports: Ports, secret_host: str) -> bool:
    """Return whether the namespace can be queried by every search attribute, and gRPC accepts connections.

    The query uses HTTP, which needs no Temporal client, rather than the Web UI's port, which opens a second later.
    """
    query = " AND ".join(f"{name} IS NULL" for name in SEARCH_ATTRIBUTES)
    path = f"/api/v1/namespaces/{NAMESPACE}/workflows?{urlencode({'pageSize': 1, 'query': query})}"
    try:
        request = Request(f"http://{HOST}:{ports.http}{path}", headers={"Host": secret_host})
        with build_opener(ProxyHandler({})).open(request, timeout=5):
            pass
        with socket.create_connection((HOST, ports.grpc), timeout=5):
            return True
    except OSError:  # includes urllib's errors
        return False


def _config_options(config: Mapping[str, int | str]) -> list[str]:
    return [word for key, value in config.items() for word in ("--dynamic-config-value", f"{key}={json.dumps(value)}")]


def _ports(argv: list[str], *, ui: int) -> Ports | None:
    """Return the ports of a running server; None if its command line does not name all of them."""
    grpc, http = (option(argv, name) or "" for name in ("--port", "--http-port"))
    return Ports(grpc=int(grpc), ui=ui, http=int(http)) if grpc.isdigit() and http.isdigit() else None


def _secret_host(argv: list[str]) -> str:
    """Return the only `Host` that a running server's HTTP API accepts; the server's address if it accepts any."""
    for argument in argv:
        name, _, value = argument.partition("=")
        if name == HTTP_HOSTS:
            return str(json.loads(value)[0])
    return HOST


def find_binary() -> str:
    """Return the path of the `temporal` program.

    Raises:
        StackError: The program is not installed.
    """
    # First beside the interpreter: that program belongs to our installation, whose folder may be missing from PATH.
    folder = str(Path(sys.executable).parent)
    binary = shutil.which("temporal", path=os.pathsep.join([folder, os.environ.get("PATH", os.defpath)]))
    if binary is None:
        raise StackError(f"The `temporal` program is neither in {folder} nor on PATH: {setup_command('embedded')}")
    return binary
