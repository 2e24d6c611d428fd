"""The worker of a demo, one process at a time: starts it as a user would, kills it, restarts it, and stops it with its
servers. Processes are found by id or by their state folder; no other process is affected.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from holdfast.config.programs import base_folder
from holdfast.devstack import processes
from holdfast.devstack.postgres import Postgres
from holdfast.devstack.temporal_server import TemporalServer
from holdfast.devstack.web_ui import WebUI

HOLDFAST = (sys.executable, "-m", "holdfast")
"""The command line, run by this interpreter; in a checkout, from the repository's folder."""

READY_SECONDS = 90.0
"""Time limit for a worker's start: the first start sets up a database."""

_INHERITED = ("HOLDFAST_LLM",)
_FOREIGN = ("HOLDFAST_", "TEMPORAL_", "DATABASE_URL", "PG")


class DemoFailed(Exception):
    """The demo cannot continue; the message gives the reason, and the file with details."""


def environment(home: Path, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of worker and starter: the demo's settings, without settings of other servers."""
    ours = {name: value for name, value in os.environ.items() if name in _INHERITED or not name.startswith(_FOREIGN)}
    return ours | {"HOLDFAST_HOME": str(home), "TEMPORAL_CONFIG_FILE": os.devnull, **settings}


class Workers:
    """Consecutive workers on one state folder.

    Args:
        home: The state folder.
        logs: The folder of their output: `worker-1.log`, `worker-2.log`, …
        settings: Environment variables: catalog, script, and other settings of the demo.
        options: Options of the program `worker` besides `--dev`.
    """

    def __init__(self, home: Path, logs: Path, settings: Mapping[str, str], *, options: Sequence[str] = ()) -> None:
        self.options = ("--dev", *options)
        """The options of every worker."""
        self._home = home
        self._settings = settings
        self._logs = logs
        self._process: subprocess.Popen[bytes] | None = None
        self.started = 0
        """The number of workers started so far, which is also the number of the newest."""

    @property
    def pid(self) -> int:
        """The process id of the newest worker."""
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> Path:
        """The output of the newest worker."""
        return self._logs / f"worker-{self.started}.log"

    def start(self, more: Mapping[str, str] | None = None) -> None:
        """Run a worker with `--dev` in its own session, so that Ctrl-C reaches only the demo, which stops the worker.

        Args:
            more: Environment variables for this worker only.
        """
        self.started += 1
        self._logs.mkdir(parents=True, exist_ok=True)
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(
                [*HOLDFAST, "worker", *self.options],
                cwd=base_folder(),
                env=environment(self._home, {**self._settings, **(more or {})}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    async def ready(self) -> None:
        """Wait until the newest worker is ready.

        Raises:
            DemoFailed: The worker ended, or took longer than `READY_SECONDS`.
        """
        deadline = time.monotonic() + READY_SECONDS
        while b"\nReady" not in self.log.read_bytes():
            if not self.alive():
                raise DemoFailed(f"worker {self.started} ended while starting:\n{processes.tail(self.log)}")
            if time.monotonic() > deadline:
                raise DemoFailed(f"worker {self.started} is not ready after {READY_SECONDS:g} s; see {self.log}")
            await asyncio.sleep(0.02)

    def alive(self) -> bool:
        """Return whether the newest worker runs."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Kill the worker with SIGKILL. Its servers keep running, as they would on other machines."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Stop the worker, which stops its servers; then stop servers left by a killed worker."""
        if self._process is not None and self.alive():
            self._process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(30)
            if self.alive():
                self.kill()
        servers = (WebUI, TemporalServer, Postgres)
        for server in (kind(self._home, report=_silent) for kind in servers):
            if process := server.find():
                server.stop(process)


def _silent(line: str) -> None:
    """Discard a line of progress."""
