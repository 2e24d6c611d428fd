"""The embedded stack: a real Temporal server and a real PostgreSQL under one state folder.

1. There is at most one stack per state folder: it starts and stops under the lock `<home>/stack.lock`.
2. Servers that already run for this folder are adopted, never started twice.
3. The process that holds `<home>/owner.lock` owns the stack, and restarts what dies; others attach. The kernel releases
   the lock when the owner dies, and one of the others becomes the owner (`supervisor`).
4. All users of the stack share `<home>/users.lock`. The last one stops the servers, and only those of this folder: a
   program that ends does not stop them under another one.
"""

import os
import threading
import time
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import IO, Any, Protocol

import psutil

from holdfast.config.stack_file import Stack, read_stack, write_stack
from holdfast.config.state_folder import make_private
from holdfast.devstack.locks import exclusively, lock, unlock
from holdfast.devstack.ports import HOST, Ports
from holdfast.devstack.postgres import Postgres
from holdfast.devstack.processes import Report
from holdfast.devstack.temporal_server import DYNAMIC_CONFIG, NAMESPACE, SKIPPING, TemporalServer, find_binary
from holdfast.devstack.web_ui import WebUI, hidden_address
from holdfast.encryption.fleet_keys import ensure_key
from holdfast.errors import StackError


class _Server(Protocol):
    def find(self, hint: int | None = None) -> psutil.Process | None: ...

    def stop(self, process: psutil.Process) -> None: ...


def _silent(line: str) -> None:
    """Discard a line of progress."""


class DevStack:
    """Temporal and PostgreSQL under the state folder `home`, which is created if missing.

    Args:
        home: The state folder; its content survives any kill, and a later start resumes from it.
        report: Receives lines of progress, such as a port in use or the first set-up.
        usual: The ports to use if none are recorded; a port in use is replaced.
        skip_time: Whether Temporal lets its clients skip time.
        timeout: Seconds for the servers to answer, and to wait for another process that is starting them.
    """

    def __init__(
        self,
        home: Path,
        *,
        report: Report = _silent,
        usual: Ports | None = None,
        skip_time: bool = False,
        timeout: float = 60.0,
    ) -> None:
        # Processes are recognised by absolute paths on their command lines, so all callers need the same spelling.
        self.home = home.expanduser().resolve()
        self._report = report
        self._usual = usual or Ports()
        self._skip_time = skip_time
        self._timeout = timeout
        self._ownership: IO[bytes] | None = None
        self._use: IO[bytes] | None = None

    @property
    def owned(self) -> bool:
        """Whether this object restarts servers that die; False if attached to a stack that another process owns."""
        return self._ownership is not None

    def ownerless(self) -> bool:
        """Whether the owner has ended, or left: `start` then makes this object the owner."""
        if self.owned:
            return False
        try:
            with (self.home / "owner.lock").open("rb") as file:
                return lock(file)
        except OSError:  # the folder was deleted
            return False

    def start(self) -> Stack:
        """Start the servers that are not running, adopt those that are, and return the stack. May be called again.

        Blocks until the servers answer: call it from a thread in asynchronous code.

        Raises:
            StackError: The folder cannot be written, a binary is missing, a server failed to start, or another process
                has started the stack without `skip_time`, which is set here.
        """
        self._prepare_home()
        with exclusively(self.home, timeout=self._timeout, report=self._report):
            joined, claimed = self._join(), not self.owned and self._claim()
            try:
                try:
                    return self._start()
                except OSError as error:
                    raise StackError(
                        f"The stack in {self.home} cannot start: {error}. "
                        "Check the permissions and free space there, or set HOLDFAST_HOME to another folder."
                    ) from error
            except BaseException:
                if joined and self._leave() and claimed:  # otherwise adopted servers would have no owner
                    self._stop()
                if claimed:
                    self._release()
                raise

    def running(self) -> bool:
        """Return whether all servers run; cheap while they do."""
        return all(process is not None for _, process in self._servers(read_stack(self.home)))

    def stop(self) -> None:
        """Leave the stack, and stop the servers of this folder if nobody else uses them. May be called again.

        Raises:
            StackError: Another process has been starting or stopping the stack for longer than `timeout`.
        """
        if self._use is None:
            return
        try:
            if self.home.exists():
                with exclusively(self.home, timeout=self._timeout, report=self._report):
                    last = self._leave()
                    if last and (self.owned or self._claim()):
                        self._stop()
                    elif self.owned:
                        self._report(f"the servers in {self.home} keep running for another process that uses them")
            elif self.owned:  # the folder was deleted; its servers must not stay behind
                self._stop()
        finally:
            self._leave()
            self._release()

    def _start(self) -> Stack:
        recorded = read_stack(self.home)
        temporal = self._temporal()
        postgres = Postgres(self.home, report=self._report)
        web_ui = WebUI(self.home, report=self._report)
        server_pid, database_pid, guard_pid = _pids(recorded)
        preferred = self._usual
        if recorded is not None:
            preferred = Ports(grpc=recorded.temporal_port, ui=recorded.ui_port, http=recorded.http_port)
        cancelled = threading.Event()
        deadline = time.monotonic() + self._timeout
        try:
            if temporal.find(server_pid) is None:
                find_binary()  # first, so that no other server's error hides its helpful one
            behind = temporal.web_ui(server_pid) or hidden_address()
            with ThreadPoolExecutor(3, thread_name_prefix="devstack") as pool:
                try:
                    database = pool.submit(postgres.ensure, hint=database_pid, deadline=deadline, cancelled=cancelled)
                    server = pool.submit(
                        temporal.ensure,
                        preferred,
                        web_ui=behind,
                        hint=server_pid,
                        owned=self.owned,
                        deadline=deadline,
                        cancelled=cancelled,
                    )
                    guard = pool.submit(
                        web_ui.ensure, preferred.ui, behind, hint=guard_pid, deadline=deadline, cancelled=cancelled
                    )
                    starting: list[Future[Any]] = [database, server, guard]
                    for finished in wait(starting, return_when=FIRST_EXCEPTION).done:
                        finished.result()
                except BaseException:
                    cancelled.set()  # the other servers can stop waiting
                    raise
            postgres_pid, database_url = database.result()
            temporal_pid, ports = server.result()
            web_ui_pid, ui_port = guard.result()
            stack = Stack(
                temporal_address=f"{HOST}:{ports.grpc}",
                namespace=NAMESPACE,
                ui_url=f"http://{HOST}:{ui_port}",
                database_url=database_url,
                temporal_port=ports.grpc,
                ui_port=ui_port,
                http_port=ports.http,
                fleet_keys=str(ensure_key(self.home)),
                skip_time=temporal.allows_skipping(temporal_pid),
                temporal_pid=temporal_pid,
                postgres_pid=postgres_pid,
                web_ui_pid=web_ui_pid,
                owner_pid=os.getpid() if self.owned else recorded.owner_pid if recorded else None,
            )
            if self._skip_time and not stack.skip_time:
                raise StackError(
                    f"Process {stack.owner_pid} has started the stack in {self.home}, and without --skip-time. "
                    "Stop that process first, or leave out --skip-time."
                )
            write_stack(self.home, stack)
        except BaseException:
            _stop_all([(temporal, temporal.started), (postgres, postgres.started), (web_ui, web_ui.started)])
            raise
        return stack

    def _stop(self) -> None:
        recorded = read_stack(self.home)
        _stop_all(self._servers(recorded))
        if recorded is not None:
            write_stack(self.home, recorded.stopped())

    def _temporal(self) -> TemporalServer:
        config = {**DYNAMIC_CONFIG, **SKIPPING} if self._skip_time else DYNAMIC_CONFIG
        return TemporalServer(self.home, report=self._report, config=config)

    def _servers(self, recorded: Stack | None) -> "list[tuple[_Server, psutil.Process | None]]":
        """Return the servers of this folder, each with its process if it runs."""
        postgres, web_ui = Postgres(self.home, report=self._report), WebUI(self.home, report=self._report)
        servers: tuple[_Server, ...] = (self._temporal(), postgres, web_ui)
        return [(server, server.find(pid)) for server, pid in zip(servers, _pids(recorded), strict=True)]

    def _prepare_home(self) -> None:
        try:
            make_private(self.home, report=self._report)
            for name in ("stack.lock", "owner.lock", "users.lock"):
                os.close(os.open(self.home / name, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600))
        except OSError as error:
            raise StackError(
                f"The state folder {self.home} cannot be written: {error.strerror or error}. "
                "Set HOLDFAST_HOME to a folder that you can write to."
            ) from error

    def _join(self) -> bool:
        """Share the stack; return whether this object did not do so before."""
        if self._use is not None:
            return False
        self._use = (self.home / "users.lock").open("ab")
        lock(self._use, shared=True)
        return True

    def _leave(self) -> bool:
        """Use the stack no longer; return whether nobody else does."""
        if self._use is None:
            return False
        with self._use as file:
            self._use = None
            alone = lock(file)
            unlock(file)
        return alone

    def _claim(self) -> bool:
        """Become the owner unless another process owns the stack; the kernel releases the lock when its holder ends."""
        file = (self.home / "owner.lock").open("ab")
        if lock(file):
            self._ownership = file
            return True
        file.close()
        return False

    def _release(self) -> None:
        if self._ownership is not None:
            unlock(self._ownership)
            self._ownership.close()
            self._ownership = None


def _pids(recorded: Stack | None) -> tuple[int | None, int | None, int | None]:
    """Return the recorded process ids of Temporal, PostgreSQL and the Web UI's guard."""
    return (recorded.temporal_pid, recorded.postgres_pid, recorded.web_ui_pid) if recorded else (None, None, None)


def _stop_all(servers: list[tuple[_Server, psutil.Process | None]]) -> None:
    """Stop the running servers concurrently: each takes about a second."""
    with ThreadPoolExecutor(len(servers)) as pool:
        stopping = [pool.submit(server.stop, process) for server, process in servers if process is not None]
    for stopped in stopping:
        stopped.result()
